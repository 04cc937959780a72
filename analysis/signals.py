"""Which way each signal points. Fixed before data: the larger, the likelier the answer is to fail."""

import numpy as np
import pandas as pd

from analysis.statistics.base import Floats

# The logs hold raw values. +1: large means danger, -1: small means danger.
ORIENTATION = {
    "certificate": 1,
    "certificate_first": 1,  # the radius at step 1 only
    "certificate_mean": 1,  # the mean over the logged steps instead of the maximum
    "entropy": 1,
    "evicted_mass": 1,
    "margin": -1,
    "output_logprob": -1,
}


def risk(rows: pd.DataFrame, signal: str) -> Floats:
    """The signal oriented so that larger means more likely to fail, (rows,); NaN where undefined."""
    values: Floats = ORIENTATION[signal] * rows[signal].to_numpy(np.float64)
    return values


def cell_risk(rows: pd.DataFrame) -> Floats:
    """What the bare condition x budget label says: stream before aware, then the smaller budget.

    An order that needs no data: it tells how much of a pooled AUC is known before any signal is read.
    """
    stream = (rows["condition"] == "stream").to_numpy(np.float64)
    # Budgets are at most 1, so the condition always outweighs them.
    values: Floats = 2 * stream - rows["budget"].to_numpy(np.float64)
    return values
