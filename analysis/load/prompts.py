"""The prompts of attention suites, spread out into the cells and worlds that are expected of them.

The row of a cell follows from its prompt and its place among the prompt's budgets, seeds, offsets, layers
and heads, so that no table of keys is kept.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np
import pandas as pd

from kvexp.records import CHANGES, Cell, ExpectedCells, World

NAMES = ("suite", "shard_id", "model", "task", "example_id")
CELL_AXES = ("budget", "seed", "offset", "layer", "head")
WORLD_AXES = ("change", "world", "layer", "head")
KINDS: list[str] = sorted(CHANGES)
MAX_CELLS = 5_000_000  # a short line of a grid can ask for any number; these take about 1 GB
Axes = Sequence[Sequence[float]]
# Prompts are told apart by these, as their cells and worlds are.
prompt_of = attrgetter("suite", "model", "task", "example_id")


@dataclass(frozen=True)
class _Place:
    """Where the cells and worlds of one prompt begin, and the places of its axes."""

    expected: ExpectedCells
    first_cell: int
    first_world: int
    budgets: dict[float, int]
    seeds: dict[float, int]
    offsets: dict[float, int]


class Prompts:
    """All prompts of a study, in the order of their keys.

    Attributes:
        n_cells: cells that are expected of them.
        n_worlds: heads of layers of worlds that are expected of them.
    """

    def __init__(self, prompts: Iterable[ExpectedCells]) -> None:
        """Number the cells and worlds; no prompt and no value of an axis stands twice."""
        self._prompts = sorted(prompts, key=prompt_of)
        self._places: dict[tuple[str, ...], _Place] = {}
        self.n_cells = self.n_worlds = 0
        for one in self._prompts:
            at = [{value: at for at, value in enumerate(axis)} for axis in _cell_axes(one)[:3]]
            self._places[prompt_of(one)] = _Place(one, self.n_cells, self.n_worlds, *at)
            self.n_cells += _size(_cell_axes(one))
            self.n_worlds += _size(_world_axes(one))

    def __iter__(self) -> Iterator[ExpectedCells]:
        return iter(self._prompts)

    def of(self, row: Cell | World) -> ExpectedCells | None:
        """What is expected of the prompt of a row; None if its shard has no such prompt."""
        place = self._places.get(prompt_of(row))
        return place.expected if place is not None and place.expected.shard_id == row.shard_id else None

    def cell_at(self, cell: Cell) -> int | None:
        """The row of a cell of a prompt that is expected; None if the cell is not."""
        place = self._places[prompt_of(cell)]
        layers, heads = place.expected.layers, place.expected.heads
        budget, seed = place.budgets.get(cell.budget), place.seeds.get(cell.seed)
        offset = place.offsets.get(cell.offset)
        if budget is None or seed is None or offset is None or cell.layer >= layers or cell.head >= heads:
            return None
        query = (budget * len(place.seeds) + seed) * len(place.offsets) + offset
        return place.first_cell + (query * layers + cell.layer) * heads + cell.head

    def cells_of(self, world: World) -> int | None:
        """The row at which the cells of a world's query and layer begin; None if they are not expected."""
        place = self._places[prompt_of(world)]
        budget, seed = place.budgets.get(world.budget), place.seeds.get(world.seed)
        offset = place.offsets.get(world.offset)
        if budget is None or seed is None or offset is None:
            return None
        query = (budget * len(place.seeds) + seed) * len(place.offsets) + offset
        return place.first_cell + (query * place.expected.layers + world.layer) * place.expected.heads

    def world_at(self, world: World) -> int | None:
        """The row at which the heads of a world's layer begin; None if it is not expected."""
        place = self._places[prompt_of(world)]
        layers, heads, worlds = place.expected.layers, place.expected.heads, place.expected.worlds
        if not worlds or world.world > worlds or world.layer >= layers:
            return None
        at = (KINDS.index(world.change) * (worlds + 1) + world.world) * layers + world.layer
        return place.first_world + at * heads

    def cells(self) -> pd.DataFrame:
        """One row per expected cell, sorted by key: NAMES (categorical, sorted), then CELL_AXES."""
        return self._frame(CELL_AXES, _cell_axes)

    def worlds(self) -> pd.DataFrame:
        """One row per expected world, layer and head, sorted: NAMES and change (categorical), WORLD_AXES."""
        frame = self._frame(WORLD_AXES, _world_axes)
        return frame.assign(
            change=pd.Categorical.from_codes(frame["change"].to_numpy(np.int64), pd.Index(KINDS))
        )

    def _frame(self, names: Sequence[str], axes_of: Callable[[ExpectedCells], Axes]) -> pd.DataFrame:
        axes = list(map(axes_of, self._prompts))
        sizes = np.array(list(map(_size, axes)), np.int64)
        places = [np.meshgrid(*(np.array(axis, np.float64) for axis in one), indexing="ij") for one in axes]
        columns: dict[str, Any] = {}
        for name in NAMES:
            values = pd.Categorical([getattr(one, name) for one in self._prompts])
            columns[name] = pd.Categorical.from_codes(np.repeat(values.codes, sizes), values.categories)
        for at, name in enumerate(names):
            column = np.concatenate([np.empty(0), *(place[at].ravel() for place in places)])
            columns[name] = column if name == "budget" else column.astype(np.int64)
        return pd.DataFrame(columns)


def size(one: ExpectedCells) -> int:
    """Rows that a prompt has in both tables."""
    return _size(_cell_axes(one)) + _size(_world_axes(one))


def _cell_axes(one: ExpectedCells) -> Axes:
    return sorted(one.budgets), sorted(one.seeds), sorted(one.offsets), range(one.layers), range(one.heads)


def _world_axes(one: ExpectedCells) -> Axes:
    worlds = range(one.worlds + 1) if one.worlds else range(0)
    return range(len(KINDS)), worlds, range(one.layers), range(one.heads)


def _size(axes: Axes) -> int:
    return math.prod(map(len, axes))
