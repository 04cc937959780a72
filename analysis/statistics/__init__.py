"""Numbers with intervals: AUC, rates, gating, and the cluster bootstrap that serves them all.

A `Statistic` maps cluster multiplicities to values, so the observed number is the case of all ones and
differences taken on the same multiplicities are paired by construction.
"""

from analysis.statistics.auc import auc
from analysis.statistics.base import Estimate, Statistic, count, difference, folded, mean, undefined
from analysis.statistics.bootstrap import Resamples
from analysis.statistics.gating import gated, random_gate
from analysis.statistics.rate import rate

__all__ = [
    "Estimate",
    "Resamples",
    "Statistic",
    "auc",
    "count",
    "difference",
    "folded",
    "gated",
    "mean",
    "random_gate",
    "rate",
    "undefined",
]
