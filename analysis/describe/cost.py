"""Seconds per generated token by arm (section 6.5), as the logs time them."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from analysis.core.estimates import Estimate, Floats, Integers
from analysis.core.grid import FULL
from analysis.core.populations import strata
from analysis.describe.common import by_model, lacks_rows, median, picks, plain, rows_of
from analysis.describe.parts import Part
from analysis.describe.scope import Scope, Suite, nothing
from analysis.describe.table import ALL, BUDGET, POOLED, Column, Table, Value

EXAMPLE = ("model", "task", "example_id")
COLUMNS = (
    Column("suite", "suite"),
    Column("model", "model"),
    Column("arm", "arm"),
    BUDGET,
    Column("rows", "answers"),
    Column("seconds_per_token", "seconds per token", "number", is_estimate=True),
    Column("ratio_to_full", "times the full cache", "number", is_estimate=True),
    Column("tokens_per_second", "batch's tokens per second", "number", is_estimate=True),
    Column("arms_in_batch", "arms in its batch", "number", is_estimate=True),
    Column("plan_seconds", "seconds for its keep plan", "number", is_estimate=True),
    Column("prefill_seconds", "seconds for the prefill", "number", is_estimate=True),
    Column("tokens_median", "tokens of an answer, median", "number", is_estimate=True),
    Column("tokens_mean", "mean", "number", is_estimate=True),
)
SHARED = "the full cache shares its batch with other arms"
REMARKS = (
    "Medians over answers. A token takes the decode seconds of its batch over the steps of the batch's "
    "longest answer. The seconds are the whole batch's, so arms that share a batch cannot be told apart: "
    "only arms decoded alone (1 arm in a batch) show their own cost. Tokens per second: of all arms.",
    "A batch is the answers to one example by one model that state the same decode seconds, as "
    "many as they say; where more state the same, or fewer are there, theirs are unknown. "
    "The prefill serves all arms of an example; the keep plan is an arm's own.",
)


def cost(scope: Scope) -> Part | None:
    """A line for each suite, model and arm, over all budgets and for each of them."""
    if not scope.suites:
        return None
    rows = tuple(row for suite in scope.suites for row in _rows(scope, suite))
    pooled = tuple(row for row in rows if row[1] is POOLED)
    table = Table("cost", "Seconds per generated token, by arm", COLUMNS, rows, REMARKS, excerpt=pooled)
    words = "Timings are those of the batches that the harness decodes, not of arms served on their own."
    return Part("cost", "What a token costs", words, tables=(table,))


def _rows(scope: Scope, suite: Suite) -> Iterator[tuple[Value, ...]]:
    rows = timed(rows_of(scope, suite))
    for model, of_model in by_model(rows):
        full = of_model[picks(of_model, arm=FULL)]
        is_alone = (_column(full, "decode_arms") == 1).all()
        reason = lacks_rows(scope, full) or ("" if is_alone else SHARED)
        base = median(_column(full, "step_seconds"), reason)
        for arm in (*([FULL] if len(full) else []), *suite.arms):
            of_arm = of_model[picks(of_model, arm=arm)]
            budgets = sorted(set(of_arm["budget"].dropna()))
            for budget in (None, *(budgets if len(budgets) > 1 else [])):
                here = of_arm[picks(of_arm, budget=budget)]
                yield _row(suite.name, model, arm, budget, here, base, lacks_rows(scope, here))


def _row(
    suite: str,
    model: str,
    arm: str,
    budget: float | None,
    rows: pd.DataFrame,
    base: Estimate,
    reason: str,
) -> tuple[Value, ...]:
    seconds = median(_column(rows, "step_seconds"), reason)
    names = ("batch_rate", "decode_arms", "plan_seconds", "prefill_seconds", "n_generated")
    lengths = _column(rows, "n_generated")
    return (
        suite,
        model,
        arm,
        ALL if budget is None else budget,
        len(rows),
        seconds,
        _over(seconds, base),
        *(median(_column(rows, name), reason) for name in names),
        nothing(reason) if reason else plain(float(lengths.mean()), len(rows)),
    )


def _over(seconds: Estimate, base: Estimate) -> Estimate:
    if seconds.value is None or base.value is None:
        return nothing(seconds.undefined or base.undefined)
    if base.value <= 0:
        return nothing("the full cache's seconds are 0")
    return plain(seconds.value / base.value, seconds.n)


def timed(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows with `step_seconds`, of one step of its batch, and `batch_rate`, the batch's tokens per second.

    Both are NaN where it is not known which answers a batch has.
    """
    batch = strata(rows, (*EXAMPLE, "decode_seconds", "decode_arms"))
    arms = _column(rows, "decode_arms")
    is_alone = arms == 1  # whatever others state: a batch of its own
    batch = np.where(is_alone, len(rows) + np.arange(len(rows)), batch)
    batch = np.unique(batch, return_inverse=True)[1]
    is_known = np.bincount(batch)[batch] == arms
    seconds, tokens = _column(rows, "decode_seconds"), np.nan_to_num(_column(rows, "n_generated"))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        step = np.where(is_known, seconds / _largest(tokens, batch)[batch], np.nan)
        rate = np.where(is_known, np.bincount(batch, tokens)[batch] / seconds, np.nan)
    return rows.assign(step_seconds=_finite(step), batch_rate=_finite(rate))


def _largest(values: Floats, batch: Integers) -> Floats:
    most = np.zeros(int(batch.max()) + 1)
    np.maximum.at(most, batch, values)
    return most


def _finite(values: Floats) -> Floats:
    return np.where(np.isfinite(values), values, np.nan)


def _column(rows: pd.DataFrame, name: str) -> Floats:
    return rows[name].to_numpy(np.float64)
