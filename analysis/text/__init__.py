"""Verdicts and details as plain text for a terminal of 100 columns."""

from collections.abc import Iterator

from analysis.load import Study
from analysis.report import Report
from analysis.text.attention import attention_tables
from analysis.text.control import control_tables
from analysis.text.details import is_only_full, panel_tables, rate_table
from analysis.text.variants import variant_tables
from analysis.text.verdicts import summary, verdict_table
from analysis.text.words import wrapped

SHOWN = 20  # integrity problems


def to_text(report: Report, *, is_full: bool) -> str:
    """Everything for people; without `is_full` only the main arm and signals of the panel."""
    lines = list(_head(report, is_full=is_full))
    if report.verdicts:
        lines += [*verdict_table(report), *variant_tables(report.verdicts)]
    else:
        lines += ["No claim is registered: whatever follows is exploratory.", ""]
    lines += attention_tables(report.attention, is_full)
    lines += _details(report, is_full=is_full)
    if not is_full:
        is_only_cells = len(report.study.cells) and not len(report.study.table)
        full = "In full" if is_only_cells else "All arms, signals and tasks"
        lines += [f"{full}: verdicts.md; everything for machines: verdicts.json"]
        if report.attention:
            lines += ["Attention suites drawn: figures/*.svg; as tables: tables/*.md, tables/*.csv"]
        lines += ["", *summary(report.verdicts)]
    return "\n".join(line.rstrip() for line in lines).rstrip() + "\n"


def _details(report: Report, *, is_full: bool) -> Iterator[str]:
    """The tables of every registration that describes suites with generations."""
    absent = set(report.unplanned)
    sections = [
        one
        for one in report.sections
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
            if suite in report.study.cell_suites or suite in absent:
                continue
            yield from rate_table("accuracy", suite, section.details.accuracy)
            if is_only_full(suite, section.details.accuracy):
                continue  # nothing is evicted in it
            yield from rate_table("induced-failure rate", suite, section.details.induced)
            if is_full:
                yield from rate_table("rescue rate", suite, section.details.rescued)
    for section in sections if is_full else ():
        yield from control_tables(section.details.control)


def _head(report: Report, *, is_full: bool) -> Iterator[str]:
    yield f"study {report.study.name}: {', '.join(_sizes(report.study))}"
    for section in report.sections:
        content, digest = section.registered.content, section.registered.digest
        yield from wrapped(f"  {content.id}  ", content.title)
        yield f"     sha256 {digest[:16]}; existing data: {content.existing_data}"
        if is_full:
            yield from wrapped("     ", content.existing_data_note)
    if report.unplanned:
        yield from wrapped("  not in the grid yet: ", ", ".join(report.unplanned))
    problems = report.study.problems
    if problems:
        yield ""
        yield f"INTEGRITY: {len(problems)} problem{'s' if len(problems) > 1 else ''} in the logs"
        for problem in problems[:SHOWN]:
            yield from wrapped("  ", problem.message)
        if len(problems) > SHOWN:
            yield f"  and {len(problems) - SHOWN} more, in verdicts.json"
        yield ""
    yield "PREVIEW: nothing is sealed or locked, so no verdict below is evidence yet."
    yield ""


def _sizes(study: Study) -> Iterator[str]:
    """How much is there of each kind of row that the study has."""
    kinds = [(study.table, "generations"), (study.cells, "cells")]
    for table, nouns in [kind for kind in kinds if len(kind[0])] or kinds[:1]:
        yield f"{int(table['present'].sum()):,} of {len(table):,} {nouns}"
