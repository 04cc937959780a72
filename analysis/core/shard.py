"""One shard folder: its footer, attempts and log, checked against each other."""

import hashlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from analysis.core.lines import NOT_CANONICAL, LineError, Lines, is_canonical
from analysis.core.problems import Under, unregistered
from kvexp import files
from kvexp.records import Attempt, Cell, Failed, Footer, Generation, Reader, Record, RecordError, World

R = TypeVar("R", bound=Record)
Row = TypeVar("Row", Generation, Cell | World)
_footer = Reader[Footer](Footer)
_attempt = Reader[Attempt](Attempt)
GENERATIONS, CELLS, FOOTER = "generations.jsonl", "cells.jsonl", "footer.json"
LOGS = (GENERATIONS, CELLS)


@dataclass
class Shard:
    """What a shard folder holds, but for its rows.

    Attributes:
        path: the folder.
        is_closed: it has a footer, so its rows count.
        failed: examples whose last try failed, with the category.
        attempts: process starts by number.
        uncounted: those whose rows do not count, with the reason.
        left_out: rows of these.
        problems: contradictions, one sentence each.
    """

    path: Path
    is_closed: bool = False
    failed: dict[str, str] = field(default_factory=dict)
    attempts: dict[int, Attempt] = field(default_factory=dict)
    uncounted: dict[int, str] = field(default_factory=dict)
    left_out: Counter[int] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    @property
    def counted(self) -> list[Attempt]:
        """The attempts whose rows count, by number."""
        return [one for number, one in sorted(self.attempts.items()) if number not in self.uncounted]


class Log(ABC, Generic[Row]):
    """The rows of one shard's log, taken as they are read.

    Attributes:
        stated: what must be the same in other logs (see `Same.state`: words, scope, value), with the first
            line that states it.
    """

    name: ClassVar[str]
    nouns: ClassVar[str]  # its rows, in the plural
    lines: ClassVar[Lines[Any]]

    def __init__(self) -> None:
        self.stated: dict[tuple[str, str, str], int] = {}

    @abstractmethod
    def take(self, line: int, row: Row, attempt: Attempt) -> Iterator[str]:
        """Keep a row; yields what is wrong with it."""

    def forget(self) -> None:
        """Drop every row: the log as a whole cannot be read."""
        self.stated.clear()


def is_shard(folder: Path) -> bool:
    """Whether a folder holds any part of a log."""
    names = (entry.name for entry in folder.iterdir())
    return any(name in (*LOGS, FOOTER) or _is_attempt(name) for name in names)


def read_shard(path: Path, log: Log[Row], under: Under | None = None) -> Shard:
    """Read everything, the rows into the log; what is wrong becomes a problem, never an exception.

    Rows of attempts that do not count under a seal are read and left out.
    """
    shard = Shard(path)
    try:
        _read_attempts(shard)
        _judge_attempts(shard, under)
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


def _read_attempts(shard: Shard) -> None:
    for path in sorted(shard.path.iterdir()):
        if _is_attempt(path.name):
            attempt = _one(_attempt, path)
            if attempt.shard_id != shard.path.name:
                shard.problems.append(f"{path}: it belongs to shard {attempt.shard_id}")
            if path != attempt_path(shard.path, attempt.number):
                shard.problems.append(f"{path}: it says attempt {attempt.number}")
            else:
                shard.attempts[attempt.number] = attempt


def _judge_attempts(shard: Shard, under: Under | None) -> None:
    for number, attempt in sorted(shard.attempts.items()):
        if under is None:
            if words := unregistered(attempt):
                shard.problems.append(f"{attempt_path(shard.path, number)}: {words}")
        elif words := under.why_not(attempt):
            shard.uncounted[number] = words


def _read_footer(shard: Shard) -> Footer | None:
    path = shard.path / FOOTER
    if not path.exists():
        return None
    shard.is_closed = True  # even if it turns out unreadable: the shard claims to be whole
    footer = _one(_footer, path)
    if footer.shard_id != shard.path.name:
        shard.problems.append(f"{path}: it belongs to shard {footer.shard_id}")
    for attempt in shard.counted:
        if attempt.shard_digest != footer.shard_digest:
            shard.problems.append(f"{path}: its shard digest is not that of attempt {attempt.number}")
    return footer


def _read_log(shard: Shard, footer: Footer | None, log: Log[Row]) -> None:
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
        rows = _read_rows(shard, path, log, log.lines.each(data, path, may_be_torn=footer is None))
    except LineError:
        log.forget()
        shard.failed.clear()
        del shard.problems[before:]  # a line that is no record is all that counts
        raise
    if footer is not None and footer.rows != rows:
        shard.problems.insert(before, f"{path}: {rows} {log.nouns}, but {FOOTER} counts {footer.rows}")


def _read_rows(shard: Shard, path: Path, log: Log[Row], records: Iterator[Any]) -> int:
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


def _one(reader: Reader[R], path: Path) -> R:
    data = files.read(path)
    try:
        record = reader(data)
    except RecordError as error:
        raise RecordError(f"{path}: not a record this version of the analysis reads ({error})") from None
    if not is_canonical(data, record):
        raise RecordError(f"{path}: {NOT_CANONICAL}")
    return record
