"""Coverage where attention falls on tokens that were all but sure to be evicted (pi < 1e-3).

The certificate sees only what was kept: a token of low pi that mattered and was not drawn leaves no trace.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from analysis.core.data import CellData
from analysis.core.estimates import Estimate
from analysis.describe.drawing import NAVY, coverage_limits, grid, label, panels, percent_axis
from analysis.describe.table import budget_words

if TYPE_CHECKING:
    from analysis.describe.attention.describe import Attention

EDGES = (0.0, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0)


@dataclass(frozen=True)
class Rare:
    """Cells of one budget whose share of attention on pi < 1e-3 is in [low, high), or in [low, 1]."""

    budget: float
    low: float
    high: float
    cells: int
    coverage: Estimate


def by_rare_attention(data: CellData) -> Iterator[Rare]:
    """One row per budget and bin, empty bins too."""
    for budget, rows in data.by_budget().items():
        bins = np.searchsorted(EDGES[1:-1], rows["rare_attention"].to_numpy(np.float64), side="right")
        for at, (low, high) in enumerate(itertools.pairwise(EDGES)):
            group = rows[bins == at]
            if len(group):
                coverage = data.estimate(data.coverage(group))
            else:
                coverage = Estimate(None, undefined="no cell has such a share")
            yield Rare(float(budget), low, high, len(group), coverage)


# Coverage where attention falls on tokens that were all but sure to be evicted.


def rare_figure(one: Attention) -> Figure:
    """One panel per budget, a line for each bin: share, interval, number of cells."""
    budgets = list(dict.fromkeys(row.budget for row in one.rare))
    drawn, places = panels(len(budgets), 2.9)
    known = [end for row in one.rare for end in (row.coverage.value, row.coverage.lo) if end is not None]
    low, high = coverage_limits(known or [0.0])
    count_at = high + (high - low) * 0.03
    for panel, budget in zip(places, budgets, strict=True):
        rows = [row for row in one.rare if row.budget == budget]
        heights = list(range(len(rows)))
        value, lower, upper = (
            np.array([getattr(row.coverage, name) for row in rows], np.float64)
            for name in ("value", "lo", "hi")
        )
        spread = np.vstack([value - lower, upper - value])
        panel.errorbar(value, heights, xerr=spread, color=NAVY, marker="o", linestyle="none", elinewidth=1.4)
        for row, height in zip(rows, heights, strict=True):
            if row.coverage.value is None:
                middle = (low + high) / 2
                panel.text(
                    middle, height, "no cells", ha="center", va="center", fontsize=7.5, color="#505050"
                )
            panel.text(count_at, height, f"{row.cells:,}", va="center", fontsize=7.5, color="#505050")
        panel.text(count_at, -0.85, "cells", va="center", fontsize=7.5, color="#505050")
        panel.set_title(f"budget {budget_words(budget)}")
        panel.set_xlim(low, high)
        percent_axis(panel.xaxis)
        panel.locator_params(axis="x", nbins=4)
        grid(panel, "both")
    edges = list(itertools.pairwise(EDGES))
    places[0].set_yticks(range(len(edges)), [_bin(*edge) for edge in edges])
    places[0].set_ylim(len(edges) - 0.5, -0.6)
    across = "covered cells, with the interval over prompts"
    label(drawn, places, across, "share of attention on\ntokens with pi below 0.001")
    return drawn


def _bin(low: float, high: float) -> str:
    if low == 0:
        return f"below {_edge(high)}"
    return f"{_edge(low)} and more" if high == 1 else f"{_edge(low)} to {_edge(high)}"


def _edge(share: float) -> str:
    return f"{share:g}" if share >= 1e-3 else f"{share:.0e}".replace("e-0", "e-")
