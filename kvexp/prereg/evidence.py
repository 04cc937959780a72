"""`kvexp verify`: who said what when, and whether files, stamps, attempts and locks bear it out.

Everything is read from files; nothing here decides a verdict. The result has no clock and no path of the
machine in it, so that the same files give the same bytes.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvexp.errors import IntegrityError
from kvexp.prereg.attempts import Started, started
from kvexp.prereg.chain import UNANCHORED, Lines, Seals, accepted, decoded, read_amendment
from kvexp.prereg.forms import (
    LOOKS,
    AmendmentEvidence,
    AttemptEvidence,
    Evidence,
    Lock,
    LockEvidence,
    Look,
    Replayed,
    SealEvidence,
    Stamp,
)
from kvexp.prereg.home import Home
from kvexp.prereg.intact import anchor_of
from kvexp.prereg.lock import LockFiles
from kvexp.prereg.registration import Registered
from kvexp.prereg.seal import core_files, differences, home_prefix, read_bytes, read_manifest
from kvexp.prereg.stamp import StampError, Token, Trust, grade_of, load_trust, read_tokens
from kvexp.records import Reader

FILE = "evidence.json"
MAX_LOOKS = 4 * 1024 * 1024
_lock: Reader[Lock] = Reader(Lock)
_look: Reader[Look] = Reader(Look)


@dataclass(frozen=True)
class Found:
    """A study's papers and logs, read once.

    Attributes:
        home: where the registrations lie.
        registered: the registrations, parents first.
        seals: by registration id, what is known of its seal.
        lines: by registration id, the shards whose rows count, by seal id; empty: not sealed.
        attempts: every process start of the registered suites.
        locks: by suite.
        looks: unblinded analyses before the lock.
        problems: stamps and papers that cannot be read, one sentence each.
    """

    home: Home
    registered: list[Registered]
    seals: dict[str, SealEvidence]
    lines: dict[str, dict[str, Lines]]
    attempts: list[Started]
    locks: dict[str, LockEvidence]
    looks: list[Look]
    problems: list[str]

    def standing(self, registration_id: str) -> Lines:
        """The shards that the seal lists; none if it cannot be read."""
        return self.lines[registration_id].get(self.seals[registration_id].seal or "", {})

    def owner(self, suite: str) -> str:
        """The registration that lists a suite."""
        return next(one.content.id for one in self.registered if suite in one.content.suites)

    def attempt_evidence(self) -> list[AttemptEvidence]:
        """Every attempt, judged by the seals of its suite's registration."""
        return [
            one.evidence(self.lines[self.owner(one.suite)], self.seals[self.owner(one.suite)].anchor)
            for one in self.attempts
        ]


def find(home: Home, registered: list[Registered]) -> Found:
    """Read everything. Raises IntegrityError for a seal, lock or attempt that cannot be read at all."""
    trusts = load_trust(home.root, home.folder)
    problems: list[str] = []
    seals, lines = {}, {}
    for one in registered:
        name = one.content.id
        seals[name] = _seal(home, one, trusts, problems)
        lines[name] = _lines(home, name, problems)
    suites = sorted({suite for one in registered for suite in one.content.suites})
    return Found(
        home=home,
        registered=registered,
        seals=seals,
        lines=lines,
        attempts=list(started(home.results, suites)),
        locks={suite: _locked(home, suite, trusts, problems) for suite in suites},
        looks=list(_looks(home)),
        problems=[problem.replace(f"{home.root}/", "") for problem in problems],
    )


def _lines(home: Home, registration_id: str, problems: list[str]) -> dict[str, Lines]:
    if not home.seals(registration_id).is_sealed():
        return {}
    try:
        return accepted(home.folder, registration_id)
    except IntegrityError as error:
        problems.append(str(error))
        return {}


