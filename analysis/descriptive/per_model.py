"""Table 2: the certificate against own failure, by model, with both suites side by side."""

from analysis.parts import Part
from analysis.scope import Scope, Suite, nothing, population
from analysis.statistics import Estimate
from analysis.tables.base import Column, Table, Value

SIGNAL = "certificate"


def per_model(scope: Scope) -> Part | None:
    """Main tasks, the arm that carries the certificate; a line for each model and one for all (Table 2)."""
    suites = [suite for suite in scope.suites if suite.main and suite.wanted.arm in suite.arms]
    if not suites:
        return None
    table = scope.report.study.table
    names = {suite.name for suite in suites}
    models = sorted(set(table.loc[table["suite"].isin(names), "model"].astype(str)))
    rows: list[tuple[Value, ...]] = [
        (model or "pooled", *(_auc(scope, suite, model) for suite in suites)) for model in (*models, None)
    ]
    columns = [Column("model", "model")]
    columns += [Column(f"auc.{suite.name}", suite.name, "share", is_estimate=True) for suite in suites]
    made = Table("table2", "AUC of the certificate for own failure, by model", tuple(columns), tuple(rows))
    return Part("per-model", "Does the certificate foretell failure, model by model?", tables=(made,))


def _auc(scope: Scope, suite: Suite, model: str | None) -> Estimate:
    models = None if model is None else [model]
    asked = population([suite], "own_failure", arms=[suite.wanted.arm], models=models)
    if reason := scope.lacks(asked):
        return nothing(reason)
    data = scope.data([suite], asked, "per-model")
    return data.estimate(data.auc(data.counted, SIGNAL))
