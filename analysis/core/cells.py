"""The attention cells and worlds of a study, moved from the logs into columns aligned with the grid."""

import sys
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

import numpy as np
import pandas as pd

from analysis.core.agreement import (
    Prompt,
    Settings,
    cell_contradiction,
    cell_disagreement,
    settings,
    world_contradiction,
)
from analysis.core.estimates import Bools, Integers
from analysis.core.grid import Prompts, prompt_of
from analysis.core.lines import Lines
from analysis.core.shard import CELLS, Log, Shard
from kvexp.records import Attempt, Cell, Failed, World

NUMBERS = (
    "evictable",
    "expected_kept",
    "kept",
    "tail_kept",
    "uniform_kept",
    "norm",
    "estimate_norm",
    "hajek",
    "no_offset",
    "topk",
    "uniform",
    "variance",
    "largest",
    "certificate",
    "covered",
    "rare_attention",
)
PLACE = ("budget", "seed", "offset")  # of a world; the same in all worlds of a prompt
BY_HEAD = ("topk", "hajek", "certificate", "covered")
SAID_TWICE = ("norm", "estimate_norm", *BY_HEAD)  # of a world and of the cells that it shows
_numbers_of = attrgetter(*NUMBERS)


class CellLog(Log[Cell | World]):
    """The cells and worlds of one shard as columns; 100,000 records would not fit as cheaply.

    Attributes:
        cells: row in the table of each cell.
        numbers: NUMBERS of each cell, one cell after another.
        scores: score of each cell.
        worlds: the worlds, each with the row in the table at which its heads begin.
    """

    name = CELLS
    nouns = "cells and worlds"
    lines = Lines[Cell | World | Failed](Cell | World | Failed)

    def __init__(self, prompts: Prompts) -> None:
        super().__init__()
        self._prompts = prompts
        self._settings: dict[int, Settings | None] = {}
        self._seen: set[tuple[type, int]] = set()
        self.cells, self.numbers = array("q"), array("d")
        self.scores: list[str] = []
        self.worlds: list[tuple[int, World]] = []

    def take(self, line: int, row: Cell | World, attempt: Attempt) -> Iterator[str]:
        expected = self._prompts.of(row)
        at = None
        if expected is not None:
            at = self._prompts.cell_at(row) if isinstance(row, Cell) else self._prompts.world_at(row)
        if expected is None or at is None:
            yield f"{_describe(row)} is not in the grid of this shard"
        elif (type(row), at) in self._seen:
            yield f"{_describe(row)} was measured before"
        elif isinstance(row, Cell):
            self._seen.add((Cell, at))
            if words := self._contradiction(row, expected.heads, attempt):
                yield f"{_describe(row)}: {words}"
            self._take_cell(line, row, at)
        else:
            self._seen.add((World, at))
            if words := self._contradiction(row, expected.heads, attempt):
                yield f"{_describe(row)}: {words}"
            else:
                self.worlds.append((at, row))

    def forget(self) -> None:
        super().forget()
        del self.cells[:], self.numbers[:], self.scores[:], self.worlds[:]

    def _contradiction(self, row: Cell | World, heads: int, attempt: Attempt) -> str:
        if attempt.number not in self._settings:
            self._settings[attempt.number] = settings(attempt)
        found = self._settings[attempt.number]
        if found is None:  # which is named with the attempt
            return ""
        if isinstance(row, Cell):
            return cell_contradiction(row, found)
        return world_contradiction(row, heads, found)

    def _take_cell(self, line: int, cell: Cell, at: int) -> None:
        self.cells.append(at)
        self.numbers.extend(_numbers_of(cell))
        self.scores.append(sys.intern(cell.score))
        words = f"cells of task {cell.task} carry different scores"
        self.stated.setdefault((words, f"{cell.suite} {cell.task}", cell.score), line)
        words = "cells of one prompt had different numbers of tokens to evict from"
        self.stated.setdefault((words, " ".join(prompt_of(cell)), str(cell.evictable)), line)


@dataclass
class Planned:
    """What the grid says about one shard of an attention suite."""

    questions: set[tuple[str, str]] = field(default_factory=set)  # (model, task), one of them
    prompts: set[Prompt] = field(default_factory=set)

    def disagreement(self, attempt: Attempt) -> str:
        """How an attempt means something else."""
        return cell_disagreement(attempt, self.prompts)


