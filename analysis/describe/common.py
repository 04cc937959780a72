"""What parts share: a suite's rows, the models they are told apart by, and numbers without intervals."""

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from analysis.core import populations
from analysis.core.data import Data
from analysis.core.estimates import Bools, Estimate, Floats, Statistic
from analysis.describe.scope import Scope, Suite, lacks_answers, lacks_full, nothing, population
from analysis.describe.table import POOLED
from kvexp.documents.schema import Label


def rows_of(scope: Scope, suite: Suite) -> pd.DataFrame:
    """The planned rows of a suite, present or not; the index is that of the study's table."""
    table = scope.report.study.table
    return table[table["suite"] == suite.name]


def full_of(scope: Scope, rows: pd.DataFrame) -> pd.DataFrame:
    """The full cache's answers to the same examples, each once; fewer where the grid has none."""
    at = np.unique(rows["full_at"].to_numpy(np.int64))
    return scope.report.study.table.iloc[at[at >= 0]]


def names_in(rows: pd.DataFrame, column: str) -> list[str]:
    """The values of a column of names, sorted."""
    return sorted(set(rows[column].dropna().astype(str)))


def by_model(rows: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """The rows of each model, then those of all."""
    for model in names_in(rows, "model"):
        yield model, rows[rows["model"] == model]
    yield POOLED, rows


def lacks_rows(scope: Scope, rows: pd.DataFrame) -> str:
    """Why nothing can be said of these rows of the study's table; empty: they are all there."""
    return lacks_answers(scope.report.study, rows, needs_full=False)


def lacks(scope: Scope, rows: pd.DataFrame, label: Label) -> str:
    """The same, for rows whose label may need the full cache's answers too."""
    if not populations.LABELS[label].needs_full:
        return lacks_rows(scope, rows)
    return lacks_full(rows) or lacks_rows(scope, rows) or lacks_rows(scope, full_of(scope, rows))


def data_of(scope: Scope, suite: Suite, name: str, arms: Sequence[str], tasks: Sequence[str]) -> Data:
    """All rows of some arms and tasks of a suite, labelled own failure, present or not.

    Ask `lacks` about the rows of every number; all numbers share their resamples.
    """
    return scope.data([suite], population([suite], "own_failure", arms=arms, tasks=tasks), name)


def labelled(rows: pd.DataFrame, label: Label) -> pd.DataFrame:
    """Those of `Data.rows` that count under another label, with `positive` as it says."""
    own, full = rows["success"].to_numpy(bool), rows["full_success"].to_numpy(bool)
    labelling = populations.LABELS[label]
    return rows.assign(positive=labelling.positive(own, full))[labelling.counts(own, full)]


def with_signal(suite: Suite, rows: pd.DataFrame, signal: str) -> tuple[pd.DataFrame, str]:
    """The rows in which a signal is defined, and why they are too few by the registration."""
    kept = rows[rows[signal].notna()]
    lost, most = len(rows) - len(kept), suite.registered.content.statistics.undefined_rows_max
    if not len(rows):
        return rows, "the population has no such row"
    return kept, f"{signal} undefined in {lost} of {len(rows)} rows" if lost > most * len(rows) else ""


def plain(value: float, n: int) -> Estimate:
    """A number without an interval, on n rows; undefined if it is not finite."""
    if not np.isfinite(value):
        return Estimate(None, n=n, undefined="it has no value on these rows")
    return Estimate(float(value), n=n)


def median(values: Floats, reason: str = "") -> Estimate:
    """The median, (rows,); undefined where a row lacks its value."""
    if reason or not len(values):
        return nothing(reason or "the population has no such row")
    if lost := int(np.isnan(values).sum()):
        return Estimate(None, n=len(values), undefined=f"undefined in {lost} of {len(values)} rows")
    with np.errstate(over="ignore"):  # the mean of the two in the middle
        return plain(float(np.median(values)), len(values))


def picks(rows: pd.DataFrame, **wanted: str | float | None) -> Bools:
    """The rows with these values; None does not restrict."""
    mask = np.ones(len(rows), bool)
    for column, value in wanted.items():
        if value is not None:
            mask &= (rows[column] == value).to_numpy(bool)
    return mask


def places_of(rows: pd.DataFrame) -> list[tuple[str, str, float]]:
    """Every (arm, condition, budget) of the rows, sorted; the full cache, which has no place, is not one."""
    known = rows[["arm", "condition", "budget"]].dropna().drop_duplicates()
    found: Sequence[tuple[str, str, float]] = [
        (str(arm), str(condition), float(budget)) for arm, condition, budget in known.itertuples(index=False)
    ]
    return sorted(found)


# The standard error of an AUC by Hanley and McNeil (1982), and the z of section 5 against chance.


CHANCE = 0.5


@dataclass(frozen=True)
class Test:
    """An AUC against one half.

    Attributes:
        error: the standard error.
        z: (AUC - 1/2) / error; None if the error is 0.
        p: two-sided, from the normal distribution; None with z.
    """

    error: float
    z: float | None
    p: float | None


def standard_error(auc: float, positives: int, negatives: int) -> float:
    """Of an AUC in [0, 1] on independent rows of both classes; exponential scores are assumed."""
    q1, q2, square = auc / (2 - auc), 2 * auc * auc / (1 + auc), auc * auc
    spread = auc * (1 - auc) + (positives - 1) * (q1 - square) + (negatives - 1) * (q2 - square)
    return math.sqrt(max(spread, 0.0) / (positives * negatives))  # rounding can pass 0 at AUC 1


def against_chance(auc: float, positives: int, negatives: int) -> Test:
    """The test; both classes have rows."""
    error = standard_error(auc, positives, negatives)
    if not error:
        return Test(error, None, None)
    z = (auc - CHANCE) / error
    return Test(error, z, math.erfc(abs(z) / math.sqrt(2)))


# A statistic that several others are made of, computed once on each batch of resamples.


def remembered(statistic: Statistic) -> Statistic:
    """The same statistic; for weights that are a part of one array, such as that of `Resamples`, kept.

    Nobody writes into the weights of resamples, and what is kept holds them, so their place in memory
    names them. What stands alone, such as the weights of the rows as observed, is computed each time.
    """
    known = dict[Hashable, tuple[Floats, Floats]]()

    def of(weights: Floats) -> Floats:
        if weights.base is None:
            return statistic.of(weights)
        place = (weights.__array_interface__["data"][0], weights.shape, weights.strides)
        if place not in known:
            known[place] = (weights, statistic.of(weights))
        return known[place][1]

    return replace(statistic, of=of)
