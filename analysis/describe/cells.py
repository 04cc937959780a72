"""The certificate cell by cell (sections 5 and 6.2): AUC for own failure by model, task and condition."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from analysis.core.data import Data
from analysis.core.estimates import Estimate
from analysis.describe.common import data_of, lacks_rows, names_in, picks, plain
from analysis.describe.parts import Part, Picture, no_picture, picture
from analysis.describe.scope import Scope, Suite, nothing
from analysis.describe.table import ALL, LABEL_MEANS, STRATIFIED_MEANS, Column, Table, Value

if TYPE_CHECKING:
    from matplotlib.figure import Figure

from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure

from analysis.describe import drawing
from analysis.describe.drawing import NAVY, WIDTH, grid, keyed, label, shortened_all, titles

SIGNAL = "certificate"
CHANCE = 0.5
COLUMNS = (
    Column("suite", "suite"),
    Column("model", "model"),
    Column("task", "task"),
    Column("condition", "condition"),
    Column("failures", "failures"),
    Column("successes", "successes"),
    Column("auc", "AUC for own failure", "share", is_estimate=True),
    Column("stratified", "stratified", "share", is_estimate=True),
    Column("cell", "label alone", "share", is_estimate=True),
)
SUMMARY = (
    Column("suite", "suite"),
    Column("tasks", "tasks"),
    Column("by", "cells are"),
    Column("cells", "cells"),
    Column("one_class", "of one class only", is_estimate=True),
    Column("with_auc", "with an AUC", is_estimate=True),
    Column("mean", "mean AUC", "share", is_estimate=True),
    Column("lowest", "lowest", "share", is_estimate=True),
    Column("highest", "highest", "share", is_estimate=True),
    Column("above", "above .5", is_estimate=True),
    Column("interval_above", "interval above .5", is_estimate=True),
)
REMARKS = (
    "A cell pools what it does not name: conditions and budgets, budgets, always seeds. A cell in which all "
    "answers fail or all succeed has no AUC.",
    STRATIFIED_MEANS,
    LABEL_MEANS,
)


@dataclass(frozen=True)
class Cell:
    """One cell; counts are None where rows are missing."""

    suite: str
    model: str
    task: str
    condition: str
    failures: int | None
    successes: int | None
    auc: Estimate
    stratified: Estimate
    baseline: Estimate

    @property
    def is_one_class(self) -> bool:
        """All rows are there, and all fail or none does."""
        return self.failures == 0 or self.successes == 0

    @property
    def values(self) -> tuple[Value, ...]:
        """Its line of the table."""
        place = (self.suite, self.model, self.task, self.condition, self.failures, self.successes)
        return (*place, self.auc, self.stratified, self.baseline)


def cells(scope: Scope) -> Part | None:
    """The arm that carries the certificate, every task of every suite."""
    every, summary = list[tuple[Value, ...]](), list[tuple[Value, ...]]()
    drawn = list[tuple[str, list[Cell]]]()
    for suite in scope.suites:
        if suite.wanted.arm in suite.arms:
            data = data_of(scope, suite, "cells", [suite.wanted.arm], suite.tasks)
            coarse = list(_cells(scope, data, suite, None))
            fine = [
                one for name in names_in(data.rows, "condition") for one in _cells(scope, data, suite, name)
            ]
            every += [one.values for one in (*coarse, *fine)]
            words = "main" if suite.main else ALL
            tasks = suite.main or suite.tasks
            for by, found in (("model x task", coarse), ("model x task x condition", fine)):
                summary.append((suite.name, words, by, *_summary([c for c in found if c.task in tasks])))
            shown = sorted((c for c in coarse if c.task in tasks), key=lambda cell: (cell.task, cell.model))
            drawn.append((suite.name, shown))
    if not every:
        return None
    tables = (
        Table("cells.summary", "Cells in which the certificate ranks failures", SUMMARY, tuple(summary)),
        Table("cells", "AUC of the certificate, cell by cell", COLUMNS, tuple(every), REMARKS),
    )
    title = "In how many cells does the certificate see failure?"
    return Part("cells", title, tables=tables, pictures=(_picture(drawn),))


def _cells(scope: Scope, data: Data, suite: Suite, condition: str | None) -> Iterator[Cell]:
    for model in names_in(data.rows, "model"):
        for task in suite.tasks:
            rows = data.rows[picks(data.rows, model=model, task=task, condition=condition)]
            if len(rows):
                yield _cell(scope, data, rows, (suite.name, model, task, condition or ALL))


def _cell(scope: Scope, data: Data, rows: pd.DataFrame, place: tuple[str, str, str, str]) -> Cell:
    if reason := lacks_rows(scope, rows):
        lost = nothing(reason)
        return Cell(*place, None, None, lost, lost, lost)
    failures = int(rows["positive"].sum())
    return Cell(
        *place,
        failures,
        len(rows) - failures,
        auc=data.estimate(data.auc(rows, SIGNAL)),
        stratified=data.point(data.auc(rows, SIGNAL, within=True)),
        baseline=data.point(data.cell_auc(rows)),
    )


def _picture(suites: Sequence[tuple[str, list[Cell]]]) -> Picture:
    title = "AUC of the certificate for own failure, by task and model"
    known = [(suite, found) for suite, found in suites if any(cell.auc.value is not None for cell in found)]
    if not known:
        reasons = (cell.auc.undefined for _, found in suites for cell in found)
        return no_picture("cells", title, next(reasons, "there is no cell"))
    points, intervals = ("; ".join(_counts(at, suite, found) for suite, found in suites) for at in (0, 1))

    def draw() -> "Figure":
        return cells_figure(known)

    sentence = f"Cells, model by task, in which the certificate's AUC lies above .5: {points}."
    return picture("cells", title, (sentence, f"With the whole interval: {intervals}."), draw)


def _counts(at: int, suite: str, found: Sequence[Cell]) -> str:
    """How many cells of a suite lie above chance, (0) with their AUC or (1) with the whole interval."""
    above = _above(found)[at]
    of = sum(not cell.is_one_class for cell in found)
    told = f"undefined ({above.undefined})" if above.value is None else f"{above.value:g} of {of}"
    return f"{suite} {told}"


def _summary(found: Sequence[Cell]) -> tuple[Value, ...]:
    """Everything but the number of cells is undefined as soon as one of them lacks rows."""
    lost = next((cell.auc.undefined for cell in found if cell.failures is None), "")
    if lost:
        return (len(found), *[nothing(lost)] * 7)
    known = [cell.auc for cell in found if cell.auc.value is not None]
    counts = (sum(cell.is_one_class for cell in found), len(known))
    ends = [nothing(_lost(found))] * 3
    if not _lost(found):
        values = np.array([auc.value for auc in known], np.float64)
        ends = [plain(float(value), len(values)) for value in (values.mean(), values.min(), values.max())]
    return (len(found), *(plain(count, len(found)) for count in counts), *ends, *_above(found))


def _lost(found: Sequence[Cell]) -> str:
    """Why AUCs are not all there; a cell of one class has none and is not counted."""
    counted = [cell.auc for cell in found if not cell.is_one_class]
    if not counted:
        return "no cell has an AUC"
    return next((auc.undefined for auc in counted if auc.value is None), "")


def _above(found: Sequence[Cell]) -> tuple[Estimate, Estimate]:
    """Cells above chance, and with their whole interval: undefined as soon as one of them has none."""
    if lost := _lost(found):
        return nothing(lost), nothing(lost)
    known = [cell.auc for cell in found if not cell.is_one_class]
    points = plain(sum((auc.value or 0.0) > CHANCE for auc in known), len(known))
    lows = [auc.lo for auc in known if auc.lo is not None]
    if len(lows) < len(known):
        without = next(auc.undefined for auc in known if auc.lo is None)
        return points, nothing(
            f"{len(known) - len(lows)} of {len(known)} cells without an interval: {without}"
        )
    return points, plain(sum(low > CHANCE for low in lows), len(lows))


# The certificate's AUC in every cell: a panel for each suite, a line for each task and model.


LINE = 0.19  # inches
HEAD = 0.55  # inches of a panel beside its lines
EDGE = 0.42  # inches below the last one
PAD = 12  # points between a panel and its title, for the name of chance

WHY: dict[str, Any] = {"va": "center", "fontsize": 7.5, "color": "#505050"}


def cells_figure(suites: Sequence[tuple[str, Sequence["Cell"]]]) -> Figure:
    """Suites by name, each with its cells; one without an AUC has a line that says why."""
    heights = [HEAD + LINE * len(found) for _, found in suites]
    drawn = Figure(figsize=(WIDTH, sum(heights) + EDGE))
    places = list(drawn.subplots(len(suites), 1, sharex=True, squeeze=False, height_ratios=heights).flat)
    key = titles(places, [suite for suite, _ in suites], 1, pad=PAD)
    every = [cell for _, found in suites for cell in found]
    short = dict[tuple[str, str], str]()  # the same in all panels
    for noun in ("task", "model"):
        names = [getattr(cell, noun) for cell in every]
        told = shortened_all(names)
        short |= {(noun, name): one for name, one in zip(names, told, strict=True)}
        key += keyed(noun, names, told)
    for axes, (_, found) in zip(places, suites, strict=True):
        drawing.lines(axes, [f"{short['task', cell.task]}, {short['model', cell.model]}" for cell in found])
        for at, cell in enumerate(found):
            drawing.baseline(axes, cell.baseline, at)
            drawing.with_interval(axes, cell.auc, at, NAVY)
            if cell.auc.value is None:
                axes.annotate(_why(cell), (drawing.CHANCE, at), (4, 0), textcoords="offset points", **WHY)
        drawing.chance(axes)
        grid(axes, "x")
    drawing.shares(places[-1], [one for cell in every for one in (cell.auc, cell.baseline)])
    across = "AUC of the certificate; grey tick: the label condition x budget alone"
    label(drawn, [], across, "", key)
    return drawn


def _why(cell: "Cell") -> str:
    """Why a line is empty."""
    return "none fails" if cell.failures == 0 else "all fail" if cell.successes == 0 else "undefined"
