"""The impossibility demonstration: what top-k can compute online does not move while its true error does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path

from analysis.core.data import CellData
from analysis.core.estimates import Estimate, Floats
from analysis.describe.drawing import INK, NAVY, ORANGE, figure, grid, plain_log
from analysis.describe.table import digits

if TYPE_CHECKING:
    from analysis.describe.attention.describe import Attention

PROMPT = ["task", "example_id"]


@dataclass(frozen=True)
class WorldRow:
    """One world; 0 is the unchanged one. Means are over prompts, layers and heads."""

    world: int
    coverage: Estimate  # of Poisson with its keep set held fixed
    certificate: float  # mean
    hajek: float  # mean error of Poisson
    topk: float  # mean error of top-k

    @property
    def certificate_exceeds(self) -> bool:
        """Whether the mean certificate exceeds the mean error."""
        return self.certificate > self.hajek


@dataclass(frozen=True)
class Demonstration:
    """One kind of change of the evicted values.

    Attributes:
        change: permutation or rotation.
        score: of both top-k and Poisson; the rotation's reads value norms.
        budget: share of the cached tokens that is kept; None if prompts differ.
        changed: number of changed worlds.
        prompts: prompts that carry the demonstration.
        identical: (prompt, layer) pairs whose online statistics of top-k are the same bytes in all worlds.
        compared: (prompt, layer) pairs.
        cells: (prompt, layer, head); what follows is over the changed worlds only. A quotient that does not
            exist, of an error of 0 or next to it, is left out; a number is None where no cell has one.
        smallest: top-k error of any cell in any world.
        largest: likewise.
        median_span: over cells of largest / smallest error.
        largest_span: likewise.
        without_span: cells without one.
        median_rise: over cells of the largest error of the worlds / error in the unchanged world.
        largest_rise: likewise.
        median_mean_rise: over cells of the mean error of the worlds / error in the unchanged world.
        worlds: numbers by world.
    """

    change: str
    score: str
    budget: float | None
    changed: int
    prompts: int
    identical: int
    compared: int
    cells: int
    smallest: float
    largest: float
    median_span: float | None
    largest_span: float | None
    without_span: int
    median_rise: float | None
    largest_rise: float | None
    median_mean_rise: float | None
    worlds: tuple[WorldRow, ...]


def demonstrations(data: CellData) -> Iterator[Demonstration]:
    """One for each change."""
    for change, rows in data.rows.groupby("change", observed=True, sort=True):
        same = rows.groupby([*PROMPT, "layer"], observed=True)["statistics"].nunique(dropna=False) == 1
        found = ranges(rows)
        low, high, mean, unchanged = found.to_numpy(np.float64).T
        spans, rises, mean_rises = _over(high, low), _over(high, unchanged), _over(mean, unchanged)
        budgets = rows["budget"].unique()
        yield Demonstration(
            change=str(change),
            score=" ".join(sorted(set(rows["score"].astype(str)))),
            budget=float(budgets[0]) if len(budgets) == 1 else None,
            changed=int((np.unique(rows["world"]) > 0).sum()),
            prompts=len(rows[PROMPT].drop_duplicates()),
            identical=int(same.sum()),
            compared=len(same),
            cells=len(found),
            smallest=float(low.min()),
            largest=float(high.max()),
            median_span=_of(np.median, spans),
            largest_span=_of(np.max, spans),
            without_span=len(found) - len(spans),
            median_rise=_of(np.median, rises),
            largest_rise=_of(np.max, rises),
            median_mean_rise=_of(np.median, mean_rises),
            worlds=tuple(_worlds(data, rows)),
        )


def ranges(rows: pd.DataFrame) -> pd.DataFrame:
    """Top-k error of each cell: `low`, `high` and `mean` over the changed worlds, and `unchanged`."""
    changed, world_0 = (
        here.groupby([*PROMPT, "layer", "head"], observed=True, sort=True)["topk"]
        for here in (rows[rows["world"] > 0], rows[rows["world"] == 0])
    )
    found = {"low": changed.min(), "high": changed.max(), "mean": changed.mean(), "unchanged": world_0.min()}
    return pd.DataFrame(found).reset_index(drop=True)


def _over(high: Floats, low: Floats) -> Floats:
    """Quotients where there is one; next to 0 it leaves the floats."""
    with np.errstate(all="ignore"):
        found = high / low
    return found[np.isfinite(found)]


def _of(number: Callable[[Floats], np.float64], values: Floats) -> float | None:
    return float(number(values)) if len(values) else None


def _worlds(data: CellData, rows: pd.DataFrame) -> Iterator[WorldRow]:
    for world in np.unique(rows["world"]):
        group = rows[rows["world"] == world]
        yield WorldRow(
            int(world),
            coverage=data.estimate(data.coverage(group)),
            certificate=float(group["certificate"].mean()),
            hajek=float(group["hajek"].mean()),
            topk=float(group["topk"].mean()),
        )


# The impossibility demonstration: what moves in worlds that look the same to top-k.


BARS = 120  # cells shown at most; more would run into each other
FLOOR = 1e-9  # stands for an error of 0, which a log axis has no place for; its inverse for the far end
NOUNS = {"permutation": "values permuted", "rotation": "values rotated"}


def worlds_figure(one: Attention) -> Figure:
    """A row for each change: the range of top-k's error by cell, and certificate and error by world."""
    found = one.demonstrations
    drawn = figure(0.7 + 2.6 * len(found))
    panels = drawn.subplots(len(found), 2, sharey="col", squeeze=False, width_ratios=(1.2, 1))
    step = max(1, -(-max(of.cells for of in found) // BARS))
    for (left, right), of in zip(panels, found, strict=True):
        _ranges(left, one, of, step)
        _by_world(right, of)
    ends = np.array([left.dataLim.intervaly for left in panels[:, 0]])
    low, high = float(ends.min()) / 1.2, float(ends.max()) * 1.2
    panels[0, 0].set_ylim(low, high)
    plain_log(panels[0, 0].yaxis, low, high)
    panels[0, 1].set_ylim(bottom=0)
    which = "all cells" if step == 1 else f"one in {step} cells"
    panels[-1, 0].set_xlabel(
        f"{which} (prompt, layer, head), sorted, the\nhighest included; bar: range over the changed worlds"
    )
    panels[-1, 1].set_xlabel("world; 0 is the unchanged one")
    handles, words = panels[0, 1].get_legend_handles_labels()
    drawn.legend(handles, words, loc="outside upper left", ncols=3)
    return drawn


def _ranges(axes: Axes, one: Attention, of: Demonstration, step: int) -> None:
    """Bars from the smallest to the largest error of a cell over the changed worlds, 1 being unchanged."""
    rows = ranges(one.worlds[one.worlds["change"] == of.change])
    ends = rows[["low", "high"]].div(rows["unchanged"], axis=0).to_numpy(np.float64)
    low, high = np.clip(ends[np.isfinite(ends).all(axis=1)].T, FLOOR, 1 / FLOOR)
    order = np.lexsort((low, high))
    chosen = order[::-1][::step][::-1]  # from the highest down
    corners = [(at, end) for at, cell in enumerate(chosen) for end in (low[cell], high[cell])]
    axes.set_yscale("log")
    if corners:
        bars = Path(corners, np.tile([Path.MOVETO, Path.LINETO], len(chosen)))
        axes.add_patch(PathPatch(bars, edgecolor=ORANGE, linewidth=1.6, capstyle="butt", fill=False))
    axes.axhline(1, color=INK, linewidth=1.0)
    axes.set_xlim(-2, len(chosen) + 1)
    axes.set_xticks([])
    axes.set_ylabel("true error of top-k,\ntimes the unchanged one")
    axes.set_title("\n".join(_title(of)), fontsize=8.5)
    grid(axes)


def _title(of: Demonstration) -> Iterator[str]:
    yield f"{NOUNS.get(of.change, of.change)}; score {of.score}, {of.prompts} prompts"
    yield f"alike to top-k in {of.identical:,} of {of.compared:,} (prompt, layer); its error:"
    numbers = (of.median_rise, of.largest_rise, of.median_mean_rise)
    if all(number is not None for number in numbers):
        median, most, mean = (digits(number, "number") for number in numbers if number is not None)
        yield f"largest of {of.changed} worlds {median}-fold (median cell), at most {most}-fold;"
        yield f"mean of {of.changed} worlds {mean}-fold (median cell)"


def _by_world(axes: Axes, of: Demonstration) -> None:
    at = [row.world for row in of.worlds]
    axes.plot(
        at, [row.certificate for row in of.worlds], color=NAVY, marker="o", label="Poisson: mean certificate"
    )
    axes.plot(at, [row.hajek for row in of.worlds], color=INK, marker="D", label="Poisson: mean true error")
    axes.plot(at, [row.topk for row in of.worlds], color=ORANGE, marker="s", label="top-k: mean true error")
    axes.set_xticks(at)
    axes.set_ylabel("relative error")
    covered = [row.coverage.value for row in of.worlds if row.coverage.value is not None]
    if covered:
        low, high = f"{100 * min(covered):.1f}", f"{100 * max(covered):.1f}"
        words = f"Poisson, score {of.score}, same keep set:\ncovered {low} to {high} % of cells by world"
        axes.set_title(words, fontsize=8.5)
    grid(axes)
