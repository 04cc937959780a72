"""Files read, digested, written and locked, each in one way."""

import errno
import fcntl
import hashlib
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

from kvexp.errors import IncompleteError, IntegrityError

ABSENT = "absent"
MAX_BYTES = 16 * 1024 * 1024  # of a file that a person may write or send


def is_file(path: Path) -> bool:
    """Whether a file is there. Raises IntegrityError for anything else: a pipe would be waited for."""
    if not path.exists():
        return False
    if not path.is_file():
        raise IntegrityError(f"{path} is not a file: move it away")
    return True


def is_regular(path: Path) -> bool:
    """Whether a file is there itself, and not a link to one."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except (OSError, ValueError):
        return False


def read(path: Path, most: int | None = None, follow: bool = True) -> bytes:
    """A file that is one: a pipe or device would never end. Raises OSError, with the reason.

    Args:
        path: of the file.
        most: bytes; a longer file is refused before it fills the memory.
        follow: a link; otherwise it is refused.
    """
    mode = (path.stat() if follow else path.lstat()).st_mode
    if stat.S_ISLNK(mode):
        raise OSError(errno.EINVAL, "it is a link: put the file itself there", str(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    with path.open("rb") as file:
        body = file.read(-1 if most is None else most + 1)
    if most is not None and len(body) > most:
        raise OSError(errno.EFBIG, f"it is longer than {most:,} bytes", str(path))
    return body


def digest(path: Path) -> str:
    """The sha256 of a file; `absent` if there is none, or a link or something else in its place."""
    try:
        return _sha256(path) if is_regular(path) else ABSENT
    except OSError:
        return ABSENT


def digest_once(path: Path) -> str:
    """The same of what a link leads to, read once per process as long as size and time stay the same."""
    state = path.stat()
    return _digest_of_state(path, state.st_size, state.st_mtime_ns)


@lru_cache(maxsize=256)
def _digest_of_state(path: Path, _size: int, _mtime_ns: int) -> str:
    return _sha256(path)


def _sha256(path: Path) -> str:
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
    """Write a file whole, by rename; a link in its place is replaced, and none is ever followed."""
    with _written_beside(path, body) as temporary:
        temporary.replace(path)


def write_new(path: Path, body: bytes) -> None:
    """Create a file that must not exist. A kill or a full disk leaves it whole or not there."""
    with _written_beside(path, body) as temporary:
        os.link(temporary, path)


@contextmanager
def _written_beside(path: Path, body: bytes) -> Iterator[Path]:
    """A temporary file in the same folder, on the disk; what the caller gives a name is kept."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        with temporary.open("xb") as file:
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


def try_lock(descriptor: int, shared: bool = False) -> bool:
    """Whether this process has the lock of an open file now. Raises OSError where there are no locks."""
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
