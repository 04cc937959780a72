"""The attention cells and worlds of a study, moved from the logs into columns aligned with the grid."""

import sys
from array import array
from collections.abc import Sequence
from operator import attrgetter
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.core.agreement import (
    PlannedPrompt,
    Settings,
    cell_contradiction,
    cell_disagreement,
    settings,
    world_contradiction,
)
from analysis.core.estimates import Bools, Integers
from analysis.core.grid import Prompts, described, prompt_of
from analysis.core.lines import Lines
from analysis.core.shard import CELLS, Columns, PlannedShard, ShardFolder, ShardLog
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


class CellLog(ShardLog[Cell | World]):
    """The cells and worlds of one shard as columns; 100,000 records would not fit as cheaply.

    Attributes:
        cells: row in the table of each cell.
        numbers: NUMBERS of each cell, one cell after another.
        scores: score of each cell.
        worlds: the worlds, each with the row in the table at which its heads begin.
    """

    name = CELLS
    nouns = "cells and worlds"
    done = "measured"
    lines = Lines[Cell | World | Failed](Cell | World | Failed)

    def __init__(self, prompts: Prompts) -> None:
        super().__init__()
        self._prompts = prompts
        self._settings: dict[int, Settings | None] = {}
        self.cells, self.numbers = array("q"), array("d")
        self.scores: list[str] = []
        self.worlds: list[tuple[int, World]] = []

    def at(self, row: Cell | World) -> int | None:
        return self._prompts.at(row)

    def contradiction(self, row: Cell | World, attempt: Attempt) -> str:
        if attempt.number not in self._settings:
            self._settings[attempt.number] = settings(attempt)
        found = self._settings[attempt.number]
        if found is None:  # which is named with the attempt
            return ""
        if isinstance(row, Cell):
            return cell_contradiction(row, found)
        return world_contradiction(row, self._prompts.heads(row), found)

    def keep(self, line: int, row: Cell | World, at: int, *, is_sound: bool) -> None:
        if isinstance(row, World):
            if is_sound:
                self.worlds.append((at, row))
            return
        self.cells.append(at)
        self.numbers.extend(_numbers_of(row))
        self.scores.append(sys.intern(row.score))
        words = f"cells of task {row.task} carry different scores"
        self.stated.setdefault((words, f"{row.suite} {row.task}", row.score), line)
        words = "cells of one prompt had different numbers of tokens to evict from"
        self.stated.setdefault((words, " ".join(prompt_of(row)), str(row.evictable)), line)

    def forget(self) -> None:
        super().forget()
        del self.cells[:], self.numbers[:], self.scores[:], self.worlds[:]


class Measurements(Columns[CellLog]):
    """The attention cells and worlds of a study."""

    def __init__(self, prompts: Prompts) -> None:
        super().__init__()
        self._prompts = prompts
        for one in prompts:
            planned = self._planned.setdefault((one.suite, one.shard_id), PlannedShard())
            planned.questions.add((one.model, one.task))
            planned.rows.add(PlannedPrompt.of(one))
        self._cells = {name: np.full(prompts.n_cells, np.nan) for name in NUMBERS}
        self._cell_score = _Names(prompts.n_cells)
        self._worlds = {name: np.full(prompts.n_worlds, np.nan) for name in PLACE + BY_HEAD}
        self._world_score = _Names(prompts.n_worlds)
        self._statistics = np.full(prompts.n_worlds, None, object)

    def log(self, path: Path) -> CellLog:
        return CellLog(self._prompts)

    def disagreement(self, attempt: Attempt, planned: PlannedShard) -> str:
        return cell_disagreement(attempt, planned.rows)

    def fill(self, shard: ShardFolder, log: CellLog) -> None:
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
                shard.problems.append(f"{shard.path / CELLS}: {described(world)}: {words}")
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
