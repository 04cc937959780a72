"""The no-context control: which answers need the context, and does damage change where only those count?

The control asks the same models the same examples without their contexts. An example is context-dependent
for a model where the full cache of a suite answers it and the control does not. Only the main tasks are
looked at; generated ones like the needle anchor have no answer without a context. No verdict reads this.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis import populations, statistics
from analysis.data import Data, Parameters
from analysis.decide import not_planned, problems_touching
from analysis.load import Study
from analysis.load.grid import FULL
from analysis.statistics import Estimate
from analysis.statistics.base import Bools
from kvexp.prereg.registration import Details as Wanted
from kvexp.prereg.registration import Population, Registered, seed

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
            seed(registered.digest, "control"),
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
