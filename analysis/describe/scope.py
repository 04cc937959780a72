"""What descriptive numbers look at: a report's suites with generations, and data on any part of them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import pandas as pd

from analysis.core import populations
from analysis.core.data import Data, Parameters
from analysis.core.decide import missing_rows, problems_touching
from analysis.core.estimates import Estimate
from analysis.core.study import Study
from analysis.core.verdicts import Report
from kvexp.documents.registration import Registered
from kvexp.documents.schema import Details as Wanted
from kvexp.documents.schema import Label, Population
from kvexp.records import Condition

NO_ROWS = "rows are missing or invalid"
NO_FULL = "the suite does not run the full cache"
SOME_FULL = "the suite does not run the full cache on every example"
# What sizes and timings are read from alone; an estimate takes rows many times, and they would come along.
UNREAD = (
    *("expected_kept", "realised_kept", "tail_kept", "n_context", "n_prompt", "n_evictable", "n_generated"),
    *("prefill_seconds", "plan_seconds", "decode_seconds", "decode_arms"),
    *("n_context_full", "truncated", "answer_survives"),
)
T = TypeVar("T")


@dataclass(frozen=True)
class Suite:
    """A planned suite with generations.

    Attributes:
        name: of the suite.
        registered: the registration that lists it.
        wanted: that registration's [details].
        tasks: all its tasks, sorted.
        main: its main tasks, sorted: without the needle anchor; empty for a suite of anchors alone.
        arms: all its arms but `full`, sorted.
    """

    name: str
    registered: Registered
    wanted: Wanted
    tasks: tuple[str, ...]
    main: tuple[str, ...]
    arms: tuple[str, ...]


class Scope:
    """A report, as descriptive code sees it.

    Attributes:
        report: the verdicts and the study.
        suites: those with generations whose registration has [details], in the order of registrations; a
            suite that runs the full cache alone, as the no-context control does, is not among them.
    """

    def __init__(self, report: Report) -> None:
        """Find the suites."""
        self.report = report
        self.suites = tuple(self._suites())
        self._made = dict[str, Any]()

    def _suites(self) -> Iterator[Suite]:
        table = self.report.study.table
        for registered in self.report.registrations:
            wanted = registered.content.details
            for name in registered.content.suites if wanted is not None else ():
                here = table[table["suite"] == name]
                arms = tuple(sorted(set(here["arm"].astype(str)) - {"full"}))
                tasks = tuple(sorted(set(here["task"].astype(str))))
                if arms and wanted is not None:
                    main = tuple(task for task in tasks if task in wanted.tasks)
                    yield Suite(name, registered, wanted, tasks, main, arms)

    def once(self, name: str, make: Callable[[], T]) -> T:
        """What several parts read: made by the first that asks, kept under a name of its own."""
        if name not in self._made:
            self._made[name] = make()
        return cast(T, self._made[name])

    def lacks(self, population: Population) -> str:
        """Why nothing can be said of a population: rows, or full rows that its label needs, are not there."""
        return lacks(self.report.study, population)

    def data(self, suites: Sequence[Suite], population: Population, name: str = "details") -> Data:
        """Rows of a population and estimates on them, on resamples of their own.

        Args:
            suites: that the population is about; the first one's registration says what a success is and
                how to resample.
            population: what to select. See that `lacks` has no objection, or report it.
            name: of the numbers; another name gives other resamples.
        """
        content = suites[0].registered.content
        return Data(
            self.once("narrow table", lambda: narrow(self.report.study.table)),
            population,
            content.success,
            content.statistics,
            suites[0].registered.seed(name),
            Parameters(name, {}),
        )


def narrow(table: pd.DataFrame) -> pd.DataFrame:
    """The table of a study without sizes and timings, which no statistic of `Data` reads; the same rows."""
    return table.drop(columns=[name for name in UNREAD if name in table])


def lacks(study: Study, population: Population) -> str:
    """Why nothing can be said of a population of a study; empty: all is there."""
    rows = study.table[populations.needed(study.table, population)]
    return lacks_answers(study, rows, needs_full=populations.LABELS[population.label].needs_full)


def lacks_answers(study: Study, rows: pd.DataFrame, *, needs_full: bool) -> str:
    """Why nothing can be said of rows of the study's table, those of the full cache among them if needed."""
    if needs_full and (reason := lacks_full(rows)):
        return reason
    return NO_ROWS if problems_touching(study, rows) or missing_rows(study, rows) else ""


def lacks_full(rows: pd.DataFrame) -> str:
    """Why the grid has no answers of the full cache beside rows; empty: it has, present or not."""
    has_none = (rows["full_at"] < 0).to_numpy(bool)
    if not has_none.any():
        return ""
    return NO_FULL if has_none.all() else SOME_FULL


def population(
    suites: Sequence[Suite],
    label: Label,
    *,
    arms: Sequence[str],
    tasks: Sequence[str] | None = None,
    conditions: Sequence[Condition] | None = None,
    budgets: Sequence[float] | None = None,
    models: Sequence[str] | None = None,
) -> Population:
    """A population over suites; without `tasks` their main tasks."""
    main = sorted({task for suite in suites for task in suite.main})
    return Population(
        suites=[suite.name for suite in suites],
        tasks=list(main if tasks is None else tasks),
        arms=list(arms),
        label=label,
        conditions=None if conditions is None else list(conditions),
        budgets=None if budgets is None else list(budgets),
        models=None if models is None else list(models),
    )


def nothing(reason: str) -> Estimate:
    """A number that is not there, and why."""
    return Estimate(None, undefined=reason)


# Which signals are owed for an arm: where it never has one nothing is missing.


CERTIFICATE = "certificate"
OF_EVERY_ANSWER = frozenset({"entropy", "output_logprob"})  # whatever the arm (kvexp/records.py)


def has_signal(table: pd.DataFrame, wanted: Wanted, arm: str, signal: str) -> bool:
    """Whether numbers of a signal are owed for an arm: undefined ones must show, with their reason.

    Args:
        table: of the whole study, all suites: an arm that has no value in any of its answers has no such
            signal. One without answers may have it.
        wanted: the registration's; the certificate of its arm is owed even if no answer has one.
        arm: name.
        signal: name.
    """
    if signal in OF_EVERY_ANSWER or (arm, signal) == (wanted.arm, CERTIFICATE):
        return True
    answers = table.loc[(table["arm"] == arm) & table["present"], signal]
    return not len(answers) or bool(answers.notna().any())
