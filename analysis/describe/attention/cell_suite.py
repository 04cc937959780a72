"""One attention suite on one model, as every part sees it: what it is, its cells, and why there are none."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

import pandas as pd
from matplotlib.figure import Figure

from analysis.core.data import CellData, Parameters
from analysis.core.decide import missing_rows, problems_touching
from analysis.core.estimates import Estimate
from analysis.core.study import Study
from analysis.describe.parts import Picture, Words, no_picture, picture
from analysis.describe.table import Column, Row, Table, share
from kvexp.documents.registration import Registered

COVERED_MEANS = "covered: share of cells whose true error is no larger than the certificate says."
Budget = Annotated[float, Column("budget", "budget", "budget")]
Covered = Annotated[Estimate, share("coverage", "covered")]


@dataclass(frozen=True)
class Found:
    """What a part finds in a suite."""

    name: str  # of its records in details.json
    records: tuple[Any, ...]  # its numbers
    tables: tuple[Table, ...]  # that show them
    pictures: tuple[Picture, ...] = ()  # likewise


@dataclass(frozen=True, kw_only=True)
class CellSuite:
    """One suite on one model; layers of two models are not alike, so models are never pooled."""

    suite: str  # of the study
    model: str  # that the cells were computed with
    name: str  # of the files; the suite, and the model where the suite has several
    tasks: tuple[str, ...]  # sorted
    scores: tuple[str, ...]  # what pi and top-k are made from, sorted; empty where nothing is present
    prompts: int  # clusters of every interval
    cells: int  # expected ones
    # 1 - delta, the coverage that the certificate is made for; None if no attempt says it.
    promised: float | None
    undefined: str  # why there are no numbers; empty if there are. Numbers of a part are never shown.
    frame: pd.DataFrame  # the cells; empty without numbers
    worlds: pd.DataFrame  # of the demonstration; likewise
    registered: Registered | None  # the registration that keys the suite

    def data(self, rows: pd.DataFrame) -> CellData:
        """Estimates on some rows, by the plan of the registration."""
        assert self.registered is not None
        plan, key = self.registered.content.statistics, self.registered.seed(self.name)
        return CellData(rows, plan, key, Parameters(f"suite {self.suite}", {}))

    @cached_property
    def all_cells(self) -> CellData:
        """Estimates on the cells; all parts share their resamples."""
        return self.data(self.frame)

    def by_budget(self) -> Iterator[tuple[float, pd.DataFrame, CellData]]:
        """Each budget with its cells, smallest first; nothing without numbers."""
        if not self.undefined:
            yield from ((budget, rows, self.all_cells) for budget, rows in self.all_cells.by_budget().items())

    def table(
        self,
        what: str,
        title: str,
        columns: Sequence[Column],
        rows: Iterable[Row],
        remarks: Iterable[str] = (),
        *,
        of_worlds: bool = False,
        **more: Any,
    ) -> Table:
        """The table NAME.WHAT; worlds have scores and prompts of their own, so its title has none."""
        scores = f", score {', '.join(self.scores)}" if self.scores else ""
        about = f"{self.model}, {', '.join(self.tasks)}"
        if not of_worlds:
            about += f"{scores}, {self.prompts} prompts"
        told = (f"No numbers: {self.undefined}.",) if self.undefined else tuple(remarks)
        title = f"{title}, {self.name} ({about})"
        return Table(f"{self.name}.{what}", title, tuple(columns), tuple(rows), told, **more)

    def picture(
        self, what: str, title: str, words: Callable[[], Words], draw: Callable[[], Figure]
    ) -> Picture:
        """The picture NAME.WHAT; `words` and `draw` are called only if there are numbers."""
        name, title = f"{self.name}.{what}", f"{title}, {self.name}"
        if self.undefined:
            return no_picture(name, title, self.undefined)
        return picture(name, title, words(), draw)


def cell_suites(study: Study, registrations: Iterable[Registered]) -> Iterator[CellSuite]:
    """The attention suites of a study, those of a registration together.

    A suite that no registration keys has no plan to compute intervals by, hence no numbers.
    """
    owners = [(suite, one) for one in registrations for suite in one.content.suites]
    keyed = {suite for suite, _ in owners}
    others = [(suite, None) for suite in _names(study.cells, "suite") if suite not in keyed]
    for suite, owner in [*owners, *others]:
        yield from _suite(study, owner, suite)


def _suite(study: Study, registered: Registered | None, suite: str) -> Iterator[CellSuite]:
    cells = study.cells[study.cells["suite"] == suite]
    worlds = study.worlds[study.worlds["suite"] == suite]
    models = sorted(set(cells["model"].astype(str)))
    for model in models:
        here, changed = cells[cells["model"] == model], worlds[worlds["model"] == model]
        undefined = _reason(study, here, changed) if registered else "no registration keys the suite"
        yield CellSuite(
            suite=suite,
            model=model,
            name=suite if len(models) == 1 else f"{suite}.{model}",
            tasks=_names(here, "task"),
            scores=_names(here, "score"),
            prompts=len(here[["task", "example_id"]].drop_duplicates()),
            cells=len(here),
            promised=None if study.delta is None else 1 - study.delta,
            undefined=undefined,
            frame=here.iloc[:0] if undefined else here,
            worlds=changed.iloc[:0] if undefined else changed,
            registered=registered,
        )


def _reason(study: Study, cells: pd.DataFrame, worlds: pd.DataFrame) -> str:
    """Why a suite has no numbers: a broken log comes before a missing row."""
    if any(problems_touching(study, rows) for rows in (cells, worlds)):
        return "its logs are invalid"
    missing = [part for rows in (cells, worlds) for part in missing_rows(study, rows)]
    if not missing:
        return ""
    gone = sum(part.rows for part in missing)
    first = f"{missing[0].shard_id} is {missing[0].reason}"
    return f"{gone:,} of {len(cells) + len(worlds):,} cells and worlds are missing ({first})"


def _names(rows: pd.DataFrame, column: str) -> tuple[str, ...]:
    return tuple(sorted(set(rows[column].dropna().astype(str))))


def grouped(rows: Iterable[Any]) -> dict[float, list[Any]]:
    """Records by their budget, in the order of the budgets; a panel of a figure shows one of them."""
    found = dict[float, list[Any]]()
    for row in rows:
        found.setdefault(row.budget, []).append(row)
    return found


def spans(values: Iterable[Estimate], form: Callable[[float], str]) -> str:
    """Smallest to largest of what is defined."""
    known = [found.value for found in values if found.value is not None]
    if not known:
        return "undefined"
    low, high = form(min(known)), form(max(known))
    return low if low == high else f"{low} to {high}"
