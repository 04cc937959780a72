"""Templates of the pages: everything is escaped, and only the page's own script may run."""

import base64
import hashlib
import re
import unicodedata
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from analysis.core.verdict_text import word
from analysis.render.page_tables import LONGEST
from kvexp.errors import printable

# What no line is broken in: an interval, a number with its per cent sign, a name of parts.
UNBROKEN = re.compile(r"\[-?[\d.]+, -?[\d.]+\]|[\d.]+ %|[^\s,;:()\[\]]+-[^\s,;:()\[\]]+")
TEMPLATES = Path(__file__).parent / "templates"


def render(name: str, style: str, script: str, **values: Any) -> str:
    """One page.

    Args:
        name: of the template.
        style: name of a .css file, which is put into the page behind `common.css`.
        script: name of a .js file, which follows `common.js`; the page's policy admits them and nothing else.
        values: what the template shows. Text is made printable and escaped; only `Markup` is not.
    """
    code = _read("common.js") + _read(script)
    return (
        _environment()
        .get_template(name)
        .render(
            style=Markup(_read("common.css") + _read(style)),
            script=Markup(code),
            script_hash=_digest(code),
            **values,
        )
    )


def _read(name: str) -> str:
    """A style or script of ours, which must not end the element that it stands in."""
    text = (TEMPLATES / name).read_text(encoding="utf-8")
    if "</" in text or "<!--" in text:
        raise ValueError(f"{name} holds '</' or '<!--', which an inline element must not")
    return text


def _digest(text: str) -> str:
    """What a Content-Security-Policy calls a script by."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@cache
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_fit,
    )
    made.filters["anchor"] = anchor
    made.filters["whole"] = whole
    made.filters["truth"] = word
    return made


def _fit(value: Any) -> Any:
    """Text without characters that are invisible or turn the reading direction; None is no word.

    Line breaks are as good as spaces in a page; other control characters are shown as escapes.
    """
    if value is None:
        return ""
    if isinstance(value, str) and not isinstance(value, Markup):
        return printable(value.replace("\r\n", " ").replace("\n", " ").replace("\t", " "))
    return value


def whole(text: str) -> Markup:
    """Text in which intervals and short names stay on one line."""
    made, end = Markup(""), 0
    shown = str(_fit(text))
    for match in UNBROKEN.finditer(shown):
        if len(match[0]) <= LONGEST:
            made += escape(shown[end : match.start()]) + Markup('<span class="w">{}</span>').format(match[0])
            end = match.end()
    return made + escape(shown[end:])


def anchor(text: str) -> str:
    """An id for a place in the page: different texts differ, and no text ends an attribute."""
    text = unicodedata.normalize("NFC", text)
    return "".join(c if c.isascii() and (c.isalnum() or c in "-_") else f".{ord(c):x}." for c in text)
