"""What seals, locks, looks, amendments and evidence look like on disk, and whose time stamps count.

Like the log schema in `kvexp.records`: versioned by tag, unknown fields refused, null means undefined.

    <home>/seals/<ID>.json           Sealed
    <home>/seals/<ID>.shards.jsonl   SealedShard, one a shard
    <home>/amendments/<ID>-N/        amendment.toml (Amendment) and the files that it replaced
    results/<study>/locks/<suite>.json   Lock
    results/<study>/looks.jsonl      Look, appended
    results/<study>/evidence.json    Evidence
"""

from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from kvexp.records import Count, Digest, Id, Record, Share

Kind = Literal["self-run", "pinned", "public"]
# The public time-stamp authorities that kvexp ships: by the name of the file in preregistration/trust, what
# `openssl x509 -fingerprint -sha256` prints of their roots. A seal covers this file. So an author can pin any
# root, but not make it count as a third party without a change that a reviewer sees.
PUBLIC = {
    "digicert": "552f7bdcf1a7af9e6ce672017f4f12abf77240c78e761ac203d1d9d20ac89988",
    "globalsign": "2cabeafe37d06ca22aba7391c0033d25982952c453647349763a3ab5ad6ccf69",
    "identrust": "5d56499be4d2e08bcfcad08a3e38723d50503bde706948e42f55603019e528ae",
}
KINDS: dict[Kind, str] = {
    "self-run": "the author's word, by a self-run authority",
    "pinned": "the author's word: an authority pinned by this repository, not one that kvexp ships",
    "public": "a public authority, its root pinned",
}


def is_public(root_sha256: str) -> bool:
    """Whether a root is one of those that kvexp ships."""
    return root_sha256 in PUBLIC.values()


# Names below results/<study>.
COPIED = "preregistration"  # where a study was sealed as a copy
LOCKS = "locks"
LOCKED = f"{LOCKS}/registration"  # copied beside the logs when they were locked: what they are judged by
CORE_COPY = f"{LOCKS}/core"  # the sealed code, copied at the same time: what `--as-sealed` judges by
LOOKS = "looks.jsonl"
STAMPS = (".tsq", ".tsr")  # query and reply of a time stamp; they may come after what they vouch for

Stage = Literal["before-data", "after-data"]
Grade = Literal[0, 1, 2, 3]
GRADES = {
    0: "the author's word, no time stamp",
    1: "the author's word, by an authority that is self-run or not shipped with kvexp",
    2: "a public authority, its root pinned",
    3: "two independent public authorities",
}
SHOWN = 3  # problems in one sentence
WITNESSED = 2  # the lowest grade at which somebody else than the author vouches for the time


