"""The figures of the page, each with the sentence that it supports."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import ParseError

from markupsafe import Markup, escape

from analysis.describe.parts import Picture
from analysis.render.html import anchor

# Figures as a part of the page: names of their own, nothing that runs, nothing from elsewhere.


_SVG, _XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
# What a drawing is made of. A style sheet would hold for the whole page, everything else could run or load.
_DRAWN = frozenset(
    "svg g defs path rect circle ellipse line polyline polygon text tspan use clipPath "
    "linearGradient radialGradient stop title desc marker pattern symbol".split()
)
_REFERENCE = re.compile(r"url\(\s*['\"]?#([^)'\"\s]+)['\"]?\s*\)")


def inline(svg: str, prefix: str, title: str, description: str) -> Markup:
    """A drawing to stand in a page.

    Args:
        svg: the file.
        prefix: of its ids, so that those of several figures differ.
        title: what it shows, for those who hear the page.
        description: what it supports.

    Raises xml.etree.ElementTree.ParseError for what is no XML.
    """
    root = ET.fromstring(svg.encode())
    parts = [
        f'<svg class="figure" role="img" aria-labelledby="{prefix}-title {prefix}-desc"'
        f"{_attributes(root, prefix, without=('width', 'height', 'class', 'role'))}>",
        f'<title id="{prefix}-title">{escape(title)}</title>',
        f'<desc id="{prefix}-desc">{escape(description)}</desc>',
        *(piece for child in root for piece in _pieces(child, prefix)),
        "</svg>",
    ]
    return Markup("".join(parts))


def _pieces(element: ET.Element, prefix: str) -> Iterator[str]:
    name = _local(element.tag)
    if name not in _DRAWN or name == "svg":
        return
    inner = [piece for child in element for piece in (*_pieces(child, prefix), escape(child.tail or ""))]
    text = escape(element.text or "")
    if name in ("text", "tspan", "title", "desc"):
        inner = [text, *inner]
    else:
        inner = [piece for piece in inner if piece.strip()]  # white space of the file's layout
    yield f"<{name}{_attributes(element, prefix)}>{''.join(inner)}</{name}>"


def _attributes(element: ET.Element, prefix: str, without: tuple[str, ...] = ()) -> str:
    found = []
    for key, value in element.attrib.items():
        name = _local(key)
        if name in without or name.lower().startswith("on") or "javascript:" in value.lower():
            continue
        if name == "id":
            value = f"{prefix}-{value}"
        elif name == "href":
            if not value.startswith("#"):
                continue
            value = f"#{prefix}-{value[1:]}"
        elif key.startswith("{"):  # of another vocabulary
            continue
        value = _REFERENCE.sub(lambda match: f"url(#{prefix}-{match[1]})", value)
        if "url(" in _REFERENCE.sub("", value):
            continue
        found.append(f' {escape(name)}="{escape(value)}"')
    return "".join(found)


def _local(name: object) -> str:
    """The name without its vocabulary; of SVG and XLink only, and of nothing that is no element."""
    if not isinstance(name, str):
        return ""
    space, _, local = name.rpartition("}")
    return local if space in ("", f"{{{_SVG}", f"{{{_XLINK}") else ""


@dataclass(frozen=True)
class Figure:
    """A figure of the page."""

    id: str  # its place
    title: str  # one line
    sentence: str  # what it supports
    more: str  # details, in a shorter line
    drawing: Markup | None  # ready to stand in the page; None if there is none
    undefined: str  # why there is none
    file: str  # path beside the page


def of_pictures(pictures: Sequence[Picture]) -> Iterator[Figure]:
    """The figures of a part; none of what a study need not have."""
    for one in pictures:
        place, drawing, undefined = f"figure-{anchor(one.name)}", None, one.undefined
        if one.svg is not None:
            try:
                drawing = inline(one.svg, place, one.title, one.sentence)
            except ParseError as error:
                undefined = f"its file cannot be read: {error}"
        if drawing is not None or undefined:
            file = f"figures/{one.name}.svg"
            yield Figure(place, one.title, one.sentence, one.more, drawing, undefined, file)
