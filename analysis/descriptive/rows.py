"""What parts share: a suite's rows, the models they are told apart by, and numbers without intervals."""

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from analysis import populations
from analysis.data import Data
from analysis.scope import Scope, Suite, lacks_answers, lacks_full, nothing, population
from analysis.statistics import Estimate
from analysis.statistics.base import Bools, Floats
from analysis.tables.base import POOLED
from kvexp.prereg.registration import Label


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
