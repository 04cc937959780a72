"""Markdown: the table as people see it, what its columns mean, and what is undefined."""

from collections.abc import Iterator

from analysis.tables.base import Table
from kvexp.terminal import printable

ESCAPES = str.maketrans({sign: f"\\{sign}" for sign in "\\|`*_"} | {"&": "&amp;", "<": "&lt;", ">": "&gt;"})


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
    """Text that ends no cell, opens no tag and marks nothing up. Brackets stay: intervals have them."""
    return printable(text).translate(ESCAPES)
