"""The impossibility demonstration: what top-k can compute online does not move while its true error does."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path

from analysis.core.data import CellData
from analysis.core.estimates import Floats
from analysis.describe import drawing
from analysis.describe.attention.cell_suite import COVERED_MEANS, CellSuite, Covered, Found
from analysis.describe.drawing import INK, NAVY, ORANGE
from analysis.describe.parts import Picture, Words
from analysis.describe.table import ERROR, Column, Table, column, columns_of, digits, percent, rows_of

ORDER = 5
BRIEF = (
    *("change", "score", "prompts", "identical", "compared"),
    *("median_span", "median_rise", "largest_rise", "median_mean_rise"),
)
PROMPT = ["task", "example_id"]
CHANGE = "what was done to the values of top-k's evicted tokens: permutation or rotation"
OVER = "over the changed worlds over its error in the unchanged one: median over cells"
MEANINGS = {
    "world": "number of the world; 0: the unchanged one",
    "hajek": "mean error under Poisson eviction, its keep set held fixed",
    "exceeds": "whether the mean certificate exceeds that mean error",
    "changed": "worlds with changed values, the unchanged one not counted",
    "identical": "(prompt, layer) whose online statistics of top-k are the same bytes in all worlds",
    "smallest": "smallest error of top-k of any cell in any changed world",
    "span": "largest over smallest error of one cell over the changed worlds: median over cells",
    "rise": f"largest error of a cell {OVER}",
    "mean_rise": f"mean error of a cell {OVER}",
    "over": "the same: largest over cells",
}
Exceeds = Annotated[bool, column("certificate_exceeds", "above", MEANINGS["exceeds"], "true or false")]
Ratio = float | None


@dataclass(frozen=True)
class WorldRow:
    """One world; 0 is the unchanged one. Means are over prompts, layers and heads."""

    world: Annotated[int, column("world", "", MEANINGS["world"], "number")]
    coverage: Covered  # of Poisson with its keep set held fixed
    certificate: Annotated[float, column("certificate", "", "mean certificate over cells", ERROR, "number")]
    hajek: Annotated[float, column("hajek", "error", MEANINGS["hajek"], ERROR, "number")]
    topk: Annotated[float, column("topk", "top-k error", "mean error under top-k eviction", ERROR, "number")]

    @property
    def exceeds(self) -> Exceeds:
        """Whether the mean certificate exceeds the mean error."""
        return self.certificate > self.hajek


def _ratio(key: str, words: str, meaning: str) -> Column:
    return column(key, words, MEANINGS[meaning], "ratio", "number")


@dataclass(frozen=True)
class Demonstration:
    """One kind of change of the evicted values; from `cells` on it is about the changed worlds only.

    A quotient that does not exist, of an error of 0 or next to it, is left out; a number is None where no
    cell has one.
    """

    change: Annotated[str, column("change", "", CHANGE, "name")]
    score: Annotated[str, column("score")]  # of both top-k and Poisson; the rotation's reads value norms
    budget: Annotated[float | None, column("budget", form="budget")]  # None if prompts differ
    prompts: Annotated[int, column("prompts", "", "prompts whose values were changed", "count")]
    changed: Annotated[int, column("changed_worlds", "changed worlds", MEANINGS["changed"], "count")]
    identical: Annotated[
        int, column("identical", "(prompt, layer) identical", MEANINGS["identical"], "count")
    ]
    compared: Annotated[int, column("compared", "of", "(prompt, layer) that were compared", "count")]
    cells: Annotated[int, column("cells", "", "(prompt, layer, head)", "count")]
    smallest: Annotated[float, column("smallest", "smallest error", MEANINGS["smallest"], ERROR, "number")]
    largest: Annotated[float, column("largest", "largest error", "largest, likewise", ERROR, "number")]
    median_span: Annotated[Ratio, _ratio("median_span", "span, median cell", "span")]
    largest_span: Annotated[Ratio, _ratio("largest_span", "span, largest", "over")]
    without_span: Annotated[
        int, column("without_span", "cells without span", "cells without such a quotient", "count")
    ]
    median_rise: Annotated[Ratio, _ratio("median_rise", "rise, largest of the worlds, median cell", "rise")]
    largest_rise: Annotated[Ratio, _ratio("largest_rise", "rise, largest of the worlds, largest", "over")]
    median_mean_rise: Annotated[
        Ratio, _ratio("median_mean_rise", "rise, mean of the worlds, median cell", "mean_rise")
    ]
    worlds: tuple[WorldRow, ...]


def describe(suite: CellSuite) -> Iterator[Found]:
    """A line for each change and for each world; nothing of a suite that has numbers and no worlds."""
    found = tuple(demonstrations(suite.data(suite.worlds))) if len(suite.worlds) else ()
    title = "What top-k cannot see"
    if found or suite.undefined:
        tables = (_table(suite, title, found), _worlds_table(suite, found))
        drawn = suite.picture(
            "worlds", title, lambda: _words(found), lambda: worlds_figure(suite.worlds, found)
        )
        yield Found("demonstrations", found, tables, (drawn,))
    else:
        yield Found("demonstrations", (), (), (Picture(f"{suite.name}.worlds", title, "", None),))


def _table(suite: CellSuite, title: str, found: Sequence[Demonstration]) -> Table:
    remarks = (
        "In each changed world the values of top-k's evicted tokens are others; no key or kept value is.",
        "identical: everything that top-k can compute online is the same bytes in all worlds.",
        "Errors are top-k's; span: largest over smallest of one cell over the changed worlds.",
        "rise: largest, or mean, of one cell over the changed worlds, as a multiple of its error in world 0.",
        "Changes with different scores have different keep sets: do not compare their numbers.",
    )
    columns, rows = columns_of(Demonstration), rows_of(Demonstration, found)
    made = suite.table("demonstration", title, columns, rows, remarks, of_worlds=True, is_tall=True)
    return made.briefly(made.only(BRIEF, remarks[1:4])) if found else made


def _worlds_table(suite: CellSuite, found: Sequence[Demonstration]) -> Table:
    keys = ("world", "coverage", "certificate", "hajek", "certificate_exceeds", "topk")
    rows = [(of.change, of.score, *row) for of in found for row in rows_of(WorldRow, of.worlds, keys)]
    remarks = (
        "World 0 is the unchanged one; Poisson's keep set is the same in all worlds of one change.",
        "certificate, error, top-k error: means over cells; above: the certificate exceeds Poisson's error.",
        *(f"{of.change}: {of.prompts} of the suite's {suite.prompts} prompts." for of in found),
        COVERED_MEANS,
    )
    title, heads = "Certificate and true error in each world", columns_of(Demonstration, ("change", "score"))
    return suite.table("worlds", title, (*heads, *columns_of(WorldRow, keys)), rows, remarks, of_worlds=True)


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


def _words(found: Sequence[Demonstration]) -> Words:
    same, above = list[str](), list[str]()
    for of in found:
        rise = "an undefined multiple of"
        if of.median_rise is not None:
            rise = f"{digits(of.median_rise, 'number')} times"
        same.append(f"{rise} the unchanged one ({of.change}, {of.identical:,} of {of.compared:,} the same)")
        above.append(f"{sum(row.exceeds for row in of.worlds)} of {len(of.worlds)} worlds ({of.change})")
    return (
        "Values of evicted tokens are changed and all that top-k can compute stays the same bytes, (prompt, "
        f"layer) by (prompt, layer), while its largest error is in the median cell {', '.join(same)}.",
        f"Poisson's mean certificate exceeds its mean error in {', '.join(above)}.",
    )


# The impossibility demonstration: what moves in worlds that look the same to top-k.


BARS = 120  # cells shown at most; more would run into each other
FLOOR = 1e-9  # stands for an error of 0, which a log axis has no place for; its inverse for the far end
NOUNS = {"permutation": "values permuted", "rotation": "values rotated"}


def worlds_figure(worlds: pd.DataFrame, found: Sequence[Demonstration]) -> Figure:
    """A row for each change: the range of top-k's error by cell, and certificate and error by world."""
    drawn = drawing.figure(0.7 + 2.6 * len(found))
    panels = drawn.subplots(len(found), 2, sharey="col", squeeze=False, width_ratios=(1.2, 1))
    step = max(1, -(-max(of.cells for of in found) // BARS))
    for (left, right), of in zip(panels, found, strict=True):
        _ranges(left, worlds[worlds["change"] == of.change], of, step)
        _by_world(right, of)
    ends = np.array([left.dataLim.intervaly for left in panels[:, 0]])
    low, high = float(ends.min()) / 1.2, float(ends.max()) * 1.2
    panels[0, 0].set_ylim(low, high)
    drawing.plain_log(panels[0, 0].yaxis, low, high)
    panels[0, 1].set_ylim(bottom=0)
    which = "all cells" if step == 1 else f"one in {step} cells"
    panels[-1, 0].set_xlabel(
        f"{which} (prompt, layer, head), sorted, the\nhighest included; bar: range over the changed worlds"
    )
    panels[-1, 1].set_xlabel("world; 0 is the unchanged one")
    handles, words = panels[0, 1].get_legend_handles_labels()
    drawn.legend(handles, words, loc="outside upper left", ncols=3)
    return drawn


def _ranges(axes: Axes, worlds: pd.DataFrame, of: Demonstration, step: int) -> None:
    """Bars from the smallest to the largest error of a cell over the changed worlds, 1 being unchanged."""
    rows = ranges(worlds)
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
    drawing.grid(axes)


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
        at,
        [row.certificate for row in of.worlds],
        color=NAVY,
        marker="o",
        label="Poisson: mean certificate",
    )
    axes.plot(at, [row.hajek for row in of.worlds], color=INK, marker="D", label="Poisson: mean true error")
    axes.plot(at, [row.topk for row in of.worlds], color=ORANGE, marker="s", label="top-k: mean true error")
    axes.set_xticks(at)
    axes.set_ylabel("relative error")
    covered = [row.coverage.value for row in of.worlds if row.coverage.value is not None]
    if covered:
        low, high = percent(min(covered), 1).removesuffix(" %"), percent(max(covered), 1)
        words = f"Poisson, score {of.score}, same keep set:\ncovered {low} to {high} of cells by world"
        axes.set_title(words, fontsize=8.5)
    drawing.grid(axes)
