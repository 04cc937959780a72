"""`kvexp verify`: who said what when, and whether files, stamps, attempts and locks bear it out.

Everything is read from files; nothing here decides a verdict. The result has no clock and no path of the
machine in it, so that the same files give the same bytes.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvexp.ceremony.attempts import Started, started
from kvexp.ceremony.authorities import StampError, Trust, load_trust
from kvexp.ceremony.home import Home
from kvexp.ceremony.intact import anchor_of
from kvexp.ceremony.tokens import Token, grade_of, read_tokens
from kvexp.documents.forms import (
    LOOKS,
    AmendmentEvidence,
    AttemptEvidence,
    Lock,
    LockEvidence,
    Look,
    SealEvidence,
    Stamp,
)
from kvexp.documents.locks import LockFiles
from kvexp.documents.manifest import read_bytes
from kvexp.documents.registration import Registered
from kvexp.documents.seals import (
    UNANCHORED,
    Lines,
    Seals,
    accepted,
    decoded,
    read_amendment,
    seal_differences,
)
from kvexp.errors import IntegrityError
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
        amendments: of every registration, in order.
        problems: stamps and papers that cannot be read, one sentence each.
    """

    home: Home
    registered: list[Registered]
    seals: dict[str, SealEvidence]
    lines: dict[str, dict[str, Lines]]
    attempts: list[Started]
    locks: dict[str, LockEvidence]
    looks: list[Look]
    amendments: list[AmendmentEvidence]
    problems: list[str]

    @property
    def stamps(self) -> list[Stamp]:
        """The time stamps of all seals, those before amendments included, and locks."""
        found = [one.stamps for one in self.seals.values()] + [one.stamps for one in self.amendments]
        return [stamp for each in (*found, *(one.stamps for one in self.locks.values())) for stamp in each]

    def amended_after_data(self, registration_id: str) -> list[AmendmentEvidence]:
        """The amendments of a registration that came after attempts of its suites."""
        return [one for one in self.amendments if one.id == registration_id and one.stage == "after-data"]

    def standing(self, registration_id: str) -> Lines:
        """The shards that the seal lists; none if it cannot be read."""
        return self.lines[registration_id].get(self.seals[registration_id].seal or "", {})

    def owner(self, suite: str) -> str:
        """The registration that lists a suite."""
        return next(one.content.id for one in self.registered if suite in one.content.suites)

    def owns(self, registration_id: str, suite: str) -> bool:
        """Whether a registration lists a suite; looks may name suites of registrations that are gone."""
        return any(
            suite in one.content.suites for one in self.registered if one.content.id == registration_id
        )

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
    locks = {suite: _locked(home, suite, trusts, problems) for suite in suites}
    steps = [step for one in registered for step in _amendments(home, one.content.id, trusts, problems)]
    return Found(
        home=home,
        registered=registered,
        seals=seals,
        lines=lines,
        attempts=list(started(home.results, suites)),
        locks=locks,
        looks=list(_looks(home)),
        amendments=steps,
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
    found = seal_differences(home.root, home.folder, name, one.content.claim)
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
        kind=token.kind,
        time=token.time,
        serial=f"{token.serial:x}",
        anchor=token.anchor,
    )


def _locked(home: Home, suite: str, trusts: dict[str, Trust], problems: list[str]) -> LockEvidence:
    files = LockFiles(home.results, suite)
    if not files.is_locked:
        return LockEvidence(suite=suite, manifest=None, incomplete=None, differences=[], stamps=[], grade=0)
    sealed = files.read_manifest()
    tokens = _tokens(files.manifest, trusts, problems)
    return LockEvidence(
        suite=suite,
        manifest=sealed.digest,
        incomplete=files.read_about().incomplete,
        differences=files.differences(sealed),
        stamps=[_stamp(token) for token in tokens],
        grade=grade_of(tokens),
    )


def _looks(home: Home) -> Iterator[Look]:
    path = home.results / LOOKS
    if path.exists():
        for line in read_bytes(path, MAX_LOOKS).split(b"\n")[:-1]:
            yield decoded(_look, path, line)


def _amendments(
    home: Home, registration_id: str, trusts: dict[str, Trust], problems: list[str]
) -> Iterator[AmendmentEvidence]:
    """Every amendment of a registration, in order."""
    for before in home.chain(registration_id)[:-1]:
        statement = read_amendment(before.folder)
        yield AmendmentEvidence(
            id=statement.registration,
            number=statement.number,
            stage=statement.stage,
            why=statement.why,
            data_seen=statement.data_seen,
            files=statement.files,
            replaces=statement.replaces,
            commit=before.read_about().git_commit,
            attempts=statement.attempts,
            looks=statement.looks,
            stamps=[_stamp(token) for token in _tokens(before.manifest, trusts, problems)],
        )
