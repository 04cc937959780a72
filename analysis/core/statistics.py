"""The statistics: AUC, gating, median, rate and rank correlation, and what is made of several of them.

Each is a function of cluster multiplicities, so the observed number is the case of all ones, and a difference
of two on the same multiplicities is paired by construction.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.core.estimates import Bools, Estimate, Floats, Integers, Statistic


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


# Mann-Whitney AUC with ties as halves, weighted by cluster multiplicities.


def auc(
    score: Floats,
    positive: Bools,
    cluster: Integers,
    rows: Integers,
    stratum: Integers | None = None,
) -> Statistic:
    """Probability that a positive row scores above a negative one, all arguments (rows,).

    With strata, pairs are formed within strata only and strata weigh by their number of pairs,
    n_positive * n_negative. Sums are whole or half numbers below 2^53, hence exact in any order.
    """
    stratum = np.zeros(len(score), np.int64) if stratum is None else stratum
    positives, negatives = np.flatnonzero(positive), np.flatnonzero(~positive)
    if not len(np.intersect1d(stratum[positives], stratum[negatives])):
        return undefined(f"one class only: {len(positives)} of {len(score)} rows are positive", rows)
    code = _dense_rank(stratum, score)
    negatives = negatives[np.argsort(code[negatives], kind="stable")]
    first = np.searchsorted(stratum[negatives], stratum[positives], "left")
    below = np.searchsorted(code[negatives], code[positives], "left")
    not_above = np.searchsorted(code[negatives], code[positives], "right")
    has_ties = bool((below < not_above).any())
    positive_counts = _counts(stratum, cluster, positive)
    negative_counts = _counts(stratum, cluster, ~positive)

    def of(weights: Floats) -> Floats:
        by_cluster = np.ascontiguousarray(weights.T)
        passed = np.zeros((len(negatives) + 1, len(weights)))
        np.cumsum(by_cluster[cluster[negatives]], axis=0, out=passed[1:])
        wins = passed[below]
        if has_ties:
            wins += passed[not_above]
            wins *= 0.5
        if first.any():
            wins -= passed[first]
        won = np.einsum("pd,pd->d", by_cluster[cluster[positives]], wins)
        inside = weights[:, : positive_counts.shape[1]]
        pairs = ((inside @ positive_counts.T) * (inside @ negative_counts.T)).sum(axis=1)
        return quotient(won, pairs)

    return Statistic(of, rows)


def _dense_rank(stratum: Integers, score: Floats) -> Integers:
    """Whole numbers that rise with (stratum, score); equal pairs share one."""
    order = np.lexsort((score, stratum))
    rises = differs(score[order]) | differs(stratum[order])
    rank = np.empty(len(score), np.int64)
    rank[order] = np.concatenate([[0], np.cumsum(rises)]) if len(score) else []
    return rank


def _counts(stratum: Integers, cluster: Integers, chosen: Bools) -> Floats:
    """Rows by (stratum, cluster)."""
    labels, codes = np.unique(stratum, return_inverse=True)
    width = int(cluster.max()) + 1
    flat = np.bincount(codes[chosen] * width + cluster[chosen], minlength=len(labels) * width)
    return flat.reshape(len(labels), width).astype(np.float64)


# Gating: a share q of the rows takes another outcome, chosen by score or at random.


def gated(
    score: Floats,
    before: Floats,
    after: Floats,
    q: float,
    cluster: Integers,
    rows: Integers,
) -> Statistic:
    """Mean outcome when the top q by score take `after` and the rest keep `before`, all (rows,).

    The quota is q times the (weighted) number of rows, fractions included; rows tied at the cut share
    what is left of it, which is the expectation over random orders of the ties. Ranks and cut are
    those of each resample.
    """
    if not len(score):
        return undefined("no rows to gate", rows)
    order = np.argsort(-score, kind="stable")
    starts = np.concatenate([[0], np.flatnonzero(differs(score[order])) + 1])
    member, old, new = cluster[order], before[order], after[order]
    has_ties = len(starts) < len(score)

    def of(weights: Floats) -> Floats:
        row_weights = np.ascontiguousarray(weights.T)[member]
        total = row_weights.sum(axis=0)
        size = np.add.reduceat(row_weights, starts, axis=0) if has_ties else row_weights
        share = np.cumsum(size, axis=0)
        share -= size  # what stands ahead
        np.subtract(q * total, share, out=share)
        share /= np.maximum(size, 1.0)
        np.clip(share, 0.0, 1.0, out=share)
        moved = row_weights * (new - old)[:, None]
        share *= np.add.reduceat(moved, starts, axis=0) if has_ties else moved
        kept = np.multiply(row_weights, old[:, None], out=moved).sum(axis=0)
        return quotient(kept + share.sum(axis=0), total)

    return Statistic(of, rows)


def random_gate(before: Floats, after: Floats, q: float, cluster: Integers, rows: Integers) -> Statistic:
    """Exact expectation of gating a random share q: (1 - q) mean(before) + q mean(after)."""
    if not len(before):
        return undefined("no rows to gate", rows)
    width = int(cluster.max()) + 1
    expected = np.bincount(cluster, (1 - q) * before + q * after, minlength=width)
    all_rows = np.bincount(cluster, minlength=width).astype(np.float64)

    def of(weights: Floats) -> Floats:
        inside = weights[:, :width]
        return quotient((inside * expected).sum(axis=1), inside @ all_rows)

    return Statistic(of, rows)


# The median, weighted by cluster multiplicities.


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


# The share of rows with an outcome.


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


# Spearman's rank correlation, weighted by cluster multiplicities.


def spearman(x: Floats, y: Floats, cluster: Integers, rows: Integers) -> Statistic:
    """Pearson's correlation of the midranks of x and y, all arguments (rows,).

    Ranks are those of each resample: a row that stands in it three times takes three of them. A resample
    in which x or y has one value only has none. Sums are whole numbers, exact below 2^53.
    """
    for name, values in (("x", x), ("y", y)):
        if np.isnan(values).any():
            return undefined(f"{name} is undefined in {np.isnan(values).sum()} of {len(values)} rows", rows)
    if not len(x):
        return undefined("no rows to rank", rows)
    if (x == x[0]).all() or (y == y[0]).all():
        return undefined(f"nothing to rank: all {len(x)} rows have one value", rows)
    by_x = np.argsort(x, kind="stable")
    # Everything below runs in the order of x, so that its ranks need no second look-up.
    member, y = cluster[by_x], y[by_x]
    by_y = np.argsort(y, kind="stable")
    group_x, start_x = _groups(x[by_x])
    group_y, start_y = _groups(y[by_y])
    back = np.empty_like(by_y)
    back[by_y] = group_y

    def of(weights: Floats) -> Floats:
        by_row = np.ascontiguousarray(weights.T)[member]
        rank_x = _centred(by_row, start_x)[group_x]
        rank_y = _centred(by_row[by_y], start_y)[back]
        weighted = by_row * rank_x
        across = np.einsum("nd,nd->d", weighted, rank_y)
        spread_x = np.einsum("nd,nd->d", weighted, rank_x)
        np.multiply(by_row, rank_y, out=weighted)
        spread_y = np.einsum("nd,nd->d", weighted, rank_y)
        spread = np.sqrt(spread_x) * np.sqrt(spread_y)
        ratio: Floats = np.where(spread > 0, across / np.where(spread > 0, spread, 1.0), np.nan)
        return np.clip(ratio, -1.0, 1.0)  # rounding can leave the range by one unit in the last place

    return Statistic(of, rows)


def _groups(ordered: Floats) -> tuple[Integers, Integers]:
    """Code of the group of equal values for each row, and where each group starts, the end included."""
    rises = np.concatenate([[False], differs(ordered)])
    starts = np.concatenate([[0], np.flatnonzero(rises), [len(ordered)]])
    return np.cumsum(rises).astype(np.int64), starts.astype(np.int64)


def _centred(by_row: Floats, starts: Integers) -> Floats:
    """Twice the midrank of each group less its mean, (groups, draws): rows before it plus rows to its end."""
    passed = np.zeros((len(by_row) + 1, by_row.shape[1]))
    np.cumsum(by_row, axis=0, out=passed[1:])
    edges = passed[starts]
    centred: Floats = edges[:-1] + edges[1:] - passed[-1]
    return centred
