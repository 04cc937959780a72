"""One shard folder: its footer, attempts and rows, checked against each other."""

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from analysis.load import files
from analysis.load.lines import NOT_CANONICAL, LineError, Lines, is_canonical
from analysis.load.rows import contradiction
from kvexp.records import Attempt, Failed, Footer, Generation, Reader, Record, RecordError

R = TypeVar("R", bound=Record)
_rows = Lines[Generation | Failed](Generation | Failed)
_footer = Reader[Footer](Footer)
_attempt = Reader[Attempt](Attempt)
LOG, FOOTER = "generations.jsonl", "footer.json"


@dataclass
class Shard:
    """What a shard folder holds.

    Attributes:
        path: the folder.
        is_closed: it has a footer, so its rows count.
        rows: generations with their line numbers.
        failed: examples whose last try failed, with the category.
        attempts: process starts by number.
        problems: contradictions, one sentence each.
    """

    path: Path
    is_closed: bool = False
    rows: list[tuple[int, Generation]] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    attempts: dict[int, Attempt] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def is_shard(folder: Path) -> bool:
    """Whether a folder holds any part of a log."""
    names = (entry.name for entry in folder.iterdir())
    return any(name in (LOG, FOOTER) or _is_attempt(name) for name in names)


def read_shard(path: Path) -> Shard:
    """Read everything; what is wrong becomes a problem, never an exception."""
    shard = Shard(path)
    try:
        _read_attempts(shard)
        footer = _read_footer(shard)
        _read_rows(shard, footer)
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


def _read_footer(shard: Shard) -> Footer | None:
    path = shard.path / FOOTER
    if not path.exists():
        return None
    shard.is_closed = True  # even if it turns out unreadable: the shard claims to be whole
    footer = _one(_footer, path)
    if footer.shard_id != shard.path.name:
        shard.problems.append(f"{path}: it belongs to shard {footer.shard_id}")
    for number, attempt in shard.attempts.items():
        if attempt.shard_digest != footer.shard_digest:
            shard.problems.append(f"{path}: its shard digest is not that of attempt {number}")
    return footer


def _read_rows(shard: Shard, footer: Footer | None) -> None:
    path = shard.path / LOG
    if not path.exists():
        if footer is not None:
            shard.problems.append(f"{path} is not there, although the shard is closed")
        return
    data = files.read(path)
    if footer is not None and hashlib.sha256(data).hexdigest() != footer.sha256:
        shard.problems.append(f"{path}: its sha256 is not the one in {FOOTER}: the log was changed")
    records = _rows(data, path, may_be_torn=footer is None)
    answers = sum(isinstance(record, Generation) for record in records)
    if footer is not None and footer.rows != answers:
        shard.problems.append(f"{path}: {answers} generations, but {FOOTER} counts {footer.rows}")
    here = (shard.path.parent.name, shard.path.name)
    for number, record in enumerate(records, start=1):
        if (record.suite, record.shard_id) != here:
            where = f"{record.suite}/{record.shard_id}"
            shard.problems.append(f"{path}:{number}: a row of {where} in the wrong folder")
        elif record.attempt not in shard.attempts:
            name = attempt_path(shard.path, record.attempt).name
            shard.problems.append(f"{path}:{number}: written by an attempt without its {name}")
        elif isinstance(record, Generation):
            if words := contradiction(record):
                shard.problems.append(f"{path}:{number}: {words}")
            shard.rows.append((number, record))
            shard.failed.pop(record.example_id, None)  # a later success counts
        else:
            shard.failed[record.example_id] = record.category


def _one(reader: Reader[R], path: Path) -> R:
    data = files.read(path)
    try:
        record = reader(data)
    except RecordError as error:
        raise RecordError(f"{path}: not a record this version of the analysis reads ({error})") from None
    if not is_canonical(data, record):
        raise RecordError(f"{path}: {NOT_CANONICAL}")
    return record
