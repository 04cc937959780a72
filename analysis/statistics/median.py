"""The median, weighted by cluster multiplicities."""

import numpy as np

from analysis.statistics.base import Floats, Integers, Statistic, undefined


def median(values: Floats, cluster: Integers, rows: Integers) -> Statistic:
    """The middle value of each resample, or the mean of the two in the middle; all arguments (rows,)."""
    if np.isnan(values).any():
        return undefined(f"undefined in {np.isnan(values).sum()} of {len(values)} rows", rows)
    if not len(values):
        return undefined("no rows to take a median of", rows)
    order = np.argsort(values, kind="stable")
    member, ordered = cluster[order], values[order]

    def of(weights: Floats) -> Floats:
        passed = np.cumsum(np.ascontiguousarray(weights.T)[member], axis=0)
        total = passed[-1]
        lower, upper = (
            ordered[np.minimum((passed < place).sum(axis=0), len(ordered) - 1)]
            for place in (np.ceil(total / 2), np.floor(total / 2) + 1)
        )
        return np.where(total > 0, _between(lower, upper), np.nan)

    return Statistic(of, rows)


def _between(lower: Floats, upper: Floats) -> Floats:
    """The mean of two, also where their sum leaves the floats."""
    with np.errstate(over="ignore"):
        both = lower + upper
    return np.where(np.isfinite(both), both / 2, lower / 2 + upper / 2)
