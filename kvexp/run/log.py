"""The folder of one shard on disk: attempts, an append-only log, a footer. A kill loses nothing.

Rows of an example are appended in one write and flushed to the disk, under a lock that dies with the
process. A torn last line is dropped on resume; nothing else is ever rewritten.
"""

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvexp import files
from kvexp.errors import IncompleteError, IntegrityError
from kvexp.files import is_file, on_disk, write_whole
from kvexp.records import (
    CELLS,
    FOOTER,
    GENERATIONS,
    Attempt,
    Cell,
    Failed,
    Footer,
    Generation,
    Reader,
    Record,
    RecordError,
    Segment,
    World,
    encode,
)
from kvexp.study import provenance
from kvexp.study.shards import Shard

LOCK_TRIES = 10
Row = Generation | Cell | World


def to_lines(rows: Sequence[Row | Failed]) -> bytes:
    """Rows as they stand in the log. Raises RecordError for what no reader would accept."""
    return b"".join(encode(row) + b"\n" for row in rows)


@dataclass(frozen=True)
class State:
    """What a shard's folder holds."""

    rows: dict[Any, Row]  # by key
    failed: list[Failed]  # examples whose last try failed
    attempts: list[Attempt]
    footer: Footer | None


def read_state(folder: Path, log: str = GENERATIONS) -> State:
    """The folder of a shard; empty if there is none. Raises IntegrityError for what does not belong there."""
    attempts = read_attempts(folder)
    numbers = {attempt.number for attempt in attempts}
    rows: dict[Any, Row] = {}
    failed: dict[str, Failed] = {}
    for number, line in whole_lines(folder / log):
        where = f"{folder / log}:{number}"
        row = _read_row(where, line, _readers[log])
        if (row.suite, row.shard_id) != (folder.parent.name, folder.name):
            raise IntegrityError(
                f"{where} belongs to {row.suite}/{row.shard_id}: move the line to its folder"
            )
        if row.attempt not in numbers:
            raise IntegrityError(f"{where} was written by attempt {row.attempt}, whose file is not there")
        if isinstance(row, Failed):
            failed[row.example_id] = row
        elif row.key in rows:
            raise IntegrityError(f"{where} is a second row for {' '.join(map(str, row.key))}")
        else:
            rows[row.key] = row
            failed.pop(row.example_id, None)
    return State(rows, list(failed.values()), attempts, _footer(folder, log, len(rows)))


def read_attempts(folder: Path) -> list[Attempt]:
    """Every process start on a shard, in order."""
    return [read_attempt(path) for path in sorted(folder.glob("attempt-*.json"))]


def read_attempt(path: Path) -> Attempt:
    """One process start. Raises IntegrityError for a file that is none."""
    attempt: Attempt = _read_one(path, Attempt)
    return attempt


def last_attempt_digest(folder: Path) -> str | None:
    """sha256 of the newest attempt's file, which the next one states: a chain that cannot lose its middle."""
    paths = sorted(folder.glob("attempt-*.json"))
    return files.digest(paths[-1]) if paths else None


def _footer(folder: Path, log: str, rows: int) -> Footer | None:
    """The footer, if there is one. Raises IntegrityError if the log is not the one that it closed."""
    if not (folder / FOOTER).exists():
        return None
    footer = read_footer(folder)
    if footer.rows != rows or footer.sha256 != files.digest(folder / log):
        raise IntegrityError(_changed(folder / log))
    return footer


def check_closed(folder: Path, shard_digest: str, log: str = GENERATIONS) -> None:
    """Raises IntegrityError unless a complete shard is what was asked for and as its footer left it."""
    footer = read_footer(folder)
    if footer.shard_digest != shard_digest:
        raise IntegrityError(
            f"{folder} is complete, but was made under another configuration or protocol: go back to it, "
            "move the folder away, or run under another name with study.name=NAME"
        )
    if footer.sha256 != files.digest(folder / log):
        raise IntegrityError(_changed(folder / log))


def _changed(path: Path) -> str:
    return f"{path} was changed after {FOOTER} closed it: restore it or move the shard's folder away"


def read_footer(folder: Path) -> Footer:
    """The footer of a complete shard."""
    footer: Footer = _read_one(folder / FOOTER, Footer)
    return footer


