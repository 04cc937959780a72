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
    pooled, stratified = (_compared(rows, pairs, second, pairs) for pairs in ("pooled", "stratified"))
    label = _compared(rows, "pooled", first, "baseline")
    told = ", ".join(f"{_of(counts)} ({QUESTIONS[question]})" for question, counts in pooled.items())
    within, bare = (", ".join(map(_of, one.values())) or "undefined" for one in (stratified, label))
    return (
        f"Suites in which the pooled AUC of {first} is larger than that of {second}: {told or 'undefined'}.",
        f"Of stratified pairs: {within}. Larger than the AUC of the bare condition x budget label: {bare}.",
    )


def _compared(rows: Sequence[Answered], own: str, rival: str, other: str) -> dict[Label, tuple[int, int]]:
    """By question, suites in which the first signal's `own` is larger than the rival's `other`, and all."""
    found = {(row.label, row.suite, row.signal): row for row in rows}
    counts = dict[Label, tuple[int, int]]()
    for label in QUESTIONS:
        both = [
            (getattr(row, own).value, getattr(found[label, row.suite, rival], other).value)
            for row in rows
            if (row.label, row.signal) == (label, SIGNALS[0]) and (label, row.suite, rival) in found
        ]
        known = [(a, b) for a, b in both if a is not None and b is not None]
        if known:
            counts[label] = (sum(a > b for a, b in known), len(known))
    return counts


def _of(counts: tuple[int, int]) -> str:
    return f"{counts[0]} of {counts[1]}"
