"""The main table: what the certificate is worth at each budget, and what each estimator costs."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis import statistics
from analysis.attention.within import Within, within
from analysis.cells import CellData
from analysis.statistics import Estimate, Statistic


@dataclass(frozen=True)
class ByBudget:
    """One budget of a suite. Errors are relative, |estimate - y| / |y|.

    Attributes:
        budget: share of the cached tokens that is kept.
        cells: (prompt, seed, query, layer, head) combinations.
        coverage: share of cells whose error is no larger than the certificate says.
        spearman: rank correlation of certificate and error, all cells.
        within: the same inside one query head of one layer.
        ratio: median certificate over median error.
        hajek: median error of Poisson with the offset; likewise `no_offset`, `topk`, `uniform`.
        lost: (no_offset - hajek) / (topk - hajek) of the medians, the share of Poisson's gain over top-k
            that goes without the offset; above 1 nothing is left of it.
        spent: mean of expected_kept / (budget * evictable); None where that leaves the floats.
        silent: share of cells with variance 0 although tokens were evicted.
    """

    budget: float
    cells: int
    coverage: Estimate
    spearman: Estimate
    within: Within
    ratio: Estimate
    hajek: Estimate
    no_offset: Estimate
    topk: Estimate
    uniform: Estimate
    lost: Estimate
    spent: float | None
    silent: float


def by_budget(data: CellData) -> Iterator[ByBudget]:
    """One row per budget, rising."""
    for budget, rows in data.by_budget().items():
        hajek, no_offset, topk, uniform, certificate = (
            data.median(rows, name) for name in ("hajek", "no_offset", "topk", "uniform", "certificate")
        )
        yield ByBudget(
            budget=float(budget),
            cells=len(rows),
            coverage=data.estimate(data.coverage(rows)),
            spearman=data.estimate(data.spearman(rows, "certificate", "hajek")),
            within=within(rows),
            ratio=data.estimate(statistics.ratio(certificate, hajek)),
            hajek=data.estimate(hajek),
            no_offset=data.estimate(no_offset),
            topk=data.estimate(topk),
            uniform=data.estimate(uniform),
            lost=_lost(data, no_offset, topk, hajek),
            spent=_spent(rows),
            silent=float(((rows["variance"] == 0) & (rows["kept"] < rows["evictable"])).mean()),
        )


def _lost(data: CellData, no_offset: Statistic, topk: Statistic, hajek: Statistic) -> Estimate:
    gain = statistics.difference(topk, hajek)
    value = data.point(gain).value
    if value is not None and value <= 0:
        reason = "the median error of Poisson is not below that of top-k"
        return Estimate(None, n=len(gain.rows), undefined=reason)
    return data.estimate(statistics.ratio(statistics.difference(no_offset, hajek), gain))


def _spent(rows: pd.DataFrame) -> float | None:
    share = float((rows["expected_kept"] / (rows["budget"] * rows["evictable"])).mean())
    return share if np.isfinite(share) else None