def _seal(home: Home, one: Registered, trusts: dict[str, Trust], problems: list[str]) -> SealEvidence:
    name = one.content.id
    files = home.seals(name)
    shared: dict[str, Any] = {
        "id": name,
        "title": one.content.title,
        "existing_data": one.content.existing_data,
        "parent": one.content.parent,
        "registered_at": None if one.content.registered_at is None else one.content.registered_at.isoformat(),
        "registrations_made": one.content.registrations_made,
    }
    if not files.is_sealed():
        return SealEvidence(
            **shared, seal=None, commit=None, differences=[], stamps=[], grade=0, anchor=UNANCHORED
        )
    sealed = files.read_manifest()
    moved = {home_prefix(sealed, name): home.folder}
    found = differences(home.root, sealed, core_files(home.root, one.content.claim), moved)
    tokens = _tokens(files.manifest, trusts, problems)
    try:
        anchor = anchor_of(home, name)
    except (IntegrityError, StampError) as error:
        problems.append(str(error))
        anchor = UNANCHORED
    return SealEvidence(
        **shared,
        seal=sealed.digest,
        commit=_commit(files, problems),
        differences=found,
        stamps=[_stamp(token) for token in tokens],
        grade=grade_of(tokens),
        anchor=anchor,
    )


def _commit(files: Seals, problems: list[str]) -> str | None:
    try:
        return files.read_about().git_commit
    except IntegrityError as error:
        problems.append(str(error))
        return None


def _tokens(manifest: Path, trusts: dict[str, Trust], problems: list[str]) -> list[Token]:
    try:
        return read_tokens(manifest, trusts)
    except StampError as error:
        problems.append(str(error))
        return []


def _stamp(token: Token) -> Stamp:
    return Stamp(
        trust=token.trust,
        witness=token.witness,
        root_sha256=token.root_sha256,
        grade=token.grade,
        time=token.time,
        serial=f"{token.serial:x}",
        anchor=token.anchor,
    )


def _locked(home: Home, suite: str, trusts: dict[str, Trust], problems: list[str]) -> LockEvidence:
    files = LockFiles(home.results, suite)
    if not files.is_locked:
        return LockEvidence(suite=suite, manifest=None, incomplete=None, differences=[], stamps=[], grade=0)
    sealed = read_manifest(files.manifest)
    inside = (
        path.relative_to(home.results).as_posix()
        for path in (home.results / suite).rglob("*")
        if path.is_symlink() or not path.is_dir()
    )
    tokens = _tokens(files.manifest, trusts, problems)
    return LockEvidence(
        suite=suite,
        manifest=sealed.digest,
        incomplete=read_lock(files).incomplete,
        differences=differences(home.results, sealed, inside),
        stamps=[_stamp(token) for token in tokens],
        grade=grade_of(tokens),
    )


def read_lock(files: LockFiles) -> Lock:
    """What stands beside a lock's manifest."""
    return decoded(_lock, files.about, read_bytes(files.about))


def _looks(home: Home) -> Iterator[Look]:
    path = home.results / LOOKS
    if path.exists():
        for line in read_bytes(path, MAX_LOOKS).split(b"\n")[:-1]:
            yield decoded(_look, path, line)


def amendments_of(found: Found) -> list[AmendmentEvidence]:
    """Every amendment of every registration, in order."""
    return [_amendment(seals) for one in found.registered for seals in found.home.chain(one.content.id)[:-1]]


def _amendment(before: Seals) -> AmendmentEvidence:
    statement = read_amendment(before.folder)
    return AmendmentEvidence(
        id=statement.registration,
        number=statement.number,
        stage=statement.stage,
        why=statement.why,
        data_seen=statement.data_seen,
        files=statement.files,
        replaces=statement.replaces,
        commit=before.read_about().git_commit,
    )


def evidence_of(found: Found, replay: Replayed | None) -> Evidence:
    """All of it, with the sentences."""
    from kvexp.prereg.checks import cannot_exclude, sentences

    attempts = found.attempt_evidence()
    grades = [seal.grade for seal in found.seals.values()]
    return Evidence(
        study=found.home.study,
        grade=min(grades, default=0),
        seals=list(found.seals.values()),
        amendments=amendments_of(found),
        attempts=attempts,
        locks=list(found.locks.values()),
        looks=found.looks,
        replay=replay,
        checks=list(sentences(found, attempts, replay)),
        cannot=list(cannot_exclude(found)),
    )
