"""Tokens kept against the budget (eq. (2)): what was expected of every arm and what was realised."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from analysis.core.estimates import Floats
from analysis.describe.common import lacks_rows, picks, places_of, plain, rows_of
from analysis.describe.parts import Part
from analysis.describe.scope import Scope, Suite, nothing
from analysis.describe.table import BUDGET, Column, Table, Value

COLUMNS = (
    Column("suite", "suite"),
    Column("arm", "arm"),
    Column("condition", "condition"),
    BUDGET,
    Column("rows", "answers"),
    Column("evictable", "tokens in the cache, mean", "plain", is_estimate=True),
    Column("expected", "expected to be kept, mean", "plain", is_estimate=True),
    Column("realised", "kept, mean", "plain", is_estimate=True),
    Column("expected_share", "expected share of the cache", "share", is_estimate=True),
    Column("realised_share", "kept share", "share", is_estimate=True),
    Column("ratio_mean", "kept over expected, mean", "share", is_estimate=True),
    Column("ratio_min", "smallest", "share", is_estimate=True),
    Column("ratio_max", "largest", "share", is_estimate=True),
    Column("difference_sd", "sd of kept minus expected, tokens", "number", is_estimate=True),
    Column("head_sd_bound", "bound on it for one head", "number", is_estimate=True),
    Column("tail_kept", "kept by chance (pi < 1), mean", "number", is_estimate=True),
)
NAMES = tuple(column.key for column in COLUMNS[5:])
NO_DRAW = "nothing is drawn"
REMARKS = (
    "Kept and expected tokens of a row are means over layers and KV heads. The bound is the root of the mean "
    "tail: one head's size has variance sum pi (1 - pi), at most the expected number kept by chance. "
    "The sum itself is not logged; means over independent heads spread less by the root of their number.",
)


def budgets(scope: Scope) -> Part | None:
    """A line for each suite, arm, condition and budget."""
    if not scope.suites:
        return None
    rows = tuple(row for suite in scope.suites for row in _rows(scope, suite))
    table = Table("budgets", "Tokens kept and expected to be kept", COLUMNS, rows, REMARKS)
    return Part("budgets", "Is the budget kept?", tables=(table,))


def _rows(scope: Scope, suite: Suite) -> Iterator[tuple[Value, ...]]:
    rows = rows_of(scope, suite)
    for arm, condition, budget in places_of(rows):
        here = rows[picks(rows, arm=arm, condition=condition, budget=budget)]
        reason = lacks_rows(scope, here)
        found = {} if reason else _numbers(here)
        values = [
            plain(found[name], len(here)) if name in found else nothing(reason or NO_DRAW) for name in NAMES
        ]
        yield (suite.name, arm, condition, budget, len(here), *values)


def _numbers(rows: pd.DataFrame) -> dict[str, float]:
    size, expected, kept = (_column(rows, name) for name in ("n_evictable", "expected_kept", "realised_kept"))
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio, share, expected_share = kept / expected, kept / size, expected / size
    found = {
        "evictable": size.mean(),
        "expected": expected.mean(),
        "realised": kept.mean(),
        "expected_share": expected_share.mean(),
        "realised_share": share.mean(),
        "ratio_mean": ratio.mean(),
        "ratio_min": ratio.min(),
        "ratio_max": ratio.max(),
    }
    tail = _column(rows, "tail_kept")
    if not np.isnan(tail).any():
        found |= {
            "difference_sd": (kept - expected).std(),
            "head_sd_bound": np.sqrt(tail.mean()),
            "tail_kept": tail.mean(),
        }
    return {name: float(value) for name, value in found.items()}


def _column(rows: pd.DataFrame, name: str) -> Floats:
    return rows[name].to_numpy(np.float64)