class Form(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of a record."""


class Sealed(Record, frozen=True, kw_only=True, tag="seal/1"):
    """What stands beside a manifest, and is listed in it."""

    study: Id
    id: Id  # of the registration
    suites: list[Id]
    parent: Digest | None  # seal id of the parent registration
    amends: Digest | None  # seal id that this one replaces
    data_seal: Digest | None  # after an amendment with data: the seal whose anchor keys the draws
    git_commit: str | None  # where the sealed files can be found again; the author's word
    # Of the command line, beyond the study's file and without places of a machine; null: it was not kept.
    overrides: list[str] | None = None


class SealedShard(Record, frozen=True, kw_only=True, tag="sealed_shard/1"):
    """One shard that the study must contain."""

    suite: Id
    shard_id: Id
    shard_digest: Digest
    protocol_digest: Digest
    rows: Count
    grid_sha256: Digest  # of the shard's lines in grid.jsonl
    questions_sha256: Digest  # of the ids, texts and references of its examples
    model_digest: Digest | None  # of weights, config and tokenizer; null: a commit of the hub pins them
    config: dict[str, Any]  # what shard_digest is the digest of


class Amendment(Form, frozen=True, kw_only=True):
    """A registered change of sealed files, as the author states it."""

    format: Literal["kvexp-amendment/1"]
    registration: Id
    number: Count
    stage: Stage  # whether a suite of the registration had an attempt
    why: str
    data_seen: str  # what the author had seen of the data
    replaces: Digest  # seal id before
    accepts_protocol: bool  # rows made by the protocol of the seal before keep counting
    attempts: Count  # of the registration's suites, at that time
    looks: Count  # unblinded analyses recorded at that time
    files: dict[str, str]  # path: changed, added or missing


class Lock(Record, frozen=True, kw_only=True, tag="lock/1"):
    """Closes a suite: what its manifest lists does not change any more."""

    study: Id
    suite: Id
    registration: Id
    seal: Digest
    rows: Count
    expected: Count
    incomplete: str | None  # why it was locked although rows are missing; null: it is complete
    looks: Count  # unblinded analyses recorded until then
    looks_sha256: Digest  # of the bytes of looks.jsonl until then


class Look(Record, frozen=True, kw_only=True, tag="look/1"):
    """One unblinded analysis while a sealed suite was not locked."""

    at: str  # UTC, by the clock of the machine
    user: str
    suites: list[Id]  # sealed and not locked
    claims: list[str]
    rows: Count
    verdicts_sha256: Digest  # of verdicts.json


class Stamp(Form, frozen=True, kw_only=True):
    """A verified time-stamp token."""

    trust: str  # name of the pinned root
    witness: str  # subject of the signing certificate
    root_sha256: Digest
    kind: Kind  # of that root
    time: str  # UTC, as signed
    serial: str
    anchor: Digest

    @property
    def grade(self) -> Literal[1, 2]:
        """What it alone is worth."""
        return 2 if self.kind == "public" else 1


def grade_of(stamps: Iterable[Stamp]) -> Grade:
    """What the stamps of one manifest are worth together: 3 needs two public ones with different roots."""
    found = list(stamps)
    if len({one.root_sha256 for one in found if one.grade == 2}) > 1:
        return 3
    return max((one.grade for one in found), default=0)


def vouched(stamps: Iterable[Stamp]) -> str:
    """The grade of some stamps in words."""
    found = list(stamps)
    kinds = {one.kind for one in found}
    if len(kinds) == 1 and grade_of(found) < 3:
        return KINDS[kinds.pop()]
    return GRADES[grade_of(found)]


class SealEvidence(Form, frozen=True, kw_only=True):
    """A registration and its seal."""

    id: Id
    title: str
    seal: Digest | None  # null: not sealed
    existing_data: str
    parent: str | None
    commit: str | None
    differences: list[str]  # sealed files that are not what they were
    stamps: list[Stamp]
    grade: Grade
    anchor: str
    registered_at: str | None = None  # the author's word
    registrations_made: Count | None = None  # of this question, this one included; the author's word


class AmendmentEvidence(Form, frozen=True, kw_only=True):
    """One step of a registration's history."""

    id: Id
    number: Count
    stage: Stage
    why: str
    data_seen: str
    files: dict[str, str]
    replaces: Digest
    commit: str | None  # where the replaced seal can be analysed again
    attempts: Count  # of the registration's suites, at that time
    looks: Count  # unblinded analyses recorded at that time
    stamps: list[Stamp]  # of the seal that it replaced


class AttemptEvidence(Form, frozen=True, kw_only=True):
    """One process start, whether its rows count or not."""

    suite: Id
    shard_id: Id
    number: Count
    rows: Count
    is_closed: bool  # the shard has a footer
    counts: bool  # made under the seal
    reason: str  # why it does not count; empty: it does
    started_at: str
    host: str
    git_commit: str | None
    git_dirty: bool | None


class LockEvidence(Form, frozen=True, kw_only=True):
    """A suite's lock."""

    suite: Id
    manifest: Digest | None  # null: not locked
    incomplete: str | None
    differences: list[str]
    stamps: list[Stamp]
    grade: Grade


class Replayed(Form, frozen=True, kw_only=True):
    """Keep sets recomputed from the anchor with the model, for rows chosen at random."""

    rows: Count
    of: Count  # rows of random designs in the logs
    seed: Count  # of the choice of rows
    digests_equal: Count
    probed: Count  # places of the keep masks that were compared
    agree: Count
    agreement: Share
    lo: Share
    hi: Share
    scores_equal: Count
    same_stack: bool  # the versions, device and dtype of the attempts
    holds: bool
    disagreements: list[str]


class Regenerated(Form, frozen=True, kw_only=True):
    """Every arm of some examples, chosen at random, answered again with the model."""

    examples: Count
    of: Count  # examples whose rows are all in the logs
    failed: Count  # left out: the last try failed, so there is no answer
    missing: Count  # left out: rows are missing
    seed: Count  # of the choice of examples
    rows: Count
    equal: Count  # in every field that no clock decides
    keep_sets_equal: Count
    texts_equal: Count
    near_ties: Count  # texts that part where two tokens were nearly as likely, on other software
    largest: dict[str, float]  # difference of each signal that can be compared, over max(1, its size)
    same_stack: bool  # the versions, device and dtype of the attempts
    holds: bool
    disagreements: list[str]


class Check(Form, frozen=True, kw_only=True):
    """One sentence of the evidence."""

    name: str
    holds: bool | None  # null: it cannot be told
    words: str


def all_hold(name: str, problems: list[str], words: str) -> Check:
    """A check that holds without problems, and else names the first ones."""
    more = f" (and {len(problems) - SHOWN} more)" if len(problems) > SHOWN else ""
    said = "; ".join(problems[:SHOWN]) + more if problems else words
    return Check(name=name, holds=not problems, words=said)


# A default is for a field that older evidence lacks. It is left out where it is null: the bytes stay.
class Evidence(Record, frozen=True, kw_only=True, omit_defaults=True, tag="evidence/2"):
    """All that `kvexp verify` found. No clock and no path of the machine is in it."""

    study: Id
    home: str  # folder of the registrations, from the root of the repository
    # What it was judged from and the digest of each: see `judged_from.Judged`.
    read: dict[str, str]
    grade: Grade  # the lowest of the seals
    seals: list[SealEvidence]
    amendments: list[AmendmentEvidence]
    attempts: list[AttemptEvidence]
    locks: list[LockEvidence]
    looks: list[Look]
    replay: Replayed | None
    checks: list[Check]
    cannot: list[str]  # what no file can exclude
    regenerated: Regenerated | None = None
