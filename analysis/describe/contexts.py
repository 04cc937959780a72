"""Context lengths before and after the cut (section 6.2), and whether an answer survives it."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from analysis.core.estimates import Estimate, Floats
from analysis.describe.common import by_model, lacks_rows, median, picks, plain, rows_of
from analysis.describe.parts import Part
from analysis.describe.scope import Scope, Suite, nothing
from analysis.describe.table import Column, Table, Value

EXAMPLE = ["model", "task", "example_id"]
COLUMNS = (
    Column("suite", "suite"),
    Column("task", "task"),
    Column("model", "model"),
    Column("examples", "examples"),
    Column("before", "tokens before the cut, median", is_estimate=True),
    Column("before_max", "largest", is_estimate=True),
    Column("after", "after it, median", is_estimate=True),
    Column("after_max", "largest", is_estimate=True),
    Column("kept", "share kept, median", "share", is_estimate=True),
    Column("truncated", "cut at all", "share", is_estimate=True),
    Column("survives", "an answer survives", "share", is_estimate=True),
)
REMARKS = (
    "Tokens of the context alone, in each model's own tokens. An answer survives where a reference stands in "
    "what is left; the share is taken over the examples in whose whole context one stood.",
)
UNREAD = "examples/ has no record of these examples that this version reads"
NO_REFERENCE = "no reference stands in any whole context"


def contexts(scope: Scope) -> Part | None:
    """A line for each suite, task and model, and for all models."""
    rows = tuple(row for suite in scope.suites for row in _rows(scope, suite))
    if not rows:
        return None
    table = Table("contexts", "Context lengths before and after the cut", COLUMNS, rows, REMARKS)
    return Part("contexts", "How much of the contexts was cut?", "", (table,))


def _rows(scope: Scope, suite: Suite) -> Iterator[tuple[Value, ...]]:
    rows = rows_of(scope, suite)
    for task in suite.tasks:
        for model, here in by_model(rows[picks(rows, task=task)]):
            asked = here.drop_duplicates(EXAMPLE)
            numbers = _numbers(asked, lacks_rows(scope, here))
            yield (suite.name, task, model, len(asked), *numbers)


def _numbers(asked: pd.DataFrame, reason: str) -> list[Estimate]:
    after, before, cut = (_column(asked, name) for name in ("n_context", "n_context_full", "truncated"))
    unread = reason or (UNREAD if np.isnan(before).any() else "")
    with np.errstate(divide="ignore", invalid="ignore"):
        kept = after / before
    return [
        median(before, unread),
        _largest(before, unread),
        median(after, reason),
        _largest(after, reason),
        median(kept, unread),
        nothing(unread) if unread else plain(float(cut.mean()), len(cut)),
        _surviving(_column(asked, "answer_survives"), unread),
    ]


def _largest(values: Floats, reason: str) -> Estimate:
    return nothing(reason) if reason else plain(float(values.max()), len(values))


def _surviving(values: Floats, reason: str) -> Estimate:
    stood = values[~np.isnan(values)]
    if reason or not len(stood):
        return nothing(reason or NO_REFERENCE)
    return plain(float(stood.mean()), len(stood))


def _column(rows: pd.DataFrame, name: str) -> Floats:
    return rows[name].to_numpy(np.float64)
