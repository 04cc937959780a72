"""The grid: every generation and every attention cell that a complete study contains, each with its row."""

import hashlib
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
from analysis.core.problems import Problem
from analysis.core.seals import Seal
from kvexp import files
from kvexp.errors import KvexpError
from kvexp.records import CHANGES, Cell, Expected, ExpectedCells, Generation, Key, World

NAMES = ("suite", "shard_id", "model", "task", "example_id", "arm", "condition")
NUMBERS = ("budget", "seed")
PROMPT_NAMES = NAMES[:5]
CELL_AXES = ("budget", "seed", "offset", "layer", "head")
WORLD_AXES = ("change", "world", "layer", "head")
KINDS: list[str] = sorted(CHANGES)
FULL = "full"  # the arm that keeps the whole cache; it alone has no place in the grid of budgets
MAX_CELLS = 5_000_000  # a short line of a grid can ask for any number; these take about 1 GB
SHOWN = 5
_read = Lines[Expected | ExpectedCells](Expected | ExpectedCells)
# The key as a plain tuple: 98,000 of them are made, and they equal and hash like records.Key.
key_of = attrgetter(*Key._fields)
# Prompts are told apart by these, as their cells and worlds are.
prompt_of = attrgetter("suite", "model", "task", "example_id")


class ResultsError(KvexpError):
    """A folder that is not a results folder."""


def described(row: Expected | ExpectedCells | Generation | Cell | World) -> str:
    """The key of a row in the order people say it."""
    if isinstance(row, World):
        axes = [row.change, f"world {row.world}", f"layer {row.layer}"]
    else:
        names = CELL_AXES if isinstance(row, Cell) else ("condition", *NUMBERS)
        known = {name: getattr(row, name, None) for name in names}
        axes = [f"{name} {value}" for name, value in known.items() if value is not None]
    arm = [row.arm] if isinstance(row, Expected | Generation) else []
    return ", ".join([" ".join([*prompt_of(row), *arm]), *axes])


# The prompts of attention suites, spread out into the cells and worlds that are expected of them.


class Combinations:
    """The rows of one prompt in a table: all combinations of some axes, the last axis fastest.

    The row of a combination follows from the places of its values, so that no table of keys is kept.
    """

    def __init__(self, first: int, axes: Sequence[Sequence[float]]) -> None:
        """`first`: the row of the first combination."""
        self._first = first
        self._axes = [{value: at for at, value in enumerate(axis)} for axis in axes]

    def at(self, *values: float) -> int | None:
        """The row of a combination; None if it is not expected."""
        row = 0
        for axis, value in zip(self._axes, values, strict=True):
            place = axis.get(value)
            if place is None:
                return None
            row = row * len(axis) + place
        return self._first + row


class Prompts:
    """All prompts of a study, in the order of their keys.

    Attributes:
        n_cells: cells that are expected of them.
        n_worlds: heads of layers of worlds that are expected of them.
    """

    def __init__(self, prompts: Iterable[ExpectedCells]) -> None:
        """Number the cells and worlds; no prompt and no value of an axis stands twice."""
        self._prompts = sorted(prompts, key=prompt_of)
        self._blocks: dict[tuple[str, ...], tuple[ExpectedCells, Combinations, Combinations]] = {}
        self.n_cells = self.n_worlds = 0
        for one in self._prompts:
            cells, worlds = _cell_axes(one), _world_axes(one)
            self._blocks[prompt_of(one)] = (
                one,
                Combinations(self.n_cells, cells),
                Combinations(self.n_worlds, worlds),
            )
            self.n_cells += math.prod(map(len, cells))
            self.n_worlds += math.prod(map(len, worlds))

    def __iter__(self) -> Iterator[ExpectedCells]:
        return iter(self._prompts)

    def at(self, row: Cell | World) -> int | None:
        """The row of a cell, or the first of the heads of a world's layer; None if it is not expected."""
        expected, cells, worlds = self._blocks.get(prompt_of(row), (None, None, None))
        if cells is None or worlds is None or expected is None or expected.shard_id != row.shard_id:
            return None
        if isinstance(row, Cell):
            return cells.at(row.budget, row.seed, row.offset, row.layer, row.head)
        return worlds.at(KINDS.index(row.change), row.world, row.layer, 0)

    def heads(self, row: Cell | World) -> int:
        """Heads of the layers of a prompt that is expected."""
        return self._blocks[prompt_of(row)][0].heads

    def cells_of(self, world: World) -> int | None:
        """The row at which the cells of a world's query and layer begin; None if they are not expected."""
        place = (world.budget, world.seed, world.offset, world.layer, 0)
        return self._blocks[prompt_of(world)][1].at(*place)

    def cells(self) -> pd.DataFrame:
        """One row per expected cell, sorted by key: PROMPT_NAMES (categorical, sorted), then CELL_AXES."""
        return self._frame(CELL_AXES, _cell_axes)

    def worlds(self) -> pd.DataFrame:
        """One row per expected world, layer and head: PROMPT_NAMES, change (categorical), WORLD_AXES."""
        frame = self._frame(WORLD_AXES, _world_axes)
        change = pd.Categorical.from_codes(frame["change"].to_numpy(np.int64), pd.Index(KINDS))
        return frame.assign(change=change)

    def _frame(
        self, names: Sequence[str], axes_of: Callable[[ExpectedCells], Sequence[Sequence[float]]]
    ) -> pd.DataFrame:
        grids = [
            np.meshgrid(*(np.array(axis, np.float64) for axis in axes_of(one)), indexing="ij")
            for one in self._prompts
        ]
        sizes = np.array([one[0].size for one in grids], np.int64)
        columns: dict[str, Any] = {}
        for name in PROMPT_NAMES:
            values = pd.Categorical([getattr(one, name) for one in self._prompts])
            columns[name] = pd.Categorical.from_codes(np.repeat(values.codes, sizes), values.categories)
        for at, name in enumerate(names):
            column = np.concatenate([np.empty(0), *(one[at].ravel() for one in grids)])
            columns[name] = column if name == "budget" else column.astype(np.int64)
        return pd.DataFrame(columns)


