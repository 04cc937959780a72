"""What a claim's file is given: its rows, its registered parameters, and statistics on its resamples."""

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import Any, Self, TypeVar

import numpy as np
import pandas as pd

from analysis.core import statistics
from analysis.core.estimates import Bools, Estimate, Floats, Integers, Later, Resamples, Statistic
from analysis.core.populations import ORIENTATION, cell_risk, clusters, labelled, risk, selected, strata
from kvexp.documents.registration import Question
from kvexp.documents.schema import Population
from kvexp.documents.schema import Statistics as Plan
from kvexp.documents.source import RegistrationError

# Pairs are formed within these in a stratified AUC: nothing that a signal could merely recognise is left.
WITHIN = ("model", "task", "condition", "budget")


T = TypeVar("T")


class Parameters:
    """Registered parameters by name and kind; reading an absent one is the registration's mistake."""

    def __init__(self, where: str, table: Mapping[str, Any]) -> None:
        """Wrap a table; `where` names it in messages."""
        self._where, self._table, self._read = where, table, set[str]()

    def number(self, name: str, low: float, high: float) -> float:
        """A number from low to high, both included."""
        value = self._get(name, (int, float), "a number")
        if not low <= value <= high:
            raise self.mistake(f"parameter '{name}' must lie between {low:g} and {high:g}")
        return float(value)

    def text(self, name: str) -> str:
        """A string."""
        return str(self._get(name, (str,), "a string"))

    def flag(self, name: str) -> bool:
        """True or false."""
        return bool(self._get(name, (bool,), "true or false"))

    def signal(self, name: str) -> str:
        """The name of a signal."""
        return self._signal(self.text(name))

    def panel(self, name: str) -> list[tuple[str, str]]:
        """A table arm -> list of signals, as (arm, signal) pairs; neither table nor list is empty."""
        table = self._get(name, (dict,), "a table of arms")
        if not table or not all(isinstance(signals, list) and signals for signals in table.values()):
            raise self.mistake(f"parameter '{name}' must list signals")
        return [(arm, self._signal(signal)) for arm, signals in table.items() for signal in signals]

    @property
    def unread(self) -> list[str]:
        """Parameters that nothing has asked for."""
        return sorted(set(self._table) - self._read)

    def mistake(self, words: str) -> RegistrationError:
        """The error to raise for parameters that mean nothing."""
        return RegistrationError(f"{self._where}: {words}")

    def _get(self, name: str, kinds: tuple[type, ...], words: str) -> Any:
        self._read.add(name)
        value = self._table.get(name)
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise self.mistake(f"parameter '{name}' must be {words}")
        return value

    def _signal(self, name: Any) -> str:
        if name not in ORIENTATION:
            known = ", ".join(ORIENTATION)
            raise self.mistake(f"no signal '{name}'; there are {known}")
        return str(name)


class _Sample:
    """Rows of a claim, and estimates on one set of resamples of their clusters.

    Attributes:
        rows: all that the claim is about; the index is the row id that statistics are paired by, `cluster`
            the code of the example or prompt that is resampled whole.
        parameters: as registered.
    """

    def __init__(self, rows: pd.DataFrame, plan: Plan, seed: int, parameters: Parameters) -> None:
        """Resamples are drawn at the first estimate."""
        self._plan, self._seed, self._is_lazy = plan, seed, False
        self.rows, self.parameters = rows, parameters

    def redrawn(self, seed: int) -> Self:
        """The same rows on the resamples of another seed; intervals are computed when they are read."""
        other = copy(self)
        other.__dict__.pop("_resamples", None)
        other._seed, other._is_lazy = seed, True
        return other

    def estimate(self, statistic: Statistic) -> Estimate:
        """Value and interval. Resamples draw from all clusters, whichever rows the statistic reads."""
        drawn = self._resamples
        if self._is_lazy:
            return Later(drawn.point(statistic), lambda: drawn.estimate(statistic))
        return drawn.estimate(statistic)

    def point(self, statistic: Statistic) -> Estimate:
        """Value alone."""
        return self._resamples.point(statistic)

    @cached_property
    def _resamples(self) -> Resamples:
        of_each = self.rows.drop_duplicates("cluster").sort_values("cluster")
        return Resamples(
            clusters_of(self.rows),
            strata(of_each, self._plan.resampled_within),
            draws=self._plan.draws,
            level=self._plan.level,
            min_clusters=self._plan.min_clusters,
            undefined_max=self._plan.undefined_resamples_max,
            seed=self._seed,
        )


