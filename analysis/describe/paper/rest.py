"""Numbers of the paper that no other table has: tasks that two suites share, whole suites, readings."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from analysis.core.decide import missing_rows, problems_touching
from analysis.core.estimates import Estimate
from analysis.core.study import Study
from analysis.describe.common import median
from analysis.describe.scope import Scope, Suite, nothing, population
from analysis.describe.table import Column, Table, Value
from kvexp.documents.schema import Label, Population
from kvexp.records import Condition

CONDITION: Condition = "aware"
COLUMNS = (
    Column("what", "what"),
    Column("suite", "suite"),
    Column("budget", "budget"),
    Column("value", "estimate", "share", is_estimate=True),
)
REMARKS = (
    "The arm with the certificate, aware, unless another is named. induced, shared tasks: failures among "
    "what the full cache answers, on the main tasks that both suites ask (S1). accuracy, all tasks: anchors "
    "included (R4). median certificate, all cells: of the attention suite; no share. The rest are registered "
    "readings of claims, which have no verdict.",
)


def rest(scope: Scope, suites: dict[str, str]) -> Table:
    """All of them, where the study has them; `suites`: by role."""
    rows = (
        *_shared(scope, suites),
        *_accuracy(scope, suites),
        *_certificate(scope, suites),
        *_readings(scope),
    )
    return Table("paper_rest", "Numbers that stand in no other table", COLUMNS, rows, REMARKS)


def _shared(scope: Scope, suites: dict[str, str]) -> Iterator[tuple[Value, ...]]:
    pair = [suite for role in ("six", "sixteen") for suite in scope.suites if suite.name == suites.get(role)]
    if len(pair) == 2:
        tasks = [task for task in pair[0].main if task in pair[1].main]
        for suite in pair if tasks else ():
            yield from _rates(scope, suite, "induced_failure", "induced, shared tasks", tasks)


def _accuracy(scope: Scope, suites: dict[str, str]) -> Iterator[tuple[Value, ...]]:
    for suite in scope.suites:
        if suite.name == suites.get("six"):
            yield from _rates(scope, suite, "success", "accuracy, all tasks", suite.tasks)


def _rates(
    scope: Scope, suite: Suite, label: Label, what: str, tasks: list[str] | tuple[str, ...]
) -> Iterator[tuple[Value, ...]]:
    arm, table = suite.wanted.arm, scope.report.study.table
    here = (table["suite"] == suite.name) & (table["arm"] == arm) & (table["condition"] == CONDITION)
    for budget in sorted(set(table.loc[here & table["task"].isin(tasks), "budget"])):
        asked = population(
            [suite], label, arms=[arm], tasks=tasks, conditions=[CONDITION], budgets=[float(budget)]
        )
        yield what, suite.name, float(budget), _rate(scope, suite, asked)


def _rate(scope: Scope, suite: Suite, asked: Population) -> Estimate:
    if reason := scope.lacks(asked):
        return nothing(reason)
    data = scope.data([suite], asked, "paper")
    return data.estimate(data.rate(data.counted))


def _certificate(scope: Scope, suites: dict[str, str]) -> Iterator[tuple[Value, ...]]:
    """The median certificate of each budget (section 4), of one model alone: layers of two are not alike."""
    study, name = scope.report.study, suites.get("attention")
    cells = study.cells[study.cells["suite"] == name]
    for budget in sorted(set(cells["budget"])):
        found = _median(study, cells[cells["budget"] == budget])
        yield "median certificate, all cells", str(name), float(budget), found


def _median(study: Study, rows: pd.DataFrame) -> Estimate:
    if problems_touching(study, rows):
        return nothing("its logs are invalid")
    if missing := missing_rows(study, rows):
        return nothing(f"{sum(part.rows for part in missing):,} of {len(rows):,} cells are missing")
    if rows["model"].nunique() > 1:
        return nothing("the suite has several models")
    return median(rows["certificate"].to_numpy(np.float64))


def _readings(scope: Scope) -> Iterator[tuple[Value, ...]]:
    for verdict in scope.report.verdicts:
        for reading, answer in verdict.readings.items():
            for quantity, found in answer.quantities.items():
                yield f"{verdict.claim_id} {reading}: {quantity}", "", "", found
