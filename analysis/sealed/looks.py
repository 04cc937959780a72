"""Looks: an unblinded analysis while a sealed suite is still open is recorded, and changes nothing else."""

import getpass
import os
import stat
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from kvexp.prereg.forms import LOOKS, Look
from kvexp.records import RecordError, encode


def record(results: Path, suites: list[str], claims: list[str], rows: int, verdicts_sha256: str) -> str:
    """Append one line to looks.jsonl. Returns why that was not possible; empty: it was."""
    look = Look(
        at=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        user=_user(),
        suites=suites,
        claims=claims,
        rows=rows,
        verdicts_sha256=verdicts_sha256,
    )
    try:
        _append(results / LOOKS, encode(look) + b"\n")
    except (OSError, RecordError) as error:
        return f"this look is not recorded in {results / LOOKS}: {getattr(error, 'strerror', None) or error}"
    return ""


def _append(path: Path, line: bytes) -> None:
    # No link is followed, and a pipe in the file's place is refused instead of waited for.
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
    descriptor = os.open(path, flags, 0o666)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(0, "it is not a regular file", str(path))
        os.write(descriptor, line)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _user(name: Callable[[], str] = getpass.getuser) -> str:
    try:
        return name()
    except (OSError, KeyError, ImportError):
        return "unknown"
