"""Needle retrieval (section 5): success, and what signals know of failure, on tasks beside the main ones."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from analysis.core.data import Data
from analysis.core.estimates import Estimate
from analysis.core.grid import FULL
from analysis.describe.common import (
    against_chance,
    data_of,
    lacks_rows,
    median,
    picks,
    places_of,
    plain,
    with_signal,
)
from analysis.describe.parts import Part
from analysis.describe.scope import NO_FULL, Scope, Suite, has_signal, nothing
from analysis.describe.table import BUDGET, LABEL_MEANS, STRATIFIED_MEANS, Column, Table, Value

PLACE = (Column("suite", "suite"), Column("task", "task"), Column("arm", "arm"))
SUCCESS = (
    *PLACE,
    Column("condition", "condition"),
    BUDGET,
    Column("rows", "answers"),
    Column("success", "success", "share", is_estimate=True),
)
SIGNALS = (
    *PLACE,
    Column("signal", "signal"),
    Column("failures", "failures"),
    Column("successes", "successes"),
    Column("auc", "AUC for own failure", "share", is_estimate=True),
    Column("stratified", "stratified", "share", is_estimate=True),
    Column("cell", "label alone", "share", is_estimate=True),
    Column("error", "standard error", "number", is_estimate=True),
    Column("z", "z against .5", "number", is_estimate=True),
    Column("p", "p", "number", is_estimate=True),
    Column("median_failures", "median on failures", "number", is_estimate=True),
    Column("median_successes", "on successes", "number", is_estimate=True),
)
REMARKS = (
    "Standard error, z and two-sided p are Hanley and McNeil's, which take answers as independent, as the "
    "paper does. The interval is the cluster bootstrap's: answers to one example stay together.",
    STRATIFIED_MEANS,
    LABEL_MEANS,
    "Medians are of the signal as logged, not turned.",
)
NO_Z = "the standard error is 0"


def anchors(scope: Scope) -> Part | None:
    """Every task that is not a main one, whatever becomes of it: also one that the full cache fails."""
    found = [
        (suite, task) for suite in scope.suites for task in suite.tasks if task not in suite.wanted.tasks
    ]
    if not found:
        return None
    success, signals = list[tuple[Value, ...]](), list[tuple[Value, ...]]()
    for suite, task in found:
        data = data_of(scope, suite, "anchors", [FULL, *suite.arms], [task])
        success += _success(scope, suite, task, data)
        signals += _signals(scope, suite, task, data)
    tables = (
        Table("anchors.success", "Success on anchors, by arm, condition and budget", SUCCESS, tuple(success)),
        Table("anchors.signals", "What signals tell of failure on anchors", SIGNALS, tuple(signals), REMARKS),
    )
    words = "Tasks that the registration does not list as main ones; a line of the full cache leads each."
    return Part("anchors", "Do arms know when they lose the needle?", words, tables)


def _success(scope: Scope, suite: Suite, task: str, data: Data) -> Iterator[tuple[Value, ...]]:
    full = data.rows[picks(data.rows, arm=FULL)]
    rate = _rate(scope, data, full) if len(full) else nothing(NO_FULL)
    yield (suite.name, task, FULL, "", "", len(full), rate)
    for arm, condition, budget in places_of(data.rows):
        here = data.rows[picks(data.rows, arm=arm, condition=condition, budget=budget)]
        yield (suite.name, task, arm, condition, budget, len(here), _rate(scope, data, here))


def _rate(scope: Scope, data: Data, rows: pd.DataFrame) -> Estimate:
    if reason := lacks_rows(scope, rows):
        return nothing(reason)
    return data.estimate(data.rate(rows.assign(positive=rows["success"])))


def _signals(scope: Scope, suite: Suite, task: str, data: Data) -> Iterator[tuple[Value, ...]]:
    for arm in suite.arms:
        rows = data.rows[picks(data.rows, arm=arm)]
        reason = lacks_rows(scope, rows)
        for signal in suite.wanted.signals:
            if not has_signal(scope.report.study.table, suite.wanted, arm, signal):
                continue
            numbers = [nothing(reason)] * 8 if reason else _numbers(suite, data, rows, signal)
            failures = None if reason else int(rows["positive"].sum())
            successes = None if reason else int((~rows["positive"]).sum())
            yield (suite.name, task, arm, signal, failures, successes, *numbers)


def _numbers(suite: Suite, data: Data, rows: pd.DataFrame, signal: str) -> list[Estimate]:
    auc = data.estimate(data.auc(rows, signal))
    kept, reason = with_signal(suite, rows, signal)
    failed = kept["positive"].to_numpy(bool)
    values = kept[signal].to_numpy(np.float64)
    return [
        auc,
        data.point(data.auc(rows, signal, within=True)),
        data.point(data.cell_auc(rows)),
        *_test(auc, int(failed.sum()), int((~failed).sum())),
        median(values[failed], reason),
        median(values[~failed], reason),
    ]


def _test(auc: Estimate, positives: int, negatives: int) -> list[Estimate]:
    if auc.value is None:
        return [nothing(auc.undefined)] * 3
    test = against_chance(auc.value, positives, negatives)
    numbers = [None if x is None else plain(x, auc.n) for x in (test.error, test.z, test.p)]
    return [nothing(NO_Z) if number is None else number for number in numbers]
