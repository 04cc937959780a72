"""One shard folder: its footer, attempts and log, checked against each other."""

import hashlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from analysis.core.grid import described
from analysis.core.lines import LineError, Lines, read_one
from analysis.core.seals import Seal
from kvexp import files
from kvexp.documents.seals import UNREGISTERED
from kvexp.records import Attempt, Cell, Failed, Footer, Generation, Reader, RecordError, World

Row = TypeVar("Row", Generation, Cell | World)
_footer = Reader[Footer](Footer)
_attempt = Reader[Attempt](Attempt)
GENERATIONS, CELLS, FOOTER = "generations.jsonl", "cells.jsonl", "footer.json"
LOGS = (GENERATIONS, CELLS)


@dataclass
class ShardFolder:
    """What a shard folder holds, but for its rows."""

    path: Path  # the folder
    is_closed: bool = False  # it has a footer, so its rows count
    failed: dict[str, str] = field(default_factory=dict)  # examples whose last try failed, with the category
    attempts: dict[int, Attempt] = field(default_factory=dict)  # process starts by number
    uncounted: dict[int, str] = field(default_factory=dict)  # those whose rows do not count, with the reason
    left_out: Counter[int] = field(default_factory=Counter)  # rows of these
    problems: list[str] = field(default_factory=list)  # contradictions, one sentence each

    @property
    def counted(self) -> list[Attempt]:
        """The attempts whose rows count, by number."""
        return [one for number, one in sorted(self.attempts.items()) if number not in self.uncounted]


@dataclass
class PlannedShard:
    """What the grid says about one shard: of which models and tasks it is, one of them, and its rows."""

    questions: set[tuple[str, str]] = field(default_factory=set)
    rows: set[Any] = field(default_factory=set)


class ShardLog(ABC, Generic[Row]):
    """The rows of one shard's log, taken as they are read.

    Attributes:
        stated: what must be the same in other logs (see `Same.state`: words, scope, value), with the first
            line that states it.
    """

    name: ClassVar[str]
    nouns: ClassVar[str]  # its rows, in the plural
    done: ClassVar[str]  # what was done with each
    lines: ClassVar[Lines[Any]]

    def __init__(self) -> None:
        self.stated: dict[tuple[str, str, str], int] = {}
        self._seen: set[tuple[type, int]] = set()

    def take(self, line: int, row: Row, attempt: Attempt) -> Iterator[str]:
        """Keep a row; yields what is wrong with it."""
        at = self.at(row)
        if at is None:
            yield f"{described(row)} is not in the grid of this shard"
        elif (type(row), at) in self._seen:
            yield f"{described(row)} was {self.done} before"
        else:
            self._seen.add((type(row), at))
            words = self.contradiction(row, attempt)
            if words:
                yield f"{described(row)}: {words}"
            self.keep(line, row, at, is_sound=not words)

    @abstractmethod
    def at(self, row: Row) -> int | None:
        """Where a row belongs in the table; None if its shard has no such row."""

    @abstractmethod
    def contradiction(self, row: Row, attempt: Attempt) -> str:
        """How a row contradicts itself or its attempt; empty: it does not."""

    @abstractmethod
    def keep(self, line: int, row: Row, at: int, *, is_sound: bool) -> None:
        """Keep a row of the table."""

    def forget(self) -> None:
        """Drop every row: the log as a whole cannot be read."""
        self.stated.clear()


L = TypeVar("L", bound=ShardLog[Any])


class Columns(ABC, Generic[L]):
    """Columns aligned with the rows that are expected, filled shard by shard."""

    def __init__(self) -> None:
        self._planned: dict[tuple[str, str], PlannedShard] = {}

    @property
    def suites(self) -> set[str]:
        """The suites of the grid that have such rows."""
        return {suite for suite, _ in self._planned}

    def planned(self, suite: str, shard_id: str) -> PlannedShard:
        """What the grid says about a shard; empty if it does not know it."""
        return self._planned.get((suite, shard_id), PlannedShard())

    @abstractmethod
    def log(self, path: Path) -> L:
        """An empty log, to read the shard of this folder into."""

    @abstractmethod
    def disagreement(self, attempt: Attempt, planned: PlannedShard) -> str:
        """How an attempt means other rows than the grid; empty: it does not."""

    @abstractmethod
    def fill(self, shard: ShardFolder, log: L) -> None:
        """Move the rows of a closed shard into the columns."""


def is_shard(folder: Path) -> bool:
    """Whether a folder holds any part of a log."""
    names = (entry.name for entry in folder.iterdir())
    return any(name in (*LOGS, FOOTER) or _is_attempt(name) for name in names)


