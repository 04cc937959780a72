"""Coverage at other values of delta, recomputed from what the cells log, with and without the b term."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from analysis.core.data import CellData
from analysis.core.estimates import Estimate, Floats
from analysis.describe.drawing import INK, NAVY, ORANGE, coverage_limits, grid, label, panels, percent_axis
from analysis.describe.table import budget_words

if TYPE_CHECKING:
    from analysis.describe.attention.describe import Attention

DELTAS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5)
FLOOR = 1e-9  # added to norms; without weight against any real output


@dataclass(frozen=True)
class Calibrated:
    """Share of cells whose error the radius for one delta bounds; at least 1 - delta is promised."""

    budget: float
    delta: float
    coverage: Estimate
    without_b: Estimate


def calibration(data: CellData) -> Iterator[Calibrated]:
    """One row per budget and delta."""
    for budget, rows in data.by_budget().items():
        error = (rows["hajek"] * (rows["norm"] + FLOOR)).to_numpy(np.float64)
        for delta in DELTAS:
            root, linear = radius(rows, delta)
            yield Calibrated(
                float(budget),
                delta,
                coverage=data.estimate(data.share(rows, error <= root + linear)),
                without_b=data.estimate(data.share(rows, error <= root)),
            )


def radius(rows: pd.DataFrame, delta: float) -> tuple[Floats, Floats]:
    """The two terms of eq. (4), in units of the output: sqrt(2 V log(1/delta)) and b log(1/delta)."""
    log = np.log(1 / delta)
    root = np.sqrt(2 * rows["variance"].to_numpy(np.float64) * log)
    return root, rows["largest"].to_numpy(np.float64) * log


# Coverage by delta against what is promised.


SHOWN = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)  # 0.3 and 0.4 would run into their neighbours


def calibration_figure(one: Attention) -> Figure:
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
