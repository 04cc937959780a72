"""What parts share: a suite's rows, the models they are told apart by, and numbers without intervals."""

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from analysis.decide import missing_rows, problems_touching
from analysis.scope import NO_ROWS, Scope, Suite, nothing
from analysis.statistics import Estimate
from analysis.statistics.base import Bools, Floats

ALL = "all"


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
    yield ALL, rows


def lacks_rows(scope: Scope, rows: pd.DataFrame) -> str:
    """Why nothing can be said of these rows of the study's table; empty: they are all there."""
    study = scope.report.study
    is_whole = not problems_touching(study, rows) and not missing_rows(study, rows)
    return "" if is_whole else NO_ROWS


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
