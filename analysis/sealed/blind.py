"""A blind run: outcomes are permuted among the rows of one model and task, so that everything gives chance.

The permutation is fixed by the registrations, so that a blind run repeats its bytes, and says nothing of the
real outcomes but how many there are of each.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from analysis.load import Study
from analysis.statistics.base import Integers
from kvexp.prereg.registration import Registered

OUTCOME = ("score_name", "score_value")
ERRORS = ("hajek", "no_offset", "topk", "uniform", "covered")
ERRORS_OF_WORLDS = ("topk", "hajek", "covered")


def blinded(study: Study, registrations: Iterable[Registered]) -> Study:
    """The study with outcomes of generations, and true errors of cells and worlds, permuted."""
    key = " ".join(one.digest for one in registrations)
    return replace(
        study,
        table=_permuted(study.table, ("model", "task"), OUTCOME, f"{key} generations"),
        cells=_permuted(study.cells, ("model", "task", "budget"), ERRORS, f"{key} cells"),
        worlds=_permuted(study.worlds, ("model", "task", "budget"), ERRORS_OF_WORLDS, f"{key} worlds"),
    )


def _permuted(table: pd.DataFrame, within: Sequence[str], columns: Sequence[str], key: str) -> pd.DataFrame:
    """The table with whole outcomes moved among the present rows of each group."""
    bits = np.random.PCG64(int.from_bytes(hashlib.sha256(key.encode()).digest()[:16], "big"))
    source = np.arange(len(table))
    present = np.flatnonzero(table["present"].to_numpy(bool))
    codes = table.iloc[present].groupby(list(within), observed=True, sort=True).ngroup().to_numpy()
    for code in np.unique(codes):
        rows = present[codes == code]
        order = np.argsort(bits.random_raw(len(rows)), kind="stable")
        source[rows] = rows[order]
    return table.assign(**{name: _taken(table[name], source) for name in columns})


def _taken(column: pd.Series, source: Integers) -> pd.Series:
    return column.iloc[source].set_axis(column.index)
