"""The grid: every generation and every attention cell that a complete study contains."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.load import files
from analysis.load.lines import LineError, Lines
from analysis.load.problems import Problem
from analysis.load.prompts import MAX_CELLS, prompt_of, size
from analysis.load.under import Under, differs, grid_digests
from analysis.statistics.base import Integers
from kvexp.errors import KvexpError
from kvexp.records import Expected, ExpectedCells, Key

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
