"""Descriptive numbers beside the verdicts: the whole signal panel, accuracy, induced-failure rates.

No verdict reads them. A pooled AUC mixes conditions, budgets and models, so two numbers stand beside
each: the stratified AUC (pairs within model, task, condition, budget) and the AUC of the bare
condition x budget label.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from analysis.core import populations, statistics
from analysis.core.data import Data, Parameters
from analysis.core.decide import not_planned, problems_touching
from analysis.core.estimates import Bools, Estimate
from analysis.core.grid import FULL
from analysis.core.study import Study
from analysis.describe.scope import NO_ROWS, Scope, Suite, has_signal, lacks, lacks_full, narrow
from kvexp.documents.registration import Registered
from kvexp.documents.schema import Details as Wanted
from kvexp.documents.schema import Label, Population

# The no-context control: which answers need the context, and does damage change where only those count?
#
# The control asks the same models the same examples without their contexts. An example is context-dependent
# for a model where the full cache of a suite answers it and the control does not. Only the main tasks are
# looked at; generated ones like the needle anchor have no answer without a context. No verdict reads this.


EXAMPLE = ["model", "task", "example_id"]


@dataclass(frozen=True)
class Known:
    """What a model knows without the context; None: all models, all main tasks of the suite.

    Attributes:
        accuracy: of the control, on the examples of the suite.
        dependent: share of what the full cache of the suite answers and the control does not.
    """

    model: str | None
    task: str | None
    accuracy: Estimate
    dependent: Estimate


@dataclass(frozen=True)
class Induced:
    """Failures among what the full cache answers, main tasks; model None: all models.

    Attributes:
        every: among all that it answers.
        dependent: among the context-dependent examples alone.
        shift: dependent minus every, paired.
    """

    model: str | None
    arm: str
    condition: str
    budget: float
    every: Estimate
    dependent: Estimate
    shift: Estimate


@dataclass(frozen=True)
class Controlled:
    """One suite beside its control; both tables are sorted, models first, then all of them together."""

    suite: str
    control: str
    known: tuple[Known, ...]
    induced: tuple[Induced, ...]


def controlled(study: Study, registered: Registered) -> Iterator[Controlled]:
    """The planned suites of a registration that its control can be joined to; none without a control."""
    wanted = registered.content.details
    if wanted is None or wanted.control is None:
        return
    for suite in registered.content.suites:
        tasks = set(study.table.loc[study.table["suite"] == suite, "task"]) & set(wanted.tasks)
        if suite != wanted.control and tasks:
            yield _controlled(study, registered, wanted, suite, sorted(tasks))


def _controlled(
    study: Study, registered: Registered, wanted: Wanted, suite: str, tasks: list[str]
) -> Controlled:
    join = _Join(study, registered, suite, tasks, str(wanted.control))
    models = [*sorted(set(join.rows["model"])), None]
    return Controlled(
        suite=suite,
        control=str(wanted.control),
        known=tuple(join.known(model, task) for model in models for task in (*tasks, None)),
        induced=tuple(row for model in models for row in join.induced(model)),
    )


class _Join:
    """The rows of a suite's main tasks, each with its control's answer to the same example.

    Attributes:
        rows: those of `Data.rows`, with label induced failure, and the columns of `with_control`.
    """

    def __init__(
        self, study: Study, registered: Registered, suite: str, tasks: list[str], control: str
    ) -> None:
        content = registered.content
        self._study, self._suite, self._control = study, suite, control
        arms = sorted(set(study.table.loc[study.table["suite"] == suite, "arm"]))
        self._data = Data(
            study.table,
            Population(suites=[suite], tasks=tasks, arms=arms, label="induced_failure"),
            content.success,
            content.statistics,
            registered.seed("control"),
            Parameters("control", {}),
        )
        self.rows = with_control(self._data.rows, study.table, control, content.success)

    def known(self, model: str | None, task: str | None) -> Known:
        """What the control answers, of one model and task or of all."""
        asked = _where(self.rows, model, task).drop_duplicates(EXAMPLE)
        answered = asked[asked["full_success"]]
        lost = self._control_lacks(asked)
        return Known(
            model,
            task,
            accuracy=self._rate(asked, asked["control_success"], lost),
            dependent=self._rate(answered, ~answered["control_success"], self._full_lacks(asked) or lost),
        )

    def induced(self, model: str | None) -> Iterator[Induced]:
        """Every arm, condition and budget, of one model or of all."""
        rows = _where(self.rows, model, None)
        places = rows.groupby(["arm", "condition", "budget"], observed=True, sort=True)
        for _, here in places:  # the full cache, which has no condition, is not among them
            place = here.iloc[0]
            answered = here[here["full_success"]]
            depends = answered[~answered["control_success"]]
            lost = self._arm_lacks(here) or self._full_lacks(here)
            without = lost or self._control_lacks(here)
            yield Induced(
                model,
                str(place["arm"]),
                str(place["condition"]),
                float(place["budget"]),
                every=self._rate(answered, ~answered["success"], lost),
                dependent=self._rate(depends, ~depends["success"], without),
                shift=self._shift(depends, answered, without),
            )

    def _rate(self, rows: pd.DataFrame, positive: pd.Series, lost: str) -> Estimate:
        """The share of positive rows; undefined as soon as anything it reads is lost."""
        if lost:
            return Estimate(None, undefined=lost)
        return self._data.estimate(self._data.rate(rows.assign(positive=positive)))

    def _shift(self, some: pd.DataFrame, every: pd.DataFrame, lost: str) -> Estimate:
        """Failures among some rows minus failures among all, on the same resamples."""
        if lost:
            return Estimate(None, undefined=lost)
        rates = [self._data.rate(rows.assign(positive=~rows["success"])) for rows in (some, every)]
        return self._data.estimate(statistics.difference(*rates))

    def _arm_lacks(self, rows: pd.DataFrame) -> str:
        if problems_touching(self._study, rows):
            return f"rows of {self._suite} are invalid"
        return _lost(f"rows of {self._suite}", rows["present"].to_numpy(bool))

    def _full_lacks(self, rows: pd.DataFrame) -> str:
        return self._answers_lack(self._suite, rows.drop_duplicates(EXAMPLE)["full_at"])

    def _control_lacks(self, rows: pd.DataFrame) -> str:
        if self._study.unplanned([self._control]):
            return not_planned(self._control)
        return self._answers_lack(self._control, rows.drop_duplicates(EXAMPLE)["control_at"])

    def _answers_lack(self, suite: str, column: pd.Series) -> str:
        """What is wrong with the full cache's answers in these rows of the table, one for each example."""
        at = column.to_numpy(np.int64)
        if (at < 0).any():
            return f"{suite} does not ask {(at < 0).sum():,} of {len(at):,} examples of the full cache"
        answers = self._study.table.iloc[at]
        if problems_touching(self._study, answers):
            return f"rows of {suite} are invalid"
        return _lost(f"answers of the full cache in {suite}", answers["present"].to_numpy(bool))


