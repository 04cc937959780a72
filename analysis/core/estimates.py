"""A number with its interval, and the percentile cluster bootstrap that gives it.

Weights: float64 (draws, clusters), whole numbers saying how often each cluster stands in a resample.
Values: float64 (draws,), NaN where a resample leaves the statistic undefined.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Estimate:
    """A number and how sure we are; None is "undefined" or "unknown", never zero."""

    value: float | None  # on the rows as observed
    lo: float | None = None  # lower end of the interval
    hi: float | None = None  # upper end of the interval
    n: int = 0  # rows it rests on
    clusters: int = 0  # clusters those rows belong to
    undefined: str = ""  # why the value, or only the interval, is None; empty when both are there
    note: str = ""  # what a reader should know beside the number

    def __str__(self) -> str:
        """For tables: 0.555 [0.543, 0.568]."""
        if self.value is None:
            return "undefined"
        if self.lo is None or self.hi is None:
            return f"{self.value:.3f}"
        return f"{self.value:.3f} [{self.lo:.3f}, {self.hi:.3f}]"

    def noted(self, note: str) -> "Estimate":
        """The same estimate with one more remark."""
        return replace(self, note="; ".join(part for part in (self.note, note) if part))


class Later(Estimate):
    """An estimate whose interval is computed when it is asked for, and which keeps no notes."""

    def __init__(self, point: Estimate, whole: Callable[[], Estimate]) -> None:
        """`whole` returns the estimate with its interval."""
        for name in ("value", "n", "clusters", "undefined"):
            object.__setattr__(self, name, getattr(point, name))
        object.__setattr__(self, "note", "")
        object.__setattr__(self, "_whole", cache(whole))

    def __getattribute__(self, name: str) -> Any:
        if name in ("lo", "hi"):
            return getattr(object.__getattribute__(self, "_whole")(), name)
        return object.__getattribute__(self, name)

    def __str__(self) -> str:
        """Nothing: only notes spell an estimate out."""
        return ""

    def noted(self, note: str) -> "Later":
        """The same."""
        return self


@dataclass(frozen=True)
class Statistic:
    """A number as a function of cluster multiplicities."""

    of: Callable[[Floats], Floats]  # weights to values
    rows: Integers  # ids of the rows it reads
    undefined: str = ""  # why it has no value on the rows as observed; empty when it has one
    note: str = ""  # carried into the estimate


# The percentile cluster bootstrap.
#
# Clusters are resampled whole, within their stratum (as many as the stratum has), and rows are never
# resampled inside them. One set of multiplicities serves every statistic of a claim, so differences
# are paired. Indices come from raw PCG64 bits, whose stream NumPy guarantees; its Generator methods
# may change between releases.


# Draws evaluated together: bounds memory at rows x BATCH floats and keeps the working set small.
BATCH = 20


def uniform_indices(bits: np.random.PCG64, draws: int, count: int) -> Integers:
    """Draw whole numbers in [0, count), (draws, count), from the next draws * count raw words."""
    words = bits.random_raw(draws * count) >> np.uint64(11)
    return (words * 2.0**-53 * count).astype(np.int64).reshape(draws, count)


def multiplicities(stratum: Integers, draws: int, seed: int) -> Floats:
    """How often each cluster stands in each resample, (draws, clusters).

    Args:
        stratum: (clusters,) code of the stratum that each cluster is resampled within.
        draws: number of resamples.
        seed: of the bit stream; strata use it one after another, in the order of their codes.
    """
    bits = np.random.PCG64(seed)
    weights = np.zeros((draws, len(stratum)))
    for code in np.unique(stratum):
        members = np.flatnonzero(stratum == code)
        drawn = uniform_indices(bits, draws, len(members))
        flat = (drawn + np.arange(draws)[:, None] * len(members)).ravel()
        counted = np.bincount(flat, minlength=draws * len(members))
        weights[:, members] = counted.reshape(draws, len(members))
    return weights


class Resamples:
    """The resamples of one claim's population, and estimates on them."""

    def __init__(
        self,
        cluster: Integers,
        stratum: Integers,
        *,
        draws: int,
        level: float,
        min_clusters: int,
        undefined_max: float,
        seed: int,
    ) -> None:
        """Draw them.

        Args:
            cluster: (rows,) cluster of each row id.
            stratum: (clusters,) stratum of each cluster.
            draws: number of resamples.
            level: coverage of the interval, for instance 0.95.
            min_clusters: a statistic on fewer clusters has no interval.
            undefined_max: share of undefined resamples above which there is no interval.
            seed: of the bit stream.
        """
        self._cluster = cluster
        self._weights = multiplicities(stratum, draws, seed)
        self._tails = (round((1 - level) / 2, 12), round((1 + level) / 2, 12))
        self._min_clusters = min_clusters
        self._undefined_max = undefined_max

    def values(self, statistic: Statistic) -> Floats:
        """The statistic on every resample, (draws,)."""
        parts = [
            statistic.of(self._weights[start : start + BATCH])
            for start in range(0, len(self._weights), BATCH)
        ]
        return np.concatenate(parts)

    def point(self, statistic: Statistic) -> Estimate:
        """The statistic on the rows as observed, without an interval."""
        n, clusters = len(statistic.rows), len(np.unique(self._cluster[statistic.rows]))
        reason, value = statistic.undefined, np.nan
        if not reason:
            value = float(statistic.of(np.ones((1, self._weights.shape[1])))[0])
            reason = "" if np.isfinite(value) else "it has no value on these rows"
        known = None if reason else value
        return Estimate(known, n=n, clusters=clusters, undefined=reason, note=statistic.note)

    def estimate(self, statistic: Statistic) -> Estimate:
        """The statistic with its percentile interval, or the reason why there is none."""
        point = self.point(statistic)
        if point.value is None:
            return point
        lo, hi, reason = None, None, ""
        if point.clusters < self._min_clusters:
            reason = f"no interval under {self._min_clusters} clusters, here {point.clusters}"
        else:
            values = self.values(statistic)
            gaps = int(np.isnan(values).sum())
            if gaps > self._undefined_max * len(values):
                reason = f"no interval: undefined in {gaps} of {len(values)} resamples"
            else:
                ends = np.quantile(values[~np.isnan(values)], self._tails, method="linear")
                lo, hi = float(ends[0]), float(ends[1])
            if gaps and not reason:
                point = point.noted(f"undefined in {gaps} of {len(values)} resamples")
        return Estimate(point.value, lo, hi, point.n, point.clusters, undefined=reason, note=point.note)
