"""The main table: what the certificate is worth at each budget, and what each estimator costs."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import LinearSegmentedColormap, LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from analysis.core import statistics
from analysis.core.data import CellData
from analysis.core.estimates import Estimate, Floats, Statistic
from analysis.describe import drawing
from analysis.describe.attention.cell_suite import (
    COVERED_MEANS,
    Budget,
    CellSuite,
    Covered,
    Found,
    grouped,
    spans,
)
from analysis.describe.drawing import GREY, INK
from analysis.describe.parts import Words
from analysis.describe.table import (
    ERROR,
    RANKED,
    SHARE,
    Column,
    Row,
    Table,
    budget_words,
    column,
    columns,
    columns_of,
    digits,
    number,
    percent,
    rows_of,
    share,
    shown,
)

ORDER = 1
# The four estimators in the order of tables: the design, then what it is compared with.
ESTIMATORS = {
    "hajek": "Poisson",
    "topk": "top-k",
    "no_offset": "Poisson, no offset",
    "uniform": "uniform",
}
RATIO_MEANS = "ratio: median certificate over median error of Poisson."
LOST = "(no_offset - hajek) / (topk - hajek): share of Poisson's gain over top-k that goes without the offset"
SPENT = "expected tokens kept over what the budget allows, mean"
SILENT = "cells with variance 0 although tokens were evicted"
IN_HEADS = "rank correlation inside one query head, across prompts: median over all heads"
GROUPS = "query heads of all layers, each ranked on its own"
POISSON = "median error under Poisson eviction with the offset"
TOP_K = "median error under top-k eviction"
REMARKS = (
    COVERED_MEANS,
    "promised: 1 - delta, the coverage that the certificate is made for.",
    "Spearman: of certificate and error. Within heads: median over the (layer, head) of the model.",
    RATIO_MEANS,
    "error: median relative error of the attention output. Uniform draws have the offset too.",
    "lost: (no offset - Poisson) / (top-k - Poisson), what the offset is worth; above 1 no gain is left.",
    "budget spent: mean of the expected number of kept tokens over what the budget allows.",
    "silent cells: variance 0 although tokens were evicted. Intervals resample prompts.",
)
BRIEF = (  # all but counts, which a terminal has no room for
    *("budget", "promised", "coverage", "spearman", "spearman_within", "ratio"),
    *("hajek", "topk", "no_offset", "uniform", "lost", "spent", "silent"),
)
BRIEF_REMARKS = (
    "covered: true error <= certificate; promised: 1 - delta. Spearman: of certificate and error.",
    "ratio: median certificate / median error. error: median relative error of the attention output.",
    "lost: (no offset - Poisson) / (top-k - Poisson), what the offset is worth; above 1: all and more.",
    "budget spent: expected tokens kept / allowed. silent: variance 0 though tokens were evicted.",
)


@dataclass(frozen=True)
class Within:
    """Correlation of certificate and error over prompts, seeds and queries, by (layer, head).

    A certificate that only knew which heads are hard would correlate with the error in the pool, not here.
    """

    median: Annotated[
        float | None, column("spearman_within", "Spearman within heads", IN_HEADS, RANKED, "share")
    ]
    groups: Annotated[int, column("groups", "heads of all layers", GROUPS, "count")]
    undefined: Annotated[
        int,
        column("groups_undefined", "heads without Spearman", "heads without a rank correlation", "count"),
    ]


@dataclass(frozen=True)
class ByBudget:
    """One budget of a suite. Errors are relative, |estimate - y| / |y|, and medians."""

    budget: Budget
    cells: Annotated[int, column("cells")]
    coverage: Covered
    spearman: Annotated[Estimate, share("spearman", "Spearman, all cells")]
    within: Annotated[Within, "columns of its own"]
    ratio: Annotated[Estimate, number("ratio")]
    hajek: Annotated[Estimate, number("hajek", "error: Poisson", POISSON, ERROR)]
    topk: Annotated[Estimate, number("topk", "error: top-k", TOP_K, ERROR)]
    no_offset: Annotated[Estimate, number("no_offset", "error: Poisson, no offset")]
    uniform: Annotated[Estimate, number("uniform", "error: uniform")]
    lost: Annotated[Estimate, share("lost", "lost without offset", LOST, "ratio")]
    # None where it leaves the floats.
    spent: Annotated[float | None, column("spent", "budget spent", SPENT, SHARE, "share")]
    silent: Annotated[float, column("silent", "silent cells", SILENT, SHARE, "share")]


def describe(suite: CellSuite) -> Iterator[Found]:
    """A line for each budget, rising, and a panel of its cells."""
    found = tuple(_by_budget(*one) for one in suite.by_budget())
    places = columns_of(ByBudget)
    columns = (*places[:2], column("promised", form="share"), *places[2:])
    rows = [(*row[:2], suite.promised, *row[2:]) for row in rows_of(ByBudget, found)]
    title = "Certificate and true error by budget"
    made = suite.table("budgets", title, columns, rows, REMARKS, is_tall=True)
    made = made.briefly(made if suite.undefined else made.only(BRIEF, BRIEF_REMARKS))
    title = "Certificate against true error, cell by cell"
    scatter = suite.picture(
        "scatter", title, lambda: _words(suite, found), lambda: scatter_figure(suite.frame, found)
    )
    yield Found("budgets", found, (made,), (scatter,))


def _by_budget(budget: float, rows: pd.DataFrame, data: CellData) -> ByBudget:
    hajek, no_offset, topk, uniform, certificate = (
        data.median(rows, name) for name in ("hajek", "no_offset", "topk", "uniform", "certificate")
    )
    spent = float((rows["expected_kept"] / (rows["budget"] * rows["evictable"])).mean())
    return ByBudget(
        budget=budget,
        cells=len(rows),
        coverage=data.estimate(data.coverage(rows)),
        spearman=data.estimate(data.spearman(rows, "certificate", "hajek")),
        within=within(rows),
        ratio=data.estimate(statistics.ratio(certificate, hajek)),
        hajek=data.estimate(hajek),
        topk=data.estimate(topk),
        no_offset=data.estimate(no_offset),
        uniform=data.estimate(uniform),
        lost=_lost(data, no_offset, topk, hajek),
        spent=spent if np.isfinite(spent) else None,
        silent=float(((rows["variance"] == 0) & (rows["kept"] < rows["evictable"])).mean()),
    )


def within(rows: pd.DataFrame) -> Within:
    """Cells of one model and budget."""
    keys = [rows["layer"], rows["head"]]
    ranks = rows[["certificate", "hajek"]].groupby(keys).rank(method="average")
    centred = ranks - ranks.groupby(keys).transform("mean")
    products = pd.DataFrame(
        {
            "both": centred["certificate"] * centred["hajek"],
            "certificate": centred["certificate"] ** 2,
            "hajek": centred["hajek"] ** 2,
        }
    )
    both, *spreads = products.groupby(keys).sum().to_numpy(np.float64).T
    spread = np.sqrt(spreads[0] * spreads[1])
    has_value = spread > 0
    found = both[has_value] / spread[has_value]
    return Within(float(np.median(found)) if len(found) else None, len(both), int((~has_value).sum()))


def _lost(data: CellData, no_offset: Statistic, topk: Statistic, hajek: Statistic) -> Estimate:
    gain = statistics.difference(topk, hajek)
    value = data.point(gain).value
    if value is not None and value <= 0:
        reason = "the median error of Poisson is not below that of top-k"
        return Estimate(None, n=len(gain.rows), undefined=reason)
    return data.estimate(statistics.ratio(statistics.difference(no_offset, hajek), gain))


def _words(suite: CellSuite, found: Iterable[ByBudget]) -> Words:
    found = list(found)
    promise = "" if suite.promised is None else f" ({percent(suite.promised)} are promised)"
    covered = spans((row.coverage for row in found), percent)
    spearman = spans((row.spearman for row in found), lambda value: digits(value, "share"))
    ratio = spans((row.ratio for row in found), lambda value: digits(value, "number"))
    return (
        f"The certificate, computed from retained tokens alone, covers {covered} of the cells{promise}.",
        f"It ranks them by their true error: Spearman {spearman}; its median is {ratio} times the median "
        "error.",
    )


# Suites side by side, so that choices can be compared.


SPENT_ALL = 0.99  # an allocation that spends this share of the budget is the iterated one
COMPARED = ("suite", "budget", "coverage", "spearman", "ratio", "hajek", "topk", "no_offset", "uniform")
BESIDE = (
    *columns("suite", "task", "score"),
    column(
        "allocation",
        meaning="iterated, or single_clip where less than 99 % of the budget is spent",
        unit="name",
    ),
    *columns("budget"),
    share("coverage", "covered"),
    share("spearman", "Spearman"),
    number("ratio"),
    Column("hajek", "Poisson", "number", True, False, POISSON, ERROR),
    Column("topk", "top-k", "number", True, False, TOP_K, ERROR),
    Column("no_offset", "no offset", "number", True, False),
    Column("uniform", "uniform", "number", True, False),
)


def ablations(suites: Iterable[tuple[CellSuite, Iterable[ByBudget]]]) -> Table:
    """One line per suite and budget."""
    suites = list(suites)
    rows = tuple(_beside(suite, row) for suite, found in suites for row in found)
    remarks = (
        COVERED_MEANS,
        RATIO_MEANS,
        "Poisson, top-k, no offset, uniform: median relative error of the attention output.",
        "allocation: single_clip where less than 99 % of the budget is spent, otherwise iterated.",
        *(f"{suite.name} has no numbers: {suite.undefined}." for suite, _ in suites if suite.undefined),
    )
    made = Table("ablations", "Attention suites side by side", BESIDE, rows, remarks)
    points = ("Points only; tables/ablations.md has intervals. Poisson to uniform: median relative error.",)
    return made.briefly(made.only(COMPARED, points).bare()) if len(suites) > 1 else made


def _beside(suite: CellSuite, row: ByBudget) -> Row:
    is_spent = row.spent is not None and row.spent >= SPENT_ALL
    allocation = None if row.spent is None else "iterated" if is_spent else "single_clip"
    place = (suite.name, " ".join(suite.tasks), " ".join(suite.scores), allocation, row.budget)
    errors = (getattr(row, name) for name in ESTIMATORS)
    return (*place, row.coverage, row.spearman, row.ratio, *errors)


# Certificate against true error, cell by cell.


ACROSS = 40  # hexagons from side to side
BELOW = 0.001  # share of the numbers that the axes may leave out: a few near 0 would take half of a panel
# Light to dark in eight steps: darker is more, in grey as well.
_MANY = LinearSegmentedColormap.from_list("many", ["#d3e3f3", "#6aaed6", "#1f5fa8", "#0a1f44"], N=8)


def scatter_figure(cells: pd.DataFrame, found: Iterable[ByBudget]) -> Figure:
    """One panel per budget, density of cells on the same axes, and the line error = certificate.

    Cells beyond the axes are drawn at their edge and counted.
    """
    rows = [one for (one,) in grouped(found).values()]
    points = [_points(cells[cells["budget"] == row.budget]) for row in rows]
    low, high = _limits(points)
    drawn, places = drawing.panels(len(rows), 2.95)
    drawn.set_layout_engine("compressed")  # panels are square: no room is left around them
    layers = [_panel(*one, low, high) for one in zip(places, rows, points, strict=True)]
    norm = LogNorm(1, max(float(np.max(np.asarray(layer.get_array()), initial=2.0)) for layer in layers))
    for layer in layers:
        layer.set_norm(norm)
    bar = drawn.colorbar(layers[-1], ax=places, label="cells per hexagon", pad=0.01, aspect=24)
    bar.outline.set_visible(False)
    bar.ax.yaxis.set_minor_locator(NullLocator())
    bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    across = "certificate: the relative error that it allows for"
    drawing.label(drawn, places, across, "true relative error\nof the attention output")
    return drawn


def _points(rows: pd.DataFrame) -> Floats:
    """Logarithms of certificate and error, (2, cells)."""
    with np.errstate(divide="ignore"):
        found: Floats = np.log10(rows[["certificate", "hajek"]].to_numpy(np.float64).T)
    return found


def _limits(points: list[Floats]) -> tuple[float, float]:
    every = np.concatenate([found.ravel() for found in points])
    finite = every[np.isfinite(every)]
    if not len(finite):
        return -2.0, 0.0
    low, high = float(np.quantile(finite, BELOW)), float(finite.max())
    room = max(0.04 * (high - low), 0.1)
    return low - room, high + room


def _panel(panel: Axes, row: ByBudget, points: Floats, low: float, high: float) -> PolyCollection:
    edge = low + (high - low) / ACROSS / 2
    is_beyond = (points < low).any(axis=0)
    panel.fill_between([low, high], [low, high], high, color="#f1efe9", linewidth=0, zorder=0)
    # Drawn on logarithms: hexagons stay regular, and the file has one of them and a list of places.
    layer = panel.hexbin(
        *np.maximum(points, edge),
        gridsize=(ACROSS, round(ACROSS / 3**0.5)),
        extent=(low, high, low, high),
        mincnt=1,
        cmap=_MANY,
        linewidths=0.0,
    )
    panel.plot([low, high], [low, high], color=INK, linewidth=1.0)
    panel.set(xlim=(low, high), ylim=(low, high), aspect="equal")
    for axis in (panel.xaxis, panel.yaxis):
        axis.set_major_locator(FixedLocator(_ticks(low, high)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{10**value:.3g}"))
    panel.grid(visible=True, color=GREY, alpha=0.35)
    covered = "undefined" if row.coverage.value is None else percent(row.coverage.value, 1)
    rank = shown(row.spearman, share("", bare=True))
    panel.set_title(f"budget {budget_words(row.budget)}\ncovered {covered}, Spearman {rank}")
    at: dict[str, Any] = {"transform": panel.transAxes, "fontsize": 7.5, "color": "#505050"}
    panel.text(0.04, 0.96, "error above certificate", va="top", **at)
    if count := int(is_beyond.sum()):
        panel.text(0.97, 0.03, f"{count:,} cells beyond the edge", ha="right", **at)
    return layer


def _ticks(low: float, high: float) -> list[float]:
    """Logarithms at whole decades, at most four of them."""
    decades = [float(decade) for decade in range(int(np.ceil(low)), int(np.floor(high)) + 1)]
    return decades[:: -(-len(decades) // 4)]
