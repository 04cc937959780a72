"""The grid: every generation that a complete study contains, as the frame of the table."""

from collections import Counter
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.load import files
from analysis.load.lines import LineError, Lines
from analysis.load.problems import Problem
from analysis.statistics.base import Integers
from kvexp.errors import KvexpError
from kvexp.records import Expected, Key

NAMES = ("suite", "shard_id", "model", "task", "example_id", "arm", "condition")
NUMBERS = ("budget", "seed")
FULL = "full"  # the arm that keeps the whole cache; it alone has no place in the grid of budgets
SHOWN = 5
_read = Lines[Expected](Expected)
# The key as a plain tuple: 98,000 of them are made, and they equal and hash like records.Key.
key_of = attrgetter(*Key._fields)


class ResultsError(KvexpError):
    """A folder that is not a results folder."""


def read_grid(path: Path) -> tuple[pd.DataFrame, list[Problem]]:
    """One row per expected generation, sorted by key, so that no order of files or lines shows.

    Columns: suite, shard_id, model, task, example_id, arm, condition (categorical, sorted; condition is
    missing for the full cache), budget, seed (float64, NaN where they do not apply), full_at (row of the
    full cache's answer to the same example, -1 where the grid has none).
    """
    try:
        data = files.read(path)
    except FileNotFoundError:
        raise ResultsError(
            f"{path} is not there: give the results folder of a study that `kvexp submit` has planned"
        ) from None
    except OSError as error:
        raise ResultsError(f"{path} cannot be read: {error.strerror}") from None
    try:
        rows = _read(data, path)
    except LineError as error:
        return _table([]), [Problem(str(error))]
    if misplaced := [Problem(f"{path}:{line}: {words}") for line, words in _misplaced(rows)]:
        return _table([]), misplaced[:SHOWN]
    problems = [
        Problem(f"{path}: {describe(key)} is expected {count} times")
        for key, count in Counter(map(key_of, rows)).items()
        if count > 1
    ]
    if not rows:
        problems = [Problem(f"{path}: the grid is empty")]
    return _table(rows), problems


def _misplaced(rows: list[Expected]) -> Iterator[tuple[int, str]]:
    """Rows without the place that their arm needs, or with one that the full cache cannot have."""
    for line, row in enumerate(rows, start=1):
        if row.arm == FULL and (row.condition, row.budget, row.seed) != (None, None, None):
            yield line, "the full cache has no condition, budget or seed"
        elif row.arm != FULL and None in (row.condition, row.budget):
            yield line, f"arm {row.arm} needs a condition and a budget"


def describe(key: tuple[Any, ...]) -> str:
    """A key in the order people say it."""
    suite, model, task, example_id, arm, condition, budget, seed = key
    axes = {"condition": condition, "budget": budget, "seed": seed}
    rest = "".join(f", {name} {value}" for name, value in axes.items() if value is not None)
    return f"{suite} {model} {task} {example_id} {arm}{rest}"


def _table(rows: list[Expected]) -> pd.DataFrame:
    table = pd.DataFrame(
        {name: _categories([getattr(row, name) for row in rows]) for name in NAMES}
        | {name: np.array([getattr(row, name) for row in rows], np.float64) for name in NUMBERS}
    )
    order = (
        "seed",
        "budget",
        "condition",
        "arm",
        "example_id",
        "task",
        "model",
        "shard_id",
        "suite",
    )
    keys = [_codes(table, name) if name in NAMES else table[name].fillna(-1) for name in order]
    table = table.iloc[np.lexsort(keys)].reset_index(drop=True)
    return table.assign(full_at=_full_at(table))


def _categories(values: list[str | None]) -> pd.Categorical:
    return pd.Categorical(values, categories=sorted({value for value in values if value is not None}))


def _codes(table: pd.DataFrame, name: str) -> Integers:
    return table[name].cat.codes.to_numpy().astype(np.int64)


def _full_at(table: pd.DataFrame) -> Integers:
    question = np.zeros(len(table), np.int64)
    for name in ("suite", "model", "task", "example_id"):
        question = question * (len(table[name].cat.categories) or 1) + _codes(table, name)
    full = np.flatnonzero((table["arm"] == FULL).to_numpy())
    at = pd.Series(full, index=question[full])
    at = at[~at.index.duplicated()]
    return at.reindex(question, fill_value=-1).to_numpy().astype(np.int64)
