"""Coverage where attention falls on tokens that were all but sure to be evicted (pi < 1e-3).

The certificate sees only what was kept: a token of low pi that mattered and was not drawn leaves no trace.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from analysis.cells import CellData
from analysis.statistics import Estimate

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
