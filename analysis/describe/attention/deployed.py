"""The certificate of a whole generation, as a server would compute it, at other head strides and steps.

One number per (prompt, budget, seed): the mean over layers and every stride-th head of the certificate at
a step, and the largest of the first steps. It is compared with the mean error over all layers, heads and
steps, across prompts.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.core.data import CellData
from analysis.core.estimates import Estimate

STRIDES = (1, 2, 4, 8)
MAX_STEPS = 12
PLACE = ["task", "example_id", "budget", "seed"]


@dataclass(frozen=True)
class Deployed:
    """One way to compute a generation's certificate.

    Attributes:
        budget: share of the cached tokens that is kept.
        stride: heads 0, stride, 2 * stride, ... of every layer are read.
        steps: how many first steps the largest is taken of; None: the suite's queries are not consecutive
            steps, so the mean over all of them is taken.
        queries: queries of a prompt that the suite has.
        certificate: its mean over prompts and seeds.
        spearman: with the mean error, over prompts and seeds.
    """

    budget: float
    stride: int
    steps: int | None
    queries: int
    certificate: float
    spearman: Estimate


def deployed(rows: pd.DataFrame, data_of: Callable[[pd.DataFrame], CellData]) -> Iterator[Deployed]:
    """One row per budget, stride and number of steps, sorted.

    Args:
        rows: cells of one suite and model.
        data_of: makes estimates possible on a frame of one row per (prompt, budget, seed).
    """
    found = list(_unsorted(rows, data_of))
    yield from sorted(found, key=lambda one: (one.budget, one.stride, one.steps or 0))


def _unsorted(rows: pd.DataFrame, data_of: Callable[[pd.DataFrame], CellData]) -> Iterator[Deployed]:
    target = _by_query(rows, "hajek").mean(axis=1).rename("target")
    for stride in STRIDES:
        by_query = _by_query(rows[rows["head"] % stride == 0], "certificate")
        for steps, values in _reduced(by_query):
            generations = pd.concat([values.rename("certificate"), target], axis=1).reset_index()
            data = data_of(generations)
            for budget, here in data.by_budget().items():
                yield Deployed(
                    float(budget),
                    stride,
                    steps,
                    by_query.shape[1],
                    certificate=float(here["certificate"].mean()),
                    spearman=data.estimate(data.spearman(here, "certificate", "target")),
                )


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
