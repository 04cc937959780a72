"""Figure 1 and its table: failures that eviction induces, what it rescues, and what remains of both."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from analysis import statistics
from analysis.data import Data, clusters_of, ids_of
from analysis.details import Rate, details_of, lacks_labelled
from analysis.load.grid import FULL
from analysis.parts import Part, Picture
from analysis.pictures import Words, picture_of
from analysis.scope import Scope, Suite, nothing, population
from analysis.statistics import Estimate
from analysis.tables.base import BUDGET, POOLED, Column, Table, Value, budget_words

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Failures induced by eviction, main tasks"
COLUMNS = (
    Column("suite", "suite"),
    Column("model", "model"),
    Column("arm", "arm"),
    Column("condition", "condition"),
    BUDGET,
    Column("rows", "rows"),
    Column("induced", "induced failures", "share", is_estimate=True),
    Column("rescued", "rescued", "share", is_estimate=True),
    Column("net", "net loss", "share", is_estimate=True),
)
REMARK = (
    "induced: failures among what the full cache answers. rescued: successes among what it does not. "
    "net loss: induced failures minus rescues as a share of all rows: the accuracy that eviction costs."
)


@dataclass(frozen=True)
class Bar:
    """The induced-failure rate of one arm at one budget of one suite, main tasks, models pooled."""

    suite: str
    arm: str
    condition: str
    budget: float
    rate: Estimate


def induced(scope: Scope) -> Part | None:
    """Rates by arm, condition and budget, for each model and for all; the pooled ones as figure 1."""
    suites = [suite for suite in scope.suites if suite.main]
    if not suites:
        return None
    rows = tuple(row for suite in suites for row in _rows(scope, suite))
    made = Table("rates", "Induced failures, rescues and net loss, main tasks", COLUMNS, rows, (REMARK,))
    bars = [
        Bar(suite.name, rate.arm, rate.condition, rate.budget, rate.estimate)
        for suite in suites
        for rate in _pooled(scope, suite)
        if rate.condition is not None and rate.budget is not None
    ]
    title = "What does eviction break?"
    return Part("induced", title, tables=(made,), pictures=(figure1(bars),))


def _pooled(scope: Scope, suite: Suite) -> list[Rate]:
    rates = details_of(scope, suite.registered).induced
    return [rate for rate in rates if rate.suite == suite.name and rate.task is None]


# The table ------------------------------------------------------------------------------------------


def _rows(scope: Scope, suite: Suite) -> Iterator[tuple[Value, ...]]:
    """Lines of a suite; resamples are those of all its tasks, as where `details` took the same rates."""
    data = scope.data(
        [suite], population([suite], "induced_failure", arms=[*suite.arms, FULL], tasks=suite.tasks)
    )
    main = data.rows[data.rows["task"].isin(suite.main) & (data.rows["arm"] != FULL)]
    groups = [*((str(name), rows) for name, rows in data.split(main, "model").items()), (POOLED, main)]
    for model, rows in groups:
        for (arm, condition, budget), here in data.split(rows, "arm", "condition", "budget").items():
            rates = _three(scope, data, here)
            yield (suite.name, model, str(arm), str(condition), float(budget), len(here), *rates)


def _three(scope: Scope, data: Data, rows: pd.DataFrame) -> tuple[Estimate, Estimate, Estimate]:
    """Induced failures, rescues and net loss of these rows."""
    if reason := lacks_labelled(scope.report.study, rows, needs_full=True):
        return (nothing(reason),) * 3
    own, full = rows["success"].to_numpy(bool), rows["full_success"].to_numpy(bool)
    cluster, ids = clusters_of(rows), ids_of(rows)
    lost = statistics.rate(full & ~own, cluster, ids)
    won = statistics.rate(~full & own, cluster, ids)
    return (
        data.estimate(statistics.rate(~own[full], cluster[full], ids[full])),
        data.estimate(statistics.rate(own[~full], cluster[~full], ids[~full])),
        data.estimate(statistics.difference(lost, won)),
    )


# The figure -----------------------------------------------------------------------------------------


def figure1(bars: Sequence[Bar]) -> Picture:
    """Figure 1, or why there is none."""
    known = [bar for bar in bars if bar.rate.value is not None]
    numbers = [(f"{bar.suite} {bar.condition} {bar.arm}", bar.rate) for bar in bars]

    def draw() -> "Figure":
        from analysis.figures.induced_rates import induced_rates

        return induced_rates(bars)

    return picture_of("figure1", TITLE, numbers, lambda: _words(known), draw)


def _words(bars: Sequence[Bar]) -> Words:
    """The range of both conditions over all suites, and in each of them; a budget of 1 evicts nothing."""
    bars = [bar for bar in bars if bar.budget < 1] or bars
    ranges = [
        f"{condition} {_percent(min(map(_rate, rates)))} to {_percent(max(map(_rate, rates)))}"
        for condition in ("aware", "stream")
        if (rates := [bar for bar in bars if bar.condition == condition])
    ]
    sentence = f"Of what the full cache answers arms that evict lose, at their budgets: {', '.join(ranges)}."
    return sentence, f"{'; '.join(_by_suite(bars))}."


def _by_suite(bars: Sequence[Bar]) -> Iterator[str]:
    for suite in dict.fromkeys(bar.suite for bar in bars):
        here = [bar for bar in bars if bar.suite == suite]
        ends = [
            f"{condition} {_named(rates, min(map(_rate, rates)))} to {_named(rates, max(map(_rate, rates)))}"
            for condition in ("aware", "stream")
            if (rates := [bar for bar in here if bar.condition == condition])
        ]
        yield f"{suite}: {', '.join(ends)}"


def _rate(bar: Bar) -> float:
    return bar.rate.value or 0.0


def _named(bars: Sequence[Bar], rate: float) -> str:
    """A rate and every arm that has it."""
    arms = ", ".join(f"{bar.arm} at {budget_words(bar.budget)}" for bar in bars if _rate(bar) == rate)
    return f"{_percent(rate)} ({arms})"


def _percent(rate: float) -> str:
    return f"{100 * rate:.1f} %"
