"""What a target is of the means of a signal's groups: its exact value, and how that moves with each mean.

Within a group a signal is normal with variance 1, so two groups' AUC is Phi of their distance over root 2.
"""

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
ROOT2 = math.sqrt(2)


class Wanted(Protocol):
    """A number that the means decide."""

    target: float

    def at(self, means: Floats) -> tuple[float, Floats]:
        """Its value, and its derivative by every mean."""
        ...


@dataclass(frozen=True)
class PooledAuc:
    """AUC of the groups counted in `positive`, (groups,), against those in `negative`."""

    target: float
    positive: Floats
    negative: Floats

    def at(self, means: Floats) -> tuple[float, Floats]:
        """See `Wanted`."""
        up, down = np.flatnonzero(self.positive), np.flatnonzero(self.negative)
        high, low = self.positive[up], self.negative[down]
        apart = (means[up][:, None] - means[down][None, :]) / ROOT2
        pairs = high.sum() * low.sum()
        slope = density(apart) / ROOT2
        gradient = np.zeros_like(means)
        gradient[up] += high * (slope @ low) / pairs
        gradient[down] -= low * (high @ slope) / pairs
        return float(high @ below(apart) @ low / pairs), gradient


@dataclass(frozen=True)
class TopShare:
    """Mean change where the top share q by signal changes, less chance if `is_gain`; arrays: (groups,)."""

    target: float
    count: Floats
    change: Floats
    q: float
    is_gain: bool = True

    def at(self, means: Floats) -> tuple[float, Floats]:
        """See `Wanted`. The cut moves with the means, so that the share stays q."""
        total = self.count.sum()
        cut = self._cut(means)
        above = below(means - cut)
        at_cut = self.count * density(means - cut)
        typical = float(at_cut @ self.change / at_cut.sum())
        value = float(self.count @ (above * self.change)) / total
        if self.is_gain:
            value -= self.q * float(self.count @ self.change) / total
        return value, at_cut * (self.change - typical) / total

    def _cut(self, means: Floats) -> float:
        low, high = float(means.min()) - 10, float(means.max()) + 10
        for _ in range(80):
            middle = (low + high) / 2
            if self.count @ below(means - middle) > self.q * self.count.sum():
                low = middle
            else:
                high = middle
        return (low + high) / 2


@dataclass(frozen=True)
class Kept:
    """Mean of `failed` among the share `coverage` of the rows with the smallest signal."""

    target: float
    count: Floats
    failed: Floats
    coverage: float

    def at(self, means: Floats) -> tuple[float, Floats]:
        """See `Wanted`. What is kept is what the top share leaves."""
        top = TopShare(0.0, self.count, self.failed, 1 - self.coverage, is_gain=False)
        value, gradient = top.at(means)
        every = float(self.count @ self.failed / self.count.sum())
        return (every - value) / self.coverage, -gradient / self.coverage


def below(x: Floats) -> Floats:
    """The normal distribution function, to 1e-7 (Abramowitz and Stegun 7.1.26)."""
    size = np.abs(x) / ROOT2
    t = 1 / (1 + 0.3275911 * size)
    series = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    tail = series * np.exp(-size * size) / 2
    return np.where(x >= 0, 1 - tail, tail)


def density(x: Floats) -> Floats:
    """The normal density."""
    return np.exp(-x * x / 2) / math.sqrt(2 * math.pi)
