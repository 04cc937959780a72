"""What descriptive numbers look at: suites with generations, their rows, what is missing, and estimates."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

import numpy as np
import pandas as pd

from analysis.core import populations
from analysis.core.data import Data, Parameters
from analysis.core.decide import missing_rows, problems_touching
from analysis.core.estimates import Bools, Estimate, Floats, Statistic
from analysis.core.grid import FULL
from analysis.core.verdicts import Report
from analysis.describe.table import POOLED
from kvexp.documents.registration import Registered
from kvexp.documents.schema import Details as Wanted
from kvexp.documents.schema import Label, Population
from kvexp.records import Condition

NO_ROWS = "rows are missing or invalid"
NO_FULL = "the suite does not run the full cache"
SOME_FULL = "the suite does not run the full cache on every example"
NO_SUCH_ROW = "the population has no such row"
CERTIFICATE, RIVAL = "certificate", "output_logprob"
EXAMPLE = ["model", "task", "example_id"]
PLACE = ("arm", "condition", "budget")
# What texts, sizes and timings alone are read from; an estimate takes rows many times without them.
UNREAD = (
    *("expected_kept", "realised_kept", "tail_kept", "n_context", "n_prompt", "n_evictable", "n_generated"),
    *("prefill_seconds", "plan_seconds", "decode_seconds", "decode_arms"),
    "text",
)
T = TypeVar("T")


@dataclass(frozen=True)
class Suite:
    """A planned suite with generations."""

    name: str  # of the suite
    registered: Registered  # the registration that lists it
    wanted: Wanted  # that registration's [details]
    tasks: tuple[str, ...]  # all its tasks, sorted
    # Its main tasks, sorted: without the needle anchor; empty for a suite of anchors alone.
    main: tuple[str, ...]
    arms: tuple[str, ...]  # all its arms but `full`, sorted

    @property
    def has_carrier(self) -> bool:
        """Whether it runs the arm that carries the certificate."""
        return self.wanted.arm in self.arms


class Scope:
    """A report, as descriptive code sees it.

    Attributes:
        report: the verdicts and the study.
        table: of the study's generations, planned ones too, without what no statistic of `Data` reads.
        planned: the suites with generations whose registration has [details], in the order of registrations.
        suites: these but for a suite that runs the full cache alone, as the no-context control does.
        main: of these, the ones with main tasks.
    """

    def __init__(self, report: Report) -> None:
        """Find the suites."""
        self.report = report
        table = report.study.table
        self.table = table.drop(columns=[name for name in UNREAD if name in table])
        self.planned = tuple(suite for one in report.registrations for suite in self._suites(one))
        self.suites = tuple(suite for suite in self.planned if suite.arms)
        self.main = tuple(suite for suite in self.suites if suite.main)
        self._made = dict[str, Any]()

    def _suites(self, registered: Registered) -> Iterator[Suite]:
        wanted = registered.content.details
        for name in () if wanted is None else registered.content.suites:
            here = self.table[self.table["suite"] == name]
            if len(here) and wanted is not None:
                arms = tuple(sorted(set(here["arm"].astype(str)) - {FULL}))
                tasks = tuple(sorted(set(here["task"].astype(str))))
                main = tuple(task for task in tasks if task in wanted.tasks)
                yield Suite(name, registered, wanted, tasks, main, arms)

    def once(self, name: str, make: Callable[[], T]) -> T:
        """What several parts read: made by the first that asks, kept under a name of its own."""
        if name not in self._made:
            self._made[name] = make()
        return cast(T, self._made[name])

    def rows(self, suite: Suite) -> pd.DataFrame:
        """The planned rows of a suite, present or not, with all columns of the study's table."""
        table = self.report.study.table
        return table[table["suite"] == suite.name]

    def data(self, suites: Sequence[Suite], population: Population, name: str = "details") -> Data:
        """Rows of a population and estimates on them, on resamples of their own.

        Args:
            suites: that the population is about; the first one's registration says what a success is and
                how to resample.
            population: what to select. See that `lacks` has no objection, or report it.
            name: of the numbers; another name gives other resamples.
        """
        content = suites[0].registered.content
        key = suites[0].registered.seed(name)
        return Data(self.table, population, content.success, content.statistics, key, Parameters(name, {}))

    def data_of(self, suite: Suite, name: str, arms: Sequence[str], tasks: Sequence[str]) -> Data:
        """All rows of some arms and tasks of a suite, labelled own failure, present or not.

        Ask `lacks` about the rows of every number; all numbers share their resamples.
        """
        return self.data([suite], population([suite], "own_failure", arms=arms, tasks=tasks), name)

    # What is missing.

    def lacks(self, rows: pd.DataFrame, label: Label = "own_failure") -> str:
        """Why nothing can be said of rows under a label, which may need the full cache's answers too.

        Empty: all are there and sound.
        """
        study = self.report.study
        needs_full = populations.LABELS[label].needs_full
        if needs_full and (reason := _lacks_full(rows)):
            return reason
        full = self.report.study.table.iloc[np.unique(rows["full_at"])] if needs_full else rows.iloc[:0]
        lost = any(problems_touching(study, one) or missing_rows(study, one) for one in (rows, full))
        return NO_ROWS if lost else ""

    def lacks_of(self, population: Population) -> str:
        """The same of a population."""
        return self.lacks(self.table[populations.selected(self.table, population)], population.label)

    def has_signal(self, wanted: Wanted, arm: str, signal: str) -> bool:
        """Whether numbers of a signal are owed for an arm: undefined ones must show, with their reason.

        An arm that has no value in any of its answers, in all suites, has no such signal; one without answers
        may have it. The certificate of the registered arm is owed even if no answer has one.
        """
        if signal in ("entropy", RIVAL) or (arm, signal) == (wanted.arm, CERTIFICATE):
            return True  # the first two are of every answer, whatever the arm
        answers = self.table.loc[(self.table["arm"] == arm) & self.table["present"], signal]
        return not len(answers) or bool(answers.notna().any())