def read_shard(path: Path, log: ShardLog[Row], seal: Seal | None = None) -> ShardFolder:
    """Read everything, the rows into the log; what is wrong becomes a problem, never an exception.

    Rows of attempts that do not count under a seal are read and left out.
    """
    shard = ShardFolder(path)
    try:
        _read_attempts(shard)
        _judge_attempts(shard, seal)
        footer = _read_footer(shard)
        _read_log(shard, footer, log)
    except (LineError, RecordError) as error:
        shard.problems.append(str(error))
    except OSError as error:
        shard.problems.append(f"{error.filename or path} cannot be read: {error.strerror}")
    return shard


def attempt_path(shard: Path, number: int) -> Path:
    """Where the attempt of this number lies; no other name is its own."""
    return shard / f"attempt-{number:03d}.json"


def _is_attempt(name: str) -> bool:
    return name.startswith("attempt-") and name.endswith(".json")


def _read_attempts(shard: ShardFolder) -> None:
    for path in sorted(shard.path.iterdir()):
        if _is_attempt(path.name):
            attempt = read_one(_attempt, path)
            if attempt.shard_id != shard.path.name:
                shard.problems.append(f"{path}: it belongs to shard {attempt.shard_id}")
            if path != attempt_path(shard.path, attempt.number):
                shard.problems.append(f"{path}: it says attempt {attempt.number}")
            else:
                shard.attempts[attempt.number] = attempt


def _judge_attempts(shard: ShardFolder, seal: Seal | None) -> None:
    for number, attempt in sorted(shard.attempts.items()):
        if seal is None:
            if attempt.anchor == UNREGISTERED:
                words = "it was made with --unregistered"
                shard.problems.append(f"{attempt_path(shard.path, number)}: {words}")
        elif words := seal.why_not(attempt):
            shard.uncounted[number] = words


def _read_footer(shard: ShardFolder) -> Footer | None:
    path = shard.path / FOOTER
    if not path.exists():
        return None
    shard.is_closed = True  # even if it turns out unreadable: the shard claims to be whole
    footer = read_one(_footer, path)
    if footer.shard_id != shard.path.name:
        shard.problems.append(f"{path}: it belongs to shard {footer.shard_id}")
    for attempt in shard.counted:
        if attempt.shard_digest != footer.shard_digest:
            shard.problems.append(f"{path}: its shard digest is not that of attempt {attempt.number}")
    return footer


def _read_log(shard: ShardFolder, footer: Footer | None, log: ShardLog[Row]) -> None:
    for other in LOGS:
        if other != log.name and (shard.path / other).exists():
            shard.problems.append(f"{shard.path / other}: a log of {log.nouns} is expected here, {log.name}")
    path = shard.path / log.name
    if not path.exists():
        if footer is not None:
            shard.problems.append(f"{path} is not there, although the shard is closed")
        return
    data = files.read(path)
    if footer is not None and hashlib.sha256(data).hexdigest() != footer.sha256:
        shard.problems.append(f"{path}: its sha256 is not the one in {FOOTER}: the log was changed")
    before = len(shard.problems)
    try:
        rows = _read_rows(shard, path, log, log.lines(data, path, may_be_torn=footer is None))
    except LineError:
        log.forget()
        shard.failed.clear()
        del shard.problems[before:]  # a line that is no record is all that counts
        raise
    if footer is not None and footer.rows != rows:
        shard.problems.insert(before, f"{path}: {rows} {log.nouns}, but {FOOTER} counts {footer.rows}")


def _read_rows(shard: ShardFolder, path: Path, log: ShardLog[Row], records: Iterator[Any]) -> int:
    """Hand every row to the log; returns how many there are."""
    here, rows = (shard.path.parent.name, shard.path.name), 0
    for number, record in enumerate(records, start=1):
        is_row = not isinstance(record, Failed)
        rows += is_row
        attempt = shard.attempts.get(record.attempt)
        if (record.suite, record.shard_id) != here:
            where = f"{record.suite}/{record.shard_id}"
            shard.problems.append(f"{path}:{number}: a row of {where} in the wrong folder")
        elif attempt is None:
            name = attempt_path(shard.path, record.attempt).name
            shard.problems.append(f"{path}:{number}: written by an attempt without its {name}")
        elif attempt.number in shard.uncounted:
            shard.left_out[attempt.number] += is_row
        elif is_row:
            shard.problems += [f"{path}:{number}: {words}" for words in log.take(number, record, attempt)]
            shard.failed.pop(record.example_id, None)  # a later success counts
        else:
            shard.failed[record.example_id] = record.category
    return rows
