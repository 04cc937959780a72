"""Mann-Whitney AUC with ties as halves, weighted by cluster multiplicities."""

import numpy as np

from analysis.statistics.base import Bools, Floats, Integers, Statistic, differs, quotient, undefined


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
