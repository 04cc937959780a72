"""Table 2: the certificate against own failure, model by model, with all suites side by side."""

from collections.abc import Iterator

import pandas as pd

from analysis.data import Data
from analysis.details import details_of
from analysis.parts import Part
from analysis.scope import Scope, Suite, nothing, population
from analysis.statistics import Estimate
from analysis.tables.base import Column, Table, Value

SIGNAL = "certificate"
POOLED = "pooled"
CHANCE = 0.5
CELL = ["model", "task", "condition"]
REMARKS = (
    "Main tasks, the arm that carries the certificate, all conditions, budgets and draws. A pooled AUC mixes "
    "them (the last line also mixes models), so beside it stand the AUC of pairs within the same model, "
    "task, condition and budget, and that of the bare condition x budget label without any signal.",
    "Cells are model x task x condition; one with failures or successes alone has no AUC and is not counted.",
    "Intervals are on resamples of their own: those of a claim's same AUC differ in the third digit.",
)


def per_model(scope: Scope) -> Part | None:
    """Main tasks, the arm that carries the certificate; a line for each model and one for all (Table 2)."""
    suites = [suite for suite in scope.suites if suite.main and suite.wanted.arm in suite.arms]
    if not suites:
        return None
    by_suite = [_suite(scope, suite) for suite in suites]
    models = sorted({model for found in by_suite for model in found if model != POOLED})
    absent: tuple[Value, ...] = (nothing("the suite does not run this model"),) * 3 + (None, None)
    rows = [
        (model, *(value for found in by_suite for value in found.get(model, absent)))
        for model in (*models, POOLED)
    ]
    columns = [Column("model", "model"), *(column for suite in suites for column in _columns(suite.name))]
    title = "AUC of the certificate for own failure, by model"
    made = Table("table2", title, tuple(columns), tuple(rows), REMARKS)
    return Part("per-model", "Does the certificate foretell failure, model by model?", tables=(made,))


def _columns(suite: str) -> Iterator[Column]:
    yield Column(f"auc.{suite}", suite, "share", is_estimate=True)
    for key, words in (("stratified", "stratified"), ("baseline", "label alone")):
        yield Column(f"{key}.{suite}", f"{suite}, {words}", "share", is_estimate=True, has_interval=False)
    yield Column(f"cells_above.{suite}", f"{suite}, cells above .5")
    yield Column(f"cells.{suite}", f"{suite}, of cells")


def _suite(scope: Scope, suite: Suite) -> dict[str, tuple[Value, ...]]:
    """Values by model, and of all models together."""
    table, arm = scope.report.study.table, suite.wanted.arm
    models = sorted(set(table.loc[table["suite"] == suite.name, "model"].astype(str)))
    reasons = {
        model: scope.lacks(population([suite], "own_failure", arms=[arm], models=[model])) for model in models
    }
    whole = [model for model in models if not reasons[model]]
    found = {model: _lacking(reason) for model, reason in reasons.items() if reason}
    if not whole:
        return {**found, POOLED: _lacking(reasons[models[0]])}
    data = scope.data([suite], population([suite], "own_failure", arms=[arm], models=whole))
    split = data.split(data.counted, "model")
    found |= {model: (*_aucs(data, split[model]), *_cells(data, split[model])) for model in whole}
    if whole != models:
        return {**found, POOLED: _lacking(next(filter(None, reasons.values())))}
    row = details_of(scope, suite.registered).signals(suite, arm, "own_failure").get(SIGNAL)
    numbers = (row.pooled, row.stratified, row.cell_label) if row is not None else _aucs(data, data.counted)
    return {**found, POOLED: (*numbers, *_cells(data, data.counted))}


def _lacking(reason: str) -> tuple[Value, ...]:
    return (nothing(reason),) * 3 + (None, None)


def _aucs(data: Data, rows: pd.DataFrame) -> tuple[Estimate, Estimate, Estimate]:
    return (
        data.estimate(data.auc(rows, SIGNAL)),
        data.estimate(data.auc(rows, SIGNAL, within=True)),
        data.point(data.cell_auc(rows)),
    )


def _cells(data: Data, rows: pd.DataFrame) -> tuple[int, int]:
    """How many cells have an AUC above chance, and how many have one."""
    points = [data.point(data.auc(cell, SIGNAL)).value for cell in data.split(rows, *CELL).values()]
    known = [point for point in points if point is not None]
    return sum(point > CHANCE for point in known), len(known)
