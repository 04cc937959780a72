"""Table 2: the certificate against own failure, model by model, with all suites side by side."""

from collections.abc import Iterator

import pandas as pd

from analysis.core.data import Data
from analysis.core.estimates import Estimate
from analysis.describe.common import plain
from analysis.describe.details import details_of
from analysis.describe.parts import Part
from analysis.describe.scope import Scope, Suite, nothing, population
from analysis.describe.table import LABEL_MEANS, POOLED, STRATIFIED_MEANS, Column, Table, Value

SIGNAL = "certificate"
CHANCE = 0.5
CELL = ["model", "task", "condition"]
REMARKS = (
    "Main tasks, the arm that carries the certificate, all conditions, budgets and draws. A pooled AUC mixes "
    "them, and the last line also mixes models.",
    STRATIFIED_MEANS,
    LABEL_MEANS,
    "Cells are model x task x condition; one with failures or successes alone has no AUC and is not counted.",
    "Intervals are on resamples of their own: those of a claim's same AUC differ in the third digit.",
)


def per_model(scope: Scope) -> Part | None:
    """Main tasks, the arm that carries the certificate; a line for each model and one for all (Table 2)."""
    suites = [suite for suite in scope.suites if suite.main and suite.wanted.arm in suite.arms]
    if not suites:
        return None
    by_suite = [_suite(scope, suite) for suite in suites]
    models = sorted({model for found in by_suite for model in found if model is not None})
    absent = _lacking("the suite does not run this model")
    rows = [
        (
            POOLED if model is None else model,
            *(value for found in by_suite for value in found.get(model, absent)),
        )
        for model in (*models, None)
    ]
    columns = [Column("model", "model"), *(column for suite in suites for column in _columns(suite.name))]
    title = "AUC of the certificate for own failure, by model"
    made = Table("table2", title, tuple(columns), tuple(rows), REMARKS)
    return Part("per-model", "Does the certificate foretell failure, model by model?", tables=(made,))


def _columns(suite: str) -> Iterator[Column]:
    yield Column(f"auc.{suite}", suite, "share", is_estimate=True)
    for key, words in (("stratified", "stratified"), ("baseline", "label alone")):
        yield Column(f"{key}.{suite}", f"{suite}, {words}", "share", is_estimate=True, has_interval=False)
    for key, words in (("cells_above", "cells above .5"), ("cells", "of cells")):
        yield Column(f"{key}.{suite}", f"{suite}, {words}", is_estimate=True, has_interval=False)


def _suite(scope: Scope, suite: Suite) -> dict[str | None, tuple[Value, ...]]:
    """Values by model, None of all models together."""
    table, arm = scope.report.study.table, suite.wanted.arm
    models = sorted(set(table.loc[table["suite"] == suite.name, "model"].astype(str)))
    reasons = {
        model: scope.lacks(population([suite], "own_failure", arms=[arm], models=[model])) for model in models
    }
    whole = [model for model in models if not reasons[model]]
    found: dict[str | None, tuple[Value, ...]] = {
        model: _lacking(reason) for model, reason in reasons.items() if reason
    }
    if not whole:
        return {**found, None: _lacking(reasons[models[0]])}
    data = scope.data([suite], population([suite], "own_failure", arms=[arm], models=whole))
    split = data.split(data.counted, "model")
    found |= {model: (*_aucs(data, split[model]), *_cells(data, split[model])) for model in whole}
    if whole != models:
        return {**found, None: _lacking(next(filter(None, reasons.values())))}
    row = details_of(scope, suite.registered).signals(suite, arm, "own_failure").get(SIGNAL)
    numbers = (row.pooled, row.stratified, row.cell_label) if row is not None else _aucs(data, data.counted)
    return {**found, None: (*numbers, *_cells(data, data.counted))}


def _lacking(reason: str) -> tuple[Value, ...]:
    return (nothing(reason),) * 5


def _aucs(data: Data, rows: pd.DataFrame) -> tuple[Estimate, Estimate, Estimate]:
    return (
        data.estimate(data.auc(rows, SIGNAL)),
        data.estimate(data.auc(rows, SIGNAL, within=True)),
        data.point(data.cell_auc(rows)),
    )


def _cells(data: Data, rows: pd.DataFrame) -> tuple[Estimate, Estimate]:
    """How many cells have an AUC above chance, and how many have one; undefined where it is lost in any."""
    both = [cell for cell in data.split(rows, *CELL).values() if cell["positive"].nunique() > 1]
    points = [data.point(data.auc(cell, SIGNAL)) for cell in both]
    if lost := next((point.undefined for point in points if point.value is None), ""):
        return nothing(lost), nothing(lost)
    above = sum((point.value or 0.0) > CHANCE for point in points)
    return plain(above, len(points)), plain(len(points), len(points))
