"""The impossibility demonstration: what moves in worlds that look the same to top-k."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path

from analysis.attention import Attention
from analysis.attention.demonstration import Demonstration, ranges
from analysis.figures.style import INK, NAVY, ORANGE, figure, grid, plain_log

BARS = 120  # cells shown, evenly spaced in the order; more would run into each other
FLOOR = 1e-9  # stands for an error of 0, which a log axis has no place for
NOUNS = {"permutation": "values permuted", "rotation": "values rotated"}


def worlds(one: Attention) -> Figure:
    """A row for each change: the range of top-k's error in every cell, and certificate and error by world."""
    found = one.demonstrations
    drawn = figure(0.6 + 2.3 * len(found))
    panels = drawn.subplots(len(found), 2, sharey="col", squeeze=False, width_ratios=(1.2, 1))
    for (left, right), of in zip(panels, found, strict=True):
        _ranges(left, one, of)
        _by_world(right, of)
    low = max(min(of.smallest for of in found), FLOOR) / 1.3
    high = max(max(of.largest for of in found), FLOOR) * 1.3
    panels[0, 0].set_ylim(low, high)
    plain_log(panels[0, 0].yaxis, low, high)
    panels[0, 1].set_ylim(bottom=0)
    panels[-1, 0].set_xlabel("cells (prompt, layer, head), sorted")
    panels[-1, 1].set_xlabel("world; 0 is the unchanged one")
    handles, words = panels[0, 1].get_legend_handles_labels()
    drawn.legend(handles, words, loc="outside upper left", ncols=3)
    return drawn


def _ranges(axes: Axes, one: Attention, of: Demonstration) -> None:
    """Bars from the smallest to the largest error of a cell over the changed worlds."""
    rows = ranges(one.worlds[one.worlds["change"] == of.change])
    low, high = np.maximum(rows.to_numpy(np.float64).T, FLOOR)
    order = np.argsort(low * high, kind="stable")
    chosen = order[np.unique(np.linspace(0, len(order) - 1, min(BARS, len(order))).round().astype(int))]
    ends = [(at, end) for at, cell in enumerate(chosen) for end in (low[cell], high[cell])]
    codes = np.tile([Path.MOVETO, Path.LINETO], len(chosen))
    axes.set_yscale("log")
    axes.add_patch(PathPatch(Path(ends, codes), edgecolor=ORANGE, linewidth=1.4, fill=False))
    axes.set_xlim(-2, len(chosen) + 1)
    axes.set_xticks([])
    axes.set_ylabel("true relative error of top-k,\nsmallest to largest")
    same = f"in {of.identical:,} of {of.compared:,} (prompt, layer) all {of.changed + 1} worlds"
    moves = "" if of.median_ratio is None else f"; its error moves {of.median_ratio:.3g}-fold (median)"
    noun = NOUNS.get(of.change, of.change)
    axes.set_title(f"{noun}: {same}\nlook the same to top-k{moves}", fontsize=8.5)
    grid(axes)


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
        axes.set_title(f"Poisson, same keep set:\ncovered {low} to {high} % of cells by world", fontsize=8.5)
    grid(axes)
