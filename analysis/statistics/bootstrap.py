"""The percentile cluster bootstrap.

Clusters are resampled whole, within their stratum (as many as the stratum has), and rows are never
resampled inside them. One set of multiplicities serves every statistic of a claim, so differences
are paired. Indices come from raw PCG64 bits, whose stream NumPy guarantees; its Generator methods
may change between releases.
"""

import numpy as np

from analysis.statistics.base import Estimate, Floats, Integers, Statistic

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
