"""How the errors of the four estimators are distributed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from analysis.core.data import CellData
from analysis.describe.drawing import INK, NAVY, ORANGE, SKY, TINY, figure, grid, plain_log
from analysis.describe.table import budget_words, digits

if TYPE_CHECKING:
    from analysis.describe.attention.describe import Attention

# In the order of tables: the design, then what it is compared with. Uniform draws have the offset too.
ESTIMATORS = {
    "hajek": "Poisson",
    "topk": "top-k",
    "no_offset": "Poisson, no offset",
    "uniform": "uniform",
}
SHARES = (0.05, 0.25, 0.5, 0.75, 0.95)


@dataclass(frozen=True)
class Spread:
    """Quantiles of the relative error of one estimator at one budget."""

    budget: float
    estimator: str  # a column of the cells
    q05: float
    q25: float
    q50: float
    q75: float
    q95: float


def spreads(data: CellData) -> Iterator[Spread]:
    """One row per budget and estimator."""
    for budget, rows in data.by_budget().items():
        for name in ESTIMATORS:
            found = np.quantile(rows[name].to_numpy(np.float64), SHARES, method="linear")
            yield Spread(float(budget), name, *map(float, found))


# Distributions of the four estimators' errors.


COLOURS = {"hajek": NAVY, "topk": ORANGE, "no_offset": SKY, "uniform": "#efefef"}
EDGE = "#505050"
NUMBERED = 4  # budgets; the medians of more would run into each other
STEP = 1.0  # from box to box; a budget takes one more


def errors_figure(one: Attention) -> Figure:
    """Boxes on a log scale, four for each budget; whiskers from 5 to 95 %."""
    drawn = figure(3.6)
    axes = drawn.subplots()
    axes.set_yscale("log")
    names = list(ESTIMATORS)
    budgets = list(dict.fromkeys(row.budget for row in one.errors))
    smallest = min((row.q05 for row in one.errors if row.q05 > TINY), default=1e-9)
    for row in one.errors:
        place = budgets.index(row.budget) * (len(names) + 1) + names.index(row.estimator) * STEP
        ends = [max(value, smallest) for value in (row.q05, row.q25, row.q50, row.q75, row.q95)]
        box = dict(zip(("whislo", "q1", "med", "q3", "whishi"), ends, strict=True), fliers=[])
        line = {"color": EDGE, "linewidth": 1.0}
        axes.bxp(
            [box],
            positions=[place],
            widths=0.72,
            patch_artist=True,
            showfliers=False,
            boxprops={"facecolor": COLOURS[row.estimator], "edgecolor": EDGE, "linewidth": 0.8},
            medianprops={"color": "white" if row.estimator == "hajek" else INK, "linewidth": 1.6},
            whiskerprops=line,
            capprops={"linewidth": 0.0},
        )
        axes.annotate(
            digits(row.q50, "number") if len(budgets) <= NUMBERED else "",
            (place, ends[-1]),
            xytext=(0, 3),
            textcoords="offset points",
            ha="center",
            fontsize=7.5,
        )
    middle = (len(names) - 1) * STEP / 2
    axes.set_xticks(
        [at * (len(names) + 1) + middle for at in range(len(budgets))],
        [f"budget {budget_words(budget)}" for budget in budgets],
    )
    axes.tick_params(axis="x", length=0)
    low = min(max(row.q05, smallest) for row in one.errors) / 1.3
    high = max(max(row.q95, smallest) for row in one.errors) * 1.6
    axes.set_ylim(low, high)
    plain_log(axes.yaxis, low, high)
    axes.set_ylabel("true relative error")
    grid(axes)
    handles = [
        Patch(facecolor=COLOURS[name], edgecolor=EDGE, linewidth=0.8, label=words)
        for name, words in ESTIMATORS.items()
    ]
    drawn.legend(handles=handles, loc="outside upper left", ncols=4, handlelength=1.2)
    drawn.supxlabel(
        "box: middle half of the cells; line and number: median; whiskers: 5 to 95 %",
        fontsize=8,
        color="#505050",
    )
    return drawn