class Data(_Sample):
    """The generations of a question.

    Attributes:
        rows: every selected row with its label (see `populations.labelled`).
        counted: the rows that the label counts, for instance those the full cache answers.
    """

    def __init__(
        self,
        table: pd.DataFrame,
        population: Population,
        success: Mapping[str, float],
        plan: Plan,
        seed: int,
        parameters: Parameters,
    ) -> None:
        """Select and label."""
        super().__init__(labelled(table, population, success), plan, seed, parameters)
        self.counted = self.rows[self.rows["counts"]]
        self._made = dict[tuple[Any, ...], tuple[Any, Any]]()

    @classmethod
    def of(cls, table: pd.DataFrame, question: Question) -> Self:
        """What a question about generations asks about."""
        assert question.population is not None
        parameters = Parameters(f"claim {question.claim_id}", question.parameters)
        plan, seed = question.statistics, question.seed
        return cls(table, question.population, question.success, plan, seed, parameters)

    def split(self, rows: pd.DataFrame, *columns: str) -> dict[Any, pd.DataFrame]:
        """Rows by the values of one or more columns, in sorted order; NaN is a value like any other."""
        by = columns[0] if len(columns) == 1 else list(columns)
        return dict(iter(rows.groupby(by, observed=True, dropna=False)))

    def chosen(self, column: str, value: str | float) -> pd.DataFrame:
        """The counted rows that a parameter asks for; the population must have such rows, counted or not."""
        if not (self.rows[column] == value).any():
            raise self.parameters.mistake(f"the population has no rows with {column} '{value}'")
        return self._once(
            self.counted, ("chosen", column, value), lambda: self.counted[self.counted[column] == value]
        )

    def auc(self, rows: pd.DataFrame, signal: str, *, within: bool = False) -> Statistic:
        """AUC of a signal for the label; `within` forms pairs inside model, task, condition, budget only."""
        return self._once(rows, ("auc", signal, within), lambda: self._aucs(rows, [signal], within))[0]

    def paired_aucs(self, rows: pd.DataFrame, *signals: str) -> list[Statistic]:
        """AUCs of several signals on the rows where all of them are defined."""
        return self._once(rows, ("auc", *signals), lambda: self._aucs(rows, signals, False))

    def auc_beside(self, rows: pd.DataFrame, signal: str) -> str:
        """What a pooled AUC may rest on, for its note: the stratified AUC and that of the bare label."""
        if self._is_lazy:  # notes are not kept where resamples are drawn again
            return ""
        within, label = self.point(self.auc(rows, signal, within=True)), self.point(self.cell_auc(rows))
        return f"stratified {within}, condition x budget alone {label}"

    def cell_auc(self, rows: pd.DataFrame) -> Statistic:
        """AUC of the bare condition x budget label."""
        return self._auc_of(rows, cell_risk(rows), "", False)

    def rate(self, rows: pd.DataFrame) -> Statistic:
        """Share of the rows that are positive."""
        return statistics.rate(_bools(rows, "positive"), clusters_of(rows), ids_of(rows))

    def gate(
        self, before: pd.DataFrame, after: pd.DataFrame, signal: str, q: float
    ) -> tuple[Statistic, Statistic]:
        """Share of positives when the share q of `before` moves to `after`: by signal, and at random.

        Rows are matched on all but the budget; one without its partner leaves both undefined.
        """
        kept, reason, note = self._with_signals(before, [signal])
        columns = ["suite", "model", "task", "example_id", "arm", "condition", "seed"]
        partner = kept.merge(after[[*columns, "positive"]], on=columns, how="left", validate="1:1")
        if not reason and partner["positive_y"].isna().any():
            reason = "a row has no partner to escalate to"
        if reason:
            return statistics.undefined(reason, ids_of(before)), statistics.undefined(reason)
        old = partner["positive_x"].to_numpy(np.float64)
        new = partner["positive_y"].to_numpy(np.float64)
        cluster, ids = clusters_of(kept), ids_of(kept)
        by_signal = statistics.gated(risk(kept, signal), old, new, q, cluster, ids)
        return replace(by_signal, note=note), statistics.random_gate(old, new, q, cluster, ids)

    def _once(self, rows: pd.DataFrame, key: tuple[Any, ...], make: Callable[[], T]) -> T:
        """What `make` makes of the rows; where resamples are drawn again it is made the first time only."""
        if not self._is_lazy:
            return make()
        # The rows are kept, so that no other frame can have their id.
        known: T = self._made.setdefault((id(rows), *key), (rows, None))[1]
        if known is None:
            known = make()
            self._made[(id(rows), *key)] = (rows, known)
        return known

    def _aucs(self, rows: pd.DataFrame, signals: Sequence[str], within: bool) -> list[Statistic]:
        kept, reason, note = self._with_signals(rows, signals)
        if reason:
            return [statistics.undefined(reason, ids_of(rows)) for _ in signals]
        return [self._auc_of(kept, risk(kept, signal), note, within) for signal in signals]

    def _with_signals(self, rows: pd.DataFrame, signals: Sequence[str]) -> tuple[pd.DataFrame, str, str]:
        """Rows where the signals are defined, why these are too few, and a note on those left out."""
        known = [~np.isnan(rows[signal].to_numpy(np.float64)) for signal in signals]
        defined = np.logical_and.reduce(known)
        lost, names = int((~defined).sum()), " and ".join(signals)
        if not len(rows):
            return rows, "the population has no such row", ""
        if lost > self._plan.undefined_rows_max * len(rows):
            return rows, f"{names} undefined in {lost} of {len(rows)} rows", ""
        if not lost:
            return rows, "", ""
        return rows[defined], "", f"{lost} rows without {names} left out"

    def _auc_of(self, rows: pd.DataFrame, score: Floats, note: str, within: bool) -> Statistic:
        stratum = strata(rows, WITHIN) if within else None
        statistic = statistics.auc(score, _bools(rows, "positive"), clusters_of(rows), ids_of(rows), stratum)
        return replace(statistic, note=note)


