"""Descriptive numbers beside the verdicts: the whole signal panel, accuracy, induced-failure rates.

No verdict reads them. A pooled AUC mixes conditions, budgets and models, so two numbers stand beside
each: the stratified AUC (pairs within model, task, condition, budget) and the AUC of the bare
condition x budget label.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from analysis import populations
from analysis.control import Controlled, controlled
from analysis.data import Data, Parameters
from analysis.decide import problems_touching
from analysis.load import Study
from analysis.logged import has_signal
from analysis.scope import NO_ROWS, Scope, Suite, lacks, lacks_full, narrow
from analysis.statistics import Estimate
from kvexp.prereg.registration import Details as Wanted
from kvexp.prereg.registration import Label, Population, Registered, seed

AUC_LABELS: tuple[Label, ...] = ("own_failure", "induced_failure", "attribution")


@dataclass(frozen=True)
class PanelRow:
    """One signal of one arm, predicting one label."""

    suite: str
    tasks: str  # "main", without the needle anchor, or "all"
    arm: str
    signal: str
    label: str
    positives: int
    pooled: Estimate
    stratified: Estimate
    cell_label: Estimate


@dataclass(frozen=True)
class Rate:
    """One rate of one cell; None: the full cache has no condition and budget, all main tasks no one name."""

    suite: str
    task: str | None
    arm: str
    condition: str | None
    budget: float | None
    estimate: Estimate


@dataclass(frozen=True)
class Details:
    """Everything descriptive of one registration's suites."""

    panel: tuple[PanelRow, ...]
    accuracy: tuple[Rate, ...]
    induced: tuple[Rate, ...]  # failures among what the full cache answers
    rescued: tuple[Rate, ...]  # successes among what it does not
    control: tuple[Controlled, ...] = ()  # suites beside the registered control; empty without one

    def signals(self, suite: Suite, arm: str, label: Label, *, is_whole: bool = False) -> dict[str, PanelRow]:
        """The panel's rows of one arm by signal: of the main tasks, or of all tasks of the suite."""
        tasks = "all" if is_whole and suite.main != suite.tasks else "main"
        asked = (suite.name, tasks, arm, label)
        return {row.signal: row for row in self.panel if (row.suite, row.tasks, row.arm, row.label) == asked}


def details_of(scope: Scope, registered: Registered) -> Details:
    """What `describe` says, computed once for all who read it."""
    return scope.once(f"details of {registered.content.id}", lambda: describe(scope.report.study, registered))


def describe(study: Study, registered: Registered) -> Details:
    """Describe the suites with generations that a registration keys; nothing if it has no [details]."""
    wanted = registered.content.details
    if wanted is None:
        return Details((), (), (), ())
    panel: list[PanelRow] = []
    accuracy: list[Rate] = []
    induced: list[Rate] = []
    rescued: list[Rate] = []
    study = replace(study, table=narrow(study.table).drop(columns="text"))
    for suite in registered.content.suites:
        here = study.table[study.table["suite"] == suite]
        for words, tasks in _task_sets(here, wanted):
            for arm in sorted(set(here["arm"]) - {"full"}):
                panel += _panel(study, registered, wanted, suite, words, tasks, arm)
        accuracy += _rates(study, registered, wanted, suite, "success")
        induced += _rates(study, registered, wanted, suite, "induced_failure")
        rescued += _rates(study, registered, wanted, suite, "rescue")
    control = tuple(controlled(study, registered))
    return Details(tuple(panel), tuple(accuracy), tuple(induced), tuple(rescued), control)


def _task_sets(rows: pd.DataFrame, wanted: Wanted) -> list[tuple[str, list[str]]]:
    every = sorted(set(rows["task"]))
    real = [task for task in every if task in wanted.tasks]
    sets = [("main", real)] if real else []
    return sets if real == every else [*sets, ("all", every)]


def _panel(
    study: Study, registered: Registered, wanted: Wanted, suite: str, words: str, tasks: list[str], arm: str
) -> Iterator[PanelRow]:
    for label in AUC_LABELS:
        population = Population(suites=[suite], tasks=tasks, arms=[arm], label=label)
        owed = [signal for signal in wanted.signals if has_signal(study.table, wanted, arm, signal)]
        if reason := lacks(study, population):
            nothing = Estimate(None, undefined=reason)
            for signal in owed:
                yield PanelRow(suite, words, arm, signal, label, 0, nothing, nothing, nothing)
            continue
        data = _data(study, registered, population)
        cell = data.point(data.cell_auc(data.counted))
        for signal in owed:
            yield PanelRow(
                suite,
                words,
                arm,
                signal,
                label,
                int(data.counted["positive"].sum()),
                pooled=data.estimate(data.auc(data.counted, signal)),
                stratified=data.estimate(data.auc(data.counted, signal, within=True)),
                cell_label=cell,
            )


def _rates(study: Study, registered: Registered, wanted: Wanted, suite: str, label: Label) -> Iterator[Rate]:
    """Rates by task, then over the main tasks together, for every arm, condition and budget."""
    here = study.table[study.table["suite"] == suite]
    tasks, arms = sorted(set(here["task"])), sorted(set(here["arm"]))
    if not tasks:
        return
    population = Population(suites=[suite], tasks=tasks, arms=arms, label=label)
    data = _data(study, registered, population)
    real = data.rows["task"].isin(wanted.tasks)
    groups = [(task, data.rows[data.rows["task"] == task]) for task in tasks]
    for task, group in [*groups, (None, data.rows[real])]:
        cells = group.groupby(["arm", "condition", "budget"], observed=True, dropna=False, sort=True)
        for (arm, condition, budget), rows in cells:
            is_full = not isinstance(condition, str)
            if is_full and label != "success":
                continue
            where = (None, None) if is_full else (str(condition), float(budget))
            yield Rate(suite, task, str(arm), where[0], where[1], _rate(study, data, rows, label))


def _rate(study: Study, data: Data, rows: pd.DataFrame, label: Label) -> Estimate:
    if reason := lacks_labelled(study, rows, needs_full=populations.LABELS[label].needs_full):
        return Estimate(None, undefined=reason)
    return data.estimate(data.rate(rows[rows["counts"]]))


def lacks_labelled(study: Study, rows: pd.DataFrame, *, needs_full: bool) -> str:
    """Why nothing can be said of labelled rows; empty: they are there and sound, and full rows if needed."""
    if needs_full and (reason := lacks_full(rows)):
        return reason
    at = rows["full_at"].to_numpy(np.int64)
    there = rows["present"].to_numpy(bool)
    if needs_full:
        there = there & study.table["present"].to_numpy(bool)[at]
    return NO_ROWS if not there.all() or problems_touching(study, rows) else ""


def _data(study: Study, registered: Registered, population: Population) -> Data:
    content = registered.content
    return Data(
        study.table,
        population,
        content.success,
        content.statistics,
        seed(registered.digest, "details"),
        Parameters("details", {}),
    )
