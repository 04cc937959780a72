"""How the errors of the four estimators are distributed."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from analysis.cells import CellData

# In the order of tables: the design, then what it is compared with. Uniform draws have the offset too.
ESTIMATORS = {
    "hajek": "Poisson",
    "topk": "top-k",
    "no_offset": "Poisson, no offset",
    "uniform": "uniform",
}
SHARES = (0.05, 0.25, 0.5, 0.75, 0.95)


@dataclass(frozen=True)
class Spread:
    """Quantiles of the relative error of one estimator at one budget."""

    budget: float
    estimator: str  # a column of the cells
    q05: float
    q25: float
    q50: float
    q75: float
    q95: float


def spreads(data: CellData) -> Iterator[Spread]:
    """One row per budget and estimator."""
    for budget, rows in data.by_budget().items():
        for name in ESTIMATORS:
            found = np.quantile(rows[name].to_numpy(np.float64), SHARES, method="linear")
            yield Spread(float(budget), name, *map(float, found))
