"""A statistic that several others are made of, computed once on each batch of resamples."""

from collections.abc import Hashable
from dataclasses import replace

from analysis.statistics import Statistic
from analysis.statistics.base import Floats


def remembered(statistic: Statistic) -> Statistic:
    """The same statistic; for weights that are a part of one array, such as that of `Resamples`, kept.

    Nobody writes into the weights of resamples, and what is kept holds them, so their place in memory
    names them. What stands alone, such as the weights of the rows as observed, is computed each time.
    """
    known = dict[Hashable, tuple[Floats, Floats]]()

    def of(weights: Floats) -> Floats:
        if weights.base is None:
            return statistic.of(weights)
        place = (weights.__array_interface__["data"][0], weights.shape, weights.strides)
        if place not in known:
            known[place] = (weights, statistic.of(weights))
        return known[place][1]

    return replace(statistic, of=of)
