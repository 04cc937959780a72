"""What the logs say of sizes: seconds per token, tokens kept against the budget, contexts that were cut."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.core.estimates import Estimate, Floats, Integers
from analysis.core.grid import FULL
from analysis.core.lines import LineError, Lines
from analysis.core.populations import strata
from analysis.describe.parts import Part
from analysis.describe.scope import (
    EXAMPLE,
    Scope,
    Suite,
    by_model,
    by_place,
    floats,
    median,
    nothing,
    picks,
    plain,
)
from analysis.describe.table import ALL, POOLED, Row, Table, column, columns, number, share
from kvexp import files
from kvexp.records import Example

_lines = Lines[Example](Example)
# Of `Example`, as numbers: tokens, 0 or 1, and 0 or 1 where a reference stood in the whole context.
ASKED = ("n_context_full", "truncated", "answer_survives")

ORDER = 9


def describe(scope: Scope) -> Iterator[Part]:
    """Of every suite that evicts."""
    if scope.suites:
        yield cost(scope)
        yield budgets(scope)
        yield contexts(scope)


# Seconds per generated token by arm (section 6.5), as the logs time them.


COST = (
    *columns("suite", "model", "arm", "budget"),
    column("rows", "answers"),
    number(
        "seconds_per_token",
        "seconds per token",
        "median decode seconds of the whole batch over the steps of its longest answer",
        "seconds",
    ),
    number("ratio_to_full", "times the full cache", "that over the same of the full cache", "ratio"),
    number(
        "tokens_per_second",
        "batch's tokens per second",
        "median tokens per second of all arms of the batch",
        "tokens per second",
    ),
    number(
        "arms_in_batch",
        "arms in its batch",
        "median arms that were decoded together; 1: the seconds are the arm's own",
        "count",
    ),
    number("plan_seconds", "seconds for its keep plan", "median seconds for the arm's keep plan", "seconds"),
    number(
        "prefill_seconds",
        "seconds for the prefill",
        "median seconds of the prefill that serves all arms of an example",
        "seconds",
    ),
    number("tokens_median", "tokens of an answer, median", "median tokens of an answer", "tokens"),
    number("tokens_mean", "mean", "mean tokens of an answer", "tokens"),
)
SHARED = "the full cache shares its batch with other arms"
COST_REMARKS = (
    "Medians over answers. A token takes the decode seconds of its batch over the steps of the batch's "
    "longest answer. The seconds are the whole batch's, so arms that share a batch cannot be told apart: "
    "only arms decoded alone (1 arm in a batch) show their own cost. Tokens per second: of all arms.",
    "A batch is the answers to one example by one model that state the same decode seconds, as "
    "many as they say; where more state the same, or fewer are there, theirs are unknown. "
    "The prefill serves all arms of an example; the keep plan is an arm's own.",
)


def cost(scope: Scope) -> Part:
    """A line for each suite, model and arm, over all budgets and for each of them."""
    rows = tuple(row for suite in scope.suites for row in _costs(scope, suite))
    pooled = tuple(row for row in rows if row[1] is POOLED)
    table = Table("cost", "Seconds per generated token, by arm", COST, rows, COST_REMARKS, excerpt=pooled)
    words = "Timings are those of the batches that the harness decodes, not of arms served on their own."
    return Part("cost", "What a token costs", words, tables=(table,))


def _costs(scope: Scope, suite: Suite) -> Iterator[Row]:
    rows = timed(scope.rows(suite))
    for model, of_model in by_model(rows):
        full = picks(of_model, arm=FULL)
        is_alone = (floats(full, "decode_arms") == 1).all()
        reason = scope.lacks(full) or ("" if is_alone else SHARED)
        base = median(floats(full, "step_seconds"), reason)
        for arm in (*([FULL] if len(full) else []), *suite.arms):
            of_arm = picks(of_model, arm=arm)
            budgets = sorted(set(of_arm["budget"].dropna()))
            for budget in (None, *(budgets if len(budgets) > 1 else [])):
                here = picks(of_arm, budget=budget)
                place = (suite.name, model, arm, ALL if budget is None else budget, len(here))
                yield (*place, *_cost(here, base, scope.lacks(here)))


def _cost(rows: pd.DataFrame, base: Estimate, reason: str) -> Iterator[Estimate]:
    seconds = median(floats(rows, "step_seconds"), reason)
    yield from (seconds, _over(seconds, base))
    for name in ("batch_rate", "decode_arms", "plan_seconds", "prefill_seconds", "n_generated"):
        yield median(floats(rows, name), reason)
    yield nothing(reason) if reason else plain(float(floats(rows, "n_generated").mean()), len(rows))


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
    arms = floats(rows, "decode_arms")
    is_alone = arms == 1  # whatever others state: a batch of its own
    batch = np.where(is_alone, len(rows) + np.arange(len(rows)), batch)
    batch = np.unique(batch, return_inverse=True)[1]
    is_known = np.bincount(batch)[batch] == arms
    seconds, tokens = floats(rows, "decode_seconds"), np.nan_to_num(floats(rows, "n_generated"))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        step = np.where(is_known, seconds / _most(tokens, batch)[batch], np.nan)
        rate = np.where(is_known, np.bincount(batch, tokens)[batch] / seconds, np.nan)
    return rows.assign(step_seconds=_finite(step), batch_rate=_finite(rate))


def _most(values: Floats, batch: Integers) -> Floats:
    most = np.zeros(int(batch.max()) + 1)
    np.maximum.at(most, batch, values)
    return most


def _finite(values: Floats) -> Floats:
    return np.where(np.isfinite(values), values, np.nan)


# Tokens kept against the budget (eq. (2)): what was expected of every arm and what was realised.


BUDGETS = (
    *columns("suite", "arm", "condition", "budget"),
    column("rows", "answers"),
    number(
        "evictable",
        "tokens in the cache, mean",
        "mean tokens in the cache when eviction happens",
        "tokens",
        "plain",
    ),
    number(
        "expected",
        "expected to be kept, mean",
        "mean tokens that the design expects to keep",
        "tokens",
        "plain",
    ),
    number("realised", "kept, mean", "mean tokens that were kept", "tokens", "plain"),
    share("expected_share", "expected share of the cache", "mean of expected over evictable"),
    share("realised_share", "kept share", "mean of kept over evictable"),
    share("ratio_mean", "kept over expected, mean", "mean of kept over expected", "ratio"),
    share("ratio_min", "smallest", "smallest quotient of kept over expected tokens of any answer", "ratio"),
    share("ratio_max", "largest", "largest quotient of kept over expected tokens of any answer", "ratio"),
    number(
        "difference_sd",
        "sd of kept minus expected, tokens",
        "standard deviation of kept minus expected",
        "tokens",
    ),
    number(
        "head_sd_bound",
        "bound on it for one head",
        "bound on it for one KV head of one layer",
        "tokens",
    ),
    number(
        "tail_kept",
        "kept by chance (pi < 1), mean",
        "mean tokens kept by chance (pi below 1)",
        "tokens",
    ),
)
NO_DRAW = "nothing is drawn"
BUDGET_REMARKS = (
    "Kept and expected tokens of a row are means over layers and KV heads. The bound is the root of the mean "
    "tail: one head's size has variance sum pi (1 - pi), at most the expected number kept by chance. "
    "The sum itself is not logged; means over independent heads spread less by the root of their number.",
)


def budgets(scope: Scope) -> Part:
    """A line for each suite, arm, condition and budget."""
    rows = tuple(row for suite in scope.suites for row in _budgets(scope, suite))
    table = Table("budgets", "Tokens kept and expected to be kept", BUDGETS, rows, BUDGET_REMARKS)
    return Part("budgets", "Is the budget kept?", tables=(table,))


def _budgets(scope: Scope, suite: Suite) -> Iterator[Row]:
    for place, here in by_place(scope.rows(suite)):
        reason = scope.lacks(here)
        found = {} if reason else _kept(here)
        values = (
            plain(found[one.key], len(here)) if one.key in found else nothing(reason or NO_DRAW)
            for one in BUDGETS[5:]
        )
        yield (suite.name, *place, len(here), *values)


def _kept(rows: pd.DataFrame) -> dict[str, float]:
    size, expected, kept = (floats(rows, name) for name in ("n_evictable", "expected_kept", "realised_kept"))
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
    tail = floats(rows, "tail_kept")
    if not np.isnan(tail).any():
        found |= {
            "difference_sd": (kept - expected).std(),
            "head_sd_bound": np.sqrt(tail.mean()),
            "tail_kept": tail.mean(),
        }
    return {name: float(value) for name, value in found.items()}


# Context lengths before and after the cut (section 6.2), and whether an answer survives it.


BEFORE = "median length of the context before the cut, in the model's own tokens"
SURVIVES = "examples with a reference in what is left, of those whose whole context has one"
CONTEXTS = (
    *columns("suite", "task", "model"),
    column("examples", "", "examples that were asked, each counted once a model", "count"),
    number("before", "tokens before the cut, median", BEFORE, "tokens", "plain"),
    number("before_max", "largest", "largest length before the cut", "tokens", "plain"),
    number("after", "after it, median", "median length after the cut", "tokens", "plain"),
    number("after_max", "largest", "largest length after the cut", "tokens", "plain"),
    share("kept", "share kept, median", "median share of the context that the cut leaves"),
    share("truncated", "cut at all", "examples that were cut at all"),
    share("survives", "an answer survives", SURVIVES),
)
CONTEXT_REMARKS = (
    "Tokens of the context alone, in each model's own tokens. An answer survives where a reference stands in "
    "what is left; the share is taken over the examples in whose whole context one stood.",
)
UNREAD = "examples/ has no record of these examples that this version reads"
NO_REFERENCE = "no reference stands in any whole context"


def contexts(scope: Scope) -> Part:
    """A line for each suite, task and model, and for all models."""
    rows = tuple(row for suite in scope.suites for row in _contexts(scope, suite))
    table = Table("contexts", "Context lengths before and after the cut", CONTEXTS, rows, CONTEXT_REMARKS)
    return Part("contexts", "How much of the contexts was cut?", "", (table,))


def _contexts(scope: Scope, suite: Suite) -> Iterator[Row]:
    for task in suite.tasks:
        for model, here in by_model(picks(scope.rows(suite), task=task)):
            asked = with_examples(scope.report.study.folder, suite.name, task, here.drop_duplicates(EXAMPLE))
            yield (suite.name, task, model, len(asked), *_lengths(asked, scope.lacks(here)))


def with_examples(results: Path, suite: str, task: str, rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with what their examples say; what cannot be read is undefined, and no problem."""
    found: dict[tuple[str, str], Example] = {}
    for model in sorted(set(rows["model"].astype(str))):
        path = results / "examples" / f"{suite}.{model}.{task}.jsonl"
        try:
            every = list(_lines(files.read(path), path))
        except (OSError, LineError):
            continue
        here = (suite, model, task)
        found |= {(model, one.example_id): one for one in every if (one.suite, one.model, one.task) == here}
    keys = list(zip(rows["model"].astype(str), rows["example_id"].astype(str), strict=True))
    # A null, as an example that is not there, is NaN.
    told = {name: [getattr(found.get(key), name, None) for key in keys] for name in ASKED}
    return rows.assign(**{name: np.array(values, np.float64) for name, values in told.items()})


def _lengths(asked: pd.DataFrame, reason: str) -> list[Estimate]:
    after, before, cut = (floats(asked, name) for name in ("n_context", "n_context_full", "truncated"))
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
        _surviving(floats(asked, "answer_survives"), unread),
    ]


def _largest(values: Floats, reason: str) -> Estimate:
    return nothing(reason) if reason else plain(float(values.max()), len(values))


def _surviving(values: Floats, reason: str) -> Estimate:
    stood = values[~np.isnan(values)]
    if reason or not len(stood):
        return nothing(reason or NO_REFERENCE)
    return plain(float(stood.mean()), len(stood))
