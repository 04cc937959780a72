"""Figure 3 and its table: the certificate against the output's log-probability on three questions.

Two of the questions are those of registered claims; the third, whose fault a failure is, was asked in the
paper after these had been answered, so the part stands here.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from analysis.details import details_of
from analysis.parts import Part, Picture
from analysis.pictures import Words, picture_of
from analysis.scope import Scope, Suite
from analysis.statistics import Estimate
from analysis.tables.base import LABEL_MEANS, STRATIFIED_MEANS, Column, Table
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

    return picture_of("figure3", TITLE, numbers, lambda: _words(known), draw)


def _words(rows: Sequence[Answered]) -> Words:
    """In how many suites the first signal has the larger AUC, question by question."""
    first, second = SIGNALS
    sentence = f"The pooled AUC of {first} is larger than that of {second}: {_wins(rows, 'pooled')}."
    label = f"That of the bare condition x budget label is larger than {first}'s: {_beaten(rows)}."
    return sentence, f"Of stratified pairs: {_wins(rows, 'stratified')}. {label}"


def _wins(rows: Sequence[Answered], pairs: str) -> str:
    found = {(row.label, row.suite, row.signal): getattr(row, pairs).value for row in rows}
    told = list[str]()
    for label, question in QUESTIONS.items():
        both = [
            (found.get((label, suite, SIGNALS[0])), found.get((label, suite, SIGNALS[1])))
            for suite in dict.fromkeys(row.suite for row in rows)
        ]
        known = [(a, b) for a, b in both if a is not None and b is not None]
        if known:
            told.append(f"{question} in {sum(a > b for a, b in known)} of {_suites(len(known))}")
    return "; ".join(told) or "undefined"


def _beaten(rows: Sequence[Answered]) -> str:
    told = list[str]()
    for label, question in QUESTIONS.items():
        here = [row for row in rows if row.label == label and row.signal == SIGNALS[0]]
        both = [(row.baseline.value, row.pooled.value) for row in here]
        known = [(a, b) for a, b in both if a is not None and b is not None]
        if known:
            told.append(f"{question} in {sum(a > b for a, b in known)} of {_suites(len(known))}")
    return "; ".join(told) or "undefined"


def _suites(count: int) -> str:
    return f"{count} suite" + "s" * (count != 1)
