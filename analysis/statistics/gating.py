"""Gating: a share q of the rows takes another outcome, chosen by score or at random."""

import numpy as np

from analysis.statistics.base import Floats, Integers, Statistic, differs, quotient, undefined


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
