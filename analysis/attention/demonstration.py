"""The impossibility demonstration: what top-k can compute online does not move while its true error does."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.cells import CellData
from analysis.statistics import Estimate
from analysis.statistics.base import Floats

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
