"""A whole results folder as tables: the grid's rows, filled where a closed shard answered them."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.core.agreement import common, constants, settings
from analysis.core.cells import Measurements
from analysis.core.generations import Answers, GenerationLog
from analysis.core.grid import Grid, Prompts, ResultsError, read_grid
from analysis.core.problems import Problem, Same
from analysis.core.seals import Seal
from analysis.core.shard import (
    CELLS,
    LOGS,
    Columns,
    ShardFolder,
    ShardLog,
    attempt_path,
    is_shard,
    read_shard,
)
from kvexp.documents.seals import UNANCHORED
from kvexp.errors import printable
from kvexp.records import Generation

NOT_SHARDS = ("examples", "locks", "preregistration")
SCRATCH = ("results", "scratch")  # below it lies what was run without a registration
SHOWN_PER_SHARD = 5


@dataclass(frozen=True)
class Study:
    """A results folder, read.

    A row is present where a closed shard holds it; rows that are not hold NaN. A frame of a kind of suite
    that the study does not have is empty.
    """

    name: str  # the folder's name, printable
    # One row per expected generation: the grid's columns (see `Grid`), `present` (bool), `score_name`,
    # COPIED, TIMED and DERIVED of `generations` as float64, `text` (str or None).
    table: pd.DataFrame
    # One row per expected attention cell, sorted by key: suite, shard_id, model, task, example_id
    # (categorical, sorted), budget (float64), seed, offset, layer, head (int64), present (bool), score
    # (categorical), and NUMBERS of `cells` as float64, `covered` as 0 or 1.
    cells: pd.DataFrame
    # One row per expected change, world, layer and head, sorted by key: the same names, change (categorical),
    # world, layer, head (int64), present (bool), budget, seed, offset (float64), score (categorical),
    # statistics (object: a digest, None where not present), topk, hajek, certificate, covered (float64).
    worlds: pd.DataFrame
    # Why rows of a (suite, shard) are missing, where the shard itself says so.
    absences: Mapping[tuple[str, str], str]
    problems: tuple[Problem, ...]  # contradictions, sorted
    # Of the certificate, as the attempts of attention suites say; None if none does.
    delta: float | None = None
    # What to say of the missing rows of a suite, for instance why it was locked without them.
    remarks: Mapping[str, str] = field(default_factory=dict)
    unanchored: frozenset[str] = frozenset()  # suites with attempts whose draws are keyed by no time stamp
    folder: Path = Path()  # where it lies

    @property
    def cell_suites(self) -> list[str]:
        """The attention suites of the grid, sorted."""
        return list(self.cells["suite"].cat.categories)

    @property
    def is_grid_sound(self) -> bool:
        """Whether the grid says what the study contains; if not, nothing can be said to be absent from it."""
        return all(problem.suite for problem in self.problems)

    def unplanned(self, suites: Iterable[str]) -> list[str]:
        """Those of the suites that a sound grid does not have yet, sorted."""
        planned = {*self.table["suite"].cat.categories, *self.cell_suites}
        return sorted(set(suites) - planned) if self.is_grid_sound else []


def check_folder(folder: Path) -> None:
    """Raises ResultsError for a folder that is not there, or that no analysis reads."""
    if not folder.is_dir():
        raise ResultsError(f"{folder} is not a folder: give results/<study>")
    if folder.resolve().parts[-3:-1] == SCRATCH:
        raise ResultsError(
            f"{folder} holds runs made with --unregistered, which no analysis reads: give results/<study>"
        )


def load(
    folder: Path,
    owners: Mapping[str, str],
    sealed: Mapping[str, Seal] | None = None,
    keep: Callable[[int, Generation], None] | None = None,
) -> Study:
    """Read a results folder.

    Args:
        folder: results/<study>.
        owners: suite -> id of the registration that keys it; its attempts share one anchor.
        sealed: suite -> its seal; only attempts that count under it fill rows.
        keep: is given the row in the table and the record of each generation of a closed shard.

    Raises ResultsError for a folder that is no results folder; whatever else is wrong is a problem.
    """
    check_folder(folder)
    grid = read_grid(folder / "grid.jsonl", sealed)
    reader = _Reader(grid, owners, sealed or {}, keep)
    # Against an unreadable grid every row would be foreign, which says nothing.
    for path in _shard_folders(folder) if len(grid.table) or grid.prompts else []:
        reader.read(path)
    problems = [*grid.problems, *reader.problems, *reader.same.problems()]
    name = printable(folder.resolve().name)
    # Named from the study on, so that a report does not depend on where the folder lies.
    here = printable(f"{folder}/")
    named = {replace(one, message=one.message.replace(here, f"{name}/")) for one in problems}
    return Study(
        name=name,
        table=reader.answers.table(),
        cells=reader.measurements.cells(),
        worlds=reader.measurements.worlds(),
        absences=reader.absences,
        problems=tuple(sorted(named)),
        delta=reader.delta,
        unanchored=frozenset(reader.unanchored),
        folder=folder,
    )


class _Reader:
    """Shards, one after another, into the tables."""

    def __init__(
        self,
        grid: Grid,
        owners: Mapping[str, str],
        sealed: Mapping[str, Seal],
        keep: Callable[[int, Generation], None] | None,
    ) -> None:
        self.answers, self.measurements = Answers(grid.table), Measurements(Prompts(grid.prompts))
        self.same = Same()
        self.absences: dict[tuple[str, str], str] = {}
        self.problems: list[Problem] = []
        self.delta: float | None = None
        self.unanchored: set[str] = set()
        self._owners, self._sealed, self._keep = owners, sealed, keep
        self._is_mixed = bool(self.answers.suites) and bool(self.measurements.suites)

    def read(self, path: Path) -> None:
        """One shard folder."""
        suite = path.parent.name
        table = self._table(suite, path)
        log = table.log(path)
        shard = read_shard(path, log, self._sealed.get(suite))
        planned = table.planned(suite, path.name)
        # Grid and attempts must mean the same rows, so that neither can lose some unnoticed.
        if len(planned.questions) > 1:
            shard.problems.append(f"{path}: the grid mixes models or tasks in this shard")
        for attempt in shard.counted:
            if words := table.disagreement(attempt, planned):
                shard.problems.append(f"{attempt_path(path, attempt.number)}: {words}")
        self._state(suite, shard, log, min(planned.questions, default=("", ""))[0])
        table.fill(shard, log)
        if self._keep is not None and isinstance(log, GenerationLog) and shard.is_closed:
            for at, row in log.rows:
                self._keep(at, row)
        if any(attempt.anchor == UNANCHORED for attempt in shard.counted):
            self.unanchored.add(suite)
        if table is self.measurements and self.delta is None:  # another one is a problem of its own
            known = (settings(attempt) for attempt in shard.counted)
            self.delta = next((found.protocol.delta for found in known if found is not None), None)
        self.problems += _problems(suite, shard)
        self.absences[suite, path.name] = _absence(shard)

    def _table(self, suite: str, path: Path) -> Columns[Any]:
        """By the grid; a folder that it does not know is read as what it holds."""
        if suite in self.answers.suites | self.measurements.suites:
            has_cells = suite in self.measurements.suites
        else:
            has_cells = [log for log in LOGS if (path / log).exists()] == [CELLS]
        return self.measurements if has_cells else self.answers

    def _state(self, suite: str, shard: ShardFolder, log: ShardLog[Any], model: str) -> None:
        """What attempts share: their registration's anchor, their model's weights, their kind's code."""
        for (words, scope, value), line in log.stated.items():
            self.same.state(words, scope, value, f"{shard.path / log.name}:{line}", suite)
        # Each kind of suite has code of its own; where there is one kind, the whole study is in doubt.
        kind, in_doubt = (log.name, suite) if self._is_mixed else ("", "")
        for attempt in shard.counted:
            where = str(attempt_path(shard.path, attempt.number))
            words = "attempts of one registration carry different anchors"
            self.same.state(words, self._owners.get(suite, suite), attempt.anchor, where, suite)
            words = "attempts were made by different code (protocol digest)"
            self.same.state(words, kind, attempt.protocol_digest, where, in_doubt)
            words = "attempts were made under different protocol constants"
            self.same.state(words, "", constants(attempt), where)
            words = "attempts of one suite, model and task were configured differently"
            self.same.state(
                words, f"{suite} {attempt.shard_id.rsplit('.', 1)[0]}", common(attempt), where, suite
            )
            if not model:  # the grid does not know the shard, which is a problem of its own
                continue
            words = f"attempts on model {model} computed in different types"
            self.same.state(words, model, attempt.dtype, where, suite)
            if attempt.model_digest is not None:  # a hub model is named by its revision instead
                words = f"attempts on model {model} loaded different files (model digest)"
                self.same.state(words, model, attempt.model_digest, where, suite)


