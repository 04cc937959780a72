"""Coverage and error by layer and by head: a pooled share can hide heads that are missed time and again."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from analysis.core.data import CellData
from analysis.core.estimates import Estimate
from analysis.describe import drawing
from analysis.describe.attention.cell_suite import COVERED_MEANS, Budget, CellSuite, Covered, Found, grouped
from analysis.describe.parts import Words
from analysis.describe.table import (
    ERROR,
    Row,
    Table,
    budget_words,
    column,
    columns_of,
    number,
    percent,
    rows_of,
)

ORDER = 3
POISSON = "median error under Poisson eviction"
OF_LAYER = "median over the cells of the layer of the certified relative error"
OF_HEAD = "median over the cells of the head of the certified relative error"
LINE = 0.85  # the line of claim A1, here for single heads
LEAST = 12  # heads shown
NAMED = 3  # heads in the brief form


@dataclass(frozen=True)
class Layer:
    """All cells of one layer at one budget."""

    budget: Budget
    layer: Annotated[int, column("layer")]
    coverage: Covered
    hajek: Annotated[Estimate, number("hajek", "median error", POISSON, ERROR)]
    certificate: Annotated[Estimate, number("certificate", "median certificate", OF_LAYER, ERROR)]


@dataclass(frozen=True)
class Head:
    """One query head of one layer over all prompts, seeds and queries. Without interval: few cells."""

    layer: Annotated[int, column("layer")]
    head: Annotated[int, column("head")]
    cells: Annotated[int, column("cells")]
    coverage: Annotated[float, column("coverage", "covered", form="share")]
    hajek: Annotated[float, column("hajek", "median error", POISSON, ERROR, "number")]
    certificate: Annotated[float, column("certificate", "median certificate", OF_HEAD, ERROR, "number")]


@dataclass(frozen=True)
class Heads:
    """All heads at one budget."""

    budget: float  # share of the cached tokens that is kept
    heads: int  # number of (layer, head)
    below_line: int  # of these, covered in less than LINE of their cells
    below_promise: int | None  # covered in less than 1 - delta of their cells; None if delta is unknown
    least: tuple[Head, ...]  # the LEAST with the lowest coverage, lowest first
    # One row a head, sorted, with the columns of `Head`.
    every: pd.DataFrame = field(repr=False, compare=False)


def describe(suite: CellSuite) -> Iterator[Found]:
    """A line for each layer, then one for each head of each layer."""
    layers = tuple(row for one in suite.by_budget() for row in _by_layer(*one))
    title = "Coverage and error by layer"
    made = suite.table("layers", title, columns_of(Layer), rows_of(Layer, layers), (COVERED_MEANS,))
    drawn = suite.picture("layers", title, lambda: _words(layers), lambda: layers_figure(layers))
    yield Found("layers", layers, (made,), (drawn,))
    heads = tuple(_by_head(budget, rows, suite.promised) for budget, rows, _ in suite.by_budget())
    yield Found("heads", heads, (_table(suite, heads),))


def _by_layer(budget: float, rows: pd.DataFrame, data: CellData) -> Iterator[Layer]:
    for layer in np.unique(rows["layer"]):
        group = rows[rows["layer"] == layer]
        yield Layer(
            budget,
            int(layer),
            coverage=data.estimate(data.coverage(group)),
            hajek=data.estimate(data.median(group, "hajek")),
            certificate=data.estimate(data.median(group, "certificate")),
        )


def _by_head(budget: float, rows: pd.DataFrame, promised: float | None) -> Heads:
    groups = rows.groupby(["layer", "head"], sort=True)
    every = groups.agg(
        cells=("covered", "size"),
        coverage=("covered", "mean"),
        hajek=("hajek", "median"),
        certificate=("certificate", "median"),
    ).reset_index()
    coverage = every["coverage"].to_numpy(np.float64)
    return Heads(
        budget,
        len(every),
        below_line=int((coverage < LINE).sum()),
        below_promise=None if promised is None else int((coverage < promised).sum()),
        least=_heads(every.sort_values(["coverage", "layer", "head"]).head(LEAST)),
        every=every,
    )


def _heads(rows: pd.DataFrame) -> tuple[Head, ...]:
    places = rows[["layer", "head", "cells"]].to_numpy(np.int64).tolist()
    numbers = rows[["coverage", "hajek", "certificate"]].to_numpy(np.float64).tolist()
    return tuple(Head(*place, *values) for place, values in zip(places, numbers, strict=True))


def _table(suite: CellSuite, heads: Sequence[Heads]) -> Table:
    remarks = (
        f"Shown: the {LEAST} least covered heads of each budget; the CSV has all.",
        *(
            f"Budget {budget_words(of.budget)}: {of.below_line} of {of.heads} heads are covered in less "
            f"than {percent(LINE)} of their cells{_below_promise(suite, of)}."
            for of in heads
        ),
        COVERED_MEANS,
    )
    columns = (*columns_of(Layer, ["budget"]), *columns_of(Head))
    every = tuple(row for of in heads for row in _rows(of, _heads(of.every)))
    least = tuple(row for of in heads for row in _rows(of, of.least))
    made = suite.table("heads", "Coverage by query head", columns, every, remarks, excerpt=least)
    return made.briefly(Table(made.name, _least(heads), (), ())) if heads else made


def _rows(of: Heads, heads: Sequence[Head]) -> Iterator[Row]:
    yield from ((of.budget, *row) for row in rows_of(Head, heads))


def _below_promise(suite: CellSuite, of: Heads) -> str:
    if suite.promised is None or of.below_promise is None:
        return ""
    return f", {of.below_promise} in less than the promised {percent(suite.promised)}"


def _least(heads: Sequence[Heads]) -> str:
    """How many heads are covered too seldom, and the few that are least."""
    few = ", ".join(str(of.below_line) for of in heads)
    lowest: dict[tuple[int, int], str] = {}
    least = [(row.coverage, row.layer, row.head, of.budget) for of in heads for row in of.least]
    for coverage, layer, head, budget in sorted(least):
        where = f"layer {layer} head {head} ({coverage:.3f} at {budget_words(budget)})"
        lowest.setdefault((layer, head), where)
    every = max(of.heads for of in heads)
    words = f"heads covered in less than {percent(LINE)} of their cells: {few} of {every}"
    return f"{words}; least: {', '.join([*lowest.values()][:NAMED])}"


def _words(layers: Sequence[Layer]) -> Words:
    known = [(row.coverage.value, row.layer, row.budget) for row in layers if row.coverage.value is not None]
    if not known:
        return "Coverage by layer is undefined.", ""
    low, high = min(known), max(known)
    lowest, highest = (f"{percent(one[0])} at budget {budget_words(one[2])}" for one in (low, high))
    return f"Coverage is lowest in layer {low[1]} ({lowest}) and highest in layer {high[1]} ({highest}).", ""


def layers_figure(layers: Sequence[Layer]) -> Figure:
    """Two panels on one axis of layers, a line for each budget."""
    drawn = drawing.figure(4.4)
    top, bottom = drawn.subplots(2, 1, sharex=True)
    by_budget = grouped(layers)
    bottom.set_yscale("log")
    medians, covered = [], []
    for (budget, rows), (colour, marker) in zip(
        by_budget.items(), drawing.SERIES * len(by_budget), strict=False
    ):
        at = [row.layer for row in rows]
        coverage = np.array([row.coverage.value for row in rows], np.float64)
        median = np.array([row.hajek.value for row in rows], np.float64)
        look = {"color": colour, "marker": marker, "label": f"budget {budget_words(budget)}"}
        top.plot(at, coverage, **look)
        bottom.plot(at, np.where(median > drawing.TINY, median, np.nan), **look)
        covered += coverage.tolist()
        medians += median[median > drawing.TINY].tolist()
    top.set_ylim(*drawing.coverage_limits(covered))
    drawing.percent_axis(top.yaxis)
    top.set_ylabel("covered cells")
    if medians:
        low, high = min(medians) / 1.3, max(medians) * 1.3
        bottom.set_ylim(low, high)
        drawing.plain_log(bottom.yaxis, low, high)
    bottom.set_ylabel("median relative error")
    bottom.set_xlabel("layer, from input to output")
    bottom.xaxis.set_major_locator(MaxNLocator(nbins=15, integer=True))
    bottom.set_xlim(-0.6, max(row.layer for row in layers) + 0.6)
    for panel in (top, bottom):
        drawing.grid(panel, "both")
    handles, words = top.get_legend_handles_labels()
    drawn.legend(handles, words, loc="outside upper left", ncols=len(by_budget))
    return drawn
