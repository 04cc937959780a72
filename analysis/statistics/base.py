"""Estimates, and statistics as functions of cluster multiplicities.

Weights: float64 (draws, clusters), whole numbers saying how often each cluster stands in a resample.
Values: float64 (draws,), NaN where a resample leaves the statistic undefined.
"""

from collections.abc import Callable, Sequence
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
    """A number and how sure we are; None is "undefined" or "unknown", never zero.

    Attributes:
        value: on the rows as observed.
        lo: lower end of the interval.
        hi: upper end of the interval.
        n: rows it rests on.
        clusters: clusters those rows belong to.
        undefined: why the value, or only the interval, is None; empty when both are there.
        note: what a reader should know beside the number.
    """

    value: float | None
    lo: float | None = None
    hi: float | None = None
    n: int = 0
    clusters: int = 0
    undefined: str = ""
    note: str = ""

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
    """A number as a function of cluster multiplicities.

    Attributes:
        of: weights to values.
        rows: ids of the rows it reads.
        undefined: why it has no value on the rows as observed; empty when it has one.
        note: carried into the estimate.
    """

    of: Callable[[Floats], Floats]
    rows: Integers
    undefined: str = ""
    note: str = ""


def undefined(reason: str, rows: Integers | None = None) -> Statistic:
    """A statistic without a value, and why."""
    return Statistic(
        of=lambda weights: np.full(len(weights), np.nan),
        rows=np.empty(0, np.int64) if rows is None else rows,
        undefined=reason,
    )


def difference(a: Statistic, b: Statistic) -> Statistic:
    """a - b on the same multiplicities."""
    return _combined(lambda weights: a.of(weights) - b.of(weights), [a, b])


def mean(parts: Sequence[Statistic]) -> Statistic:
    """The unweighted mean, for instance over seeds; undefined for no parts."""
    if not parts:
        return undefined("there is nothing to average")

    def of(weights: Floats) -> Floats:
        total = parts[0].of(weights)
        for part in parts[1:]:
            total = total + part.of(weights)
        return total / len(parts)

    return _combined(of, parts)


def ratio(a: Statistic, b: Statistic) -> Statistic:
    """a / b on the same multiplicities; no value where b is not above zero."""

    def of(weights: Floats) -> Floats:
        with np.errstate(over="ignore"):
            values = quotient(a.of(weights), b.of(weights))
        return np.where(np.isinf(values), np.nan, values)

    return _combined(of, [a, b])


def smallest(parts: Sequence[Statistic]) -> Statistic:
    """The smallest of them in each resample, for instance over budgets; undefined if any part is."""
    return _extreme(np.minimum.reduce, parts)


def largest(parts: Sequence[Statistic]) -> Statistic:
    """The largest of them in each resample; undefined if any part is."""
    return _extreme(np.maximum.reduce, parts)


def folded(statistic: Statistic) -> Statistic:
    """max(x, 1 - x): the AUC of a signal whose direction may be chosen afterwards."""

    def of(weights: Floats) -> Floats:
        values = statistic.of(weights)
        return np.maximum(values, 1 - values)

    return _combined(of, [statistic])


def count(estimates: Sequence[Estimate], holds: Callable[[Estimate], bool]) -> Estimate:
    """How many estimates fulfil a condition; undefined as soon as one of them lacks a number."""
    for estimate in estimates:
        if estimate.undefined:
            return Estimate(None, undefined=f"cannot be counted: {estimate.undefined}")
    return Estimate(float(sum(map(holds, estimates))), n=len(estimates))


def differs(values: NDArray[Any]) -> Bools:
    """Whether each value but the first differs from the one before it; a difference could overflow."""
    changed: Bools = values[1:] != values[:-1]
    return changed


def quotient(numerator: Floats, denominator: Floats) -> Floats:
    """numerator / denominator, NaN where the denominator is zero."""
    safe = np.where(denominator > 0, denominator, 1.0)
    ratio: Floats = np.where(denominator > 0, numerator / safe, np.nan)
    return ratio


def _extreme(choose: Callable[[list[Floats]], Floats], parts: Sequence[Statistic]) -> Statistic:
    if not parts:
        return undefined("there is nothing to choose from")
    # NaN wins in both directions: a part without a value is not passed over.
    return _combined(lambda weights: choose([part.of(weights) for part in parts]), parts)


def _combined(of: Callable[[Floats], Floats], parts: Sequence[Statistic]) -> Statistic:
    notes = dict.fromkeys(part.note for part in parts if part.note)
    return Statistic(
        of=of,
        rows=np.unique(np.concatenate([part.rows for part in parts])),
        undefined=next((part.undefined for part in parts if part.undefined), ""),
        note="; ".join(notes),
    )
