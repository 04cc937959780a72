"""The certificate cell by cell (sections 5 and 6.2): AUC for own failure by model, task and condition."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.data import Data
from analysis.descriptive.rows import ALL, data_of, lacks_rows, names_in, picks, plain
from analysis.parts import Part
from analysis.scope import Scope, Suite, nothing
from analysis.statistics import Estimate
from analysis.tables.base import Column, Table, Value

SIGNAL = "certificate"
CHANCE = 0.5
COLUMNS = (
    Column("suite", "suite"),
    Column("model", "model"),
    Column("task", "task"),
    Column("condition", "condition"),
    Column("failures", "failures"),
    Column("successes", "successes"),
    Column("auc", "AUC for own failure", "share", is_estimate=True),
    Column("stratified", "stratified", "share", is_estimate=True),
    Column("cell", "cell label", "share", is_estimate=True),
)
SUMMARY = (
    Column("suite", "suite"),
    Column("tasks", "tasks"),
    Column("by", "cells are"),
    Column("cells", "cells"),
    Column("one_class", "of one class only", is_estimate=True),
    Column("with_auc", "with an AUC", is_estimate=True),
    Column("mean", "mean AUC", "share", is_estimate=True),
    Column("lowest", "lowest", "share", is_estimate=True),
    Column("highest", "highest", "share", is_estimate=True),
    Column("above", "above .5", is_estimate=True),
    Column("interval_above", "interval above .5", is_estimate=True),
)
REMARKS = (
    "A cell pools what it does not name: conditions and budgets, budgets, always seeds. A cell in which all "
    "answers fail or all succeed has no AUC.",
)


@dataclass(frozen=True)
class Cell:
    """One cell; counts are None where rows are missing."""

    task: str
    failures: int | None
    successes: int | None
    values: tuple[Value, ...]
    auc: Estimate

    @property
    def is_one_class(self) -> bool:
        """All rows are there, and all fail or none does."""
        return self.failures == 0 or self.successes == 0


def cells(scope: Scope) -> Part | None:
    """The arm that carries the certificate, every task of every suite."""
    every, summary = list[tuple[Value, ...]](), list[tuple[Value, ...]]()
    for suite in scope.suites:
        if suite.wanted.arm in suite.arms:
            data = data_of(scope, suite, "cells", [suite.wanted.arm], suite.tasks)
            coarse = list(_cells(scope, suite, data, None))
            fine = [
                one for name in names_in(data.rows, "condition") for one in _cells(scope, suite, data, name)
            ]
            every += [one.values for one in (*coarse, *fine)]
            words = "main" if suite.main else ALL
            tasks = suite.main or suite.tasks
            for by, found in (("model x task", coarse), ("model x task x condition", fine)):
                summary.append((suite.name, words, by, *_summary([c for c in found if c.task in tasks])))
    if not every:
        return None
    tables = (
        Table("cells.summary", "Cells in which the certificate ranks failures", SUMMARY, tuple(summary)),
        Table("cells", "AUC of the certificate, cell by cell", COLUMNS, tuple(every), REMARKS),
    )
    return Part("cells", "In how many cells does the certificate see failure?", tables=tables)


def _cells(scope: Scope, suite: Suite, data: Data, condition: str | None) -> Iterator[Cell]:
    for model in names_in(data.rows, "model"):
        for task in suite.tasks:
            rows = data.rows[picks(data.rows, model=model, task=task, condition=condition)]
            if len(rows):
                yield _cell(scope, suite, data, rows, (model, task, condition or ALL))


def _cell(scope: Scope, suite: Suite, data: Data, rows: pd.DataFrame, place: tuple[str, str, str]) -> Cell:
    if reason := lacks_rows(scope, rows):
        lost = nothing(reason)
        return Cell(place[1], None, None, (suite.name, *place, None, None, lost, lost, lost), lost)
    failures = int(rows["positive"].sum())
    auc = data.estimate(data.auc(rows, SIGNAL))
    beside = (data.point(data.auc(rows, SIGNAL, within=True)), data.point(data.cell_auc(rows)))
    counts = (failures, len(rows) - failures)
    return Cell(place[1], *counts, (suite.name, *place, *counts, auc, *beside), auc)


def _summary(found: Sequence[Cell]) -> tuple[Value, ...]:
    """Everything but the number of cells is undefined as soon as one of them lacks rows."""
    lost = next((cell.auc.undefined for cell in found if cell.failures is None), "")
    if lost:
        return (len(found), *[nothing(lost)] * 7)
    known = [cell.auc for cell in found if cell.auc.value is not None]
    values = np.array([auc.value for auc in known], np.float64)
    singles = sum(cell.is_one_class for cell in found)
    ends = [nothing("no cell has an AUC")] * 3
    if len(values):
        ends = [plain(float(value), len(values)) for value in (values.mean(), values.min(), values.max())]
    counts = (singles, len(known))
    above = (int((values > CHANCE).sum()), sum(auc.lo is not None and auc.lo > CHANCE for auc in known))
    return (
        len(found),
        *(plain(count, len(found)) for count in counts),
        *ends,
        *(plain(count, len(known)) for count in above),
    )
