"""Descriptive numbers as plain text for a terminal of 100 columns."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from analysis.text.attention import attention_tables
from analysis.text.control import control_tables
from analysis.text.details import is_only_full, panel_tables, rate_table
from analysis.verdict.text import joined

if TYPE_CHECKING:
    from analysis.description import Description


def to_text(found: "Description", *, is_full: bool) -> str:
    """Everything for people; without `is_full` only the main arm and signals of the panel."""
    lines = ["BLIND: outcomes are permuted.", ""] if found.is_blind else []
    lines += attention_tables(found.attention, is_full)
    lines += _details(found, is_full=is_full)
    if not is_full:
        is_only_cells = len(found.study.cells) and not len(found.study.table)
        full = "In full" if is_only_cells else "All arms, signals and tasks"
        lines += [f"{full}: details.md; everything for machines: verdicts.json, details.json"]
        if found.attention:
            lines += ["Attention suites drawn: figures/*.svg; as tables: tables/*.md, tables/*.csv"]
    return joined(lines)


def _details(found: "Description", *, is_full: bool) -> Iterator[str]:
    """The tables of every registration that describes suites with generations."""
    absent = set(found.unplanned)
    sections = [
        one
        for one in found.sections
        if one.registered.content.details is not None and set(one.registered.content.suites) - absent
    ]
    if not sections:
        return
    yield "AUC beside the verdicts, with bootstrap draws of their own. stratified: pairs within model, task,"
    yield "condition and budget; cell: what the bare condition x budget label tells without any signal."
    yield ""
    for section in sections:
        yield from panel_tables(section, is_full)
    for section in sections:
        for suite in section.registered.content.suites:
            if suite in found.study.cell_suites or suite in absent:
                continue
            yield from rate_table("accuracy", suite, section.details.accuracy)
            if is_only_full(suite, section.details.accuracy):
                continue  # nothing is evicted in it
            yield from rate_table("induced-failure rate", suite, section.details.induced)
            if is_full:
                yield from rate_table("rescue rate", suite, section.details.rescued)
    for section in sections if is_full else ():
        yield from control_tables(section.details.control)
