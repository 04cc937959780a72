"""Coverage by delta against what is promised."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from analysis.attention import Attention
from analysis.attention.calibration import DELTAS
from analysis.figures.style import INK, NAVY, ORANGE, coverage_limits, grid, label, panels, percent_axis
from analysis.statistics import Estimate
from analysis.tables.base import budget_words

SHOWN = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)  # 0.3 and 0.4 would run into their neighbours


def calibration(one: Attention) -> Figure:
    """One panel per budget: the certificate, the certificate without its b term, and the promise."""
    budgets = list(dict.fromkeys(row.budget for row in one.calibration))
    smooth = np.geomspace(DELTAS[0], DELTAS[-1], 60)
    drawn, places = panels(len(budgets), 3.2)
    for panel, budget in zip(places, budgets, strict=True):
        rows = [row for row in one.calibration if row.budget == budget]
        deltas = [row.delta for row in rows]
        panel.set_xscale("log")
        promise = panel.plot(smooth, 1 - smooth, color=INK, linewidth=1.1, linestyle="--")
        without = _line(panel, deltas, [row.without_b for row in rows], ORANGE, "s", "white")
        whole = _line(panel, deltas, [row.coverage for row in rows], NAVY, "o", NAVY)
        panel.set_title(f"budget {budget_words(budget)}")
        panel.xaxis.set_major_locator(FixedLocator(SHOWN))
        panel.xaxis.set_minor_locator(NullLocator())
        panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        grid(panel, "both")
        if budget == budgets[0]:
            words = ("certificate", "without the b term", "promised, 1 - delta")
            handles: list[Any] = [whole, without, *promise]  # containers are handles, the stubs do not know
            drawn.legend(handles, words, loc="outside upper left", ncols=3)
    lows = [1 - max(DELTAS)]
    lows += [e.value for row in one.calibration for e in (row.coverage, row.without_b) if e.value is not None]
    places[0].set_ylim(*coverage_limits(lows))
    percent_axis(places[0].yaxis)
    label(drawn, places, "delta, the share of cells that may lie outside", "covered cells")
    return drawn


def _line(
    panel: Axes, at: Sequence[float], estimates: Sequence[Estimate], colour: str, marker: str, face: str
) -> ErrorbarContainer:
    value, low, high = (
        np.array([getattr(one, name) for one in estimates], np.float64) for name in ("value", "lo", "hi")
    )
    return panel.errorbar(
        at,
        value,
        yerr=np.vstack([value - low, high - value]),
        color=colour,
        marker=marker,
        markerfacecolor=face,
        elinewidth=1.0,
    )
