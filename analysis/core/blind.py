"""A blind run: outcomes are permuted among the rows of one model and task, so that everything gives chance.

Errors of attention cells are permuted among the cells of a budget and also among the estimators of a cell,
so that no estimator is better than another, and what is covered is counted again. The permutation is fixed
by the registrations, so that a blind run repeats its bytes, and says nothing of the real outcomes but how
many, or how large, they are in all.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from analysis.core.estimates import Integers
from analysis.core.study import Study
from kvexp.documents.registration import Registered

OUTCOME = ("score_name", "score_value")
ERRORS = ("hajek", "no_offset", "topk", "uniform")
ERRORS_OF_WORLDS = ("topk", "hajek")


def blinded(study: Study, registrations: Iterable[Registered]) -> Study:
    """The study with outcomes of generations, and true errors of cells and worlds, permuted."""
    key = " ".join(one.digest for one in registrations)
    return replace(
        study,
        table=_permuted(study.table, ("model", "task"), OUTCOME, f"{key} generations"),
        cells=_without_errors(study.cells, ERRORS, f"{key} cells"),
        worlds=_without_errors(study.worlds, ERRORS_OF_WORLDS, f"{key} worlds"),
    )


def _without_errors(table: pd.DataFrame, errors: Sequence[str], key: str) -> pd.DataFrame:
    """The table with errors moved among cells and estimators, and covered where the moved error fits.

    An error is relative to |y| and a certificate to |y^|; among permuted cells that makes no difference.
    """
    moved = _permuted(table, ("model", "task", "budget"), errors, key)
    values = moved[list(errors)].to_numpy(np.float64)
    draws = _bits(f"{key} estimators").random_raw(values.size).reshape(values.shape)
    values = np.take_along_axis(values, draws.argsort(axis=1, kind="stable"), axis=1)
    moved = moved.assign(**dict(zip(errors, values.T, strict=True)))
    covered = (moved["hajek"] <= moved["certificate"]).astype(np.float64)
    return moved.assign(covered=covered.where(moved["present"].to_numpy(bool)))


def _bits(key: str) -> np.random.PCG64:
    return np.random.PCG64(int.from_bytes(hashlib.sha256(key.encode()).digest()[:16], "big"))


def _permuted(table: pd.DataFrame, within: Sequence[str], columns: Sequence[str], key: str) -> pd.DataFrame:
    """The table with whole outcomes moved among the present rows of each group."""
    bits = _bits(key)
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
