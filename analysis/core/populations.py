"""Which rows a claim is about, and what counts as a failure.

A generation is a success when its raw score reaches the registered threshold of its score. The full
row of the same suite, model, task and example says whose fault a failure is: induced where the full
cache succeeds, inherent where it fails too, and a rescue where only the compressed cache succeeds.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from analysis.core.estimates import Bools, Floats, Integers
from kvexp.documents.schema import OTHERWISE, Cells, Population
from kvexp.documents.source import RegistrationError

SHOWN = 8  # values of an axis in a message
WAY_OUT = (
    "Judge the study by claims that fit it: `python -m analysis results/<study> --registration DIR`, "
    "where DIR may hold a copy of preregistration/ablations/X.toml (no claims) with its suites"
)


@dataclass(frozen=True)
class Labelling:
    """What a label does: which rows count, which of them are positive, and whether the full row is needed."""

    needs_full: bool
    counts: Callable[[Bools, Bools], Bools]  # (success, full success) -> rows that count
    positive: Callable[[Bools, Bools], Bools]


LABELS = {
    "success": Labelling(False, lambda own, full: np.ones_like(own), lambda own, full: own),
    "own_failure": Labelling(False, lambda own, full: np.ones_like(own), lambda own, full: ~own),
    "induced_failure": Labelling(True, lambda own, full: full, lambda own, full: ~own),
    "inherent_failure": Labelling(True, lambda own, full: ~full, lambda own, full: ~own),
    "rescue": Labelling(True, lambda own, full: ~full, lambda own, full: own),
    # Among failures: was it the cache?
    "attribution": Labelling(True, lambda own, full: ~own, lambda own, full: full),
}


def selected(table: pd.DataFrame, population: Population | Cells) -> Bools:
    """Rows of the grid that the population, or the cells of a claim, name, present or not."""
    mask = np.ones(len(table), bool)
    for column, wanted in _axes(population):
        if wanted is not None:
            mask &= table[column].isin(wanted).to_numpy()
    return mask


def needed(table: pd.DataFrame, population: Population) -> Bools:
    """Rows that must be there to decide: the selected ones, and their full rows if the label asks."""
    mask = selected(table, population)
    if LABELS[population.label].needs_full:
        full = table["full_at"].to_numpy(np.int64)[mask]
        mask = mask.copy()
        mask[full[full >= 0]] = True
    return mask


def check(table: pd.DataFrame, population: Population, where: str) -> None:
    """Refuse a population that names something the grid does not have, or lacks the full rows it needs."""
    rows = table[_found(table, population, where, "population selects no row", "row")]
    if LABELS[population.label].needs_full and (rows["full_at"] < 0).any():
        suites = ", ".join(sorted(set(rows.loc[rows["full_at"] < 0, "suite"].astype(str))))
        raise RegistrationError(
            f"{where}: label {population.label} needs the full cache's rows, which {suites} lacks"
        )


def check_cells(cells: pd.DataFrame, wanted: Cells, where: str) -> None:
    """Refuse cells that name something the grid does not have."""
    _found(cells, wanted, where, "claim selects no cell", "cell")


def _found(table: pd.DataFrame, wanted: Population | Cells, where: str, nothing: str, noun: str) -> Bools:
    """The selected rows, if every value that is listed selects one."""
    mask = np.ones(len(table), bool)
    for column, values in _axes(wanted):
        if values is not None:
            there, before = table[column], mask
            mask = mask & there.isin(values).to_numpy()
            if not mask.any():
                raise RegistrationError(
                    f"{where}: the {nothing} of the grid: it asks for {column}s {_listed(values)}, "
                    f"the grid has {_listed(there[before].dropna().unique())}. {WAY_OUT}"
                )
    for column, values in _axes(wanted):
        for value in values or ():
            if not (mask & (table[column] == value).to_numpy()).any():
                has = _listed(table.loc[mask, column].unique())
                raise RegistrationError(
                    f"{where}: no selected {noun} of the grid has {column} '{value}', only {has}. {WAY_OUT}"
                )
    return mask


def _listed(values: Iterable[Any]) -> str:
    """Names or numbers in order; of a long list the first."""
    every = [f"{value:g}" if isinstance(value, float) else str(value) for value in sorted(values)]
    more = f" and {len(every) - SHOWN} more" if len(every) > SHOWN else ""
    return (", ".join(every[:SHOWN]) or "none") + more


def check_scores(table: pd.DataFrame, thresholds: Mapping[str, float], where: str) -> None:
    """Refuse a threshold for a score that no row has, as soon as every task has rows to say so."""
    known = list(table["score_name"].cat.categories)
    unknown = sorted(thresholds.keys() - {*known, OTHERWISE})
    answered = table.loc[table["score_name"].notna(), "task"]
    if unknown and set(answered) == set(table["task"]):
        raise RegistrationError(
            f"{where}: success names the score '{unknown[0]}', which no row has; there are {', '.join(known)}"
        )


def succeeded(table: pd.DataFrame, thresholds: Mapping[str, float]) -> Bools:
    """Whether each row of the table is a success; False where the row is not present."""
    names = table["score_name"]
    limits = np.array([thresholds.get(name, thresholds[OTHERWISE]) for name in names.cat.categories])
    codes = names.cat.codes.to_numpy(np.int64)
    limit = np.append(limits, np.inf)[codes]  # code -1, no row: the limit nobody reaches
    success: Bools = table["score_value"].to_numpy(np.float64) >= limit
    return success


def labelled(table: pd.DataFrame, population: Population, thresholds: Mapping[str, float]) -> pd.DataFrame:
    """The selected rows, all present, with the columns that statistics read.

    Adds success, full_success (False where the grid has no full row), counts, positive (bool), and
    `cluster`, the code of (task, example_id) that is the same in every suite, model and arm.
    """
    success = succeeded(table, thresholds)
    rows = table[selected(table, population)]
    full_at = rows["full_at"].to_numpy(np.int64)
    own, full = success[rows.index], success[full_at] & (full_at >= 0)
    labelling = LABELS[population.label]
    return rows.assign(
        success=own,
        full_success=full,
        counts=labelling.counts(own, full),
        positive=labelling.positive(own, full),
        cluster=clusters(rows),
    ).reset_index(drop=True)


def strata(rows: pd.DataFrame, columns: Iterable[str]) -> Integers:
    """One code per combination of the columns' values, in their order and without gaps, (rows,)."""
    codes = np.zeros(len(rows), np.int64)
    for name in columns:
        own = _codes(rows[name])
        size = int(own.max(initial=0)) + 1
        codes = np.unique(codes * size + own, return_inverse=True)[1].reshape(-1)
    return codes.astype(np.int64)


def _codes(column: pd.Series) -> Integers:
    """Whole numbers in the order of the column's values, what is missing last."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        codes = column.cat.codes.to_numpy().astype(np.int64)
        return np.where(codes < 0, len(column.cat.categories), codes)
    if column.dtype == object:
        return column.groupby(column, dropna=False, sort=True).ngroup().to_numpy().astype(np.int64)
    return np.unique(column.to_numpy(), return_inverse=True)[1].astype(np.int64)


def clusters(rows: pd.DataFrame) -> Integers:
    """The code of (task, example_id) of each row, the same in every suite, model, arm and cell."""
    return strata(rows, ("task", "example_id"))


def _axes(rows: Population | Cells) -> list[tuple[str, Sequence[str | float] | None]]:
    axes: list[tuple[str, Sequence[str | float] | None]] = [
        ("suite", rows.suites),
        ("model", rows.models),
        ("task", rows.tasks),
    ]
    if isinstance(rows, Population):
        axes += [("arm", rows.arms), ("condition", rows.conditions)]
    return [*axes, ("budget", rows.budgets)]


# Which way each signal points. Fixed before data: the larger, the likelier the answer is to fail.


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
