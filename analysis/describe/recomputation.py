"""Table 4 and figure 4: a quarter of the queries answered again with the full cache, chosen by a signal.

Streaming eviction, main tasks. Conceived in the paper after its fourth claim had died (section 6.4).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.core import statistics
from analysis.core.data import Data, clusters_of, ids_of
from analysis.core.estimates import Estimate, Floats, Statistic
from analysis.core.populations import risk
from analysis.describe import drawing
from analysis.describe.drawing import GREY, INK, NAVY, ORANGE, SKY
from analysis.describe.parts import Part, Picture, Words, picture_of
from analysis.describe.scope import CERTIFICATE, RIVAL, Scope, Suite, bools, nothing, population, remembered
from analysis.describe.table import (
    DIFFERENCE,
    SHARE,
    Column,
    Row,
    Table,
    Value,
    budget_words,
    column,
    columns,
    percent,
    share,
)
from kvexp.documents.schema import Population
from kvexp.records import Condition

ORDER = 10
CONDITION: Condition = "stream"
RATE = 0.25
RATES = tuple(step / 10 for step in range(1, 10))
MEAN = "mean"
TITLE = f"Recomputing {percent(RATE)} of the queries with the full cache, {CONDITION} condition, main tasks"
NUMBERS = {
    "base": "base",
    "full": "full",
    "certificate": "by certificate",
    "logprob": "by logprob",
    "random": "at random",
    "over_random": "certificate - random",
    "over_logprob": "certificate - logprob",
}
POINTS = ("base", "full", "certificate", "logprob", "random")  # people see their intervals in the CSV alone
THIRD = {
    "seed": column("seed"),
    "rate": column("rate", "", "share of the queries that the full cache answers again", SHARE, "percent"),
}
MEANINGS = {
    ("certificate", "seed"): (
        "accuracy when the full cache answers the quarter of queries with the largest certificate",
        SHARE,
    ),
    ("logprob", "seed"): ("likewise, the quarter with the lowest mean log-probability of the answer", SHARE),
    ("certificate", "rate"): (
        "accuracy when the full cache answers the queries with the largest certificate",
        SHARE,
    ),
    ("logprob", "rate"): ("likewise, those with the lowest mean log-probability of the answer", SHARE),
    ("over_random", ""): ("by certificate minus at random, paired", DIFFERENCE),
    ("over_logprob", ""): ("by certificate minus by log-probability, paired", DIFFERENCE),
}
REMARKS = (
    "Accuracy. base: the arm alone. full: the full cache alone. by certificate, by logprob: the queries with "
    "the highest certificate, or the lowest mean log-probability of the answer, are answered by the full "
    "cache. at random: the exact expectation over all choices of as many queries.",
    "Ranks and cuts are taken again in every resample; queries tied at the cut share the quota. Differences "
    "are paired. mean: over the seeds of the draw, on the same resamples.",
)


@dataclass(frozen=True)
class Recomputed:
    """Accuracy of one suite and budget at one rate."""

    suite: str  # name
    budget: float  # of the arm
    seed: int | None  # of the draw; None: the mean over all seeds, also where there is one alone
    rate: float  # share of the queries that the full cache answers again
    numbers: Mapping[str, Estimate]  # by the keys of NUMBERS


def describe(scope: Scope) -> Iterator[Part]:
    """Table 4 by suite, budget and seed; other rates; and the means over seeds as figure 4."""
    found = [row for suite in scope.main if suite.has_carrier for row in _suite(scope, suite)]
    if not found:
        return
    by_seed = [row for row in found if row.rate == RATE]
    by_rate = [row for row in found if row.rate != RATE or row.seed is None]
    tables = (
        _table("table4", TITLE, "seed", by_seed),
        _table("table4_rates", "Recomputing other shares of the queries, mean over seeds", "rate", by_rate),
    )
    yield Part(
        "recomputation",
        "Which queries should be computed again with the full cache?",
        "Not registered: the paper designed this analysis after its claim on escalation had failed.",
        tables,
        (figure4([row for row in by_seed if row.seed is None]),),
        is_posthoc=True,
    )


# The numbers ----------------------------------------------------------------------------------------


def _suite(scope: Scope, suite: Suite) -> Iterator[Recomputed]:
    """Every budget: its seeds and their mean at RATE, the mean alone at the other rates."""
    table, arm = scope.table, suite.wanted.arm
    is_here = (table["suite"] == suite.name) & (table["arm"] == arm) & (table["condition"] == CONDITION)
    budgets = sorted(set(table.loc[is_here & table["task"].isin(suite.main), "budget"]))
    reasons = {budget: scope.lacks_of(_population(suite, [budget])) for budget in budgets}
    whole = [budget for budget in budgets if not reasons[budget]]
    data = scope.data([suite], _population(suite, whole), "recomputation") if whole else None
    split = {} if data is None else data.split(data.rows, "budget")
    for budget in budgets:
        if data is None or reasons[budget]:
            lost = nothing(reasons[budget])
            yield Recomputed(suite.name, budget, None, RATE, dict.fromkeys(NUMBERS, lost))
        else:
            yield from _budget(data, suite, budget, split[budget])


def _population(suite: Suite, budgets: Sequence[float]) -> Population:
    return population(
        [suite], "induced_failure", arms=[suite.wanted.arm], conditions=[CONDITION], budgets=budgets
    )


def _budget(data: Data, suite: Suite, budget: float, rows: pd.DataFrame) -> Iterator[Recomputed]:
    largest = suite.registered.content.statistics.undefined_rows_max
    draws = {seed: _Draw(here, largest) for seed, here in data.split(rows, "seed").items()}

    def estimates(made: Mapping[str, Statistic]) -> dict[str, Estimate]:
        return {name: data.estimate(statistic) for name, statistic in made.items()}

    for rate in sorted({RATE, *RATES}):
        parts = {seed: draw.at(rate) for seed, draw in draws.items()}
        for seed, part in parts.items() if rate == RATE and len(parts) > 1 else ():
            yield Recomputed(suite.name, budget, int(seed), rate, estimates(_with_differences(part)))
        means = {name: statistics.mean([part[name] for part in parts.values()]) for name in POINTS}
        yield Recomputed(suite.name, budget, None, rate, estimates(_with_differences(means)))


class _Draw:
    """The rows of one seed, all with both signals, and accuracies on them."""

    def __init__(self, rows: pd.DataFrame, undefined_max: float) -> None:
        is_known = rows[[CERTIFICATE, RIVAL]].notna().all(axis=1)
        lost = int((~is_known).sum())
        names = f"{CERTIFICATE} and {RIVAL}"
        is_lost = lost > undefined_max * len(rows)
        self._lost = f"{names} undefined in {lost} of {len(rows)} rows" if is_lost else ""
        self._note = f"{lost} rows without {names} left out" if lost else ""
        kept = rows[is_known]
        self._rows, self._cluster, self._ids = kept, clusters_of(kept), ids_of(kept)
        self._own, self._full = bools(kept, "success"), bools(kept, "full_success")

    def at(self, rate: float) -> dict[str, Statistic]:
        """The accuracies POINTS at one rate."""
        if self._lost:
            return {name: statistics.undefined(self._lost) for name in POINTS}
        place = (self._cluster, self._ids)
        before, after = self._own.astype(np.float64), self._full.astype(np.float64)
        return {
            "base": statistics.rate(self._own, *place),
            "full": statistics.rate(self._full, *place),
            "certificate": self._gated(CERTIFICATE, before, after, rate),
            "logprob": self._gated(RIVAL, before, after, rate),
            "random": statistics.random_gate(before, after, rate, *place),
        }

    def _gated(self, signal: str, before: Floats, after: Floats, rate: float) -> Statistic:
        score = risk(self._rows, signal)
        gated = statistics.gated(score, before, after, rate, self._cluster, self._ids)
        return remembered(replace(gated, note=self._note))


def _with_differences(points: Mapping[str, Statistic]) -> dict[str, Statistic]:
    """What certificate gating gains over chance and over the rival, paired."""
    by_signal = points["certificate"]
    return {
        **points,
        "over_random": statistics.difference(by_signal, points["random"]),
        "over_logprob": statistics.difference(by_signal, points["logprob"]),
    }


# Table and figure -----------------------------------------------------------------------------------


def _table(name: str, title: str, third: str, rows: Sequence[Recomputed]) -> Table:
    """Rows by suite, budget and `third`, which is seed or rate."""
    heads = (*columns("suite", "budget"), THIRD[third], column("rows"), *_columns(third))
    return Table(name, title, heads, tuple(_row(row, third) for row in rows), REMARKS)


def _columns(third: str) -> Iterator[Column]:
    for key, words in NUMBERS.items():
        meaning, unit = MEANINGS.get((key, third), MEANINGS.get((key, ""), ("", SHARE)))
        yield share(key, words, meaning, unit, bare=key in POINTS)


def _row(row: Recomputed, third: str) -> Row:
    place: Value = row.rate if third == "rate" else MEAN if row.seed is None else row.seed
    return (row.suite, row.budget, place, row.numbers["base"].n or None, *map(row.numbers.get, NUMBERS))


def figure4(rows: Sequence[Recomputed]) -> Picture:
    """Figure 4, of means over seeds, or why there is none."""
    known = [row for row in rows if row.numbers["certificate"].value is not None]
    numbers = [(f"{row.suite} at {budget_words(row.budget)}", row.numbers["certificate"]) for row in rows]

    return picture_of("figure4", TITLE, numbers, lambda: _words(known), lambda: recomputation_figure(known))


def _words(rows: Sequence[Recomputed]) -> Words:
    """Smallest and largest gain over suites and budgets, and how many intervals lie above 0."""
    over = {"random choice": "over_random", "log-probability": "over_logprob"}
    gains = {words: [row.numbers[key] for row in rows] for words, key in over.items()}
    ranges = [f"{_range(found)} over {words}" for words, found in gains.items()]
    above = [
        f"{sum(one.lo is not None and one.lo > 0 for one in found)} of {len(found)} over {words}"
        for words, found in gains.items()
    ]
    sentence = f"Choosing by certificate gains, in points of accuracy, {' and '.join(ranges)}."
    return (
        sentence,
        f"Over suites and budgets, means over seeds; with an interval above 0: {', '.join(above)}.",
    )


def _range(found: Sequence[Estimate]) -> str:
    known = [one for one in found if one.value is not None]
    if not known:
        return "an undefined number"
    low, high = (points(Estimate(end)) for end in (min(map(_value, known)), max(map(_value, known))))
    return low if low == high else f"{low} to {high}"


def _value(found: Estimate) -> float:
    return found.value or 0.0


def points(found: Estimate) -> str:
    """A difference of shares in points."""
    if found.value is None:
        return "undefined"
    words = f"{100 * found.value:+.1f}"
    if found.lo is None or found.hi is None:
        return words
    return f"{words} [{100 * found.lo:+.1f}, {100 * found.hi:+.1f}]"


# Figure 4: accuracy after recomputation, a panel for each suite and budget, a bar for each choice.


BARS = {
    "base": ("no recomputation", GREY),
    "random": ("at random", SKY),
    "logprob": ("by log-probability", ORANGE),
    "certificate": ("by certificate", NAVY),
    "full": ("everything", "#8c8c8c"),
}
ROOM = 1.28  # of the longest bar, for its number


def recomputation_figure(rows: Sequence[Recomputed]) -> Figure:
    """Bars with intervals; the paired gain of the certificate over random choice stands in the title."""
    drawn, places = drawing.panels(len(rows), 1.95)
    ends = [row.numbers[name] for row in rows for name in BARS]
    most = max(max(one.value or 0.0, one.hi or 0.0) for one in ends)
    for axes, row in zip(places, rows, strict=True):
        _panel(axes, row)
    rests = [
        f", budget {budget_words(row.budget)}\ngain over random {points(row.numbers['over_random'])}"
        for row in rows
    ]
    key = drawing.titles(
        places, [row.suite for row in rows], min(len(rows), drawing.PANEL_COLUMNS), rests, size=8
    )
    places[0].set_xlim(0, min(most * ROOM, 1.15) or 1.0)
    places[0].set_yticks(range(len(BARS)), [words for words, _ in BARS.values()])
    places[0].set_ylim(len(BARS) - 0.4, -0.6)
    drawing.percent_axis(places[0].xaxis)
    across = f"accuracy, mean over seeds; recomputed with the full cache: {percent(rows[0].rate)}"
    drawing.label(drawn, [], across, "", key)
    return drawn


def _panel(axes: Axes, row: Recomputed) -> None:
    for at, (name, (_, colour)) in enumerate(BARS.items()):
        found = row.numbers[name]
        if found.value is None:
            continue
        axes.barh([at], [found.value], height=0.74, color=colour)
        end = found.value if found.hi is None else max(found.hi, found.value)
        if found.lo is not None and found.hi is not None:
            axes.plot([found.lo, found.hi], [at, at], color=INK, linewidth=1.0)
        words = f"{100 * found.value:.1f}"
        axes.annotate(words, (end, at), (3, 0), textcoords="offset points", va="center", fontsize=7.5)
    axes.tick_params(axis="y", length=0)
    drawing.grid(axes, "x")
