"""The share of rows with an outcome."""

import numpy as np

from analysis.statistics.base import Bools, Floats, Integers, Statistic, quotient, undefined


def rate(outcome: Bools, cluster: Integers, rows: Integers) -> Statistic:
    """Mean of a yes-or-no outcome, all arguments (rows,)."""
    if not len(outcome):
        return undefined("no rows to take a rate of", rows)
    width = int(cluster.max()) + 1
    hits = np.bincount(cluster[outcome], minlength=width).astype(np.float64)
    all_rows = np.bincount(cluster, minlength=width).astype(np.float64)

    def of(weights: Floats) -> Floats:
        inside = weights[:, :width]
        return quotient(inside @ hits, inside @ all_rows)

    return Statistic(of, rows)
