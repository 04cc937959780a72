"""The no-context control: which answers need the context, and is there damage where only those count?

The control asks the same models the same examples without their contexts. An example is context-dependent
for a model where the full cache of a suite answers it and the control does not. Only the main tasks are
looked at; generated ones like the needle anchor have no answer without a context. No verdict reads this.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.core import populations, statistics
from analysis.core.decide import not_planned, problems_touching
from analysis.core.estimates import Bools, Estimate
from analysis.core.grid import FULL
from analysis.describe.parts import Part
from analysis.describe.scope import EXAMPLE, Scope, Suite, bools, by_place, nothing, picks, population
from analysis.describe.table import DIFFERENCE, MAIN, POOLED, Row, Table, column, columns, share

ORDER = 4
KNOWN = (
    *columns("suite", "model", "task"),
    column("asked", "examples", "examples that were asked without the context", "count"),
    share("accuracy", "accuracy without context", "accuracy of the full cache without the context"),
    column("answered", "answered with it", "examples that the full cache answers with the context", "count"),
    share("dependent", "of these context-dependent", "of these, answered with the context alone"),
)
AMONG_ALL = "failures among what the full cache answers"
AMONG_DEPENDENT = "failures among the context-dependent examples alone"
INDUCED = (
    *columns("suite", "model", "arm", "condition", "budget"),
    column("rows", "answers"),
    share("every", "induced failures", AMONG_ALL),
    column("dependent_rows", "context-dependent answers", "answers to context-dependent examples", "count"),
    share("dependent", "induced among these", AMONG_DEPENDENT),
    share("shift", "difference", "dependent minus every, paired", DIFFERENCE),
)
REMARKS = (
    "An example is context-dependent for a model where the full cache of the suite answers it and the "
    "control, which asks without the context, does not. Main tasks. Induced failures: among what the "
    "full cache answers; the difference is paired.",
)


@dataclass(frozen=True)
class Known:
    """What a model knows without the context; None: all models, all main tasks of the suite."""

    model: str | None
    task: str | None
    accuracy: Estimate  # of the control, on the examples of the suite
    dependent: Estimate  # share of what the full cache of the suite answers and the control does not


@dataclass(frozen=True)
class Induced:
    """Failures among what the full cache answers, main tasks; model None: all models."""

    model: str | None
    arm: str
    condition: str
    budget: float
    every: Estimate  # among all that it answers
    dependent: Estimate  # among the context-dependent examples alone
    shift: Estimate  # dependent minus every, paired


@dataclass(frozen=True)
class Controlled:
    """One suite beside its control; both tables are sorted, models first, then all of them together."""

    suite: str
    control: str
    known: tuple[Known, ...]
    induced: tuple[Induced, ...]


def describe(scope: Scope) -> Iterator[Part]:
    """The suites that a registered control can be joined to; nothing without a control."""
    found = [one for suite in scope.planned for one in controlled(scope, suite)]
    if not found:
        return
    controls = ", ".join(dict.fromkeys(one.control for one in found))
    known = tuple(row for one in found for row in _known(one))
    induced = tuple(row for one in found for row in _induced(one))
    pooled = tuple(row for row in induced if row[1] is POOLED)
    title = "Induced failures, on all examples and on context-dependent ones"
    tables = (
        Table("control.known", f"What models know without the context ({controls})", KNOWN, known, REMARKS),
        Table("control.induced", title, INDUCED, induced, REMARKS, excerpt=pooled),
    )
    yield Part("context-dependence", "Is the damage small because the context is not needed?", "", tables)


def _known(one: Controlled) -> Iterator[Row]:
    for row in one.known:
        place = (one.suite, row.model or POOLED, row.task or MAIN)
        yield (*place, *_counted(row.accuracy), *_counted(row.dependent))


def _induced(one: Controlled) -> Iterator[Row]:
    for row in one.induced:
        place = (one.suite, row.model or POOLED, row.arm, row.condition, row.budget)
        yield (*place, *_counted(row.every), *_counted(row.dependent), row.shift)


def _counted(found: Estimate) -> Row:
    """A number and before it what it rests on."""
    return None if found.value is None else found.n, found


def controlled(scope: Scope, suite: Suite) -> tuple[Controlled, ...]:
    """A planned suite beside its registered control; nothing if that cannot be joined to it."""
    return scope.once(f"control of {suite.name}", lambda: tuple(_controlled(scope, suite)))


def _controlled(scope: Scope, suite: Suite) -> Iterator[Controlled]:
    control = suite.wanted.control
    if control is not None and suite.name != control and suite.main:
        join = _Join(scope, suite, control)
        models = [*sorted(set(join.rows["model"])), None]
        yield Controlled(
            suite=suite.name,
            control=control,
            known=tuple(join.known(model, task) for model in models for task in (*suite.main, None)),
            induced=tuple(row for model in models for row in join.induced(model)),
        )


class _Join:
    """The rows of a suite's main tasks, each with its control's answer to the same example.

    Attributes:
        rows: those of `Data.rows`, with label induced failure; control_at, the row of the study's table with
            the control's answer, -1 where the grid has none; control_success, False where it is not present.
    """

    def __init__(self, scope: Scope, suite: Suite, control: str) -> None:
        self._study, self._suite, self._control = scope.report.study, suite.name, control
        arms = [*suite.arms, FULL]
        self._data = scope.data([suite], population([suite], "induced_failure", arms=arms), "control")
        table = self._study.table
        answers = picks(table, suite=control, arm=FULL)[EXAMPLE]
        answers = answers.assign(control_at=answers.index).drop_duplicates(EXAMPLE)
        rows = self._data.rows
        at = rows[EXAMPLE].merge(answers, on=EXAMPLE, how="left", validate="many_to_one")["control_at"]
        found = at.fillna(-1).to_numpy(np.int64)
        succeeded = populations.succeeded(table, suite.registered.content.success)[found] & (found >= 0)
        self.rows = rows.assign(control_at=found, control_success=succeeded)

    def known(self, model: str | None, task: str | None) -> Known:
        """What the control answers, of one model and task or of all."""
        asked = picks(self.rows, model=model, task=task).drop_duplicates(EXAMPLE)
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
        for place, here in by_place(picks(self.rows, model=model)):
            answered = here[here["full_success"]]
            depends = answered[~answered["control_success"]]
            lost = self._arm_lacks(here) or self._full_lacks(here)
            without = lost or self._control_lacks(here)
            yield Induced(
                model,
                *place,
                every=self._rate(answered, ~answered["success"], lost),
                dependent=self._rate(depends, ~depends["success"], without),
                shift=self._shift(depends, answered, without),
            )

    def _rate(self, rows: pd.DataFrame, positive: pd.Series, lost: str) -> Estimate:
        """The share of positive rows; undefined as soon as anything it reads is lost."""
        return nothing(lost) if lost else self._data.estimate(self._data.rate(rows.assign(positive=positive)))

    def _shift(self, some: pd.DataFrame, every: pd.DataFrame, lost: str) -> Estimate:
        """Failures among some rows minus failures among all, on the same resamples."""
        rates = [self._data.rate(rows.assign(positive=~rows["success"])) for rows in (some, every)]
        return nothing(lost) if lost else self._data.estimate(statistics.difference(*rates))

    def _arm_lacks(self, rows: pd.DataFrame) -> str:
        if problems_touching(self._study, rows):
            return f"rows of {self._suite} are invalid"
        return _lost(f"rows of {self._suite}", bools(rows, "present"))

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
        return _lost(f"answers of the full cache in {suite}", bools(answers, "present"))


def _lost(nouns: str, present: Bools) -> str:
    lost = int((~present).sum())
    return f"{lost:,} of {len(present):,} {nouns} are missing" if lost else ""
