"""Figure 1: a bar for each arm and budget, a panel for each suite."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.descriptive.induced import Bar
from analysis.figures.style import (
    COLUMNS,
    INK,
    NAVY,
    ORANGE,
    figure,
    grid,
    keyed,
    label,
    percent_axis,
    shortened_all,
    titles,
)
from analysis.tables.base import budget_words

CONDITIONS = {"aware": NAVY, "stream": ORANGE}
WORDS = {"aware": "aware (question known)", "stream": "stream (question unknown)"}
LINE, GAP, EDGES = 0.17, 0.5, 0.95  # inches for a bar, bars between arms, inches for titles and axis
Line = tuple[str, str, float]  # condition, arm, budget


def induced_rates(bars: Sequence[Bar]) -> Figure:
    """Bars with intervals, aware above stream; a bar that no suite has takes no room."""
    suites = list(dict.fromkeys(bar.suite for bar in bars))
    lines = sorted({(bar.condition, bar.arm, bar.budget) for bar in bars})
    heights = _heights(lines)
    columns = min(len(suites), COLUMNS)
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
    first.set_yticks(list(heights.values()), [_words(line, lines, names) for line in heights])
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


def _words(line: Line, lines: Sequence[Line], names: Mapping[str, str]) -> str:
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
