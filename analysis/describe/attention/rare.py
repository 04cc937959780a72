"""Two ways to read the certificate: where attention falls on unlikely tokens, and as a server computes it."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from analysis.core.data import CellData
from analysis.core.estimates import Estimate
from analysis.describe import drawing
from analysis.describe.attention.cell_suite import COVERED_MEANS, Budget, CellSuite, Covered, Found, grouped
from analysis.describe.drawing import NAVY
from analysis.describe.parts import Words
from analysis.describe.table import (
    ERROR,
    RANKED,
    SHARE,
    budget_words,
    column,
    columns_of,
    percent,
    rows_of,
    share,
)

ORDER = 4
EDGES = (0.0, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0)
STRIDES = (1, 2, 4, 8)
MAX_STEPS = 12
PLACE = ["task", "example_id", "budget", "seed"]
LOW = "lower edge of the bin: share of the full cache's attention on tokens with pi below 0.001"
HIGH = "upper edge of the bin, which belongs to the next one unless it is 1"
STEPS = "first queries, of whose means the largest counts; in words where they are not consecutive"
MEAN = "mean over prompts of the certificate of a generation"
SPEARMAN = "rank correlation with the mean error over all layers, heads and steps, across prompts"


@dataclass(frozen=True)
class Rare:
    """Cells of one budget whose share of attention on pi < 1e-3 is in [low, high), or in [low, 1].

    The certificate sees only what was kept: a token of low pi that mattered and was not drawn leaves no
    trace.
    """

    budget: Budget
    low: Annotated[float, column("low", "from", LOW, SHARE)]
    high: Annotated[float, column("high", "to", HIGH, SHARE)]
    cells: Annotated[int, column("cells")]
    coverage: Covered


@dataclass(frozen=True)
class Deployed:
    """One way to compute a generation's certificate: one number per (prompt, budget, seed).

    The mean over layers and every stride-th head of the certificate at a step, and the largest of the first
    steps. `steps` is None where the suite's `queries` are not consecutive steps: then the mean over all of
    them is taken.
    """

    budget: Budget
    stride: Annotated[int, column("stride", "every n-th head", "every n-th query head is averaged", "count")]
    steps: Annotated[int | str | None, column("steps", "", STEPS, "count")]
    queries: int
    certificate: Annotated[float, column("certificate", "mean certificate", MEAN, ERROR, "number")]
    spearman: Annotated[Estimate, share("spearman", "Spearman", SPEARMAN, RANKED)]


def describe(suite: CellSuite) -> Iterator[Found]:
    """Bins of attention on tokens that were all but sure to be evicted; then strides and steps."""
    bins = tuple(row for one in suite.by_budget() for row in _bins(*one))
    title = "Coverage by the share of attention on tokens with pi below 0.001"
    remarks = ("from, to: share of the full cache's attention on tokens with pi < 1e-3.", COVERED_MEANS)
    made = suite.table("rare", title, columns_of(Rare), rows_of(Rare, bins), remarks)
    title = "Coverage where attention lies on unlikely tokens"
    drawn = suite.picture("rare", title, lambda: _words(bins), lambda: rare_figure(bins))
    yield Found("rare", bins, (made,), (drawn,))

    found = () if suite.undefined else tuple(sorted(_deployed(suite), key=_place))
    told = [replace(row, steps=_steps(row)) for row in found]
    remarks = (
        "Mean over layers and every n-th head, largest of the first steps; one number per prompt and draw.",
        "Spearman: with the mean error over all layers, heads and steps, across prompts.",
    )
    title = "Certificate of a generation by head stride and steps"
    made = suite.table("deployed", title, columns_of(Deployed), rows_of(Deployed, told), remarks)
    yield Found("deployed", found, (made,))


def _bins(budget: float, rows: pd.DataFrame, data: CellData) -> Iterator[Rare]:
    """One row per bin, empty bins too."""
    bins = np.searchsorted(EDGES[1:-1], rows["rare_attention"].to_numpy(np.float64), side="right")
    for at, (low, high) in enumerate(itertools.pairwise(EDGES)):
        group = rows[bins == at]
        lost = Estimate(None, undefined="no cell has such a share")
        coverage = data.estimate(data.coverage(group)) if len(group) else lost
        yield Rare(budget, low, high, len(group), coverage)


def _deployed(suite: CellSuite) -> Iterator[Deployed]:
    target = _by_query(suite.frame, "hajek").mean(axis=1).rename("target")
    for stride in STRIDES:
        by_query = _by_query(suite.frame[suite.frame["head"] % stride == 0], "certificate")
        for steps, values in _reduced(by_query):
            generations = pd.concat([values.rename("certificate"), target], axis=1).reset_index()
            data = suite.data(generations)
            for budget, here in data.by_budget().items():
                yield Deployed(
                    budget,
                    stride,
                    steps,
                    by_query.shape[1],
                    certificate=float(here["certificate"].mean()),
                    spearman=data.estimate(data.spearman(here, "certificate", "target")),
                )


def _place(row: Deployed) -> tuple[float, int, int]:
    return row.budget, row.stride, int(row.steps or 0)


def _by_query(rows: pd.DataFrame, column: str) -> pd.DataFrame:
    """Means over layers and heads, (prompt x budget x seed, query)."""
    return rows.groupby([*PLACE, "offset"], observed=True, sort=True)[column].mean().unstack("offset")


def _reduced(by_query: pd.DataFrame) -> Iterator[tuple[int | None, "pd.Series[float]"]]:
    offsets = by_query.columns.to_numpy(np.int64)
    if not np.array_equal(offsets, np.arange(len(offsets))):
        yield None, by_query.mean(axis=1)
        return
    for steps in range(1, min(MAX_STEPS, len(offsets)) + 1):
        yield steps, by_query.iloc[:, :steps].max(axis=1)


def _steps(row: Deployed) -> int | str:
    """A number of steps, or in words what was done with queries that are not consecutive."""
    if row.steps is not None:
        return row.steps
    return "1 query" if row.queries == 1 else f"mean of {row.queries} queries"


def _words(bins: Sequence[Rare]) -> Words:
    """The least covered share of each budget, however few cells it has, beside the lowest share."""
    least, first = list[str](), list[str]()
    for budget, rows in grouped(bins).items():
        known = [row for row in rows if row.coverage.value is not None]
        if known:
            worst = min(known, key=lambda row: row.coverage.value or 0.0)
            where = f"share {worst.low:g} to {worst.high:g}, budget {budget_words(budget)}"
            least.append(f"{_covered(worst)} ({where})")
            first.append(f"{_covered(known[0])} at {budget_words(budget)}")
    share_of = "the share of attention on tokens that were all but sure to go (pi < 0.001)"
    if not least:
        return f"Coverage by {share_of} is undefined.", ""
    return (
        f"By {share_of}, coverage is at worst {', '.join(least)}.",
        f"Where that share is lowest: {', '.join(first)}.",
    )


def _covered(row: Rare) -> str:
    return f"{percent(row.coverage.value or 0.0)} of {row.cells:,} cell{'s' * (row.cells != 1)}"


def rare_figure(bins: Sequence[Rare]) -> Figure:
    """One panel per budget, a line for each bin: share, interval, number of cells."""
    by_budget = grouped(bins)
    drawn, places = drawing.panels(len(by_budget), 2.9)
    known = [end for row in bins for end in (row.coverage.value, row.coverage.lo) if end is not None]
    low, high = drawing.coverage_limits(known or [0.0])
    count_at = high + (high - low) * 0.03
    small: dict[str, Any] = {"va": "center", "fontsize": 7.5, "color": "#505050"}
    for panel, (budget, rows) in zip(places, by_budget.items(), strict=True):
        heights = list(range(len(rows)))
        value, spread = drawing.ends_of([row.coverage for row in rows])
        panel.errorbar(value, heights, xerr=spread, color=NAVY, marker="o", linestyle="none", elinewidth=1.4)
        for row, height in zip(rows, heights, strict=True):
            if row.coverage.value is None:
                panel.text((low + high) / 2, height, "no cells", ha="center", **small)
            panel.text(count_at, height, f"{row.cells:,}", **small)
        panel.text(count_at, -0.85, "cells", **small)
        panel.set_title(f"budget {budget_words(budget)}")
        panel.set_xlim(low, high)
        drawing.percent_axis(panel.xaxis)
        panel.locator_params(axis="x", nbins=4)
        drawing.grid(panel, "both")
    edges = list(itertools.pairwise(EDGES))
    places[0].set_yticks(range(len(edges)), [_bin(*edge) for edge in edges])
    places[0].set_ylim(len(edges) - 0.5, -0.6)
    across = "covered cells, with the interval over prompts"
    drawing.label(drawn, places, across, "share of attention on\ntokens with pi below 0.001")
    return drawn


def _bin(low: float, high: float) -> str:
    if low == 0:
        return f"below {_edge(high)}"
    return f"{_edge(low)} and more" if high == 1 else f"{_edge(low)} to {_edge(high)}"


def _edge(share: float) -> str:
    return f"{share:g}" if share >= 1e-3 else f"{share:.0e}".replace("e-0", "e-")
