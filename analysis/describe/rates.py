"""Accuracy, induced failures and rescues: figure 1, table 5, and every rate of every arm by task."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.core import statistics
from analysis.core.data import Data, clusters_of, ids_of
from analysis.core.estimates import Estimate
from analysis.core.grid import FULL
from analysis.describe import drawing
from analysis.describe.drawing import INK, NAVY, ORANGE
from analysis.describe.parts import Part, Picture, Words, picture_of
from analysis.describe.scope import Scope, Suite, bools, by_model, by_place, nothing, population
from analysis.describe.table import (
    DIFFERENCE,
    NOT_ASKED,
    Column,
    Row,
    Table,
    budget_words,
    columns,
    exactly,
    percent,
    share,
)
from kvexp.documents.schema import Label

ORDER = 2
MAIN = "main tasks"
RATES: dict[str, Label] = {"accuracy": "success", "induced": "induced_failure", "rescued": "rescue"}
INDUCED = "induced: failures among what the full cache answers. rescued: successes among what it does not."
NET = "induced failures minus rescues over all answers: the accuracy that eviction costs"
Place = tuple[str, str | None, float | None]  # arm, condition, budget; the full cache has an arm alone


@dataclass(frozen=True)
class Rate:
    """One rate of one cell; None: the full cache has no condition and budget, all main tasks no one name."""

    suite: str
    task: str | None
    arm: str
    condition: str | None
    budget: float | None
    estimate: Estimate

    @property
    def place(self) -> Place:
        """Where it was measured."""
        return self.arm, self.condition, self.budget


def describe(scope: Scope) -> Iterator[Part]:
    """What eviction breaks, by suite; and what it costs, task by task."""
    if scope.main:
        yield induced(scope)
    if scope.suites:
        yield accuracy(scope)


def rates_of(scope: Scope, suite: Suite, which: str) -> tuple[Rate, ...]:
    """Rates by task, then over the main tasks together, for every arm, condition and budget."""
    return scope.once(f"{which} of {suite.name}", lambda: tuple(_rates(scope, suite, RATES[which])))


def _rates(scope: Scope, suite: Suite, label: Label) -> Iterator[Rate]:
    data = scope.data([suite], population([suite], label, arms=[*suite.arms, FULL], tasks=suite.tasks))
    groups = [(task, data.rows[data.rows["task"] == task]) for task in suite.tasks]
    for task, group in [*groups, (None, data.rows[data.rows["task"].isin(suite.main)])]:
        full = group[group["arm"] == FULL]
        places: list[tuple[Place, pd.DataFrame]] = [(place, here) for place, here in by_place(group)]
        if label == "success" and len(full):
            places.insert(sum(place[0] < FULL for place, _ in places), ((FULL, None, None), full))
        for place, rows in places:
            reason = scope.lacks(rows, label)
            found = nothing(reason) if reason else data.estimate(data.rate(rows[rows["counts"]]))
            yield Rate(suite.name, task, *place, found)


# Figure 1: failures that eviction induces, what it rescues, and what remains of both.


TITLE = "Failures induced by eviction, main tasks"
COLUMNS = (
    *columns("suite", "model", "arm", "condition", "budget", "rows"),
    share("induced", "induced failures"),
    share("rescued"),
    share("net", "net loss", NET, DIFFERENCE),
)


def induced(scope: Scope) -> Part:
    """Rates by arm, condition and budget, for each model and for all; the pooled ones as figure 1."""
    rows = tuple(row for suite in scope.main for row in _rows(scope, suite))
    net = "net loss: induced failures minus rescues as a share of all rows: the accuracy that eviction costs."
    remark = f"{INDUCED} {net}"
    made = Table("rates", "Induced failures, rescues and net loss, main tasks", COLUMNS, rows, (remark,))
    every = [rate for suite in scope.main for rate in rates_of(scope, suite, "induced") if rate.task is None]
    return Part("induced", "What does eviction break?", tables=(made,), pictures=(figure1(every),))


def _rows(scope: Scope, suite: Suite) -> Iterator[Row]:
    """Lines of a suite; resamples are those of all its tasks, as of the same rates by task."""
    arms = [*suite.arms, FULL]
    data = scope.data([suite], population([suite], "induced_failure", arms=arms, tasks=suite.tasks))
    for model, rows in by_model(data.rows[data.rows["task"].isin(suite.main)]):
        for place, here in by_place(rows):
            yield (suite.name, model, *place, len(here), *_three(scope, data, here))


def _three(scope: Scope, data: Data, rows: pd.DataFrame) -> tuple[Estimate, Estimate, Estimate]:
    """Induced failures, rescues and net loss of these rows."""
    if reason := scope.lacks(rows, "induced_failure"):
        return (nothing(reason),) * 3
    own, full = bools(rows, "success"), bools(rows, "full_success")
    cluster, ids = clusters_of(rows), ids_of(rows)
    lost = statistics.rate(full & ~own, cluster, ids)
    won = statistics.rate(~full & own, cluster, ids)
    return (
        data.estimate(statistics.rate(~own[full], cluster[full], ids[full])),
        data.estimate(statistics.rate(own[~full], cluster[~full], ids[~full])),
        data.estimate(statistics.difference(lost, won)),
    )


def figure1(bars: Sequence[Rate]) -> Picture:
    """Figure 1, or why there is none; its rates are of main tasks, models pooled."""
    known = [bar for bar in bars if bar.estimate.value is not None]
    numbers = [(f"{bar.suite} {bar.condition} {bar.arm}", bar.estimate) for bar in bars]
    return picture_of("figure1", TITLE, numbers, lambda: _words(known), lambda: induced_figure(bars))


def _words(bars: Sequence[Rate]) -> Words:
    """The range of both conditions over all suites, and in each of them; a budget of 1 evicts nothing."""
    bars = [bar for bar in bars if (bar.budget or 1) < 1] or bars
    ranges = ", ".join(_ranges(bars, lambda _, rate: percent(rate, 1)))
    sentence = f"Of what the full cache answers arms that evict lose, at their budgets: {ranges}."
    suites = dict.fromkeys(bar.suite for bar in bars)
    by_suite = [
        f"{suite}: {', '.join(_ranges([bar for bar in bars if bar.suite == suite], _named))}"
        for suite in suites
    ]
    return sentence, f"{'; '.join(by_suite)}."


def _ranges(bars: Sequence[Rate], told: Callable[[Sequence[Rate], float], str]) -> Iterator[str]:
    """Lowest to highest rate of each condition."""
    for condition in ("aware", "stream"):
        if here := [bar for bar in bars if bar.condition == condition]:
            ends = (end(map(_rate, here)) for end in (min, max))
            yield f"{condition} {' to '.join(told(here, end) for end in ends)}"


def _rate(bar: Rate) -> float:
    return bar.estimate.value or 0.0


def _named(bars: Sequence[Rate], rate: float) -> str:
    """A rate and every arm that has it."""
    arms = ", ".join(f"{bar.arm} at {budget_words(bar.budget or 0)}" for bar in bars if _rate(bar) == rate)
    return f"{percent(rate, 1)} ({arms})"


# Figure 1: a bar for each arm and budget, a panel for each suite.


CONDITIONS = {"aware": NAVY, "stream": ORANGE}
WORDS = {"aware": "aware (question known)", "stream": "stream (question unknown)"}
LINE, GAP, EDGES = 0.17, 0.5, 0.95  # inches for a bar, bars between arms, inches for titles and axis
Line = tuple[str, str, float]  # condition, arm, budget


def induced_figure(bars: Sequence[Rate]) -> Figure:
    """Bars with intervals, aware above stream; a bar that no suite has takes no room."""
    suites = list(dict.fromkeys(bar.suite for bar in bars))
    lines = sorted(set(map(_line, bars)))
    heights = _heights(lines)
    drawn, every = drawing.panels(len(suites), EDGES + LINE * (max(heights.values()) + 1))
    for axes, suite in zip(every, suites, strict=True):
        _panel(axes, {_line(bar): bar.estimate for bar in bars if bar.suite == suite}, heights)
    key = drawing.titles(every, suites, min(len(suites), drawing.PANEL_COLUMNS))
    first = every[0]
    arms = [arm for _, arm, _ in lines]
    short = drawing.shortened_all(arms)
    names = dict(zip(arms, short, strict=True))
    key += drawing.keyed("arm", arms, short)
    first.set_yticks(list(heights.values()), [_bar_words(line, lines, names) for line in heights])
    first.set_ylim(max(heights.values()) + 0.8, -1.6)
    first.set_xlim(0, 1.17)
    first.set_xticks([0, 0.25, 0.5, 0.75, 1])
    drawing.percent_axis(first.xaxis)
    for tick, (condition, _, _) in zip(first.get_yticklabels(), heights, strict=True):
        tick.set_color(CONDITIONS.get(condition, INK))
    drawing.label(
        drawn, [], "induced failures: share of what the full cache answers that the arm does not", "", key
    )
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


def _line(bar: Rate) -> Line:
    return bar.condition or "", bar.arm, bar.budget or 0.0


def _panel(axes: Axes, rates: Mapping[Line, Estimate], heights: Mapping[Line, float]) -> None:
    for line, rate in rates.items():
        at, colour = heights[line], CONDITIONS.get(line[0], INK)
        if rate.value is None:
            _write(axes, "undefined", (0, at), 7, INK)
            continue
        axes.barh([at], [rate.value], height=0.78, color=colour, alpha=0.82)
        end = rate.value if rate.hi is None else max(rate.hi, rate.value)
        if rate.lo is not None and rate.hi is not None:
            axes.plot([rate.lo, rate.hi], [at, at], color=INK, linewidth=1.0)
        _write(axes, f"{100 * rate.value:.1f}", (end, at), 7, INK)
    for line in heights:
        if line not in rates:
            _write(axes, "not run", (0, heights[line]), 6.5, "#8a8a8a")
    for condition in dict.fromkeys(line[0] for line in heights):
        top = min(at for line, at in heights.items() if line[0] == condition)
        colour = CONDITIONS.get(condition, INK)
        axes.text(0.01, top - 0.75, WORDS.get(condition, condition), color=colour, fontsize=7.5)
    axes.tick_params(axis="y", length=0)
    drawing.grid(axes, "x")


# Table 5: accuracy by task, all models pooled; and every rate of every arm by task.


# The deterministic arms of the paper's table, each where it is run; a study without them has fewer columns.
BESIDE = (("h2o", "stream"), ("topk", "aware"))
REMARK = "Accuracy: share of successes, models and draws pooled. -: the suite does not run it."
BY_TASK = (
    *columns("suite", "task", "arm", "condition", "budget"),
    share("accuracy", "accuracy", "share of successes"),
    share("induced", "induced failures"),
    share("rescued"),
)
Found = dict[tuple[str | None, Place], Estimate]  # by task, None for the main tasks together, and place


def accuracy(scope: Scope) -> Part:
    """Table 5, tasks by arms; and a long table of all arms with accuracy, induced failures and rescues."""
    rows = tuple(row for suite in scope.suites for row in _all(scope, suite))
    title = "Rates by task, arm, condition and budget"
    made = Table("rates_by_task", title, BY_TASK, rows, (INDUCED,))
    briefs = [_brief(scope, suite, "accuracy", "accuracy") for suite in scope.planned]
    briefs += [_brief(scope, suite, "induced", "induced-failure rate") for suite in scope.suites]
    tables = (_table5(scope), made.briefly(*briefs))
    return Part("accuracy", "How much accuracy does eviction cost, task by task?", tables=tables)


def _found(scope: Scope, suite: Suite, which: str) -> Found:
    return {(rate.task, rate.place): rate.estimate for rate in rates_of(scope, suite, which)}


def _tasks(suite: Suite) -> list[str | None]:
    """Main tasks, what anchors them, and the main ones together."""
    anchors = [task for task in suite.tasks if task not in suite.main]
    return [*suite.main, *anchors, *([None] if suite.main else [])]


def _table5(scope: Scope) -> Table:
    found = {suite.name: _found(scope, suite, "accuracy") for suite in scope.suites}
    places: list[Place] = [(FULL, None, None)]
    run = {place for rates in found.values() for _, place in rates}
    wanted = [*BESIDE, *dict.fromkeys((suite.wanted.arm, "aware") for suite in scope.suites)]
    for arm, condition in dict.fromkeys(wanted):
        here = {place for place in run if place[:2] == (arm, condition)}
        places += sorted(here, key=lambda place: place[2] or 0.0)
    rows: list[Row] = [
        (suite.name, task or MAIN, *(found[suite.name].get((task, place), NOT_ASKED) for place in places))
        for suite in scope.suites
        for task in _tasks(suite)
    ]
    heads = (*columns("suite", "task"), *map(_column, places))
    return Table("table5", "Accuracy by task", heads, tuple(rows), (REMARK,))


def _column(place: Place) -> Column:
    arm, condition, budget = place
    key = ".".join(part if isinstance(part, str) else exactly(part) for part in place if part is not None)
    words = arm if budget is None else f"{arm} {condition} {budget_words(budget)}"
    meaning = (
        "accuracy of the full cache" if budget is None else f"accuracy of arm {key}: arm, condition, budget"
    )
    return share(key, words, meaning, bare=True)


def _all(scope: Scope, suite: Suite) -> Iterator[Row]:
    every, induced, rescued = (_found(scope, suite, which) for which in RATES)
    for (task, place), found in every.items():
        others = (rates.get((task, place), NOT_ASKED) for rates in (induced, rescued))
        yield (suite.name, task or MAIN, *_told(place), found, *others)


def _told(place: Place) -> Row:
    arm, condition, budget = place
    return arm, condition or "", "" if budget is None else budget


def _brief(scope: Scope, suite: Suite, which: str, title: str) -> Table:
    """A line for each place and a column for each task; people see the interval of the main tasks alone."""
    found = _found(scope, suite, which)
    tasks = [*suite.tasks, None]
    rows: list[Row] = [
        (*_told(place), *(found.get((task, place), NOT_ASKED) for task in tasks))
        for place in dict.fromkeys(place for _, place in found)
    ]
    heads = [share(task or MAIN, (task or MAIN)[:12], bare=task is not None) for task in tasks]
    return Table("", f"{title}, {suite.name}", (*columns("arm", "condition", "budget"), *heads), tuple(rows))
