"""The figures of the page, each with the sentence that it supports."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import ParseError

from markupsafe import Markup, escape

from analysis.core.estimates import Estimate
from analysis.describe.attention.describe import Attention
from analysis.describe.attention.errors import ESTIMATORS
from analysis.describe.attention.figures import FIGURES
from analysis.describe.attention.rare import Rare
from analysis.describe.parts import Picture
from analysis.describe.table import budget_words, digits
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


NO_BREAK = "\N{NO-BREAK SPACE}"
Words = tuple[str, str]  # the sentence that a figure supports, and details in a shorter line


@dataclass(frozen=True)
class Figure:
    """A figure of the page.

    Attributes:
        id: its place.
        title: one line.
        sentence: what it supports.
        more: details, in a shorter line.
        drawing: ready to stand in the page; None if there is none.
        undefined: why there is none.
        file: path beside the page.
    """

    id: str
    title: str
    sentence: str
    more: str
    drawing: Markup | None
    undefined: str
    file: str


def of_pictures(pictures: Sequence[Picture]) -> Iterator[Figure]:
    """The figures of a part."""
    for one in pictures:
        yield _figure(one.name, one.title, (one.sentence, one.more), one.svg, one.undefined)


def of_attention(one: Attention, files: Mapping[str, str | None]) -> Iterator[Figure]:
    """The figures of an attention suite, out of the files that were drawn."""
    for name in FIGURES if one.budgets else ():
        svg = files.get(f"figures/{one.name}.{name}.svg")
        if svg is not None:
            title, words = _TITLES[name], _WORDS[name](one)
            yield _figure(f"{one.name}.{name}", f"{title}, {one.name}", words, svg, "")


def _figure(name: str, title: str, words: Words, svg: str | None, undefined: str) -> Figure:
    place, drawing = f"figure-{anchor(name)}", None
    if svg is not None:
        try:
            drawing = inline(svg, place, title, words[0])
        except ParseError as error:
            undefined = f"its file cannot be read: {error}"
    return Figure(place, title, *words, drawing, undefined, f"figures/{name}.svg")


def _scatter(one: Attention) -> Words:
    promise = "" if one.promised is None else f" ({percent(one.promised)} are promised)"
    return (
        f"The certificate, computed from retained tokens alone, covers {_span(one, 'coverage', percent)} of "
        f"the cells{promise}.",
        f"It ranks them by their true error: Spearman {_span(one, 'spearman', share)}; its median is "
        f"{_span(one, 'ratio', number)} times the median error.",
    )


def _errors(one: Attention) -> Words:
    both = [(row.hajek.value, row.topk.value) for row in one.budgets]
    known = [(poisson, topk) for poisson, topk in both if poisson is not None and topk is not None]
    lower = sum(poisson < topk for poisson, topk in known)
    rows = [
        f"{budget_of(row.budget)} {' / '.join(_value(getattr(row, name), number) for name in ESTIMATORS)}"
        for row in one.budgets
    ]
    return (
        f"Poisson's median error lies below that of top-k at {lower} of {len(known)} budgets.",
        f"{' / '.join(ESTIMATORS.values())}: {'; '.join(rows)}.",
    )


def _calibration(one: Attention) -> Words:
    known = [row for row in one.calibration if row.coverage.value is not None]
    kept = [row for row in known if (row.coverage.value or 0.0) >= 1 - row.delta]
    broken = sorted({row.delta for row in known} - {row.delta for row in kept})
    never = f"At no budget for delta = {', '.join(f'{d:g}' for d in broken)}." if broken else ""
    counts = f"{len(kept)} of {len(known)} combinations of delta and budget"
    return f"Coverage is at least the promised 1 - delta in {counts}.", never


def _layers(one: Attention) -> Words:
    known = [
        (row.coverage.value, row.layer, row.budget) for row in one.layers if row.coverage.value is not None
    ]
    if not known:
        return "Coverage by layer is undefined.", ""
    low, high = min(known), max(known)
    return (
        f"Coverage is lowest in layer {low[1]} ({percent(low[0])} at budget {budget_of(low[2])}) and highest "
        f"in layer {high[1]} ({percent(high[0])} at {budget_of(high[2])}).",
        "",
    )


def _rare(one: Attention) -> Words:
    """The least covered share of each budget, however few cells it has, beside the lowest share."""
    least, first = list[str](), list[str]()
    for budget in dict.fromkeys(row.budget for row in one.rare):
        known = [row for row in one.rare if row.budget == budget and row.coverage.value is not None]
        if known:
            worst = min(known, key=lambda row: row.coverage.value or 0.0)
            where = f"share {worst.low:g} to {worst.high:g}, budget {budget_of(budget)}"
            least.append(f"{_covered(worst)} ({where})")
            first.append(f"{_covered(known[0])} at {budget_of(budget)}")
    share_of = "the share of attention on tokens that were all but sure to go (pi < 0.001)"
    if not least:
        return f"Coverage by {share_of} is undefined.", ""
    return (
        f"By {share_of}, coverage is at worst {', '.join(least)}.",
        f"Where that share is lowest: {', '.join(first)}.",
    )


def _covered(row: Rare) -> str:
    cells = f"{row.cells:,} cell" + "s" * (row.cells != 1)
    return f"{_value(row.coverage, percent)} of {cells}"


def _worlds(one: Attention) -> Words:
    same, above = list[str](), list[str]()
    for row in one.demonstrations:
        exceeds = sum(world.certificate_exceeds for world in row.worlds)
        rise = "an undefined multiple of" if row.median_rise is None else f"{number(row.median_rise)} times"
        same.append(
            f"{rise} the unchanged one ({row.change}, {row.identical:,} of {row.compared:,} the same)"
        )
        above.append(f"{exceeds} of {len(row.worlds)} worlds ({row.change})")
    return (
        "Values of evicted tokens are changed and all that top-k can compute stays the same bytes, (prompt, "
        f"layer) by (prompt, layer), while its largest error is in the median cell {', '.join(same)}.",
        f"Poisson's mean certificate exceeds its mean error in {', '.join(above)}.",
    )


_TITLES = {
    "scatter": "Certificate against true error, cell by cell",
    "errors": "Errors of four estimators",
    "calibration": "Coverage at other values of delta",
    "layers": "Coverage and error by layer",
    "rare": "Coverage where attention lies on unlikely tokens",
    "worlds": "What top-k cannot see",
}
_WORDS: Mapping[str, Callable[[Attention], Words]] = {
    "scatter": _scatter,
    "errors": _errors,
    "calibration": _calibration,
    "layers": _layers,
    "rare": _rare,
    "worlds": _worlds,
}


def percent(value: float) -> str:
    """A share: 12.5 %, on one line."""
    return f"{100 * value:.3g}{NO_BREAK}%"


def budget_of(value: float) -> str:
    """A budget with all its digits: 12.5 %, on one line."""
    return budget_words(value).replace(" ", NO_BREAK)


def share(value: float) -> str:
    """With three decimals."""
    return digits(value, "share")


def number(value: float) -> str:
    """With three significant digits."""
    return digits(value, "number")


def _value(found: Estimate, form: Callable[[float], str]) -> str:
    return "undefined" if found.value is None else form(found.value)


def _span(one: Attention, name: str, form: Callable[[float], str]) -> str:
    """Smallest to largest over budgets, of what is defined."""
    values = [found for row in one.budgets if (found := getattr(row, name).value) is not None]
    if not values:
        return "an undefined part" if form is percent else "undefined"
    low, high = form(min(values)), form(max(values))
    return low if low == high else f"{low} to {high}"
