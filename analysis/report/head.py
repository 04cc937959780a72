"""The title of a page: which study, what holds back its verdicts, and how much of it is there."""

from collections.abc import Iterator

from analysis.verdict.report import Report

PREVIEW, BLIND = "PREVIEW", "BLIND"


def marks(report: Report) -> Iterator[str]:
    """What a reader must know before any verdict, worst first."""
    if report.is_blind:
        yield BLIND
    if report.study.problems:
        yield "INTEGRITY"
    if report.bound.shown.failed or report.bound.shown.is_broken:
        yield "EVIDENCE FAILS"
    if not report.is_blind and (not report.verdicts or any(map(report.provisional, report.verdicts))):
        yield PREVIEW
    if not report.bound.shown.is_witnessed:
        yield "UNWITNESSED"
    if any(seal.amended for seal in report.bound.seals.values()):
        yield "AMENDED"


def meanings(report: Report) -> Iterator[str]:
    """A sentence for each mark, in the same order."""
    reasons = dict.fromkeys(reason for one in report.verdicts for reason in report.provisional(one))
    for mark in marks(report):
        if mark == BLIND:
            yield "BLIND: outcomes are permuted within model and task, so that nothing below is a result."
        elif mark == "INTEGRITY":
            yield "INTEGRITY: the logs contradict themselves; the problems are listed under Evidence."
        elif mark == "EVIDENCE FAILS":
            yield "EVIDENCE FAILS: something that evidence.json states does not hold; see Evidence."
        elif mark == PREVIEW:
            yield _preview(report, list(reasons))
        elif mark == "UNWITNESSED":
            yield "UNWITNESSED: nobody but the author vouches for the time of the registrations."
        else:
            names = ", ".join(sorted(name for name, seal in report.bound.seals.items() if seal.amended))
            yield f"AMENDED: a registered change of what was sealed; see Evidence for {names}."


def sizes(report: Report) -> list[str]:
    """How much is there of each kind of row."""
    kinds = [(report.study.table, "generations"), (report.study.cells, "attention cells")]
    shown = [kind for kind in kinds if len(kind[0])] or kinds[:1]
    return [f"{int(table['present'].sum()):,} of {len(table):,} {nouns}" for table, nouns in shown]


def _preview(report: Report, reasons: list[str]) -> str:
    if not report.verdicts:
        return "PREVIEW: no claim is registered, so whatever follows is exploratory."
    if not report.bound.seals:
        return "PREVIEW: nothing is sealed or locked, so no verdict below is evidence yet."
    return f"PREVIEW, not evidence yet: {'; '.join(reasons)}."
