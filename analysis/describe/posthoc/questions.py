"""Figure 3 and its table: the certificate against the output's log-probability on three questions.

Two of the questions are those of registered claims; the third, whose fault a failure is, was asked in the
paper after these had been answered, so the part stands here.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from analysis.core.estimates import Estimate
from analysis.describe.details import details_of
from analysis.describe.parts import Part, Picture, Words, picture_of
from analysis.describe.scope import Scope, Suite
from analysis.describe.table import LABEL_MEANS, STRATIFIED_MEANS, Column, Table
from kvexp.documents.schema import Label

if TYPE_CHECKING:
    from matplotlib.figure import Figure

from matplotlib.figure import Figure

from analysis.describe.drawing import (
    MARKS,
    NAVY,
    ORANGE,
    baseline,
    chance,
    figure,
    keyed,
    label,
    lines,
    shares,
    shortened_all,
    stratified,
    with_interval,
)

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
    for question in QUESTIONS:
        panel = details.signals(suite, suite.wanted.arm, question)
        for signal in SIGNALS:
            if signal in panel:
                row = panel[signal]
                numbers = (row.pooled, row.stratified, row.cell_label)
                yield Answered(suite.name, question, signal, row.positives, *numbers)


def figure3(rows: Sequence[Answered]) -> Picture:
    """Figure 3, or why there is none."""
    known = [row for row in rows if row.pooled.value is not None]
    numbers = [(f"{row.suite} {row.label} {row.signal}", row.pooled) for row in rows]

    def draw() -> "Figure":
        return questions_figure(rows)

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
    for question in QUESTIONS:
        both = [
            (getattr(row, own).value, getattr(found[question, row.suite, rival], other).value)
            for row in rows
            if (row.label, row.signal) == (question, SIGNALS[0]) and (question, row.suite, rival) in found
        ]
        known = [(a, b) for a, b in both if a is not None and b is not None]
        if known:
            counts[question] = (sum(a > b for a, b in known), len(known))
    return counts


def _of(counts: tuple[int, int]) -> str:
    return f"{counts[0]} of {counts[1]}"


# Figure 3: a panel for each question, a line for each suite and signal.


COLOURS = {"certificate": NAVY, "output_logprob": ORANGE}
LINE, EDGES = 0.36, 1.1  # inches


def questions_figure(rows: Sequence[Answered]) -> Figure:
    """AUCs with intervals; see MARKS."""
    places = list(dict.fromkeys((row.suite, row.signal) for row in rows))
    drawn = figure(EDGES + LINE * len(places))
    every = drawn.subplots(1, len(QUESTIONS), sharex=True, sharey=True, squeeze=False).flat
    for axes, (of, words) in zip(every, QUESTIONS.items(), strict=True):
        for row in rows:
            if row.label == of:
                at = places.index((row.suite, row.signal))
                baseline(axes, row.baseline, at)
                with_interval(axes, row.pooled, at, COLOURS[row.signal])
                stratified(axes, row.stratified, at, COLOURS[row.signal])
                if row.pooled.value is None:
                    axes.annotate("undefined", (0.5, at), (4, 0), textcoords="offset points", fontsize=7.5)
        for at in range(1, len(places)):
            if places[at - 1][0] != places[at][0]:
                axes.axhline(at - 0.42, color="#c8c8c8", linewidth=0.7)
        axes.set_title(words, pad=16)
        chance(axes)
        axes.tick_params(axis="y", length=0)
    first = drawn.axes[0]
    suites = [suite for suite, _ in places]
    short = shortened_all(suites)
    lines(first, [f"{suite}   {signal}" for suite, (_, signal) in zip(short, places, strict=True)])
    for tick, (_, signal) in zip(first.get_yticklabels(), places, strict=True):
        tick.set_color(COLOURS[signal])
    shares(first, [one for row in rows for one in (row.pooled, row.stratified, row.baseline)])
    for axes in drawn.axes[1:]:
        axes.grid(visible=True, axis="x")
    label(drawn, [], f"AUC; {MARKS}", "", keyed("suite", suites, short))
    return drawn
