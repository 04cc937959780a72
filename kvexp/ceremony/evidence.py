"""The evidence of a study: what was sealed, stamped, run and locked when, and what no file can exclude."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import comb
from pathlib import Path
from typing import TypeVar

from kvexp.ceremony.attempts import Started, started
from kvexp.ceremony.authorities import StampError, load_trust
from kvexp.ceremony.home import Home
from kvexp.ceremony.stamp import Token, keying_anchor, read_tokens
from kvexp.documents.forms import (
    LOOKS,
    AmendmentEvidence,
    AttemptEvidence,
    LockEvidence,
    Look,
    Regenerated,
    SealEvidence,
    Stamp,
    grade_of,
)
from kvexp.documents.manifest import read_bytes
from kvexp.documents.registration import Registered
from kvexp.documents.seals import (
    UNANCHORED,
    Lines,
    LockFiles,
    accepted,
    decoded,
    read_amendment,
    seal_differences,
)
from kvexp.errors import IntegrityError
from kvexp.records import Reader

# `kvexp verify`: who said what when, and whether files, stamps, attempts and locks bear it out.
#
# Everything is read from files; nothing here decides a verdict. The result has no clock and no path of the
# machine in it, so that the same files give the same bytes.


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
    """A study's papers and logs, read once."""

    home: Home  # where the registrations lie
    registered: list[Registered]  # the registrations, parents first
    seals: dict[str, SealEvidence]  # by registration id, what is known of its seal
    # By registration id, the shards whose rows count, by seal id; empty: not sealed.
    lines: dict[str, dict[str, Lines]]
    attempts: list[Started]  # every process start of the registered suites
    locks: dict[str, LockEvidence]  # by suite
    looks: list[Look]  # unblinded analyses before the lock
    amendments: list[AmendmentEvidence]  # of every registration, in order
    problems: list[str]  # stamps and papers that cannot be read, one sentence each

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


# What no file can exclude: said in the evidence of every study, in plain sentences.


TO_ADD = (
    "an authority that is public and not shipped counts once its root's fingerprint stands in PUBLIC of "
    "kvexp/documents/forms.py before the seal is made: a change of a sealed file, which a reviewer sees"
)


def cannot_exclude(found: Found, regenerated: Regenerated | None = None) -> Iterator[str]:
    """What a reader must take on trust, whatever the checks say."""
    yield from _of_the_author(found)
    yield from _of_logs(found)
    yield from _of_answers(found, regenerated)
    yield from _of_stamps(found)
    yield (
        "These checks and verdicts are computed on a machine of the author: a Python or a kvexp that was "
        "tampered with prints what it likes, so run both from a fresh clone elsewhere."
    )
    yield (
        "Whether a condition asks what its statement says, and whether a text about this study passes "
        "numbers off as registered that were not, is for the reader to judge."
    )


def _of_the_author(found: Found) -> Iterator[str]:
    counts = [
        f"{seal.id} is said to be number {seal.registrations_made}"
        for seal in found.seals.values()
        if seal.registrations_made is not None
    ]
    yield (
        "The author may have registered other versions of this study and shown only this one, read raw logs "
        "by eye before the lock, or deleted the record of looks before it"
        f"{''.join(f'; {count}' for count in counts)}."
    )
    levels = ", ".join(f"{seal.id}: {told(seal.existing_data)}" for seal in found.seals.values())
    yield (
        "What deterministic arms answer follows from public models and data, so it could have been known "
        f"before the registration; the author's word on existing data is {levels}."
    )


def _of_logs(found: Found) -> Iterator[str]:
    yield (
        "Attempts that were deleted with every trace, and a lock that was thrown away to change logs and "
        "lock again, cannot be seen here; a cluster's own accounting, or a lock digest that was published, "
        "shows them. A shard that is run again draws the same keep sets, but other hardware may answer "
        "otherwise, and the better answer may have been kept."
    )
    if any(lock.manifest is not None and lock.grade < 2 for lock in found.locks.values()):
        yield "No third party vouches for the time of the locks: logs may have been changed and locked again."


def _of_answers(found: Found, regenerated: Regenerated | None) -> Iterator[str]:
    if regenerated is None:
        command = found.home.command("verify", "--decode", "20")
        yield (
            "A replay of keep sets vouches for those of random arms and for the scores of texts; texts, "
            "certificates and log-probabilities are the logs' word until examples are answered again "
            f"({command})."
        )
        return
    most = most_unseen(regenerated.examples, regenerated.of)
    yield (
        f"Of {regenerated.of:,} examples {regenerated.examples:,} were answered again; texts, certificates "
        f"and log-probabilities of the others are the logs' word. Had more than {most:,} been forged, "
        "such a draw would have met one of them 19 times in 20, if whoever forged them did not choose the "
        "seed: choose your own."
    )
    if regenerated.failed or regenerated.missing:
        yield (
            f"{regenerated.failed:,} examples that failed and {regenerated.missing:,} that lack rows have no "
            "answers to compare."
        )
    if not regenerated.same_stack:
        yield (
            "Answering again ran on other software than the attempts': texts that were exchanged from a "
            "near-tie on, and numbers that were changed by less than software changes them, are not found "
            "there; on the software that the attempts state they are."
        )
    yield "Seconds are never compared: times and costs are the logs' word."


def most_unseen(drawn: int, of: int) -> int:
    """The largest number of forged examples that a draw of some misses with a chance of 5 % or more."""
    most = 0
    while most < of and 20 * comb(of - most - 1, drawn) >= comb(of, drawn):
        most += 1
    return most


def _of_stamps(found: Found) -> Iterator[str]:
    stamps = found.stamps
    kinds = {stamp.kind for stamp in stamps}
    if any(seal.grade == 0 for seal in found.seals.values()):
        yield "Without a time stamp, the registration may have been written after the results."
    if stamps:
        yield (
            "One seal can be stamped again and again, and one query has many valid replies: the author may "
            "have run the random arms under several of their anchors and kept the stamp whose draws suited "
            "best. Each try costs a run of these arms; a cluster's accounting shows it."
        )
    if "self-run" in kinds:
        yield "Time stamps come from an authority that the author runs: their times are the author's word."
    if "pinned" in kinds:
        yield f"Time stamps come from {_names(stamps, 'pinned')}, pinned by this repository; {TO_ADD}."
    if "public" in kinds:
        yield (
            "An authority whose key was stolen, or that helps the author, can sign any time; two independent "
            "authorities over one seal make that harder."
        )
    for name, digest in sorted({(s.trust, s.root_sha256) for s in stamps if s.kind == "public"}):
        yield (
            f"That the pinned root {name} belongs to the authority of that name: compare its SHA-256 "
            f"fingerprint {digest} with the one that the authority publishes."
        )


def _names(stamps: list[Stamp], kind: str) -> str:
    return ", ".join(sorted({f"{one.trust} (root {one.root_sha256})" for one in stamps if one.kind == kind}))
