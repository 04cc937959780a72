"""Files read, digested and written whole, each in one way."""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

from kvexp.errors import IncompleteError, IntegrityError


def is_file(path: Path) -> bool:
    """Whether a file is there. Raises IntegrityError for anything else: a pipe would be waited for."""
    if not path.exists():
        return False
    if not path.is_file():
        raise IntegrityError(f"{path} is not a file: move it away")
    return True


def sha256(path: Path) -> str:
    """Of a file's bytes; `absent` if it is not there."""
    if not is_file(path):
        return "absent"
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def on_disk(folder: Path) -> Iterator[None]:
    """Turns what a disk can refuse into a sentence."""
    try:
        yield
    except OSError as error:
        raise IncompleteError(
            f"cannot write to {folder} ({error.strerror}): the rows so far are kept; make room or give "
            "write access, then submit again"
        ) from None


def write_whole(path: Path, body: bytes) -> None:
    """Write a file whole, by atomic rename."""
    with _written_beside(path, body) as temporary:
        temporary.replace(path)


@contextmanager
def _written_beside(path: Path, body: bytes) -> Iterator[Path]:
    """A temporary file in the same folder, on the disk; what the caller gives a name is kept."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # the name, too, survives a power cut
    finally:
        os.close(folder)


def digest_once(path: Path) -> str:
    """The sha256 of a file, read once per process as long as its size and time stay the same."""
    stat = path.stat()
    return _digest_of_state(path, stat.st_size, stat.st_mtime_ns)


@lru_cache(maxsize=256)
def _digest_of_state(path: Path, _size: int, _mtime_ns: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
