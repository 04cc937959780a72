"""The impossibility demonstration: what top-k can compute online does not move while its true error does."""

from collections.abc import Iterator
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
    def is_warned(self) -> bool:
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
        cells: (prompt, layer, head); those below are over the changed worlds only.
        smallest: top-k error of any cell in any world.
        largest: likewise.
        median_ratio: over cells of largest / smallest error; None where no cell has one.
        largest_ratio: likewise.
        without_ratio: cells whose smallest error is 0.
        median_rise: over cells of largest error / error in the unchanged world; None where no cell has one.
        largest_rise: likewise.
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
    median_ratio: float | None
    largest_ratio: float | None
    without_ratio: int
    median_rise: float | None
    largest_rise: float | None
    worlds: tuple[WorldRow, ...]


def demonstrations(data: CellData) -> Iterator[Demonstration]:
    """One for each change."""
    for change, rows in data.rows.groupby("change", observed=True, sort=True):
        same = rows.groupby([*PROMPT, "layer"], observed=True)["statistics"].nunique(dropna=False) == 1
        found = ranges(rows)
        low, high, unchanged = found.to_numpy(np.float64).T
        ratios, rises = _over(high, low), _over(high, unchanged)
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
            median_ratio=float(np.median(ratios)) if len(ratios) else None,
            largest_ratio=float(ratios.max()) if len(ratios) else None,
            without_ratio=int((low == 0).sum()),
            median_rise=float(np.median(rises)) if len(rises) else None,
            largest_rise=float(rises.max()) if len(rises) else None,
            worlds=tuple(_worlds(data, rows)),
        )


def ranges(rows: pd.DataFrame) -> pd.DataFrame:
    """Top-k error of each cell: `low` and `high`, the ends over the changed worlds, and `unchanged`."""
    changed, world_0 = (
        here.groupby([*PROMPT, "layer", "head"], observed=True, sort=True)["topk"]
        for here in (rows[rows["world"] > 0], rows[rows["world"] == 0])
    )
    found = {"low": changed.min(), "high": changed.max(), "unchanged": world_0.min()}
    return pd.DataFrame(found).reset_index(drop=True)


def _over(high: Floats, low: Floats) -> Floats:
    """Quotients where there is one."""
    return high[low > 0] / low[low > 0]


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
