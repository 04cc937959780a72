"""A whole results folder as one table: the grid's rows, filled where a closed shard answered them."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd

from analysis.load.grid import ResultsError, describe, key_of, read_grid
from analysis.load.plan import Row, disagreement
from analysis.load.problems import Problem
from analysis.load.same import Same
from analysis.load.shard import LOG, Shard, attempt_path, is_shard, read_shard
from analysis.statistics.base import Integers
from kvexp.records import Generation, Key
from kvexp.terminal import printable

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
        name: the folder's name, printable.
        table: the grid's columns (see `read_grid`), `present` (bool), `score_name`, and the columns
            COPIED and DERIVED as float64. Rows that are not present hold NaN.
        absences: why rows of a (suite, shard) are missing, where the shard itself says so.
        problems: contradictions, sorted.
    """

    name: str
    table: pd.DataFrame
    absences: Mapping[tuple[str, str], str]
    problems: tuple[Problem, ...]


def check_folder(folder: Path) -> None:
    """Raises ResultsError for a folder that is not there."""
    if not folder.is_dir():
        raise ResultsError(f"{folder} is not a folder: give results/<study>")


def load(folder: Path, owners: Mapping[str, str]) -> Study:
    """Read a results folder.

    Args:
        folder: results/<study>.
        owners: suite -> id of the registration that keys it; its attempts share one anchor.

    Raises ResultsError for a folder that is no results folder; whatever else is wrong is a problem.
    """
    check_folder(folder)
    table, problems = read_grid(folder / "grid.jsonl")
    problems = list(problems)
    filler, same = _Filler(table), Same()
    absences: dict[tuple[str, str], str] = {}
    # Against an unreadable grid every row would be foreign, which says nothing.
    for suite, path in _shard_folders(folder) if len(table) else []:
        shard = read_shard(path)
        planned = filler.planned(suite, path.name)
        _check_plans(shard, planned)
        _state_attempts(same, suite, owners.get(suite, suite), planned.model, shard)
        _state_scores(same, suite, shard)
        filler.fill(suite, shard)
        problems += _problems(suite, shard)
        absences[suite, path.name] = _absence(shard)
    problems += same.problems()
    name = printable(folder.resolve().name)
    # Named from the study on, so that a report does not depend on where the folder lies.
    here = printable(f"{folder}/")
    named = {replace(one, message=one.message.replace(here, f"{name}/")) for one in problems}
    return Study(name, filler.table(), absences, tuple(sorted(named)))


@dataclass
class _Planned:
    """What the grid says about one shard."""

    questions: set[tuple[str, str]] = field(default_factory=set)  # (model, task), one of them
    rows: set[Row] = field(default_factory=set)

    @property
    def model(self) -> str:
        return next((model for model, _ in sorted(self.questions)), "")


class _Filler:
    """Columns aligned with the grid, filled shard by shard so that only one shard's rows are in memory."""

    def __init__(self, table: pd.DataFrame) -> None:
        self._grid = table
        axes = [_nulls(table[name].astype(object)) for name in Key._fields[:6]]
        axes += [_nulls(table[name]) for name in Key._fields[6:]]
        self._shard_of = list(zip(axes[0], table["shard_id"].astype(str), strict=True))
        keys = list(zip(*axes, strict=True))
        self._position: dict[Any, int] = {key: at for at, key in enumerate(keys)}
        self._planned: dict[tuple[str, str], _Planned] = {}
        for here, (_, model, task, *row) in zip(self._shard_of, keys, strict=True):
            planned = self._planned.setdefault(here, _Planned())
            planned.questions.add((model, task))
            planned.rows.add(cast(Row, tuple(row)))
        self._present = np.zeros(len(table), bool)
        self._answered = np.zeros(len(table), bool)  # in whatever shard, closed or not
        self._columns = {name: np.full(len(table), np.nan) for name in COPIED + DERIVED}
        self._score_name = np.full(len(table), None, object)

    def planned(self, suite: str, shard_id: str) -> _Planned:
        """What the grid says about a shard; empty if it does not know it."""
        return self._planned.get((suite, shard_id), _Planned())

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
            elif self._answered[at]:
                words = f"{describe(key)} was answered before"
                shard.problems.append(f"{shard.path / LOG}:{line}: {words}")
            else:
                self._answered[at] = True
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
        self._columns["certificate_mean"][at] = [_mean(s) if s else np.nan for s in steps]
        self._score_name[at] = [row.score_name for row in rows]


def _mean(steps: list[float]) -> float:
    """The mean, without a sum that could leave the floats."""
    return min(max(steps), sum(step / len(steps) for step in steps))


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


def _check_plans(shard: Shard, planned: _Planned) -> None:
    """Grid and attempts must mean the same rows, so that neither can lose some unnoticed."""
    if len(planned.questions) > 1:
        shard.problems.append(f"{shard.path}: the grid mixes models or tasks in this shard")
    for number, attempt in sorted(shard.attempts.items()):
        if words := disagreement(attempt, planned.rows):
            shard.problems.append(f"{attempt_path(shard.path, number)}: {words}")


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


def _state_attempts(same: Same, suite: str, owner: str, model: str, shard: Shard) -> None:
    """Attempts of one registration share the anchor, of one model the weights, of the study the code."""
    for number, attempt in sorted(shard.attempts.items()):
        where = str(attempt_path(shard.path, number))
        words = "attempts of one registration carry different anchors"
        same.state(words, owner, attempt.anchor, where, suite)
        words = "attempts were made by different code (protocol digest)"
        same.state(words, "", attempt.protocol_digest, where)
        if not model:  # the grid does not know the shard, which is a problem of its own
            continue
        words = f"attempts on model {model} computed in different types"
        same.state(words, model, attempt.dtype, where, suite)
        if attempt.model_digest is not None:  # a hub model is named by its revision instead
            words = f"attempts on model {model} loaded different files (model digest)"
            same.state(words, model, attempt.model_digest, where, suite)


def _state_scores(same: Same, suite: str, shard: Shard) -> None:
    """Rows of one task are scored alike."""
    first: dict[tuple[str, str], int] = {}
    for line, row in shard.rows:
        first.setdefault((row.task, row.score_name), line)
    for (task, name), line in first.items():
        words = f"rows of task {task} carry different scores"
        same.state(words, task, name, f"{shard.path / LOG}:{line}", suite)
