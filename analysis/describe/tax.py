"""The price of randomness (section 5, S3): success of other arms minus that of the randomised one."""

from collections.abc import Iterator

import pandas as pd

from analysis.core import statistics
from analysis.core.data import Data, clusters_of, ids_of
from analysis.core.estimates import Estimate, Statistic
from analysis.describe.parts import Part
from analysis.describe.scope import PLACE, Scope, Suite, bools, by_model, nothing
from analysis.describe.table import ALL, DIFFERENCE, MAIN, Row, Table, columns, share

ORDER = 7
SUCCESS = "success of the randomised arm at the same condition and budget, mean over seeds"
COLUMNS = (
    *columns("suite", "model", "task", "arm", "condition", "budget"),
    share("success", "its success", "success of the arm", bare=True),
    share("randomised", "randomised success", SUCCESS, bare=True),
    share("tax", "difference", "the first minus the second: what randomness costs", DIFFERENCE),
)
REMARKS = (
    "Both arms at the same condition and budget; the randomised arm, which carries the certificate, is "
    "averaged over its seeds. Positive: randomness costs. main: the main tasks together.",
)


def describe(scope: Scope) -> Iterator[Part]:
    """Every arm that shares a condition and budget with the randomised one, pooled and cell by cell."""
    pooled, cells = list[Row](), list[Row]()
    for suite in scope.suites:
        if suite.has_carrier:
            data = scope.data_of(suite, "tax", suite.arms, suite.tasks)
            main = data.rows[data.rows["task"].isin(suite.main)] if suite.main else data.rows
            for model, here in by_model(main):
                pooled += _rows(scope, suite, data, here, (model, MAIN if suite.main else ALL))
            for names, here in data.split(data.rows, "model", "task").items():
                cells += _rows(scope, suite, data, here, names)
    if pooled:
        title = "Success of an arm minus success of the randomised one"
        tables = (
            Table("tax", title, COLUMNS, tuple(pooled), REMARKS),
            Table("tax.cells", "The same, model by model and task by task", COLUMNS, tuple(cells), REMARKS),
        )
        yield Part("tax", "What does randomness cost?", tables=tables)


def _rows(
    scope: Scope, suite: Suite, data: Data, rows: pd.DataFrame, names: tuple[str, str]
) -> Iterator[Row]:
    places = data.split(rows, *PLACE)
    for (arm, condition, budget), here in places.items():
        other = places.get((suite.wanted.arm, condition, budget))
        if arm != suite.wanted.arm and other is not None:
            numbers = _numbers(scope, data, here, other)
            yield (suite.name, *names, arm, condition, budget, *numbers)


def _numbers(scope: Scope, data: Data, rows: pd.DataFrame, other: pd.DataFrame) -> list[Estimate]:
    if reason := scope.lacks(rows) or scope.lacks(other):
        return [nothing(reason)] * 3
    own, random = (_success(one) for one in (rows, other))
    return [data.point(own), data.point(random), data.estimate(statistics.difference(own, random))]


def _success(rows: pd.DataFrame) -> Statistic:
    return statistics.rate(bools(rows, "success"), clusters_of(rows), ids_of(rows))
