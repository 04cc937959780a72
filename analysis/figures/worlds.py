"""The impossibility demonstration: what moves in worlds that look the same to top-k."""

from collections.abc import Iterator

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path

from analysis.attention import Attention
from analysis.attention.demonstration import Demonstration, ranges
from analysis.figures.style import INK, NAVY, ORANGE, figure, grid, plain_log
from analysis.tables.base import digits

BARS = 120  # cells shown at most; more would run into each other
FLOOR = 1e-9  # stands for an error of 0, which a log axis has no place for; its inverse for the far end
NOUNS = {"permutation": "values permuted", "rotation": "values rotated"}


def worlds(one: Attention) -> Figure:
    """A row for each change: the range of top-k's error by cell, and certificate and error by world."""
    found = one.demonstrations
    drawn = figure(0.7 + 2.6 * len(found))
    panels = drawn.subplots(len(found), 2, sharey="col", squeeze=False, width_ratios=(1.2, 1))
    step = max(1, -(-max(of.cells for of in found) // BARS))
    for (left, right), of in zip(panels, found, strict=True):
        _ranges(left, one, of, step)
        _by_world(right, of)
    ends = np.array([left.dataLim.intervaly for left in panels[:, 0]])
    low, high = float(ends.min()) / 1.2, float(ends.max()) * 1.2
    panels[0, 0].set_ylim(low, high)
    plain_log(panels[0, 0].yaxis, low, high)
    panels[0, 1].set_ylim(bottom=0)
    which = "all cells" if step == 1 else f"one in {step} cells"
    panels[-1, 0].set_xlabel(
        f"{which} (prompt, layer, head), sorted, the\nhighest included; bar: range over the changed worlds"
    )
    panels[-1, 1].set_xlabel("world; 0 is the unchanged one")
    handles, words = panels[0, 1].get_legend_handles_labels()
    drawn.legend(handles, words, loc="outside upper left", ncols=3)
    return drawn


def _ranges(axes: Axes, one: Attention, of: Demonstration, step: int) -> None:
    """Bars from the smallest to the largest error of a cell over the changed worlds, 1 being unchanged."""
    rows = ranges(one.worlds[one.worlds["change"] == of.change])
    ends = rows[["low", "high"]].div(rows["unchanged"], axis=0).to_numpy(np.float64)
    low, high = np.clip(ends[np.isfinite(ends).all(axis=1)].T, FLOOR, 1 / FLOOR)
    order = np.lexsort((low, high))
    chosen = order[::-1][::step][::-1]  # from the highest down
    corners = [(at, end) for at, cell in enumerate(chosen) for end in (low[cell], high[cell])]
    axes.set_yscale("log")
    if corners:
        bars = Path(corners, np.tile([Path.MOVETO, Path.LINETO], len(chosen)))
        axes.add_patch(PathPatch(bars, edgecolor=ORANGE, linewidth=1.6, capstyle="butt", fill=False))
    axes.axhline(1, color=INK, linewidth=1.0)
    axes.set_xlim(-2, len(chosen) + 1)
    axes.set_xticks([])
    axes.set_ylabel("true error of top-k,\ntimes the unchanged one")
    axes.set_title("\n".join(_title(of)), fontsize=8.5)
    grid(axes)


def _title(of: Demonstration) -> Iterator[str]:
    yield f"{NOUNS.get(of.change, of.change)}; score {of.score}, {of.prompts} prompts"
    yield f"alike to top-k in {of.identical:,} of {of.compared:,} (prompt, layer); its error:"
    numbers = (of.median_rise, of.largest_rise, of.median_mean_rise)
    if all(number is not None for number in numbers):
        median, most, mean = (digits(number, "number") for number in numbers if number is not None)
        yield f"largest of {of.changed} worlds {median}-fold (median cell), at most {most}-fold;"
        yield f"mean of {of.changed} worlds {mean}-fold (median cell)"


def _by_world(axes: Axes, of: Demonstration) -> None:
    at = [row.world for row in of.worlds]
    axes.plot(
        at, [row.certificate for row in of.worlds], color=NAVY, marker="o", label="Poisson: mean certificate"
    )
    axes.plot(at, [row.hajek for row in of.worlds], color=INK, marker="D", label="Poisson: mean true error")
    axes.plot(at, [row.topk for row in of.worlds], color=ORANGE, marker="s", label="top-k: mean true error")
    axes.set_xticks(at)
    axes.set_ylabel("relative error")
    covered = [row.coverage.value for row in of.worlds if row.coverage.value is not None]
    if covered:
        low, high = f"{100 * min(covered):.1f}", f"{100 * max(covered):.1f}"
        words = f"Poisson, score {of.score}, same keep set:\ncovered {low} to {high} % of cells by world"
        axes.set_title(words, fontsize=8.5)
    grid(axes)
