"""Locks: what closed the logs of a suite, and whether they are still the same files."""

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from analysis.load import Problem
from kvexp.prereg.chain import decoded
from kvexp.prereg.forms import LOCKS, Lock
from kvexp.prereg.seal import SealError, differences, read_bytes, read_manifest
from kvexp.records import Reader

SHOWN = 5
MAX_BYTES = 1024 * 1024
_lock: Reader[Lock] = Reader(Lock)


@dataclass(frozen=True)
class Locked:
    """A suite's lock.

    Attributes:
        manifest: sha256 of its bytes; empty if it cannot be read.
        about: what stands beside it; None if that cannot be read.
        problems: why it does not hold.
    """

    manifest: str
    about: Lock | None
    problems: tuple[Problem, ...]

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
    found = {}
    for suite in suites:
        path = results / LOCKS / f"{suite}.sha256"
        if path.is_symlink() or path.exists():
            found[suite] = _read(results, suite, seals.get(suite))
    return found


def _read(results: Path, suite: str, seals: Mapping[str, object] | None) -> Locked:
    where, name = results / LOCKS / f"{suite}.sha256", results.name
    manifest, about = "", None
    words: list[str] = []
    try:
        sealed = read_manifest(where)
        manifest = sealed.digest
        lines = differences(results, sealed, _files(results, suite))
        words += [f"since the lock of suite {suite}: {line}" for line in lines[:SHOWN]]
        if len(lines) > SHOWN:
            words.append(f"since the lock of suite {suite}: and {len(lines) - SHOWN} more")
        beside = where.with_suffix(".json")
        about = decoded(_lock, beside, read_bytes(beside, MAX_BYTES))
        if about.suite != suite or (seals is not None and about.seal not in seals):
            words.append(f"{name}/{LOCKS}/{suite}.json is about another suite or seal")
    except SealError as error:
        words.append(str(error))
    here = f"{results}/"
    return Locked(manifest, about, tuple(Problem(one.replace(here, f"{name}/"), suite) for one in words))


def _files(results: Path, suite: str) -> Iterator[str]:
    """Everything in the folder of the suite that is not a folder itself, links included."""
    for folder, folders, files in os.walk(results / suite):
        links = [one for one in folders if (Path(folder) / one).is_symlink()]
        for file in [*files, *links]:
            yield (Path(folder) / file).relative_to(results).as_posix()
