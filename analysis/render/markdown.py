"""Markdown: the table as people see it, what its columns mean, and what is undefined."""

import re
from collections.abc import Iterator

from analysis.describe.table import Table
from kvexp.errors import printable

ESCAPES = str.maketrans({sign: f"\\{sign}" for sign in "\\|`*_~$"} | {"&": "&amp;", "<": "&lt;", ">": "&gt;"})
LINK = re.compile(r"\](?=\s*[(\[:])")  # the end of a link's words or of a name that a link can have
# What is made a link without any brackets: schemes, www. and mail addresses. A comment ends the word.
BARE = re.compile(r"(?<=[A-Za-z]):(?=[^\s])|(?<=www)\.|(?<=[\w.+-])@(?=\w)", re.IGNORECASE)
CUT = "<!-- -->"


def to_markdown(table: Table) -> str:
    """The whole file."""
    return "\n".join(_lines(table)) + "\n"


def _lines(table: Table) -> Iterator[str]:
    yield f"**{_escaped(table.title)}**"
    yield ""
    yield _escaped(table.caution)
    if table.rows:
        head, *rows = table.shown()
        yield ""
        yield _line(head)
        yield "|" + "---|" * len(head)
        yield from map(_line, rows)
    for remark in (*table.remarks, *(f"Undefined: {reason}." for reason in table.reasons())):
        yield ""
        yield _escaped(remark)


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(map(_escaped, cells)) + " |"


def _escaped(text: str) -> str:
    """Text that ends no cell, opens no tag, marks nothing up and is no link, named or bare.

    Brackets stay, intervals have them, where no link can end.
    """
    marked = printable(text).translate(ESCAPES)
    return BARE.sub(lambda sign: CUT + sign[0], LINK.sub(r"\\]", marked))
