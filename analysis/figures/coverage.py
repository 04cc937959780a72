"""Risk-coverage curves: a panel for each suite, a line for each signal, a rule at the error of all."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.descriptive.coverage import one_class
from analysis.figures.style import COLUMNS, GREY, INK, NAVY, ORANGE, grid, label, panels, percent_axis, titles

if TYPE_CHECKING:
    from analysis.descriptive.coverage import Ranking

COLOURS = {"certificate": NAVY, "output_logprob": ORANGE}
WORDS = {"certificate": "certificate", "output_logprob": "log-probability"}
POINTS = 200  # of a line, whatever the number of answers
FIRST = 0.05  # coverage below which single answers make the line jump
HEIGHT = 2.9
TICKS = (0.2, 0.4, 0.6, 0.8, 1.0)  # not 0, which would meet the 100 % of the panel before
ROOM = 1.18  # above the highest line, for its name


def coverage(rankings: Sequence["Ranking"]) -> Figure:
    """The drawing; every ranking has its curve. Where all answers fail or none does, it says so."""
    suites = list(dict.fromkeys(one.suite for one in rankings))
    figure, places = panels(len(suites), HEIGHT)
    by_suite = [[one for one in rankings if one.suite == suite] for suite in suites]
    tasks = [f", {here[0].tasks} tasks" for here in by_suite]
    key = titles(places, suites, min(len(suites), COLUMNS), tasks)
    for here, axes in zip(by_suite, places, strict=True):
        if level := one_class(here):
            _flat(axes, here[0], level)
        else:
            for one in here:
                _line(axes, one)
            _names(axes, here)
        axes.set_xlim(0, 1.02)
        axes.set_xticks(TICKS)
        percent_axis(axes.xaxis)
        percent_axis(axes.yaxis)
        grid(axes)
    places[0].set_ylim(0, ROOM * max(float(_points(one)[1].max()) for one in rankings) or 1)
    label(figure, places, "coverage: share of the answers that pass, lowest risk first", "error", key)
    return figure


def _flat(axes: Axes, one: "Ranking", level: str) -> None:
    """One line for all signals, which would lie on each other, and why there is nothing to see."""
    axes.plot(*_points(one), color=INK)
    words = f"{level},\nso there is nothing to rank"
    axes.text(0.5, 0.5, words, transform=axes.transAxes, ha="center", va="center", fontsize=8.5)


def _line(axes: Axes, one: "Ranking") -> None:
    across, up = _points(one)
    colour = COLOURS.get(one.signal, INK)
    axes.plot(across, up, color=colour)
    if one.at_all.value is not None:
        axes.axhline(one.at_all.value, color=GREY, linewidth=0.9, linestyle=(0, (4, 3)), zorder=0)
    if one.at_share.value is not None:
        axes.plot([0.3], [one.at_share.value], marker="o", color=colour, linestyle="none")


def _points(one: "Ranking") -> tuple[np.ndarray, np.ndarray]:
    assert one.curve is not None
    count = len(one.curve)
    first = min(count, max(1, round(FIRST * count)))
    at = np.unique(np.linspace(first, count, POINTS).round().astype(int))
    return at / count, one.curve[at - 1]


def _names(axes: Axes, here: Sequence["Ranking"]) -> None:
    """A name at each line: above the upper one and below the lower one, where they are furthest apart."""
    shares = np.linspace(0.5, 0.58, 5)  # a name as long as half a panel ends or begins here
    heights = [np.interp(shares, *_points(one)) for one in here]
    at = int(np.argmax(np.abs(heights[0] - heights[-1]))) if len(here) > 1 else 2
    mean = float(np.mean([height[at] for height in heights]))
    for one, height in zip(here, heights, strict=True):
        is_upper = height[at] > mean or (len(here) > 1 and one is here[0] and height[at] == mean)
        axes.annotate(
            WORDS.get(one.signal, one.signal),
            (shares[at], height[at]),
            xytext=(-4, 7) if is_upper else (4, -8),
            textcoords="offset points",
            ha="right" if is_upper else "left",
            va="bottom" if is_upper else "top",
            color=COLOURS.get(one.signal, INK),
            fontsize=8.5,
        )
