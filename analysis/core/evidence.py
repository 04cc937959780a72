"""The evidence that `kvexp verify` wrote, if it was judged from the very files that are here."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from analysis.core.folders import Folders, home, later_seals
from analysis.core.locks import Locked
from analysis.core.seals import Seal
from kvexp.documents.forms import (
    LOCKED,
    LOOKS,
    WITNESSED,
    AmendmentEvidence,
    Evidence,
    LockEvidence,
    SealEvidence,
    Stamp,
    grade_of,
    is_public,
)
from kvexp.documents.judged_from import Judged
from kvexp.documents.manifest import SealError, read_bytes
from kvexp.documents.registration import Registered
from kvexp.documents.seals import moved_on
from kvexp.records import Reader, RecordError, encode

FILE = "evidence.json"
MAX_BYTES = 16 * 1024 * 1024
SHOWN = 3  # files that differ
_evidence: Reader[Evidence] = Reader(Evidence)


@dataclass(frozen=True)
class KnownEvidence:
    """What is known of the evidence."""

    evidence: Evidence | None = None  # None if there is none that counts
    note: str = ""  # why there is none, if that needs saying
    is_broken: bool = False  # the file is there and cannot be read

    @property
    def is_witnessed(self) -> bool:
        """Whether somebody else than the author vouches for the time of the registrations."""
        return self.evidence is not None and self.evidence.grade >= WITNESSED

    @property
    def failed(self) -> list[str]:
        """What does not hold."""
        found = self.evidence
        if found is None:
            return []
        again = {"the replay of keep sets": found.replay, "the answers made again": found.regenerated}
        failing = [words for words, one in again.items() if one is not None and not one.holds]
        return [*(one.words for one in found.checks if one.holds is False), *failing]


def read_evidence(
    folders: Folders,
    found: Iterable[Registered],
    seals: Mapping[str, Seal],
    locks: Mapping[str, Locked],
) -> KnownEvidence:
    """Read evidence.json; what was judged from other files than those that are here does not count.

    Whether the time stamps are genuine is not checked again: that is for `kvexp verify`, and openssl.

    Args:
        folders: where everything lies.
        found: the registrations.
        seals: by registration id, of those that are sealed.
        locks: by suite, of those that are locked.
    """
    path = folders.results / FILE
    if not path.is_symlink() and not path.exists():
        return KnownEvidence()
    name = folders.results.name
    try:
        evidence = _read(path)
    except SealError as error:
        return KnownEvidence(note=str(error).replace(f"{folders.results}/", f"{name}/"), is_broken=True)
    registrations = list(found)
    words = next(_objections(evidence, folders, registrations, seals, locks), "")
    if not words:
        return KnownEvidence(evidence)
    command = _command(folders, registrations, seals, locks)
    return KnownEvidence(note=f"{FILE} does not count: {words}; run {command}")


def _read(path: Path) -> Evidence:
    body = read_bytes(path, MAX_BYTES)
    try:
        found = _evidence(body)
        json.loads(body, object_pairs_hook=_once)
    except (RecordError, ValueError, RecursionError) as error:
        raise SealError(f"{path} cannot be read ({error}): run kvexp verify again") from None
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object whose keys two readers take for the same values."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands twice")
    return found


def _objections(
    evidence: Evidence,
    folders: Folders,
    found: list[Registered],
    seals: Mapping[str, Seal],
    locks: Mapping[str, Locked],
) -> Iterator[str]:
    """Why it does not count."""
    yield from _contradictions(evidence)
    yield from _stale(evidence, folders, found, seals)
    about = {one.id: one.seal for one in evidence.seals if one.seal is not None}
    locked = {one.suite: one.manifest for one in evidence.locks if one.manifest is not None}
    manifests = {suite: one.manifest for suite, one in locks.items()}
    if (about, locked) != ({name: one.id for name, one in seals.items()}, manifests):
        yield "it is about other seals or locks than those that judge here"


def _contradictions(evidence: Evidence) -> Iterator[str]:
    """Grades that do not follow from the stamps beside them, or stamps that no reply on disk can be."""
    lowest = min((one.grade for one in evidence.seals), default=0)
    stamped: list[SealEvidence | LockEvidence] = [*evidence.seals, *evidence.locks]
    if evidence.grade != lowest or any(one.grade != grade_of(one.stamps) for one in stamped):
        yield "its grades are not those of its time stamps"
    if any(one.kind == "public" and not is_public(one.root_sha256) for one in _stamps(evidence)):
        yield "it calls an authority public that kvexp does not ship"
    for seal in evidence.seals:
        name = f"{evidence.home}/seals/{seal.id}"
        replies = [path for path in evidence.read if path.startswith(f"{name}.") and path.endswith(".tsr")]
        if len(seal.stamps) > len(replies):
            yield f"it shows time stamps of {seal.id} that are not among the files it was judged from"


def _stale(
    evidence: Evidence, folders: Folders, found: list[Registered], seals: Mapping[str, Seal]
) -> Iterator[str]:
    """Files that are not what the evidence was judged from."""
    home = _home(evidence, folders)
    judged = Judged(
        root=folders.repository,
        study=evidence.study,
        results=folders.results,
        home=home or folders.results / LOCKED,
        home_name=evidence.home,
    )
    suites = {one.content.id: one.content.suites for one in found}
    sealed = [one.content.claim for one in found if one.content.id in seals and not folders.is_anew]
    now = {
        **judged.digests(suites, {claim for claims in sealed for claim in claims}),
        **judged.authorities({one.trust for one in _stamps(evidence)}),
    }
    different = sorted(
        name for name in now.keys() | evidence.read.keys() if now.get(name) != evidence.read.get(name)
    )
    if folders.is_anew:  # the code that judges is another, and says so
        places = (f"{evidence.home}/", f"results/{evidence.study}/", "preregistration/trust/")
        different = [name for name in different if name.startswith(places)]
    if home is None:  # the copy beside the logs stands in for it, without stamps that came later
        different = [name for name in different if name in now or not name.startswith(f"{evidence.home}/")]
    if different:
        kinds = [
            f"{name} was {'added' if name not in evidence.read else 'changed' if name in now else 'removed'}"
            for name in different[:SHOWN]
        ]
        more = f" (and {len(different) - SHOWN} more)" if len(different) > SHOWN else ""
        yield f"{', '.join(kinds)}{more} after it was written"
    looks = b"".join(encode(one) + b"\n" for one in evidence.looks)
    path = folders.results / LOOKS
    if looks and not (path.is_file() and read_bytes(path).startswith(looks)):
        yield f"{LOOKS} lacks looks that it lists"


def _stamps(evidence: Evidence) -> Iterator[Stamp]:
    stamped: list[SealEvidence | AmendmentEvidence | LockEvidence]
    stamped = [*evidence.seals, *evidence.amendments, *evidence.locks]
    for one in stamped:
        yield from one.stamps


def _home(evidence: Evidence, folders: Folders) -> Path | None:
    """The folder of registrations that was judged; None if it is not here."""
    path, results = PurePosixPath(evidence.home), PurePosixPath("results", evidence.study)
    if ".." in path.parts or path.is_absolute():
        return None
    if path.is_relative_to(results):
        found = folders.results / path.relative_to(results)
    else:
        found = folders.chosen or folders.repository / path
    return found if found.is_dir() else None


def _command(
    folders: Folders, found: list[Registered], seals: Mapping[str, Seal], locks: Mapping[str, Locked]
) -> str:
    """What brings evidence that counts."""
    study = next((one.study for one in seals.values()), folders.results.name)
    again = [
        suite
        for one in found
        if one.content.id in seals and later_seals(folders, one.content.id, seals[one.content.id].id)
        for suite in one.content.suites
        if suite in locks
    ]
    lock = f"kvexp lock {study} {' '.join(sorted(again))} --again, then " if again else ""
    return f"{lock}kvexp verify {study}"


# What a reader must know of where things lie: another name of the folder, registrations that moved on.


SHOWN_NOTES = 3


def notes_of(folders: Folders, seals: Mapping[str, Seal]) -> Iterator[str]:
    """One sentence each."""
    name = folders.results.resolve().name
    studies = sorted({seal.study for seal in seals.values()} - {name})
    if studies:
        yield f"this folder is called {name}, and its seals were made for the study {', '.join(studies)}"
    for registration_id, seal in sorted(seals.items()):
        if seal.home == folders.results / LOCKED:
            yield from _moved(folders, registration_id, seal, name)


def _moved(folders: Folders, registration_id: str, seal: Seal, name: str) -> Iterator[str]:
    folder = home(folders, registration_id)
    lines = [] if folder is None else moved_on(folder, seal.home, registration_id)
    if folder is None or not lines:
        return
    called = folders.called(folder)
    where = "the folder given with --registration" if called == "DIR" else called
    more = f" and {len(lines) - SHOWN_NOTES} more" if len(lines) > SHOWN_NOTES else ""
    if later_seals(folders, registration_id, seal.id):
        yield (
            f"registration {registration_id} was amended in {where} after the lock, and the copy in "
            f"results/{name}/{LOCKED} judges until kvexp lock {seal.study} SUITE --again"
        )
    else:
        yield (
            f"{where} differs from what was locked with the logs "
            f"({', '.join(lines[:SHOWN_NOTES])}{more}): the "
            f"copy in results/{name}/{LOCKED} is what counts"
        )
