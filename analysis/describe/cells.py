"""The certificate apart (sections 5 and 6.2): model by model, condition by condition, cell by cell."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.core.data import Data
from analysis.core.estimates import Estimate
from analysis.describe import drawing
from analysis.describe.drawing import NAVY
from analysis.describe.parts import Part, Picture, no_picture, picture
from analysis.describe.scope import (
    CERTIFICATE,
    RIVAL,
    Scope,
    Suite,
    aucs,
    labelled,
    names_in,
    nothing,
    picks,
    plain,
    population,
)
from analysis.describe.signals import LABELS, signals_of
from analysis.describe.table import (
    ALL,
    AUC,
    AUCS,
    CHANCE,
    LABEL_MEANS,
    MAIN,
    POOLED,
    STRATIFIED_MEANS,
    Column,
    Row,
    Table,
    column,
    columns,
    columns_of,
    number,
    rows_of,
    share,
)

ORDER = 5


def describe(scope: Scope) -> Iterator[Part]:
    """Of suites that run the arm that carries the certificate."""
    main = [suite for suite in scope.main if suite.has_carrier]
    if main:
        yield per_model(scope, main)
        yield conditions(scope, main)
    if every := [suite for suite in scope.suites if suite.has_carrier]:
        yield cells(scope, every)


# Table 2: the certificate against own failure, model by model, with all suites side by side.


MODEL_REMARKS = (
    "Main tasks, the arm that carries the certificate, all conditions, budgets and draws. A pooled AUC mixes "
    "them, and the last line also mixes models.",
    STRATIFIED_MEANS,
    LABEL_MEANS,
    "Cells are model x task x condition; one with failures or successes alone has no AUC and is not counted.",
    "Intervals are on resamples of their own: those of a claim's same AUC differ in the third digit.",
)


def per_model(scope: Scope, suites: Sequence[Suite]) -> Part:
    """Main tasks, the arm that carries the certificate; a line for each model and one for all (Table 2)."""
    by_suite = [_by_model(scope, suite) for suite in suites]
    models = sorted({model for found in by_suite for model in found if model is not POOLED})
    absent = _lacking("the suite does not run this model")
    rows = [
        (model, *(value for found in by_suite for value in found.get(model, absent)))
        for model in (*models, POOLED)
    ]
    heads = [*columns("model"), *(one for suite in suites for one in _model_columns(suite.name))]
    title = "AUC of the certificate for own failure, by model"
    made = Table("table2", title, tuple(heads), tuple(rows), MODEL_REMARKS)
    return Part("per-model", "Does the certificate foretell failure, model by model?", tables=(made,))


def _model_columns(suite: str) -> Iterator[Column]:
    of = f"AUC of the certificate for own failure in suite {suite}, main tasks, the arm that carries it"
    yield share(f"auc.{suite}", suite, of, AUC)
    within = f"likewise, pairs within the same model, task, condition and budget ({suite})"
    yield share(f"stratified.{suite}", f"{suite}, stratified", within, AUC, bare=True)
    label = f"likewise, of the bare condition x budget label without any signal ({suite})"
    yield share(f"baseline.{suite}", f"{suite}, label alone", label, AUC, bare=True)
    above = f"cells (model x task x condition) of {suite} whose AUC lies above .5"
    yield Column(f"cells_above.{suite}", f"{suite}, cells above .5", "plain", True, False, above, "count")
    every = f"cells of {suite} that have an AUC"
    yield Column(f"cells.{suite}", f"{suite}, of cells", "plain", True, False, every, "count")


def _by_model(scope: Scope, suite: Suite) -> dict[str, Row]:
    """Values by model, POOLED those of all models together."""
    table, arm = scope.table, suite.wanted.arm
    models = sorted(set(table.loc[table["suite"] == suite.name, "model"].astype(str)))
    reasons = {
        model: scope.lacks_of(population([suite], "own_failure", arms=[arm], models=[model]))
        for model in models
    }
    whole = [model for model in models if not reasons[model]]
    found = {model: _lacking(reason) for model, reason in reasons.items() if reason}
    if not whole:
        return {**found, POOLED: _lacking(reasons[models[0]])}
    data = scope.data([suite], population([suite], "own_failure", arms=[arm], models=whole))
    split = data.split(data.counted, "model")
    for model in whole:
        three = aucs(data, split[model], CERTIFICATE, apart=split[model]).three
        found[model] = (*three, *_above_chance(data, split[model]))
    if whole != models:
        return {**found, POOLED: _lacking(next(filter(None, reasons.values())))}
    row = signals_of(scope, suite, arm, "own_failure").get(CERTIFICATE)
    three = aucs(data, data.counted, CERTIFICATE, apart=data.counted).three if row is None else row.aucs
    return {**found, POOLED: (*three, *_above_chance(data, data.counted))}


def _lacking(reason: str) -> Row:
    return (nothing(reason),) * 5


def _above_chance(data: Data, rows: pd.DataFrame) -> tuple[Estimate, Estimate]:
    """How many cells have an AUC above chance, and how many have one; undefined where it is lost in any."""
    split = data.split(rows, "model", "task", "condition").values()
    both = [cell for cell in split if cell["positive"].nunique() > 1]
    points = [data.point(data.auc(cell, CERTIFICATE)) for cell in both]
    if lost := next((point.undefined for point in points if point.value is None), ""):
        return nothing(lost), nothing(lost)
    above = sum((point.value or 0.0) > CHANCE for point in points)
    return plain(above, len(points)), plain(len(points), len(points))


# Aware and stream apart: certificate and log-probability against own and induced failure.


CONDITIONS = (
    *columns("suite", "condition"),
    column("label", "positive is"),
    column("signal"),
    column("rows", "answers"),
    column("positives", "positive"),
    *AUCS,
)
CONDITION_REMARKS = (
    "Main tasks, the arm that carries the certificate. Induced failures: among what the full cache answers. "
    "Attribution: among failures, positive where the full cache succeeds.",
    STRATIFIED_MEANS,
    "label alone: AUC of the bare budget within one condition, the smaller the riskier.",
)


def conditions(scope: Scope, suites: Sequence[Suite]) -> Part:
    """Each condition of every suite with main tasks."""
    rows = tuple(row for suite in suites for row in _by_condition(scope, suite))
    table = Table("conditions", "What signals see in each condition", CONDITIONS, rows, CONDITION_REMARKS)
    return Part("conditions", "Where is there damage to see?", tables=(table,))


def _by_condition(scope: Scope, suite: Suite) -> Iterator[Row]:
    data = scope.data_of(suite, "conditions", [suite.wanted.arm], suite.main)
    signals = [signal for signal in (CERTIFICATE, RIVAL) if signal in suite.wanted.signals]
    for condition in names_in(data.rows, "condition"):
        here = picks(data.rows, condition=condition)
        for of in LABELS:
            reason = scope.lacks(here, of)
            counted = here if reason else labelled(here, of)
            for signal in signals:
                found = aucs(data, counted, signal, reason)
                yield (suite.name, condition, of, signal, found.rows, found.positives, *found.three)


# Cell by cell: own failure by model, task and condition.


SUMMARY = (
    *columns("suite", "tasks"),
    column("by", "cells are", "what a cell is", "name"),
    column("cells", "", "cells of the suite", "count"),
    number(
        "one_class",
        "of one class only",
        "cells in which all answers fail or none does, which have no AUC",
        "count",
        "plain",
    ),
    number("with_auc", "with an AUC", "cells that have an AUC", "count", "plain"),
    share("mean", "mean AUC", "mean AUC of these", AUC),
    share("lowest", "", "lowest AUC of any cell that has one", AUC),
    share("highest", "", "highest AUC of any cell that has one", AUC),
    number("above", "above .5", "cells with an AUC above .5", "count", "plain"),
    number("interval_above", "interval above .5", "cells whose interval lies above .5", "count", "plain"),
)
CELL_REMARKS = (
    "A cell pools what it does not name: conditions and budgets, budgets, always seeds. A cell in which all "
    "answers fail or all succeed has no AUC.",
    STRATIFIED_MEANS,
    LABEL_MEANS,
)


@dataclass(frozen=True)
class Cell:
    """One cell; counts are None where rows are missing."""

    suite: Annotated[str, column("suite")]
    model: Annotated[str, column("model")]
    task: Annotated[str, column("task", meaning="task of the cell", unit="name")]
    condition: Annotated[
        str, column("condition", meaning="condition of the cell; all: both together", unit="name")
    ]
    failures: Annotated[int | None, column("failures")]
    successes: Annotated[int | None, column("successes")]
    auc: Annotated[Estimate, share("auc", "AUC for own failure")]
    stratified: Annotated[Estimate, share("stratified")]
    baseline: Annotated[Estimate, share("cell", "label alone")]

    @property
    def is_one_class(self) -> bool:
        """All rows are there, and all fail or none does."""
        return self.failures == 0 or self.successes == 0


def cells(scope: Scope, suites: Sequence[Suite]) -> Part:
    """The arm that carries the certificate, every task of every suite."""
    every, summary = list[Cell](), list[Row]()
    drawn = list[tuple[str, list[Cell]]]()
    for suite in suites:
        data = scope.data_of(suite, "cells", [suite.wanted.arm], suite.tasks)
        coarse = list(_cells(scope, data, suite, None))
        fine = [one for name in names_in(data.rows, "condition") for one in _cells(scope, data, suite, name)]
        every += [*coarse, *fine]
        tasks = suite.main or suite.tasks
        for by, found in (("model x task", coarse), ("model x task x condition", fine)):
            words = MAIN if suite.main else ALL
            summary.append((suite.name, words, by, *_summary([c for c in found if c.task in tasks])))
        shown = sorted((c for c in coarse if c.task in tasks), key=lambda cell: (cell.task, cell.model))
        drawn.append((suite.name, shown))
    title = "AUC of the certificate, cell by cell"
    tables = (
        Table("cells.summary", "Cells in which the certificate ranks failures", SUMMARY, tuple(summary)),
        Table("cells", title, columns_of(Cell), rows_of(Cell, every), CELL_REMARKS),
    )
    title = "In how many cells does the certificate see failure?"
    return Part("cells", title, tables=tables, pictures=(_picture(drawn),))


def _cells(scope: Scope, data: Data, suite: Suite, condition: str | None) -> Iterator[Cell]:
    for model in names_in(data.rows, "model"):
        for task in suite.tasks:
            rows = picks(data.rows, model=model, task=task, condition=condition)
            if len(rows):
                found = aucs(data, rows, CERTIFICATE, scope.lacks(rows))
                failures = found.positives
                successes = None if failures is None else len(rows) - failures
                yield Cell(suite.name, model, task, condition or ALL, failures, successes, *found.three)


def _picture(suites: Sequence[tuple[str, list[Cell]]]) -> Picture:
    title = "AUC of the certificate for own failure, by task and model"
    known = [(suite, found) for suite, found in suites if any(cell.auc.value is not None for cell in found)]
    if not known:
        reasons = (cell.auc.undefined for _, found in suites for cell in found)
        return no_picture("cells", title, next(reasons, "there is no cell"))
    points, intervals = ("; ".join(_counts(at, suite, found) for suite, found in suites) for at in (0, 1))

    sentence = f"Cells, model by task, in which the certificate's AUC lies above .5: {points}."
    words = (sentence, f"With the whole interval: {intervals}.")
    return picture("cells", title, words, lambda: cells_figure(known))


def _counts(at: int, suite: str, found: Sequence[Cell]) -> str:
    """How many cells of a suite lie above chance, (0) with their AUC or (1) with the whole interval."""
    above = _above(found)[at]
    of = sum(not cell.is_one_class for cell in found)
    told = f"undefined ({above.undefined})" if above.value is None else f"{above.value:g} of {of}"
    return f"{suite} {told}"


def _summary(found: Sequence[Cell]) -> Row:
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


def cells_figure(suites: Sequence[tuple[str, Sequence[Cell]]]) -> Figure:
    """Suites by name, each with its cells; one without an AUC has a line that says why."""
    heights = [HEAD + LINE * len(found) for _, found in suites]
    drawn = Figure(figsize=(drawing.WIDTH, sum(heights) + EDGE))
    places = list(drawn.subplots(len(suites), 1, sharex=True, squeeze=False, height_ratios=heights).flat)
    key = drawing.titles(places, [suite for suite, _ in suites], 1, pad=PAD)
    every = [cell for _, found in suites for cell in found]
    short = dict[tuple[str, str], str]()  # the same in all panels
    for noun in ("task", "model"):
        names = [getattr(cell, noun) for cell in every]
        told = drawing.shortened_all(names)
        short |= {(noun, name): one for name, one in zip(names, told, strict=True)}
        key += drawing.keyed(noun, names, told)
    for axes, (_, found) in zip(places, suites, strict=True):
        drawing.lines(axes, [f"{short['task', cell.task]}, {short['model', cell.model]}" for cell in found])
        for at, cell in enumerate(found):
            drawing.baseline(axes, cell.baseline, at)
            drawing.with_interval(axes, cell.auc, at, NAVY)
            if cell.auc.value is None:
                axes.annotate(_why(cell), (CHANCE, at), (4, 0), textcoords="offset points", **WHY)
        drawing.chance(axes)
        drawing.grid(axes, "x")
    drawing.shares(places[-1], [one for cell in every for one in (cell.auc, cell.baseline)])
    across = "AUC of the certificate; grey tick: the label condition x budget alone"
    drawing.label(drawn, [], across, "", key)
    return drawn


def _why(cell: Cell) -> str:
    """Why a line is empty."""
    return "none fails" if cell.failures == 0 else "all fail" if cell.successes == 0 else "undefined"
