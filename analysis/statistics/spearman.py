"""Spearman's rank correlation, weighted by cluster multiplicities."""

import numpy as np

from analysis.statistics.base import Floats, Integers, Statistic, differs, undefined


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
