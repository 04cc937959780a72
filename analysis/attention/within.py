"""Spearman correlation inside one query head of one layer.

A certificate that only knew which heads are hard would correlate with the error in the pool, not here.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd


@dataclass(frozen=True)
class Within:
    """Correlation of certificate and error over prompts, seeds and queries, by (layer, head).

    Attributes:
        median: over (layer, head); None if none has a correlation.
        groups: number of (layer, head).
        undefined: those without a correlation, because one of the two does not vary.
    """

    median: float | None
    groups: int
    undefined: int


def within(rows: pd.DataFrame) -> Within:
    """Cells of one model and budget."""
    keys = [rows["layer"], rows["head"]]
    ranks = rows[["certificate", "hajek"]].groupby(keys).rank(method="average")
    centred = ranks - ranks.groupby(keys).transform("mean")
    products = pd.DataFrame(
        {
            "both": centred["certificate"] * centred["hajek"],
            "certificate": centred["certificate"] ** 2,
            "hajek": centred["hajek"] ** 2,
        }
    )
    both, *spreads = products.groupby(keys).sum().to_numpy(np.float64).T
    spread = np.sqrt(spreads[0] * spreads[1])
    has_value = spread > 0
    found = both[has_value] / spread[has_value]
    return Within(float(np.median(found)) if len(found) else None, len(both), int((~has_value).sum()))
