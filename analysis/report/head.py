"""The title of a page: which study, what holds back its verdicts, and how much of it is there."""

from collections.abc import Iterator

from analysis.verdict.report import Report

PREVIEW, INTEGRITY = "PREVIEW", "INTEGRITY"
MEANINGS = {
    "BLIND": "outcomes are permuted within model and task, so that nothing below is a result.",
    INTEGRITY: "the logs contradict themselves, or evidence.json cannot be read; see Evidence.",
    "EVIDENCE FAILS": "something that evidence.json tells does not hold; see Evidence.",
    "UNWITNESSED": "nobody but the author vouches for the time of the registrations.",
    "AMENDED AFTER DATA": "what was sealed was changed when there were data; see Evidence.",
}


def marks(report: Report) -> list[str]:
    """What a reader must know before any verdict: what the text says, and what holds for some claims."""
    is_broken = bool(report.study.problems) or report.bound.shown.is_broken
    is_preview = not report.verdicts or any(map(report.provisional, report.verdicts))
    own = {INTEGRITY: is_broken, PREVIEW: is_preview and not report.is_blind}
    return [*(mark for mark, is_true in own.items() if is_true), *report.marks]


def meanings(report: Report) -> Iterator[str]:
    """A sentence for each mark, in the same order, and what is to be known of where things lie."""
    for mark in marks(report):
        yield f"{mark}: {_preview(report) if mark == PREVIEW else MEANINGS.get(mark, 'see Evidence.')}"
    yield from report.bound.notes


def sizes(report: Report) -> list[str]:
    """How much is there of each kind of row."""
    kinds = [(report.study.table, "generations"), (report.study.cells, "attention cells")]
    shown = [kind for kind in kinds if len(kind[0])] or kinds[:1]
    return [f"{int(table['present'].sum()):,} of {len(table):,} {nouns}" for table, nouns in shown]


def _preview(report: Report) -> str:
    if not report.verdicts:
        return "no claim is registered, so whatever follows is exploratory."
    if not report.bound.seals:
        return "nothing is sealed or locked, so no verdict below is evidence yet."
    reasons = dict.fromkeys(reason for one in report.verdicts for reason in report.provisional(one))
    return f"not evidence yet: {'; '.join(reasons)}."
