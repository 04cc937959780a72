"""The times that records state, UTC to the second, as seconds since 1970 (leaf)."""

from datetime import UTC, datetime
from pathlib import Path

from kvexp.errors import IntegrityError


def seconds_of(text: str) -> float:
    """Of a time as `kvexp.study.provenance.now` writes it. Raises ValueError for another one."""
    try:
        return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp()
    except ValueError:
        raise ValueError(f"{text[:40]!r} is no time of a record (like 2026-01-31T12:00:00Z)") from None


def seconds_in(path: Path, text: str) -> float:
    """As `seconds_of`, of a time that a file states. Raises IntegrityError, which names the file."""
    try:
        return seconds_of(text)
    except ValueError as error:
        raise IntegrityError(f"{path}: {error}: restore it") from None