def whole_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Numbered lines that end in a line break; a torn last one is passed over."""
    if not is_file(path):
        return
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if line.endswith(b"\n"):
                yield number, line


_readers: dict[str, Reader[Any]] = {
    GENERATIONS: Reader(Generation | Failed),
    CELLS: Reader(Cell | World | Failed),
}


def _read_row(where: str, line: bytes, reader: Reader[Any]) -> Any:
    try:
        return reader(line)
    except RecordError as error:
        raise IntegrityError(
            f"{where} is not a row of this version of kvexp ({error}): "
            "restore the line or move the shard's folder away"
        ) from None


def _read_one(path: Path, kind: Any) -> Any:
    is_file(path)
    try:
        return Reader[Any](kind)(path.read_bytes())
    except RecordError as error:
        raise IntegrityError(
            f"{path} is not a record of this version of kvexp ({error}): restore it or move the "
            "shard's folder away"
        ) from None


class Log:
    """The open, locked log of a shard."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    def append(self, body: bytes) -> None:
        """Write whole lines to the disk, or none of them."""
        start = os.lseek(self._descriptor, 0, os.SEEK_END)
        try:
            while body:
                body = body[os.write(self._descriptor, body) :]
            os.fsync(self._descriptor)
        except OSError:
            os.ftruncate(self._descriptor, start)
            raise

    def drop_torn_line(self) -> None:
        """Cut what a kill left after the last line break."""
        whole = sum(len(line) for _, line in whole_lines(self.path))
        if whole < os.fstat(self._descriptor).st_size:
            os.ftruncate(self._descriptor, whole)


@contextmanager
def locked_log(folder: Path, log: str = GENERATIONS) -> Iterator[Log]:
    """Open the log for this process alone. Raises IncompleteError if another process writes it."""
    with on_disk(folder):
        folder.mkdir(parents=True, exist_ok=True)
        is_file(folder / log)
        descriptor = os.open(folder / log, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        if not _lock(descriptor):
            raise IncompleteError(f"{folder} is being written by another process: wait for it")
        yield Log(folder / log, descriptor)
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> bool:
    """Tries for a moment, since `is_locked` holds the lock while it asks."""
    for _ in range(LOCK_TRIES):
        if files.try_lock(descriptor):
            return True
        time.sleep(0.05)
    return False


def is_locked(folder: Path, log: str = GENERATIONS) -> bool:
    """Whether a process is writing the log now."""
    if not (folder / log).is_file():  # a pipe would be waited for
        return False
    try:
        with (folder / log).open("rb") as file:
            return not files.try_lock(file.fileno(), shared=True)
    except OSError:
        return False


def write_new(path: Path, record: Record) -> None:
    """Create the file of a record that must not exist."""
    files.write_new(path, encode(record) + b"\n")


def close(folder: Path, shard_digest: str, log: str = GENERATIONS) -> None:
    """Write the footer, last. Footer, log and attempts then never change."""
    state = read_state(folder, log)
    by_attempt = [sum(r.attempt == a.number for r in state.rows.values()) for a in state.attempts]
    footer = Footer(
        shard_id=state.attempts[0].shard_id,
        shard_digest=shard_digest,
        rows=len(state.rows),
        sha256=files.digest(folder / log),
        segments=[
            Segment(attempt=a.number, job_id=a.slurm.get("SLURM_JOB_ID"), rows=rows)
            for a, rows in zip(state.attempts, by_attempt, strict=True)
        ],
        model_seconds=model_seconds(list(state.rows.values())),
        ended_at=provenance.now(),
    )
    write_whole(folder / FOOTER, encode(footer) + b"\n")


def model_seconds(all_rows: Iterable[Row]) -> float | None:
    """Each example's prefill once, each batch's decoding once, each plan; None: cells are not timed.

    The rows of a batch state the same seconds.
    """
    rows = [row for row in all_rows if isinstance(row, Generation)]
    if not rows:
        return None
    prefills = {(r.example_id, r.attempt): r.seconds.prefill for r in rows}
    batches = dict.fromkeys((r.example_id, r.attempt, r.seconds.decode) for r in rows)
    decoding = sum(seconds for _, _, seconds in batches)
    return sum(prefills.values()) + decoding + sum(r.seconds.plan for r in rows)


# Where the folder of a shard lies, and whether it is closed: asked by verbs that load no model.


def folder_of(results: Path, shard: Shard) -> Path:
    """results/<study>/<suite>/<shard_id>."""
    return results / shard.suite / shard.shard_id


def is_complete(results: Path, shard: Shard) -> bool:
    """A footer closes a shard."""
    return (folder_of(results, shard) / FOOTER).exists()
