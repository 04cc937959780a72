"""Coverage and error by layer."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from analysis.cells import CellData
from analysis.statistics import Estimate


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
