"""What a claim about attention cells is given: its cells, its parameters, and statistics on its resamples."""

from collections.abc import Mapping
from copy import copy
from functools import cached_property

import numpy as np
import pandas as pd

from analysis import statistics
from analysis.data import Parameters, clusters_of, estimate, ids_of, resamples
from analysis.populations import clusters, selected
from analysis.statistics import Estimate, Resamples, Statistic
from analysis.statistics.base import Bools, Floats
from kvexp.prereg.registration import Question
from kvexp.prereg.registration import Statistics as Plan


class CellData:
    """Cells, all present, and estimates on one set of resamples of their prompts.

    Attributes:
        rows: one row a cell with the columns of `Study.cells`, and `cluster`, the code of its prompt; the
            index is the row id.
        parameters: as registered.
    """

    def __init__(self, rows: pd.DataFrame, plan: Plan, seed: int, parameters: Parameters) -> None:
        """Number the cells and their prompts; resamples are drawn at the first estimate."""
        self._plan, self._seed, self._is_lazy = plan, seed, False
        self.rows = rows.assign(cluster=clusters(rows)).reset_index(drop=True)
        self.parameters = parameters

    @classmethod
    def of(cls, table: pd.DataFrame, question: Question) -> "CellData":
        """What a question about cells asks about; `table` is `Study.cells`."""
        assert question.cells is not None
        parameters = Parameters(f"claim {question.claim_id}", question.parameters)
        rows = table[selected(table, question.cells)]
        return cls(rows, question.statistics, question.seed, parameters)

    def redrawn(self, seed: int) -> "CellData":
        """The same cells on the resamples of another seed; intervals are computed when they are read."""
        other = copy(self)
        other.__dict__.pop("_resamples", None)
        other._seed, other._is_lazy = seed, True
        return other

    def by_budget(self) -> dict[float, pd.DataFrame]:
        """The cells of each budget, smallest budget first."""
        budgets = _column(self.rows, "budget")
        return {float(budget): self.rows[budgets == budget] for budget in np.unique(budgets)}

    def estimate(self, statistic: Statistic) -> Estimate:
        """Value and interval. Resamples draw from all prompts, whichever cells the statistic reads."""
        return estimate(self._resamples, statistic, is_lazy=self._is_lazy)

    def point(self, statistic: Statistic) -> Estimate:
        """Value alone."""
        return self._resamples.point(statistic)

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

    @cached_property
    def _resamples(self) -> Resamples:
        return resamples(self.rows, self._plan, self._seed)


def _column(rows: pd.DataFrame, name: str) -> Floats:
    return rows[name].to_numpy(np.float64)