class Measurements:
    """Columns aligned with the expected cells and worlds, filled shard by shard."""

    def __init__(self, prompts: Prompts) -> None:
        self._prompts = prompts
        self._planned: dict[tuple[str, str], Planned] = {}
        for one in prompts:
            planned = self._planned.setdefault((one.suite, one.shard_id), Planned())
            planned.questions.add((one.model, one.task))
            planned.prompts.add(Prompt.of(one))
        self._cells = {name: np.full(prompts.n_cells, np.nan) for name in NUMBERS}
        self._cell_score = _Names(prompts.n_cells)
        self._worlds = {name: np.full(prompts.n_worlds, np.nan) for name in PLACE + BY_HEAD}
        self._world_score = _Names(prompts.n_worlds)
        self._statistics = np.full(prompts.n_worlds, None, object)

    @property
    def suites(self) -> set[str]:
        """The attention suites of the grid."""
        return {suite for suite, _ in self._planned}

    def planned(self, suite: str, shard_id: str) -> Planned:
        """What the grid says about a shard; empty if it does not know it."""
        return self._planned.get((suite, shard_id), Planned())

    def log(self) -> CellLog:
        """An empty log, to read a shard into."""
        return CellLog(self._prompts)

    def fill(self, shard: Shard, log: CellLog) -> None:
        """Move the rows of a closed shard into the columns."""
        if not shard.is_closed:
            return
        at = np.array(log.cells, np.int64)
        numbers = np.array(log.numbers, np.float64).reshape(len(at), len(NUMBERS))
        for name, column in zip(NUMBERS, numbers.T, strict=True):
            self._cells[name][at] = column
        self._cell_score.set(at, log.scores)
        for first, world in log.worlds:
            heads = slice(first, first + len(world.topk))
            for name in PLACE + BY_HEAD:
                self._worlds[name][heads] = getattr(world, name)
            if words := self._differs_from_cells(world):
                shard.problems.append(f"{shard.path / CELLS}: {_describe(world)}: {words}")
            self._statistics[heads] = world.statistics
            self._world_score.set(heads, [world.score])

    def _differs_from_cells(self, world: World) -> str:
        """World 0 of the permutation is the world as it is: its numbers stand in the cells, too."""
        first = self._prompts.cells_of(world)
        if world.world or world.change != "permutation" or first is None:
            return ""
        heads = slice(first, first + len(world.topk))
        if np.isnan(self._cells["norm"][heads]).any():  # missing, which is no contradiction
            return ""
        same = (np.array_equal(self._cells[name][heads], getattr(world, name)) for name in SAID_TWICE)
        return "" if all(same) else "its numbers are not those of the cells that it shows unchanged"

    def cells(self) -> pd.DataFrame:
        """The expected cells with what was found (see `Study.cells`)."""
        score = self._cell_score
        return self._prompts.cells().assign(present=score.known, score=score.column(), **self._cells)

    def worlds(self) -> pd.DataFrame:
        """The expected worlds with what was found (see `Study.worlds`)."""
        score, found = self._world_score, self._worlds
        return self._prompts.worlds().assign(
            present=score.known,
            **{name: found[name] for name in PLACE},
            score=score.column(),
            statistics=pd.Series(self._statistics, dtype=object),
            **{name: found[name] for name in BY_HEAD},
        )


class _Names:
    """A column of few different names, none yet."""

    def __init__(self, size: int) -> None:
        self._codes = np.full(size, -1, np.int64)
        self._code_of: dict[str, int] = {}

    def set(self, at: Integers | slice, names: Sequence[str]) -> None:
        """Write names to rows."""
        code_of = self._code_of
        self._codes[at] = [code_of.setdefault(name, len(code_of)) for name in names]

    @property
    def known(self) -> Bools:
        """Which rows have one."""
        return self._codes >= 0

    def column(self) -> pd.Categorical:
        """As a column with sorted categories."""
        names = np.array([*self._code_of, None], object)  # the last for code -1
        return pd.Categorical(names[self._codes], sorted(self._code_of))


def _describe(row: Cell | World) -> str:
    """A key in the order people say it."""
    if isinstance(row, Cell):
        place = (
            f"budget {row.budget}, seed {row.seed}, offset {row.offset}, layer {row.layer}, head {row.head}"
        )
    else:
        place = f"{row.change}, world {row.world}, layer {row.layer}"
    return f"{' '.join(prompt_of(row))}, {place}"
