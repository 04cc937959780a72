"""Coverage and error by layer."""

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from analysis.attention import Attention
from analysis.figures.style import SERIES, TINY, coverage_limits, figure, grid, percent_axis, plain_log
from analysis.tables.base import budget_words


def layers(one: Attention) -> Figure:
    """Two panels on one axis of layers, a line for each budget."""
    drawn = figure(4.4)
    top, bottom = drawn.subplots(2, 1, sharex=True)
    budgets = list(dict.fromkeys(row.budget for row in one.layers))
    bottom.set_yscale("log")
    medians, covered = [], []
    for budget, (colour, marker) in zip(budgets, SERIES * len(budgets), strict=False):
        rows = [row for row in one.layers if row.budget == budget]
        at = [row.layer for row in rows]
        coverage = np.array([row.coverage.value for row in rows], np.float64)
        median = np.array([row.hajek.value for row in rows], np.float64)
        look = {"color": colour, "marker": marker, "label": f"budget {budget_words(budget)}"}
        top.plot(at, coverage, **look)
        bottom.plot(at, np.where(median > TINY, median, np.nan), **look)
        covered += coverage.tolist()
        medians += median[median > TINY].tolist()
    top.set_ylim(*coverage_limits(covered))
    percent_axis(top.yaxis)
    top.set_ylabel("covered cells")
    if medians:
        low, high = min(medians) / 1.3, max(medians) * 1.3
        bottom.set_ylim(low, high)
        plain_log(bottom.yaxis, low, high)
    bottom.set_ylabel("median relative error")
    bottom.set_xlabel("layer, from input to output")
    bottom.xaxis.set_major_locator(MaxNLocator(nbins=15, integer=True))
    bottom.set_xlim(-0.6, max(row.layer for row in one.layers) + 0.6)
    for panel in (top, bottom):
        grid(panel, "both")
    handles, words = top.get_legend_handles_labels()
    drawn.legend(handles, words, loc="outside upper left", ncols=len(budgets))
    return drawn
