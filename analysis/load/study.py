"""A whole results folder as one table: the grid's rows, filled where a closed shard answered them."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.load.grid import ResultsError, describe, key_of, read_grid
from analysis.load.problems import Problem
from analysis.load.shard import LOG, Shard, is_shard, read_shard
from analysis.statistics.base import Integers
from kvexp.records import Generation, Key

# Copied from the rows as they are; null becomes NaN, "undefined".
COPIED = (
    "score_value",
    "certificate",
    "entropy",
    "evicted_mass",
    "margin",
    "output_logprob",
    "realised_kept",
    "n_evictable",
    "n_generated",
)
DERIVED = ("certificate_first", "certificate_mean")
NOT_SHARDS = ("examples", "locks")
SHOWN_PER_SHARD = 5


@dataclass(frozen=True)
class Study:
    """A results folder, read.

    Attributes:
        name: the folder's name.
        table: the grid's columns (see `read_grid`), `present` (bool), `score_name`, and the columns
            COPIED and DERIVED as float64. Rows that are not present hold NaN.
        absences: why rows of a (suite, shard) are missing, where the shard itself says so.
        problems: contradictions, sorted.
    """

    name: str
    table: pd.DataFrame
    absences: Mapping[tuple[str, str], str]
    problems: tuple[Problem, ...]


def load(folder: Path, owners: Mapping[str, str]) -> Study:
    """Read a results folder.

    Args:
        folder: results/<study>.
        owners: suite -> id of the registration that keys it; its attempts share one anchor.
    """
    if not folder.is_dir():
        raise ResultsError(f"{folder} is not a folder: give results/<study>")
    table, problems = read_grid(folder / "grid.jsonl")
    problems = list(problems)
    filler = _Filler(table)
    absences: dict[tuple[str, str], str] = {}
    attempts: list[tuple[str, Shard]] = []
    # Against an unreadable grid every row would be foreign, which says nothing.
    for suite, path in _shard_folders(folder) if len(table) else []:
        shard = read_shard(path)
        attempts.append((suite, shard))
        filler.fill(suite, shard)
        problems += _problems(suite, shard)
        absences[suite, path.name] = _absence(shard)
    problems += _mixed_attempts(attempts, owners)
    name = folder.resolve().name
    # Named from the study on, so that a report does not depend on where the folder lies.
    named = {replace(one, message=one.message.replace(f"{folder}/", f"{name}/")) for one in problems}
    return Study(name, filler.table(), absences, tuple(sorted(named)))


class _Filler:
    """Columns aligned with the grid, filled shard by shard so that only one shard's rows are in memory."""

    def __init__(self, table: pd.DataFrame) -> None:
        self._grid = table
        axes = [_nulls(table[name].astype(object)) for name in Key._fields[:6]]
        axes += [_nulls(table[name]) for name in Key._fields[6:]]
        self._shard_of = list(zip(axes[0], table["shard_id"].astype(str), strict=True))
        self._position: dict[Any, int] = {key: at for at, key in enumerate(zip(*axes, strict=True))}
        self._present = np.zeros(len(table), bool)
        self._columns = {name: np.full(len(table), np.nan) for name in COPIED + DERIVED}
        self._score_name = np.full(len(table), None, object)

    def fill(self, suite: str, shard: Shard) -> None:
        """Move the rows of a closed shard into the columns; foreign and repeated keys become its problems."""
        places, taken = [], []
        here = (suite, shard.path.name)
        for line, row in shard.rows:
            key = key_of(row)
            at = self._position.get(key)
            if at is None or self._shard_of[at] != here:
                words = f"{describe(key)} is not in the grid of this shard"
                shard.problems.append(f"{shard.path / LOG}:{line}: {words}")
            elif self._present[at]:
                words = f"{describe(key)} was answered before"
                shard.problems.append(f"{shard.path / LOG}:{line}: {words}")
            else:
                self._present[at] = shard.is_closed
                places.append(at)
                taken.append(row)
        if shard.is_closed and taken:
            self._copy(np.array(places), taken)
        shard.rows.clear()

    def table(self) -> pd.DataFrame:
        """The grid with what was found."""
        return self._grid.assign(
            present=self._present,
            score_name=pd.Categorical(
                self._score_name, sorted({name for name in self._score_name if name is not None})
            ),
            **self._columns,
        )

    def _copy(self, at: Integers, rows: list[Generation]) -> None:
        for name in COPIED:
            self._columns[name][at] = np.array([getattr(row, name) for row in rows], np.float64)
        steps = [row.certificate_steps for row in rows]
        self._columns["certificate_first"][at] = [s[0] if s else np.nan for s in steps]
        self._columns["certificate_mean"][at] = [sum(s) / len(s) if s else np.nan for s in steps]
        self._score_name[at] = [row.score_name for row in rows]


def _nulls(column: "pd.Series[Any]") -> list[Any]:
    """Values as the records spell them: None instead of NaN."""
    return [None if value != value else value for value in column.tolist()]


def _shard_folders(folder: Path) -> list[tuple[str, Path]]:
    """Every shard folder, sorted; folders that hold no log are none of our business."""
    suites = [path for path in sorted(folder.iterdir()) if path.is_dir()]
    return [
        (suite.name, path)
        for suite in suites
        if suite.name not in NOT_SHARDS and not suite.name.startswith(".")
        for path in sorted(suite.iterdir())
        if path.is_dir() and is_shard(path)
    ]


def _problems(suite: str, shard: Shard) -> list[Problem]:
    shown, more = shard.problems[:SHOWN_PER_SHARD], len(shard.problems) - SHOWN_PER_SHARD
    if more > 0:
        shown = [*shown, f"{shard.path}: and {more} more problems"]
    return [Problem(message, suite, shard.path.name) for message in shown]


def _absence(shard: Shard) -> str:
    reason = "absent from a closed log" if shard.is_closed else "not complete (no footer)"
    if shard.failed:
        categories = Counter(shard.failed.values())
        failed = ", ".join(f"{count} {name}" for name, count in sorted(categories.items()))
        return f"{reason}, examples failed: {failed}"
    return reason


def _mixed_attempts(shards: Iterable[tuple[str, Shard]], owners: Mapping[str, str]) -> list[Problem]:
    """Attempts of one registration share the anchor, attempts of the study share the protocol digest."""
    anchors: dict[str, dict[str, str]] = {}
    protocols: dict[str, str] = {}
    suites: dict[str, set[str]] = {}
    for suite, shard in shards:
        owner = owners.get(suite, suite)
        suites.setdefault(owner, set()).add(suite)
        for number, attempt in sorted(shard.attempts.items()):
            name = f"{shard.path / f'attempt-{number:03d}.json'}"
            anchors.setdefault(owner, {}).setdefault(attempt.anchor, name)
            protocols.setdefault(attempt.protocol_digest, name)
    problems = [
        Problem(f"attempts of one registration carry different anchors: {_first_two(found)}", suite)
        for owner, found in anchors.items()
        if len(found) > 1
        for suite in sorted(suites[owner])
    ]
    if len(protocols) > 1:
        text = _first_two(protocols)
        problems.append(Problem(f"attempts were made by different code (protocol digest): {text}"))
    return problems


def _first_two(found: Mapping[str, str]) -> str:
    (a, path_a), (b, path_b) = list(found.items())[:2]
    return f"'{a[:16]}' in {path_a}, '{b[:16]}' in {path_b}"