def with_control(
    rows: pd.DataFrame, table: pd.DataFrame, control: str, success: Mapping[str, float]
) -> pd.DataFrame:
    """Rows with the control's answer to the same (model, task, example_id).

    Adds control_at (the row of the table, -1 where the grid has none) and control_success (False where it
    is not present).
    """
    of_control = (table["suite"] == control) & (table["arm"] == FULL)
    answers = table.loc[of_control, EXAMPLE]
    answers = answers.assign(control_at=answers.index).drop_duplicates(EXAMPLE)
    at = rows[EXAMPLE].merge(answers, on=EXAMPLE, how="left", validate="many_to_one")["control_at"]
    found = at.fillna(-1).to_numpy(np.int64)
    succeeded = populations.succeeded(table, success)[found] & (found >= 0)
    return rows.assign(control_at=found, control_success=succeeded)


def _where(rows: pd.DataFrame, model: str | None, task: str | None) -> pd.DataFrame:
    for column, value in (("model", model), ("task", task)):
        rows = rows if value is None else rows[rows[column] == value]
    return rows


def _lost(nouns: str, present: Bools) -> str:
    lost = int((~present).sum())
    return f"{lost:,} of {len(present):,} {nouns} are missing" if lost else ""


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
        registered.seed("details"),
        Parameters("details", {}),
    )
