"""Needle retrieval (section 5): success, and what signals know of failure, on tasks beside the main ones."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd

from analysis.core.data import Data
from analysis.core.estimates import Estimate
from analysis.core.grid import FULL
from analysis.describe.parts import Part
from analysis.describe.scope import (
    NO_FULL,
    Scope,
    Suite,
    aucs,
    bools,
    by_place,
    floats,
    median,
    nothing,
    picks,
    plain,
    with_signal,
)
from analysis.describe.table import (
    AUCS,
    CHANCE,
    LABEL_MEANS,
    STRATIFIED_MEANS,
    Row,
    Table,
    column,
    columns,
    number,
    share,
)

ORDER = 8
SUCCESS = (
    *columns("suite", "task", "arm", "condition", "budget"),
    column("rows", "answers"),
    share("success", "", "share of answers that succeed"),
)
HANLEY = "standard error of the AUC by Hanley and McNeil, who take answers as independent"
SIGNALS = (
    *columns("suite", "task", "arm", "signal", "failures", "successes"),
    share("auc", "AUC for own failure"),
    *AUCS[1:],
    number("error", "standard error", HANLEY, "AUC"),
    number("z", "z against .5", "(AUC - .5) over that standard error", "standard errors"),
    number("p", "p", "its two-sided p value", "probability"),
    number(
        "median_failures",
        "median on failures",
        "median of the signal as logged, on failures",
        "as the signal",
    ),
    number("median_successes", "on successes", "likewise, on successes", "as the signal"),
)
REMARKS = (
    "Standard error, z and two-sided p are Hanley and McNeil's, which take answers as independent, as the "
    "paper does. The interval is the cluster bootstrap's: answers to one example stay together.",
    STRATIFIED_MEANS,
    LABEL_MEANS,
    "Medians are of the signal as logged, not turned.",
)
NO_Z = "the standard error is 0"


def describe(scope: Scope) -> Iterator[Part]:
    """Every task that is not a main one, whatever becomes of it: also one that the full cache fails."""
    success, signals = list[Row](), list[Row]()
    for suite in scope.suites:
        for task in (one for one in suite.tasks if one not in suite.main):
            data = scope.data_of(suite, "anchors", [FULL, *suite.arms], [task])
            success += _success(scope, suite, task, data)
            signals += _signals(scope, suite, task, data)
    if success:
        title = "Success on anchors, by arm, condition and budget"
        tables = (
            Table("anchors.success", title, SUCCESS, tuple(success)),
            Table(
                "anchors.signals", "What signals tell of failure on anchors", SIGNALS, tuple(signals), REMARKS
            ),
        )
        words = "Tasks that the registration does not list as main ones; a line of the full cache leads each."
        yield Part("anchors", "Do arms know when they lose the needle?", words, tables)


def _success(scope: Scope, suite: Suite, task: str, data: Data) -> Iterator[Row]:
    full = picks(data.rows, arm=FULL)
    rate = _rate(scope, data, full) if len(full) else nothing(NO_FULL)
    yield (suite.name, task, FULL, "", "", len(full), rate)
    for place, here in by_place(data.rows):
        yield (suite.name, task, *place, len(here), _rate(scope, data, here))


def _rate(scope: Scope, data: Data, rows: pd.DataFrame) -> Estimate:
    if reason := scope.lacks(rows):
        return nothing(reason)
    return data.estimate(data.rate(rows.assign(positive=rows["success"])))


def _signals(scope: Scope, suite: Suite, task: str, data: Data) -> Iterator[Row]:
    for arm in suite.arms:
        rows = picks(data.rows, arm=arm)
        reason = scope.lacks(rows)
        for signal in suite.wanted.signals:
            if scope.has_signal(suite.wanted, arm, signal):
                found = aucs(data, rows, signal, reason)
                failures = found.positives
                successes = None if failures is None else len(rows) - failures
                more = [nothing(reason)] * 5 if reason else _more(suite, rows, signal, found.pooled)
                yield (suite.name, task, arm, signal, failures, successes, *found.three, *more)


def _more(suite: Suite, rows: pd.DataFrame, signal: str, auc: Estimate) -> list[Estimate]:
    """The test against chance, and the medians of both classes."""
    kept, reason = with_signal(suite, rows, signal)
    failed, values = bools(kept, "positive"), floats(kept, signal)
    test = _test(auc, int(failed.sum()), int((~failed).sum()))
    return [*test, median(values[failed], reason), median(values[~failed], reason)]


def _test(auc: Estimate, positives: int, negatives: int) -> list[Estimate]:
    if auc.value is None:
        return [nothing(auc.undefined)] * 3
    test = against_chance(auc.value, positives, negatives)
    numbers = [None if x is None else plain(x, auc.n) for x in (test.error, test.z, test.p)]
    return [nothing(NO_Z) if number is None else number for number in numbers]


# The standard error of an AUC by Hanley and McNeil (1982), and the z of section 5 against chance.


@dataclass(frozen=True)
class Test:
    """An AUC against one half."""

    error: float  # the standard error
    z: float | None  # (AUC - 1/2) / error; None if the error is 0
    p: float | None  # two-sided, from the normal distribution; None with z


def standard_error(auc: float, positives: int, negatives: int) -> float:
    """Of an AUC in [0, 1] on independent rows of both classes; exponential scores are assumed."""
    q1, q2, square = auc / (2 - auc), 2 * auc * auc / (1 + auc), auc * auc
    spread = auc * (1 - auc) + (positives - 1) * (q1 - square) + (negatives - 1) * (q2 - square)
    return math.sqrt(max(spread, 0.0) / (positives * negatives))  # rounding can pass 0 at AUC 1


def against_chance(auc: float, positives: int, negatives: int) -> Test:
    """The test; both classes have rows."""
    error = standard_error(auc, positives, negatives)
    if not error:
        return Test(error, None, None)
    z = (auc - CHANCE) / error
    return Test(error, z, math.erfc(abs(z) / math.sqrt(2)))
