"""The main table: what the certificate is worth at each budget, and what each estimator costs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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
from analysis.describe.drawing import GREY, INK, label, panels
from analysis.describe.table import Column, budget_words, shown

if TYPE_CHECKING:
    from analysis.describe.attention.describe import Attention

# Spearman correlation inside one query head of one layer.
#
# A certificate that only knew which heads are hard would correlate with the error in the pool, not here.


@dataclass(frozen=True)
class Within:
    """Correlation of certificate and error over prompts, seeds and queries, by (layer, head).

    Attributes:
        median: over (layer, head); None if none has a correlation.
        groups: number of (layer, head).
        undefined: those without a correlation, because one of the two does not vary.
    """

    median: float | None
    groups: int
    undefined: int


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


@dataclass(frozen=True)
class ByBudget:
    """One budget of a suite. Errors are relative, |estimate - y| / |y|.

    Attributes:
        budget: share of the cached tokens that is kept.
        cells: (prompt, seed, query, layer, head) combinations.
        coverage: share of cells whose error is no larger than the certificate says.
        spearman: rank correlation of certificate and error, all cells.
        within: the same inside one query head of one layer.
        ratio: median certificate over median error.
        hajek: median error of Poisson with the offset; likewise `no_offset`, `topk`, `uniform`.
        lost: (no_offset - hajek) / (topk - hajek) of the medians, the share of Poisson's gain over top-k
            that goes without the offset; above 1 nothing is left of it.
        spent: mean of expected_kept / (budget * evictable); None where that leaves the floats.
        silent: share of cells with variance 0 although tokens were evicted.
    """

    budget: float
    cells: int
    coverage: Estimate
    spearman: Estimate
    within: Within
    ratio: Estimate
    hajek: Estimate
    no_offset: Estimate
    topk: Estimate
    uniform: Estimate
    lost: Estimate
    spent: float | None
    silent: float


def by_budget(data: CellData) -> Iterator[ByBudget]:
    """One row per budget, rising."""
    for budget, rows in data.by_budget().items():
        hajek, no_offset, topk, uniform, certificate = (
            data.median(rows, name) for name in ("hajek", "no_offset", "topk", "uniform", "certificate")
        )
        yield ByBudget(
            budget=float(budget),
            cells=len(rows),
            coverage=data.estimate(data.coverage(rows)),
            spearman=data.estimate(data.spearman(rows, "certificate", "hajek")),
            within=within(rows),
            ratio=data.estimate(statistics.ratio(certificate, hajek)),
            hajek=data.estimate(hajek),
            no_offset=data.estimate(no_offset),
            topk=data.estimate(topk),
            uniform=data.estimate(uniform),
            lost=_lost(data, no_offset, topk, hajek),
            spent=_spent(rows),
            silent=float(((rows["variance"] == 0) & (rows["kept"] < rows["evictable"])).mean()),
        )


def _lost(data: CellData, no_offset: Statistic, topk: Statistic, hajek: Statistic) -> Estimate:
    gain = statistics.difference(topk, hajek)
    value = data.point(gain).value
    if value is not None and value <= 0:
        reason = "the median error of Poisson is not below that of top-k"
        return Estimate(None, n=len(gain.rows), undefined=reason)
    return data.estimate(statistics.ratio(statistics.difference(no_offset, hajek), gain))


def _spent(rows: pd.DataFrame) -> float | None:
    share = float((rows["expected_kept"] / (rows["budget"] * rows["evictable"])).mean())
    return share if np.isfinite(share) else None


# Certificate against true error, cell by cell.


ACROSS = 40  # hexagons from side to side
BELOW = 0.001  # share of the numbers that the axes may leave out: a few near 0 would take half of a panel
# Light to dark in eight steps: darker is more, in grey as well.
_MANY = LinearSegmentedColormap.from_list("many", ["#d3e3f3", "#6aaed6", "#1f5fa8", "#0a1f44"], N=8)


def scatter_figure(one: Attention) -> Figure:
    """One panel per budget, density of cells on the same axes, and the line error = certificate.

    Cells beyond the axes are drawn at their edge and counted.
    """
    points = {row.budget: _points(one, row.budget) for row in one.budgets}
    low, high = _limits(list(points.values()))
    drawn, places = panels(len(points), 2.95)
    drawn.set_layout_engine("compressed")  # panels are square: no room is left around them
    layers = [
        _panel(place, row, points[row.budget], low, high)
        for place, row in zip(places, one.budgets, strict=True)
    ]
    norm = LogNorm(1, max(float(np.max(np.asarray(layer.get_array()), initial=2.0)) for layer in layers))
    for layer in layers:
        layer.set_norm(norm)
    bar = drawn.colorbar(layers[-1], ax=places, label="cells per hexagon", pad=0.01, aspect=24)
    bar.outline.set_visible(False)
    bar.ax.yaxis.set_minor_locator(NullLocator())
    bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    across = "certificate: the relative error that it allows for"
    label(drawn, places, across, "true relative error\nof the attention output")
    return drawn


def _points(one: Attention, budget: float) -> Floats:
    """Logarithms of certificate and error, (2, cells)."""
    rows = one.frame[one.frame["budget"] == budget]
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
        ticks = _ticks(low, high)
        axis.set_major_locator(FixedLocator(ticks))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{10**value:.3g}"))
    panel.grid(visible=True, color=GREY, alpha=0.35)
    covered = "undefined" if row.coverage.value is None else f"{100 * row.coverage.value:.1f} %"
    rank = shown(row.spearman, Column("", "", "share", has_interval=False))
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
