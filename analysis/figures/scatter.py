"""Certificate against true error, cell by cell."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import LinearSegmentedColormap, LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from analysis.attention import Attention
from analysis.attention.budgets import ByBudget
from analysis.figures.style import GREY, INK, label, panels
from analysis.statistics.base import Floats
from analysis.tables.base import Column, budget_words, shown

ACROSS = 40  # hexagons from side to side
BELOW = 0.001  # share of the numbers that the axes may leave out: a few near 0 would take half of a panel
# Light to dark in eight steps: darker is more, in grey as well.
_MANY = LinearSegmentedColormap.from_list("many", ["#d3e3f3", "#6aaed6", "#1f5fa8", "#0a1f44"], N=8)


def scatter(one: Attention) -> Figure:
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
