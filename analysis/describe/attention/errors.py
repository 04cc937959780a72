"""How large the errors of four estimators are, and how often radii for other values of delta bound them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from analysis.core.data import CellData
from analysis.core.estimates import Estimate, Floats
from analysis.describe import drawing
from analysis.describe.attention.budgets import ESTIMATORS
from analysis.describe.attention.cell_suite import COVERED_MEANS, Budget, CellSuite, Covered, Found, grouped
from analysis.describe.drawing import INK, NAVY, ORANGE, SKY
from analysis.describe.parts import Words
from analysis.describe.table import (
    ERROR,
    SHARE,
    Column,
    budget_words,
    column,
    columns_of,
    digits,
    rows_of,
    share,
)

ORDER = 2
SHARES = (0.05, 0.25, 0.5, 0.75, 0.95)
DELTAS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5)
FLOOR = 1e-9  # added to norms; without weight against any real output


def _quantile(percent: int) -> Column:
    return column("", f"{percent} %", f"{percent:02} % quantile of the error over all cells", ERROR, "number")


@dataclass(frozen=True)
class Spread:
    """Quantiles of the relative error of one estimator at one budget."""

    budget: Budget
    estimator: Annotated[
        str, column("estimator", "", "Poisson (with the offset), no offset, top-k or uniform", "name")
    ]
    q05: Annotated[float, _quantile(5)]
    q25: Annotated[float, _quantile(25)]
    q50: Annotated[float, _quantile(50)]
    q75: Annotated[float, _quantile(75)]
    q95: Annotated[float, _quantile(95)]


@dataclass(frozen=True)
class Calibrated:
    """Share of cells whose error the radius for one delta bounds; at least 1 - delta is promised."""

    budget: Budget
    delta: Annotated[float, column("delta", "", "probability with which the certificate may fail", SHARE)]
    coverage: Covered
    without_b: Annotated[
        Estimate,
        share(
            "without_b",
            "covered without the b term",
            "coverage of the variance term alone, without the range term b",
        ),
    ]

    @property
    def promised(self) -> Annotated[float, column("promised")]:
        """The share of cells that the radius is made for."""
        return 1 - self.delta


def describe(suite: CellSuite) -> Iterator[Found]:
    """Errors by budget and estimator; coverage by budget and delta, recomputed from what the cells log."""
    spread = tuple(
        Spread(budget, name, *np.quantile(rows[name].to_numpy(np.float64), SHARES, method="linear").tolist())
        for budget, rows, _ in suite.by_budget()
        for name in ESTIMATORS
    )
    told = [replace(row, estimator=ESTIMATORS[row.estimator]) for row in spread]
    title = "Quantiles of the relative error"
    made = suite.table("errors", title, columns_of(Spread), rows_of(Spread, told))
    title = "Errors of four estimators"
    boxes = suite.picture("errors", title, lambda: _spread_words(suite), lambda: errors_figure(spread))
    yield Found("errors", spread, (made,), (boxes,))

    found = tuple(row for one in suite.by_budget() for row in _calibrated(*one))
    keys = ("budget", "delta", "promised", "coverage", "without_b")
    columns, rows = columns_of(Calibrated, keys), rows_of(Calibrated, found, keys)
    made = suite.table("calibration", "Coverage by delta", columns, rows, (COVERED_MEANS,))
    title = "Coverage at other values of delta"
    curves = suite.picture(
        "calibration", title, lambda: _calibration_words(found), lambda: calibration_figure(found)
    )
    yield Found("calibration", found, (made,), (curves,))


def _calibrated(budget: float, rows: pd.DataFrame, data: CellData) -> Iterator[Calibrated]:
    error = (rows["hajek"] * (rows["norm"] + FLOOR)).to_numpy(np.float64)
    for delta in DELTAS:
        root, linear = radius(rows, delta)
        yield Calibrated(
            budget,
            delta,
            coverage=data.estimate(data.share(rows, error <= root + linear)),
            without_b=data.estimate(data.share(rows, error <= root)),
        )


def radius(rows: pd.DataFrame, delta: float) -> tuple[Floats, Floats]:
    """The two terms of eq. (4), in units of the output: sqrt(2 V log(1/delta)) and b log(1/delta)."""
    log = np.log(1 / delta)
    root = np.sqrt(2 * rows["variance"].to_numpy(np.float64) * log)
    return root, rows["largest"].to_numpy(np.float64) * log


def _spread_words(suite: CellSuite) -> Words:
    """Medians as `budgets` has them."""
    lower, every = 0, list[str]()
    for budget, rows, data in suite.by_budget():
        medians = {name: data.point(data.median(rows, name)).value for name in ESTIMATORS}
        lower += (medians["hajek"] or 0.0) < (medians["topk"] or 0.0)
        told = ("undefined" if one is None else digits(one, "number") for one in medians.values())
        every.append(f"{budget_words(budget)} {' / '.join(told)}")
    return (
        f"Poisson's median error lies below that of top-k at {lower} of {len(every)} budgets.",
        f"{' / '.join(ESTIMATORS.values())}: {'; '.join(every)}.",
    )


def _calibration_words(found: Sequence[Calibrated]) -> Words:
    known = [row for row in found if row.coverage.value is not None]
    kept = [row for row in known if (row.coverage.value or 0.0) >= row.promised]
    broken = sorted({row.delta for row in known} - {row.delta for row in kept})
    never = f"At no budget for delta = {', '.join(f'{d:g}' for d in broken)}." if broken else ""
    counts = f"{len(kept)} of {len(known)} combinations of delta and budget"
    return f"Coverage is at least the promised 1 - delta in {counts}.", never


# Distributions of the four estimators' errors.


COLOURS = {"hajek": NAVY, "topk": ORANGE, "no_offset": SKY, "uniform": "#efefef"}
EDGE = "#505050"
NUMBERED = 4  # budgets; the medians of more would run into each other
STEP = 1.0  # from box to box; a budget takes one more


def errors_figure(found: Sequence[Spread]) -> Figure:
    """Boxes on a log scale, four for each budget; whiskers from 5 to 95 %."""
    drawn = drawing.figure(3.6)
    axes = drawn.subplots()
    axes.set_yscale("log")
    names, budgets = list(ESTIMATORS), list(grouped(found))
    smallest = min((row.q05 for row in found if row.q05 > drawing.TINY), default=1e-9)
    for row in found:
        place = budgets.index(row.budget) * (len(names) + 1) + names.index(row.estimator) * STEP
        ends = [max(value, smallest) for value in (row.q05, row.q25, row.q50, row.q75, row.q95)]
        _box(axes, row.estimator, place, ends)
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
    low = min(max(row.q05, smallest) for row in found) / 1.3
    high = max(max(row.q95, smallest) for row in found) * 1.6
    axes.set_ylim(low, high)
    drawing.plain_log(axes.yaxis, low, high)
    axes.set_ylabel("true relative error")
    drawing.grid(axes)
    handles = [
        Patch(facecolor=COLOURS[name], edgecolor=EDGE, linewidth=0.8, label=words)
        for name, words in ESTIMATORS.items()
    ]
    drawn.legend(handles=handles, loc="outside upper left", ncols=4, handlelength=1.2)
    across = "box: middle half of the cells; line and number: median; whiskers: 5 to 95 %"
    drawn.supxlabel(across, fontsize=8, color="#505050")
    return drawn


def _box(axes: Axes, estimator: str, place: float, ends: Sequence[float]) -> None:
    box = dict(zip(("whislo", "q1", "med", "q3", "whishi"), ends, strict=True), fliers=[])
    axes.bxp(
        [box],
        positions=[place],
        widths=0.72,
        patch_artist=True,
        showfliers=False,
        boxprops={"facecolor": COLOURS[estimator], "edgecolor": EDGE, "linewidth": 0.8},
        medianprops={"color": "white" if estimator == "hajek" else INK, "linewidth": 1.6},
        whiskerprops={"color": EDGE, "linewidth": 1.0},
        capprops={"linewidth": 0.0},
    )


# Coverage by delta against what is promised.


SHOWN = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)  # 0.3 and 0.4 would run into their neighbours


def calibration_figure(found: Sequence[Calibrated]) -> Figure:
    """One panel per budget: the certificate, the certificate without its b term, and the promise."""
    by_budget = grouped(found)
    smooth = np.geomspace(DELTAS[0], DELTAS[-1], 60)
    drawn, places = drawing.panels(len(by_budget), 3.2)
    handles = list[Any]()  # of the first panel
    for panel, (budget, rows) in zip(places, by_budget.items(), strict=True):
        deltas = [row.delta for row in rows]
        panel.set_xscale("log")
        promise = panel.plot(smooth, 1 - smooth, color=INK, linewidth=1.1, linestyle="--")
        without = _line(panel, deltas, [row.without_b for row in rows], ORANGE, "s", "white")
        whole = _line(panel, deltas, [row.coverage for row in rows], NAVY, "o", NAVY)
        panel.set_title(f"budget {budget_words(budget)}")
        panel.xaxis.set_major_locator(FixedLocator(SHOWN))
        panel.xaxis.set_minor_locator(NullLocator())
        panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        drawing.grid(panel, "both")
        handles = handles or [whole, without, *promise]
    words = ("certificate", "without the b term", "promised, 1 - delta")
    drawn.legend(handles, words, loc="outside upper left", ncols=3)
    values = [one.value for row in found for one in (row.coverage, row.without_b)]
    places[0].set_ylim(
        *drawing.coverage_limits([1 - max(DELTAS), *(one for one in values if one is not None)])
    )
    drawing.percent_axis(places[0].yaxis)
    drawing.label(drawn, places, "delta, the share of cells that may lie outside", "covered cells")
    return drawn


def _line(
    panel: Axes, at: Sequence[float], estimates: Sequence[Estimate], colour: str, marker: str, face: str
) -> ErrorbarContainer:
    value, spread = drawing.ends_of(estimates)
    look: dict[str, Any] = {"color": colour, "marker": marker, "markerfacecolor": face, "elinewidth": 1.0}
    return panel.errorbar(at, value, yerr=spread, **look)
