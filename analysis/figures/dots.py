"""Dots with intervals on one share axis: AUCs beside chance, their stratified values and bare labels."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import MultipleLocator

from analysis.figures.style import INK, grid
from analysis.statistics import Estimate

CHANCE = 0.5
SMALL = 3.4  # points across, of a stratified value
BELOW = 0.27  # of a line, from an AUC to its stratified value
TICK = 0.24  # of a line, half of the tick of a bare label
MARKS = "open dot: pairs within model, task, condition, budget; grey tick: the label condition x budget alone"


def with_interval(axes: Axes, found: Estimate, height: float, colour: str) -> None:
    """One dot and its interval, if there are any."""
    if found.value is None:
        return
    if found.lo is not None and found.hi is not None:
        axes.plot([found.lo, found.hi], [height, height], color=colour, linewidth=1.6, solid_capstyle="butt")
    axes.plot([found.value], [height], color=colour, marker="o", markersize=5.5)


def stratified(axes: Axes, found: Estimate, height: float, colour: str) -> None:
    """A small open dot a little below the pooled one."""
    if found.value is not None:
        at = height + BELOW
        axes.plot([found.value], [at], color=colour, marker="o", markersize=SMALL, markerfacecolor="white")


def baseline(axes: Axes, found: Estimate, height: float) -> None:
    """A grey tick where the bare condition x budget label stands."""
    if found.value is not None:
        ends = [height - TICK, height + TICK]
        axes.plot([found.value] * 2, ends, color="#8a8a8a", linewidth=2.2, solid_capstyle="butt", zorder=1)


def chance(axes: Axes) -> None:
    """The line that a signal without information lies on, named at its top."""
    axes.axvline(CHANCE, color=INK, linewidth=0.9, linestyle=(0, (4, 3)), zorder=0)
    axes.annotate(
        "chance",
        (CHANCE, 1.0),
        xycoords=("data", "axes fraction"),
        xytext=(0, 2),
        textcoords="offset points",
        ha="center",
        fontsize=7.5,
        color="#505050",
    )


def shares(axes: Axes, every: Sequence[Estimate]) -> None:
    """A share axis that holds all these and chance, with ticks people read."""
    ends = [end for one in every for end in (one.value, one.lo, one.hi) if end is not None]
    low, high = min([*ends, CHANCE - 0.05]), max([*ends, CHANCE + 0.05])
    room = 0.04 * (high - low)
    axes.set_xlim(max(low - room, -0.02), min(high + room, 1.02))
    axes.xaxis.set_major_locator(MultipleLocator(0.1 if high - low < 0.65 else 0.2))
    grid(axes, "x")


def lines(axes: Axes, words: Sequence[str]) -> None:
    """One line for each name, the first on top."""
    axes.set_yticks(range(len(words)), words)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(words) - 0.4, -0.6)
