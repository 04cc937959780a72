"""Coverage at other values of delta, recomputed from what the cells log, with and without the b term."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.cells import CellData
from analysis.statistics import Estimate
from analysis.statistics.base import Floats

DELTAS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5)
FLOOR = 1e-9  # added to norms; without weight against any real output


@dataclass(frozen=True)
class Calibrated:
    """Share of cells whose error the radius for one delta bounds; at least 1 - delta is promised."""

    budget: float
    delta: float
    coverage: Estimate
    without_b: Estimate


def calibration(data: CellData) -> Iterator[Calibrated]:
    """One row per budget and delta."""
    for budget, rows in data.by_budget().items():
        error = (rows["hajek"] * (rows["norm"] + FLOOR)).to_numpy(np.float64)
        for delta in DELTAS:
            root, linear = radius(rows, delta)
            yield Calibrated(
                float(budget),
                delta,
                coverage=data.estimate(data.share(rows, error <= root + linear)),
                without_b=data.estimate(data.share(rows, error <= root)),
            )


def radius(rows: pd.DataFrame, delta: float) -> tuple[Floats, Floats]:
    """The two terms of eq. (4), in units of the output: sqrt(2 V log(1/delta)) and b log(1/delta)."""
    log = np.log(1 / delta)
    root = np.sqrt(2 * rows["variance"].to_numpy(np.float64) * log)
    return root, rows["largest"].to_numpy(np.float64) * log
