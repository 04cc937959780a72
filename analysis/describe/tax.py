"""The price of randomness (section 5, S3): success of other arms minus that of the randomised one."""

from collections.abc import Iterator

import pandas as pd

from analysis.core import statistics
from analysis.core.data import Data, clusters_of, ids_of
from analysis.core.estimates import Estimate, Statistic
from analysis.describe.common import data_of, lacks_rows
from analysis.describe.parts import Part
from analysis.describe.scope import Scope, Suite, nothing
from analysis.describe.table import ALL, BUDGET, MAIN, POOLED, Column, Table, Value

COLUMNS = (
    Column("suite", "suite"),
    Column("model", "model"),
    Column("task", "task"),
    Column("arm", "arm"),
    Column("condition", "condition"),
    BUDGET,
    Column("success", "its success", "share", is_estimate=True, has_interval=False),
    Column("randomised", "randomised success", "share", is_estimate=True, has_interval=False),
    Column("tax", "difference", "share", is_estimate=True),
)
REMARKS = (
    "Both arms at the same condition and budget; the randomised arm, which carries the certificate, is "
    "averaged over its seeds. Positive: randomness costs. main: the main tasks together.",
)
PLACE = ("arm", "condition", "budget")


def tax(scope: Scope) -> Part | None:
    """Every arm that shares a condition and budget with the randomised one, pooled and cell by cell."""
    pooled, cells = list[tuple[Value, ...]](), list[tuple[Value, ...]]()
    for suite in scope.suites:
        if suite.wanted.arm in suite.arms:
            data = data_of(scope, suite, "tax", suite.arms, suite.tasks)
            pooled += _pooled(scope, suite, data)
            cells += _cells(scope, suite, data)
    if not pooled:
        return None
    tables = (
        Table(
            "tax", "Success of an arm minus success of the randomised one", COLUMNS, tuple(pooled), REMARKS
        ),
        Table("tax.cells", "The same, model by model and task by task", COLUMNS, tuple(cells), REMARKS),
    )
    return Part("tax", "What does randomness cost?", tables=tables)


def _pooled(scope: Scope, suite: Suite, data: Data) -> Iterator[tuple[Value, ...]]:
    rows = data.rows[data.rows["task"].isin(suite.main)] if suite.main else data.rows
    words = MAIN if suite.main else ALL
    for model, here in data.split(rows, "model").items():
        yield from _rows(scope, suite, data, here, (model, words))
    yield from _rows(scope, suite, data, rows, (POOLED, words))


def _cells(scope: Scope, suite: Suite, data: Data) -> Iterator[tuple[Value, ...]]:
    for names, here in data.split(data.rows, "model", "task").items():
        yield from _rows(scope, suite, data, here, names)


def _rows(
    scope: Scope, suite: Suite, data: Data, rows: pd.DataFrame, names: tuple[str, str]
) -> Iterator[tuple[Value, ...]]:
    places = data.split(rows, *PLACE)
    for (arm, condition, budget), here in places.items():
        other = places.get((suite.wanted.arm, condition, budget))
        if arm != suite.wanted.arm and other is not None:
            numbers = _numbers(scope, data, here, other)
            yield (suite.name, *names, arm, condition, budget, *numbers)


def _numbers(scope: Scope, data: Data, rows: pd.DataFrame, other: pd.DataFrame) -> list[Estimate]:
    if reason := lacks_rows(scope, rows) or lacks_rows(scope, other):
        return [nothing(reason)] * 3
    own, random = (_success(one) for one in (rows, other))
    return [data.point(own), data.point(random), data.estimate(statistics.difference(own, random))]


def _success(rows: pd.DataFrame) -> Statistic:
    return statistics.rate(rows["success"].to_numpy(bool), clusters_of(rows), ids_of(rows))