def _cell_axes(one: ExpectedCells) -> Sequence[Sequence[float]]:
    return sorted(one.budgets), sorted(one.seeds), sorted(one.offsets), range(one.layers), range(one.heads)


def _world_axes(one: ExpectedCells) -> Sequence[Sequence[float]]:
    worlds = range(one.worlds + 1) if one.worlds else range(0)
    return range(len(KINDS)), worlds, range(one.layers), range(one.heads)


# The file, and what is wrong with it.


@dataclass(frozen=True)
class Grid:
    """What a complete study contains; nothing if the file cannot be relied on."""

    # One row per expected generation, sorted by key, so that no order of files or lines shows. Columns:
    # suite, shard_id, model, task, example_id, arm, condition (categorical, sorted; condition is missing for
    # the full cache), budget, seed (float64, NaN where they do not apply), full_at (row of the full cache's
    # answer to the same example, -1 where the grid has none).
    table: pd.DataFrame
    prompts: list[ExpectedCells] = field(default_factory=list)  # the prompts of the attention suites
    problems: list[Problem] = field(default_factory=list)  # what is wrong with it


def read_grid(path: Path, sealed: Mapping[str, Seal] | None = None) -> Grid:
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
        lines = list(_read(data, path))
    except LineError as error:
        return Grid(_table([]), problems=[Problem(str(error))])
    if misplaced := [Problem(f"{path}:{line}: {words}") for line, words in _misplaced(lines)]:
        return Grid(_table([]), problems=misplaced[:SHOWN])
    rows = [line for line in lines if isinstance(line, Expected)]
    # A prompt that stands twice would have its cells twice; the problem is named.
    prompts = {prompt_of(line): line for line in lines if isinstance(line, ExpectedCells)}
    problems = [Problem(f"{path}: {words}") for words in _repeated(lines)]
    if not lines:
        problems = [Problem(f"{path}: the grid is empty")]
    problems += _not_as_sealed(path, data, lines, sealed or {})
    return Grid(_table(rows), list(prompts.values()), problems)


def _misplaced(lines: list[Expected | ExpectedCells]) -> Iterator[tuple[int, str]]:
    """Lines without the place that they need, or with one that they cannot have."""
    kinds: dict[str, type] = {}
    cells = 0
    for number, line in enumerate(lines, start=1):
        if kinds.setdefault(line.suite, type(line)) is not type(line):
            yield number, f"suite {line.suite} has both generations and attention cells"
        elif isinstance(line, ExpectedCells):
            cells += sum(math.prod(map(len, axes)) for axes in (_cell_axes(line), _world_axes(line)))
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


def _repeated(lines: list[Expected | ExpectedCells]) -> Iterator[str]:
    counts = Counter(map(_key, lines))
    if len(counts) < len(lines):
        for key, one in {_key(one): one for one in lines}.items():
            if counts[key] > 1:
                yield f"{described(one)} is expected {counts[key]} times"


def _key(line: Expected | ExpectedCells) -> tuple[Any, ...]:
    key: tuple[Any, ...] = key_of(line) if isinstance(line, Expected) else prompt_of(line)
    return key


def _not_as_sealed(
    path: Path, data: bytes, lines: list[Expected | ExpectedCells], sealed: Mapping[str, Seal]
) -> Iterator[Problem]:
    """Suites whose shards are not the sealed ones, by the bytes of their lines, line breaks included."""
    found: dict[str, dict[str, hashlib._Hash]] = {}
    for line, row in zip(data.split(b"\n"), lines, strict=False):
        if row.suite in sealed:
            shards = found.setdefault(row.suite, {})
            shards.setdefault(row.shard_id, hashlib.sha256()).update(line + b"\n")
    for suite, shards in sorted(found.items()):
        digests = {name: digest.hexdigest() for name, digest in shards.items()}
        wanted = {name: one.grid_sha256 for name, one in sealed[suite].shards(suite).items()}
        if words := "; ".join(_differs(digests, wanted)):
            name = sealed[suite].name
            yield Problem(f"{path}: suite {suite} is not as seal {name} has it: it {words}", suite)


def _differs(found: Mapping[str, str], sealed: Mapping[str, str]) -> Iterator[str]:
    both = found.keys() & sealed.keys()
    for words, shards in (
        ("lacks the shard", sealed.keys() - found.keys()),
        ("has the shard", found.keys() - sealed.keys()),
        ("has other rows in the shard", {one for one in both if found[one] != sealed[one]}),
    ):
        if shards:
            rest = f" and {len(shards) - 1} more" if len(shards) > 1 else ""
            yield f"{words} {min(shards)}{rest}"


def _table(rows: list[Expected]) -> pd.DataFrame:
    names = {name: [getattr(row, name) for row in rows] for name in NAMES}
    table = pd.DataFrame(
        {name: pd.Categorical(each, sorted({*each} - {None})) for name, each in names.items()}
        | {name: np.array([getattr(row, name) for row in rows], np.float64) for name in NUMBERS}
    )
    order = ("seed", "budget", "condition", "arm", "example_id", "task", "model", "shard_id", "suite")
    keys = [_codes(table, name) if name in NAMES else table[name].fillna(-1) for name in order]
    table = table.iloc[np.lexsort(keys)].reset_index(drop=True)
    return table.assign(full_at=_full_at(table))


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
