"""Numbers with intervals: AUC, rates, gating, ranks, medians, and the cluster bootstrap that serves them all.

A `Statistic` maps cluster multiplicities to values, so the observed number is the case of all ones and
differences taken on the same multiplicities are paired by construction.
"""

from analysis.statistics.auc import auc
from analysis.statistics.base import (
    Estimate,
    Later,
    Statistic,
    count,
    difference,
    folded,
    largest,
    mean,
    ratio,
    smallest,
    undefined,
)
from analysis.statistics.bootstrap import Resamples
from analysis.statistics.gating import gated, random_gate
from analysis.statistics.median import median
from analysis.statistics.rate import rate
from analysis.statistics.spearman import spearman

__all__ = [
    "Estimate",
    "Later",
    "Resamples",
    "Statistic",
    "auc",
    "count",
    "difference",
    "folded",
    "gated",
    "largest",
    "mean",
    "median",
    "random_gate",
    "rate",
    "ratio",
    "smallest",
    "spearman",
    "undefined",
]
