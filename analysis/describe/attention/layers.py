"""Coverage and error by layer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from analysis.core.data import CellData
from analysis.core.estimates import Estimate
from analysis.describe.drawing import SERIES, TINY, coverage_limits, figure, grid, percent_axis, plain_log
from analysis.describe.table import budget_words

if TYPE_CHECKING:
    from analysis.describe.attention.describe import Attention


@dataclass(frozen=True)
class Layer:
    """All cells of one layer at one budget."""

    budget: float
    layer: int
    coverage: Estimate
    hajek: Estimate  # median error of Poisson with the offset
    certificate: Estimate  # median


def by_layer(data: CellData) -> Iterator[Layer]:
    """One row per budget and layer."""
    for budget, rows in data.by_budget().items():
        for layer in np.unique(rows["layer"]):
            group = rows[rows["layer"] == layer]
            yield Layer(
                float(budget),
                int(layer),
                coverage=data.estimate(data.coverage(group)),
                hajek=data.estimate(data.median(group, "hajek")),
                certificate=data.estimate(data.median(group, "certificate")),
            )


def layers_figure(one: Attention) -> Figure:
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
