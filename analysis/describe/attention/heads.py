"""Coverage head by head: a pooled share can hide heads whose certificate is too small time and again."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from analysis.core.data import CellData

LINE = 0.85  # the line of claim A1, here for single heads
LEAST = 12  # heads shown
NUMBERS = ("coverage", "hajek", "certificate")


@dataclass(frozen=True)
class Head:
    """One query head of one layer over all prompts, seeds and queries. Without interval: few cells."""

    layer: int
    head: int
    cells: int
    coverage: float
    hajek: float  # median error of Poisson with the offset
    certificate: float  # median


@dataclass(frozen=True)
class Heads:
    """All heads at one budget.

    Attributes:
        budget: share of the cached tokens that is kept.
        heads: number of (layer, head).
        below_line: of these, covered in less than LINE of their cells.
        below_promise: covered in less than 1 - delta of their cells; None if delta is unknown.
        least: the LEAST with the lowest coverage, lowest first.
        every: one row a head, sorted: layer, head, cells, coverage, hajek, certificate.
    """

    budget: float
    heads: int
    below_line: int
    below_promise: int | None
    least: tuple[Head, ...]
    every: pd.DataFrame = field(repr=False, compare=False)


def by_head(data: CellData, delta: float | None) -> Iterator[Heads]:
    """One for each budget; `delta` is that of the certificate."""
    for budget, rows in data.by_budget().items():
        groups = rows.groupby(["layer", "head"], sort=True)
        every = groups.agg(
            cells=("covered", "size"),
            coverage=("covered", "mean"),
            hajek=("hajek", "median"),
            certificate=("certificate", "median"),
        ).reset_index()
        coverage = every["coverage"].to_numpy(np.float64)
        lowest = every.sort_values(["coverage", "layer", "head"]).head(LEAST)
        yield Heads(
            float(budget),
            len(every),
            below_line=int((coverage < LINE).sum()),
            below_promise=None if delta is None else int((coverage < 1 - delta).sum()),
            least=heads_of(lowest),
            every=every,
        )


def heads_of(rows: pd.DataFrame) -> tuple[Head, ...]:
    """Rows of `Heads.every` as records."""
    places = rows[["layer", "head", "cells"]].to_numpy(np.int64).tolist()
    numbers = rows[list(NUMBERS)].to_numpy(np.float64).tolist()
    return tuple(Head(*place, *values) for place, values in zip(places, numbers, strict=True))