def _shard_folders(folder: Path) -> list[Path]:
    """Every shard folder, sorted; folders that hold no log are none of our business."""
    suites = [path for path in sorted(folder.iterdir()) if path.is_dir()]
    return [
        path
        for suite in suites
        if suite.name not in NOT_SHARDS and not suite.name.startswith(".")
        for path in sorted(suite.iterdir())
        if path.is_dir() and is_shard(path)
    ]


def _problems(suite: str, shard: ShardFolder) -> list[Problem]:
    shown, more = shard.problems[:SHOWN_PER_SHARD], len(shard.problems) - SHOWN_PER_SHARD
    if more > 0:
        shown = [*shown, f"{shard.path}: and {more} more problems"]
    return [Problem(message, suite, shard.path.name) for message in shown]


def _absence(shard: ShardFolder) -> str:
    reason = "absent from a closed log" if shard.is_closed else "not complete (no footer)"
    for number, rows in sorted(shard.left_out.items()):
        if rows:
            reason += f", {rows:,} rows of attempt {number} do not count: {shard.uncounted[number]}"
    if shard.failed:
        categories = Counter(shard.failed.values())
        failed = ", ".join(f"{count} {name}" for name, count in sorted(categories.items()))
        return f"{reason}, examples failed: {failed}"
    return reason
