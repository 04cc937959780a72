"""Verdicts as plain text for a terminal of 100 columns."""

from collections.abc import Iterator

from analysis.load import Study
from analysis.sealed.seals import SHORT
from analysis.verdict.amendments import amendment_lines
from analysis.verdict.evidence import evidence_lines
from analysis.verdict.report import Report
from analysis.verdict.table import verdict_table
from analysis.verdict.variants import variant_tables
from analysis.verdict.words import wrapped
from kvexp.prereg.registration import Registered
from kvexp.terminal import printable

SHOWN = 20  # integrity problems


def to_text(report: Report, *, is_full: bool) -> str:
    """Everything that was decided; without `is_full` the evidence in few lines."""
    lines = list(_head(report, is_full=is_full))
    if report.verdicts:
        lines += verdict_table(report)
    else:
        lines += ["No claim is registered: whatever follows is exploratory.", ""]
    lines += amendment_lines(report, is_full=is_full)
    lines += evidence_lines(report, is_full=is_full)
    if report.verdicts:
        lines += variant_tables(report)
    return joined(lines)


def joined(lines: list[str]) -> str:
    """Lines as text that ends with one line break."""
    return "\n".join(line.rstrip() for line in lines).rstrip() + "\n"


def _head(report: Report, *, is_full: bool) -> Iterator[str]:
    name = ", ".join([f"study {report.study.name}", *report.marks])
    yield f"{name}: {', '.join(_sizes(report.study))}"
    for registered in report.registrations:
        yield from _registration(report, registered, is_full)
    for note in report.bound.notes:
        yield from wrapped("  note: ", printable(note))
    if report.unplanned:
        yield from wrapped("  not in the grid yet: ", ", ".join(report.unplanned))
    yield from _problems(report.study)
    yield from _provisional(report)
    yield ""


def _registration(report: Report, registered: Registered, is_full: bool) -> Iterator[str]:
    content = registered.content
    yield from wrapped(f"  {content.id}  ", content.title)
    seal = report.bound.seals.get(content.id)
    sealed = "not sealed" if seal is None else f"seal {seal.id[:SHORT]}"
    yield f"     sha256 {registered.digest[:16]}; {sealed}; existing data: {content.existing_data}"
    if is_full:
        yield from wrapped("     ", content.existing_data_note)


def _problems(study: Study) -> Iterator[str]:
    problems = study.problems
    if not problems:
        return
    yield ""
    yield f"INTEGRITY: {len(problems)} problem{'s' if len(problems) > 1 else ''} in the logs"
    for problem in problems[:SHOWN]:
        yield from wrapped("  ", problem.message)
    if len(problems) > SHOWN:
        yield f"  and {len(problems) - SHOWN} more, in verdicts.json"
    yield ""


def _provisional(report: Report) -> Iterator[str]:
    """What a preview lacks, each reason once."""
    if report.is_blind:
        yield "BLIND: outcomes are permuted within model and task, so that nothing below is a result."
    elif not report.bound.seals:
        yield "PREVIEW: nothing is sealed or locked, so no verdict below is evidence yet."
    else:
        reasons = dict.fromkeys(reason for one in report.verdicts for reason in report.provisional(one))
        if reasons:
            yield from wrapped("PREVIEW, not evidence yet: ", "; ".join(reasons))


def _sizes(study: Study) -> Iterator[str]:
    """How much is there of each kind of row that the study has."""
    kinds = [(study.table, "generations"), (study.cells, "cells")]
    for table, nouns in [kind for kind in kinds if len(kind[0])] or kinds[:1]:
        yield f"{int(table['present'].sum()):,} of {len(table):,} {nouns}"