def _lacks_full(rows: pd.DataFrame) -> str:
    """Why the grid has no answers of the full cache beside rows; empty: it has, present or not."""
    has_none = (rows["full_at"] < 0).to_numpy(bool)
    if not has_none.any():
        return ""
    return NO_FULL if has_none.all() else SOME_FULL


def nothing(reason: str, n: int = 0) -> Estimate:
    """A number that is not there, and why."""
    return Estimate(None, n=n, undefined=reason)


def with_signal(suite: Suite, rows: pd.DataFrame, signal: str) -> tuple[pd.DataFrame, str]:
    """The rows in which a signal is defined, and why they are too few by the registration."""
    kept = rows[rows[signal].notna()]
    lost, most = len(rows) - len(kept), suite.registered.content.statistics.undefined_rows_max
    if not len(rows):
        return rows, NO_SUCH_ROW
    return kept, f"{signal} undefined in {lost} of {len(rows)} rows" if lost > most * len(rows) else ""


# Which rows.


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


def names_in(rows: pd.DataFrame, column: str) -> list[str]:
    """The values of a column of names, sorted."""
    return sorted(set(rows[column].dropna().astype(str)))


def by_model(rows: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """The rows of each model, then those of all."""
    for model in names_in(rows, "model"):
        yield model, rows[rows["model"] == model]
    yield POOLED, rows


def picks(rows: pd.DataFrame, **wanted: str | float | None) -> pd.DataFrame:
    """The rows with these values; None does not restrict."""
    mask = np.ones(len(rows), bool)
    for column, value in wanted.items():
        if value is not None:
            mask &= (rows[column] == value).to_numpy(bool)
    return rows[mask]


def by_place(rows: pd.DataFrame) -> Iterator[tuple[tuple[str, str, float], pd.DataFrame]]:
    """Rows by (arm, condition, budget), sorted; the full cache, which has no place, is not among them."""
    for place, here in rows.groupby(list(PLACE), observed=True, sort=True):
        arm, condition, budget = cast(tuple[str, str, float], place)
        yield (str(arm), str(condition), float(budget)), here


def labelled(rows: pd.DataFrame, label: Label) -> pd.DataFrame:
    """Those of `Data.rows` that count under another label, with `positive` as it says."""
    own, full = rows["success"].to_numpy(bool), rows["full_success"].to_numpy(bool)
    labelling = populations.LABELS[label]
    return rows.assign(positive=labelling.positive(own, full))[labelling.counts(own, full)]


# Numbers.


@dataclass(frozen=True)
class Aucs:
    """What a signal tells of a label on some rows."""

    rows: int | None  # that count
    positives: int | None  # of these; both are None where the numbers lack rows
    pooled: Estimate  # all pairs
    stratified: Estimate  # pairs within model, task, condition and budget
    label: Estimate  # the bare condition x budget label

    @property
    def three(self) -> tuple[Estimate, Estimate, Estimate]:
        """The AUCs as tables show them."""
        return self.pooled, self.stratified, self.label


def aucs(
    data: Data, rows: pd.DataFrame, signal: str, reason: str = "", *, apart: pd.DataFrame | None = None
) -> Aucs:
    """Of rows with `positive`, or the reason why not.

    The stratified one has an interval only if `apart` is given, the rows as they are told apart.
    """
    if reason:
        lost = nothing(reason)
        return Aucs(None, None, lost, lost, lost)
    within = data.auc(rows if apart is None else apart, signal, within=True)
    return Aucs(
        len(rows),
        int(rows["positive"].sum()),
        data.estimate(data.auc(rows, signal)),
        data.point(within) if apart is None else data.estimate(within),
        data.point(data.cell_auc(rows)),
    )


def plain(value: float, n: int) -> Estimate:
    """A number without an interval, on n rows; undefined if it is not finite."""
    if not np.isfinite(value):
        return nothing("it has no value on these rows", n)
    return Estimate(float(value), n=n)


def median(values: Floats, reason: str = "") -> Estimate:
    """The median, (rows,); undefined where a row lacks its value."""
    if reason or not len(values):
        return nothing(reason or NO_SUCH_ROW)
    if lost := int(np.isnan(values).sum()):
        return nothing(f"undefined in {lost} of {len(values)} rows", len(values))
    with np.errstate(over="ignore"):  # the mean of the two in the middle
        return plain(float(np.median(values)), len(values))


def floats(rows: pd.DataFrame, name: str) -> Floats:
    """A column of numbers, (rows,)."""
    return rows[name].to_numpy(np.float64)


def bools(rows: pd.DataFrame, name: str) -> Bools:
    """A column of truths, (rows,)."""
    return rows[name].to_numpy(bool)


def remembered(statistic: Statistic) -> Statistic:
    """The same statistic; for weights that are a part of one array, such as that of `Resamples`, kept.

    Nobody writes into the weights of resamples, and what is kept holds them, so their place in memory
    names them. What stands alone, such as the weights of the rows as observed, is computed each time.
    """
    known = dict[Hashable, tuple[Floats, Floats]]()

    def of(weights: Floats) -> Floats:
        if weights.base is None:
            return statistic.of(weights)
        place = (weights.__array_interface__["data"][0], weights.shape, weights.strides)
        if place not in known:
            known[place] = (weights, statistic.of(weights))
        return known[place][1]

    return replace(statistic, of=of)
