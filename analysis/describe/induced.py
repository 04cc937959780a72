"""Figure 1 and its table: failures that eviction induces, what it rescues, and what remains of both."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from analysis.core import statistics
from analysis.core.data import Data, clusters_of, ids_of
from analysis.core.estimates import Estimate
from analysis.core.grid import FULL
from analysis.describe.details import Rate, details_of, lacks_labelled
from analysis.describe.parts import Part, Picture, Words, picture_of
from analysis.describe.scope import Scope, Suite, nothing, population
from analysis.describe.table import BUDGET, POOLED, Column, Table, Value, budget_words

if TYPE_CHECKING:
    from matplotlib.figure import Figure

from collections.abc import Mapping

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.describe.drawing import (
    INK,
    NAVY,
    ORANGE,
    PANEL_COLUMNS,
    figure,
    grid,
    keyed,
    label,
    percent_axis,
    shortened_all,
    titles,
)

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
        return induced_figure(bars)

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


# Figure 1: a bar for each arm and budget, a panel for each suite.


CONDITIONS = {"aware": NAVY, "stream": ORANGE}
WORDS = {"aware": "aware (question known)", "stream": "stream (question unknown)"}
LINE, GAP, EDGES = 0.17, 0.5, 0.95  # inches for a bar, bars between arms, inches for titles and axis
Line = tuple[str, str, float]  # condition, arm, budget


def induced_figure(bars: Sequence[Bar]) -> Figure:
    """Bars with intervals, aware above stream; a bar that no suite has takes no room."""
    suites = list(dict.fromkeys(bar.suite for bar in bars))
    lines = sorted({(bar.condition, bar.arm, bar.budget) for bar in bars})
    heights = _heights(lines)
    columns = min(len(suites), PANEL_COLUMNS)
    rows = -(-len(suites) // columns)
    drawn = figure(rows * (EDGES + LINE * (max(heights.values()) + 1)))
    every = list(drawn.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).flat)
    for empty in every[len(suites) :]:
        empty.remove()
    for axes, suite in zip(every, suites, strict=False):
        _panel(axes, [bar for bar in bars if bar.suite == suite], heights)
    key = titles(every[: len(suites)], suites, columns)
    first = every[0]
    arms = [arm for _, arm, _ in lines]
    short = shortened_all(arms)
    names = dict(zip(arms, short, strict=True))
    key += keyed("arm", arms, short)
    first.set_yticks(list(heights.values()), [_bar_words(line, lines, names) for line in heights])
    first.set_ylim(max(heights.values()) + 0.8, -1.6)
    first.set_xlim(0, 1.17)
    first.set_xticks([0, 0.25, 0.5, 0.75, 1])
    percent_axis(first.xaxis)
    for tick, (condition, _, _) in zip(first.get_yticklabels(), heights, strict=True):
        tick.set_color(CONDITIONS.get(condition, INK))
    label(drawn, [], "induced failures: share of what the full cache answers that the arm does not", "", key)
    return drawn


def _heights(lines: Sequence[Line]) -> dict[Line, float]:
    """Where each bar lies: a gap between arms, a wider one between conditions."""
    heights, at = dict[Line, float](), 0.0
    for before, line in zip([None, *lines], lines, strict=False):
        if before is not None:
            at += 1 + GAP * (before[1] != line[1]) + 2 * GAP * (before[0] != line[0]) * 1.8
        heights[line] = at
    return heights


def _bar_words(line: Line, lines: Sequence[Line], names: Mapping[str, str]) -> str:
    """The budget, and before the first one of an arm its name."""
    condition, arm, budget = line
    is_first = budget == min(one[2] for one in lines if one[:2] == (condition, arm))
    return f"{names[arm]}   {budget_words(budget)}" if is_first else budget_words(budget)


def _write(axes: Axes, words: str, place: tuple[float, float], size: float, colour: str) -> None:
    """Words to the right of a place."""
    axes.annotate(words, place, (3, 0), textcoords="offset points", va="center", fontsize=size, color=colour)


def _panel(axes: Axes, bars: Sequence[Bar], heights: dict[Line, float]) -> None:
    for bar in bars:
        at, rate = heights[bar.condition, bar.arm, bar.budget], bar.rate
        if rate.value is None:
            _write(axes, "undefined", (0, at), 7, INK)
            continue
        colour = CONDITIONS.get(bar.condition, INK)
        axes.barh([at], [rate.value], height=0.78, color=colour, alpha=0.82)
        end = rate.value if rate.hi is None else max(rate.hi, rate.value)
        if rate.lo is not None and rate.hi is not None:
            axes.plot([rate.lo, rate.hi], [at, at], color=INK, linewidth=1.0)
        _write(axes, f"{100 * rate.value:.1f}", (end, at), 7, INK)
    run = {(bar.condition, bar.arm, bar.budget) for bar in bars}
    for line in heights:
        if line not in run:
            _write(axes, "not run", (0, heights[line]), 6.5, "#8a8a8a")
    for condition in dict.fromkeys(line[0] for line in heights):
        top = min(at for line, at in heights.items() if line[0] == condition)
        colour = CONDITIONS.get(condition, INK)
        axes.text(0.01, top - 0.75, WORDS.get(condition, condition), color=colour, fontsize=7.5)
    axes.tick_params(axis="y", length=0)
    grid(axes, "x")
