"""The grid: every generation and every attention cell that a complete study contains."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.core.estimates import Integers
from analysis.core.lines import LineError, Lines
from analysis.core.problems import Problem, Under, differs, grid_digests
from kvexp import files
from kvexp.errors import KvexpError
from kvexp.records import CHANGES, Cell, Expected, ExpectedCells, Key, World

# The prompts of attention suites, spread out into the cells and worlds that are expected of them.
#
# The row of a cell follows from its prompt and its place among the prompt's budgets, seeds, offsets, layers
# and heads, so that no table of keys is kept.


PROMPT_NAMES = ("suite", "shard_id", "model", "task", "example_id")
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
        for name in PROMPT_NAMES:
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


NAMES = ("suite", "shard_id", "model", "task", "example_id", "arm", "condition")
NUMBERS = ("budget", "seed")
FULL = "full"  # the arm that keeps the whole cache; it alone has no place in the grid of budgets
SHOWN = 5
_read = Lines[Expected | ExpectedCells](Expected | ExpectedCells)
# The key as a plain tuple: 98,000 of them are made, and they equal and hash like records.Key.
key_of = attrgetter(*Key._fields)


class ResultsError(KvexpError):
    """A folder that is not a results folder."""


@dataclass(frozen=True)
class Grid:
    """What a complete study contains; nothing if the file cannot be relied on.

    Attributes:
        table: one row per expected generation, sorted by key, so that no order of files or lines shows.
            Columns: suite, shard_id, model, task, example_id, arm, condition (categorical, sorted; condition
            is missing for the full cache), budget, seed (float64, NaN where they do not apply), full_at (row
            of the full cache's answer to the same example, -1 where the grid has none).
        prompts: the prompts of the attention suites.
        problems: what is wrong with it.
    """

    table: pd.DataFrame
    prompts: list[ExpectedCells] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


def read_grid(path: Path, sealed: Mapping[str, Under] | None = None) -> Grid:
    """Read grid.jsonl; the suites that are sealed must be as they were sealed, or not planned yet.

    Raises ResultsError if there is none; whatever else is wrong is a problem.
    """
    try:
        data = files.read(path)
    except FileNotFoundError:
        raise ResultsError(
            f"{path} is not there: give the results folder of a study that `kvexp submit` has planned"
        ) from None
    except OSError as error:
        raise ResultsError(f"{path} cannot be read: {error.strerror}") from None
    try:
        lines = _read(data, path)
    except LineError as error:
        return Grid(_table([]), problems=[Problem(str(error))])
    if misplaced := [Problem(f"{path}:{line}: {words}") for line, words in _misplaced(lines)]:
        return Grid(_table([]), problems=misplaced[:SHOWN])
    rows = [line for line in lines if isinstance(line, Expected)]
    prompts = [line for line in lines if isinstance(line, ExpectedCells)]
    problems = [Problem(f"{path}: {words}") for words in _repeated(rows, prompts)]
    if not lines:
        problems = [Problem(f"{path}: the grid is empty")]
    problems += _not_as_sealed(path, data, lines, sealed or {})
    # A prompt that stands twice would have its cells twice; the problem has been named.
    once = {prompt_of(prompt): prompt for prompt in prompts}
    return Grid(_table(rows), list(once.values()), problems)


def _not_as_sealed(
    path: Path, data: bytes, lines: list[Expected | ExpectedCells], sealed: Mapping[str, Under]
) -> Iterator[Problem]:
    if not sealed:
        return
    for suite, found in sorted(grid_digests(data, lines, sealed).items()):
        under = sealed[suite]
        if words := "; ".join(differs(found, under)):
            yield Problem(f"{path}: suite {suite} is not as seal {under.seal} has it: it {words}", suite)


def _misplaced(lines: list[Expected | ExpectedCells]) -> Iterator[tuple[int, str]]:
    """Lines without the place that they need, or with one that they cannot have."""
    kinds: dict[str, type] = {}
    cells = 0
    for number, line in enumerate(lines, start=1):
        if kinds.setdefault(line.suite, type(line)) is not type(line):
            yield number, f"suite {line.suite} has both generations and attention cells"
        elif isinstance(line, ExpectedCells):
            cells += size(line)
            if words := _no_cells(line):
                yield number, words
            elif cells > MAX_CELLS:
                yield number, f"more than {MAX_CELLS:,} attention cells are expected up to here"
                return
        elif line.arm == FULL and (line.condition, line.budget, line.seed) != (None, None, None):
            yield number, "the full cache has no condition, budget or seed"
        elif line.arm != FULL and None in (line.condition, line.budget):
            yield number, f"arm {line.arm} needs a condition and a budget"


def _no_cells(prompt: ExpectedCells) -> str:
    """Why a prompt has no cells, or some twice; empty if it has each once."""
    for name in ("budgets", "seeds", "offsets"):
        values = getattr(prompt, name)
        if not values:
            return f"no {name}, so that no cell is expected"
        if len(set(values)) < len(values):
            return f"{name} lists a value twice"
    return "" if prompt.layers and prompt.heads else "no layers or heads, so that no cell is expected"


def _repeated(rows: list[Expected], prompts: list[ExpectedCells]) -> Iterator[str]:
    for key, count in Counter(map(key_of, rows)).items():
        if count > 1:
            yield f"{describe(key)} is expected {count} times"
    for prompt, count in Counter(map(prompt_of, prompts)).items():
        if count > 1:
            yield f"{' '.join(prompt)} is expected {count} times"


def describe(key: tuple[Any, ...]) -> str:
    """A key in the order people say it."""
    suite, model, task, example_id, arm, condition, budget, seed = key
    axes = {"condition": condition, "budget": budget, "seed": seed}
    rest = "".join(f", {name} {value}" for name, value in axes.items() if value is not None)
    return f"{suite} {model} {task} {example_id} {arm}{rest}"


def _table(rows: list[Expected]) -> pd.DataFrame:
    table = pd.DataFrame(
        {name: _categories([getattr(row, name) for row in rows]) for name in NAMES}
        | {name: np.array([getattr(row, name) for row in rows], np.float64) for name in NUMBERS}
    )
    order = (
        "seed",
        "budget",
        "condition",
        "arm",
        "example_id",
        "task",
        "model",
        "shard_id",
        "suite",
    )
    keys = [_codes(table, name) if name in NAMES else table[name].fillna(-1) for name in order]
    table = table.iloc[np.lexsort(keys)].reset_index(drop=True)
    return table.assign(full_at=_full_at(table))


def _categories(values: list[str | None]) -> pd.Categorical:
    return pd.Categorical(values, categories=sorted({value for value in values if value is not None}))


def _codes(table: pd.DataFrame, name: str) -> Integers:
    return table[name].cat.codes.to_numpy().astype(np.int64)


def _full_at(table: pd.DataFrame) -> Integers:
    question = np.zeros(len(table), np.int64)
    for name in ("suite", "model", "task", "example_id"):
        question = question * (len(table[name].cat.categories) or 1) + _codes(table, name)
    full = np.flatnonzero((table["arm"] == FULL).to_numpy())
    at = pd.Series(full, index=question[full])
    at = at[~at.index.duplicated()]
    return at.reindex(question, fill_value=-1).to_numpy().astype(np.int64)
