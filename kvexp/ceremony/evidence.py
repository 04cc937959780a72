"""`kvexp verify`: who said what when, and whether files, stamps, attempts and locks bear it out.

Everything is read from files; nothing here decides a verdict. The result has no clock and no path of the
machine in it, so that the same files give the same bytes.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from kvexp.ceremony.attempts import Started, started
from kvexp.ceremony.authorities import StampError, load_trust
from kvexp.ceremony.home import Home
from kvexp.ceremony.stamp import keying_anchor, read_tokens
from kvexp.ceremony.tokens import Token
from kvexp.documents.forms import (
    LOOKS,
    AmendmentEvidence,
    AttemptEvidence,
    LockEvidence,
    Look,
    SealEvidence,
    Stamp,
    grade_of,
)
from kvexp.documents.locks import LockFiles
from kvexp.documents.manifest import read_bytes
from kvexp.documents.registration import Registered
from kvexp.documents.seals import (
    UNANCHORED,
    Lines,
    accepted,
    decoded,
    read_amendment,
    seal_differences,
)
from kvexp.errors import IntegrityError
from kvexp.records import Reader

FILE = "evidence.json"
MAX_LOOKS = 4 * 1024 * 1024
_look: Reader[Look] = Reader(Look)
T = TypeVar("T")
NONE_YET = "before-creation"
SEEN = "after-analysis"
MEANS = {
    NONE_YET: "there were none yet",
    "before-observation": "there were some, and nobody had observed them",
    "before-access": "there were some, and the author had no access to them",
    "before-analysis": "the author had them, and had not analysed them",
    SEEN: "the author had analysed them",
}


def told(level: str) -> str:
    """A level of the registration's `existing_data` in words, as the author states it."""
    return f"{MEANS[level]} ({level})" if level in MEANS else level


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

    def suites(self, registration_id: str) -> set[str]:
        """The suites that a registration lists."""
        mine = (one.content for one in self.registered if one.content.id == registration_id)
        return {suite for content in mine for suite in content.suites}

    def attempt_evidence(self) -> list[AttemptEvidence]:
        """Every attempt, judged by the seals of its suite's registration."""
        return [
            one.evidence(self.lines[self.owner(one.suite)], self.seals[self.owner(one.suite)].anchor)
            for one in self.attempts
        ]


def find(home: Home, registered: list[Registered]) -> Found:
    """Read everything. Raises IntegrityError for a seal, lock or attempt that cannot be read at all."""
    return _Finder(home).find(registered)


class _Finder:
    """Reads what lies around a study; a paper or stamp that cannot be read stops nothing and is told."""

    def __init__(self, home: Home) -> None:
        self.home, self.trusts = home, load_trust(home.root, home.folder)
        self.problems: list[str] = []

    def find(self, registered: list[Registered]) -> Found:
        ids = [one.content.id for one in registered]
        seals, lines = {}, {}
        for one, name in zip(registered, ids, strict=True):
            seals[name], lines[name] = self._seal(one), self._lines(name)
        suites = sorted({suite for one in registered for suite in one.content.suites})
        return Found(
            home=self.home,
            registered=registered,
            seals=seals,
            lines=lines,
            locks={suite: self._lock(suite) for suite in suites},
            amendments=[step for name in ids for step in self._amendments(name)],
            attempts=list(started(self.home.results, suites)),
            looks=list(self._looks()),
            problems=[problem.replace(f"{self.home.root}/", "") for problem in self.problems],
        )

    def _told(self, read: Callable[[], T], otherwise: T) -> T:
        """What is read, or `otherwise`, with the reason among the problems."""
        try:
            return read()
        except (IntegrityError, StampError) as error:
            self.problems.append(str(error))
            return otherwise

    def _lines(self, name: str) -> dict[str, Lines]:
        if not self.home.seals(name).is_sealed():
            return {}
        return self._told(lambda: accepted(self.home.folder, name), {})

    def _seal(self, one: Registered) -> SealEvidence:
        home, content, files = self.home, one.content, self.home.seals(one.content.id)
        seal, found, stamps, anchor, commit = None, list[str](), list[Stamp](), UNANCHORED, None
        if files.is_sealed():
            sealed = files.read_manifest()
            seal = sealed.digest
            found = seal_differences(home.root, home.folder, content.id, content.claim)
            stamps = self._stamps(files.manifest)
            anchor = self._told(lambda: keying_anchor(home, content.id), UNANCHORED)
            commit = self._told(lambda: files.read_about().git_commit, None)
        return SealEvidence(
            id=content.id,
            title=content.title,
            existing_data=content.existing_data,
            parent=content.parent,
            registered_at=None if content.registered_at is None else content.registered_at.isoformat(),
            registrations_made=content.registrations_made,
            seal=seal,
            commit=commit,
            differences=found,
            stamps=stamps,
            grade=grade_of(stamps),
            anchor=anchor,
        )

    def _stamps(self, manifest: Path) -> list[Stamp]:
        tokens = self._told(lambda: read_tokens(manifest, self.trusts), list[Token]())
        return [token.stamp for token in tokens]

    def _lock(self, suite: str) -> LockEvidence:
        files = LockFiles(self.home.results, suite)
        if not files.is_locked:
            return LockEvidence(
                suite=suite, manifest=None, incomplete=None, differences=[], stamps=[], grade=0
            )
        sealed = files.read_manifest()
        stamps = self._stamps(files.manifest)
        return LockEvidence(
            suite=suite,
            manifest=sealed.digest,
            incomplete=files.read_about().incomplete,
            differences=files.differences(sealed),
            stamps=stamps,
            grade=grade_of(stamps),
        )

    def _looks(self) -> Iterator[Look]:
        path = self.home.results / LOOKS
        if path.exists():
            for line in read_bytes(path, MAX_LOOKS).split(b"\n")[:-1]:
                yield decoded(_look, path, line)

    def _amendments(self, name: str) -> Iterator[AmendmentEvidence]:
        """Every amendment of a registration, in order."""
        for before in self.home.chain(name)[:-1]:
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
                stamps=self._stamps(before.manifest),
            )
