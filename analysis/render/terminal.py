"""Tables as plain text: briefly for a terminal of 100 columns, in full for details.md."""

import textwrap
from collections.abc import Iterator

from analysis.core.verdict_text import RULE, WIDTH, joined
from analysis.describe.description import Description
from analysis.describe.table import Table
from kvexp.errors import printable

INTERVALS = 3  # rows of a tall table, beside each other, that leave room for intervals
BESIDE = "Descriptive numbers beside the verdicts, with bootstrap draws of their own."


def to_text(found: Description, *, is_full: bool) -> str:
    """Every table for people; without `is_full` what each of them has to say in brief."""
    tables = [table for part in found.parts for table in part.tables]
    if not is_full:
        tables = [brief for table in tables for brief in table.brief]
    lines = ["BLIND: outcomes are permuted.", ""] if found.is_blind else []
    lines += [BESIDE, ""] if tables else []
    lines += [line for table in tables for line in table_lines(table)]
    if not is_full:
        lines.append("In full: details.md, report.html, tables/*.md, tables/*.csv, figures/*.svg")
        lines.append("Everything for machines: verdicts.json, details.json")
    return joined(lines)


def table_lines(table: Table) -> Iterator[str]:
    """Lines of one table with its remarks, and a blank one."""
    yield from _wrapped("", table.title)
    if table.rows:
        shown = table.bare() if table.is_tall and len(table.rows) > INTERVALS else table
        lines = shown.shown()
        widths = [max(map(len, column)) + 2 for column in zip(*lines, strict=True)]
        for number, line in enumerate(lines):
            yield "".join(f"{text:{width}}" for text, width in zip(line, widths, strict=True)).rstrip()
            if number == 0:
                yield RULE
    for remark in table.remarks:
        yield from _wrapped("  ", remark)
    for reason in table.reasons():
        yield from _wrapped("  ", f"undefined: {reason}")
    yield ""


def _wrapped(indent: str, text: str) -> list[str]:
    """Lines that end at spaces only: the names of suites and shards are full of hyphens."""
    lines = textwrap.wrap(printable(text), WIDTH - len(indent), break_on_hyphens=False)
    return [indent + line for line in lines]
