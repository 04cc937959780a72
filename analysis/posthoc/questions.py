"""Figure 3 and its table: the certificate against the output's log-probability on three questions.

Two of the questions are those of registered claims; the third, whose fault a failure is, was asked in the
paper after these had been answered, so the part stands here.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from analysis.details import details_of
from analysis.parts import Part, Picture
from analysis.pictures import picture_of
from analysis.scope import Scope, Suite
from analysis.statistics import Estimate
from analysis.tables.base import LABEL_MEANS, STRATIFIED_MEANS, Column, Table
from analysis.verdict.words import point
from kvexp.prereg.registration import Label

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "The certificate against log-probability on three questions, main tasks"
QUESTIONS: dict[Label, str] = {
    "own_failure": "Is the answer wrong?",
    "induced_failure": "Did eviction break it?",
    "attribution": "Wrong: is eviction to blame?",
}
SIGNALS = ("certificate", "output_logprob")
COLUMNS = (
    Column("suite", "suite"),
    Column("label", "label"),
    Column("signal", "signal"),
    Column("positives", "positive"),
    Column("rows", "of rows"),
    Column("pooled", "AUC, pooled", "share", is_estimate=True),
    Column("stratified", "stratified", "share", is_estimate=True),
    Column("baseline", "label alone", "share", is_estimate=True, has_interval=False),
)
REMARKS = (
    "own_failure: all rows, positive is a failure. induced_failure: rows that the full cache answers, "
    "positive is a failure. attribution: failures, positive is one that the full cache answers.",
    STRATIFIED_MEANS,
    LABEL_MEANS,
)


@dataclass(frozen=True)
class Answered:
    """How well a signal of the arm that carries the certificate answers a question on one suite."""

    suite: str
    label: Label
    signal: str
    positives: int
    pooled: Estimate
    stratified: Estimate
    baseline: Estimate


def questions(scope: Scope) -> Part | None:
    """AUCs of both signals for own failure, induced failure and attribution, by suite (figure 3)."""
    suites = [suite for suite in scope.suites if suite.main and suite.wanted.arm in suite.arms]
    found = [row for suite in suites for row in _suite(scope, suite)]
    if not found:
        return None
    rows = tuple(
        (
            row.suite,
            row.label,
            row.signal,
            row.positives if row.pooled.n else None,
            row.pooled.n or None,
            row.pooled,
            row.stratified,
            row.baseline,
        )
        for row in found
    )
    return Part(
        "questions",
        "Which signal answers which question?",
        "Attribution was not registered: the paper came to it when prediction had failed.",
        (Table("figure3", TITLE, COLUMNS, rows, REMARKS),),
        (figure3(found),),
        is_posthoc=True,
    )


def _suite(scope: Scope, suite: Suite) -> Iterator[Answered]:
    details = details_of(scope, suite.registered)
    for label in QUESTIONS:
        panel = details.signals(suite, suite.wanted.arm, label)
        for signal in SIGNALS:
            if signal in panel:
                row = panel[signal]
                numbers = (row.pooled, row.stratified, row.cell_label)
                yield Answered(suite.name, label, signal, row.positives, *numbers)


def figure3(rows: Sequence[Answered]) -> Picture:
    """Figure 3, or why there is none."""
    known = [row for row in rows if row.pooled.value is not None]
    numbers = [(f"{row.suite} {row.label} {row.signal}", row.pooled) for row in rows]

    def draw() -> "Figure":
        from analysis.figures.questions import questions

        return questions(rows)

    return picture_of("figure3", TITLE, numbers, lambda: _sentence(known), draw)


def _sentence(rows: Sequence[Answered]) -> str:
    parts = list[str]()
    for label, words in QUESTIONS.items():
        suites = list(dict.fromkeys(row.suite for row in rows if row.label == label))
        told = [
            f"{suite} "
            + " against ".join(_named(row) for row in rows if (row.suite, row.label) == (suite, label))
            for suite in suites
        ]
        if told:
            parts.append(f"{words} {', '.join(told)}")
    return f"AUC, pooled. {'; '.join(parts)}."


def _named(row: Answered) -> str:
    beside = f"stratified {point(row.stratified)}, label alone {point(row.baseline)}"
    return f"{row.signal} {row.pooled} ({beside})"
