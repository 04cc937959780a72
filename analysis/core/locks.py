"""Locks: what closed the logs of a suite; and looks at the logs of suites that are still open."""

import getpass
import os
import stat
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from analysis.core.problems import Problem
from kvexp.documents.forms import LOCKS, LOOKS, Lock, Look
from kvexp.documents.manifest import SealError
from kvexp.documents.seals import LockFiles
from kvexp.errors import first
from kvexp.records import RecordError, encode

SHOWN = 5


@dataclass(frozen=True)
class Locked:
    """A suite's lock."""

    manifest: str  # sha256 of its bytes; empty if it cannot be read
    about: Lock | None  # what stands beside it; None if that cannot be read
    problems: tuple[Problem, ...]  # why it does not hold

    @property
    def holds(self) -> bool:
        """Whether the logs are those that were locked."""
        return not self.problems


def read_locks(
    results: Path, suites: Iterable[str], seals: Mapping[str, Mapping[str, object]]
) -> dict[str, Locked]:
    """The locks of the suites that are locked.

    Args:
        results: results/<study>; manifests are relative to it.
        suites: to look for.
        seals: by sealed suite, the seal ids that its lock may name.
    """
    files = {suite: LockFiles(results, suite) for suite in suites}
    return {suite: _read(one, seals.get(suite)) for suite, one in files.items() if one.is_locked}


def _read(files: LockFiles, seals: Mapping[str, object] | None) -> Locked:
    suite, name = files.suite, files.results.name
    manifest, about = "", None
    words: list[str] = []
    try:
        sealed = files.read_manifest()
        manifest = sealed.digest
        lines = files.differences(sealed)
        words += [f"since the lock of suite {suite}: {line}" for line in first(lines, SHOWN)]
        about = files.read_about()
        if about.suite != suite or (seals is not None and about.seal not in seals):
            words.append(f"{name}/{LOCKS}/{suite}.json is about another suite or seal")
    except SealError as error:
        words.append(str(error))
    here = f"{files.results}/"
    return Locked(manifest, about, tuple(Problem(one.replace(here, f"{name}/"), suite) for one in words))


# Looks: an unblinded analysis while a sealed suite is still open is recorded, and changes nothing else.


def record_look(results: Path, suites: list[str], claims: list[str], rows: int, verdicts_sha256: str) -> str:
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