class CellData(_Sample):
    """The attention cells of a question, all present: one row a cell with the columns of `Study.cells`."""

    def __init__(self, rows: pd.DataFrame, plan: Plan, seed: int, parameters: Parameters) -> None:
        """Number the cells and their prompts."""
        rows = rows.assign(cluster=clusters(rows)).reset_index(drop=True)
        super().__init__(rows, plan, seed, parameters)

    @classmethod
    def of(cls, table: pd.DataFrame, question: Question) -> Self:
        """What a question about cells asks about; `table` is `Study.cells`."""
        assert question.cells is not None
        parameters = Parameters(f"claim {question.claim_id}", question.parameters)
        rows = table[selected(table, question.cells)]
        return cls(rows, question.statistics, question.seed, parameters)

    def by_budget(self) -> dict[float, pd.DataFrame]:
        """The cells of each budget, smallest budget first."""
        budgets = _column(self.rows, "budget")
        return {float(budget): self.rows[budgets == budget] for budget in np.unique(budgets)}

    def coverage(self, rows: pd.DataFrame) -> Statistic:
        """Share of the cells whose certificate covers the true error."""
        return self.share(rows, _column(rows, "covered") > 0)

    def share(self, rows: pd.DataFrame, holds: Bools) -> Statistic:
        """Share of the cells for which something holds, `holds` (rows,)."""
        return statistics.rate(holds, clusters_of(rows), ids_of(rows))

    def spearman(self, rows: pd.DataFrame, x: str, y: str) -> Statistic:
        """Rank correlation of two columns, all cells pooled."""
        return statistics.spearman(_column(rows, x), _column(rows, y), clusters_of(rows), ids_of(rows))

    def median(self, rows: pd.DataFrame, column: str) -> Statistic:
        """Median of a column over the cells."""
        return statistics.median(_column(rows, column), clusters_of(rows), ids_of(rows))

    def beside(self, parts: Mapping[float, Statistic]) -> str:
        """The values by budget, for the note of a claim that is decided at one of them."""
        return ", ".join(f"{budget:g}: {self.point(part)}" for budget, part in parts.items())


def clusters_of(rows: pd.DataFrame) -> Integers:
    """Cluster code of each row."""
    return rows["cluster"].to_numpy(np.int64)


def ids_of(rows: pd.DataFrame) -> Integers:
    """Id of each row."""
    return rows.index.to_numpy(np.int64)


def _bools(rows: pd.DataFrame, column: str) -> Bools:
    return rows[column].to_numpy(bool)


def _column(rows: pd.DataFrame, name: str) -> Floats:
    return rows[name].to_numpy(np.float64)
