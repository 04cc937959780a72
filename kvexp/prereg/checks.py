"""The sentences of the evidence: what holds, what fails, and what cannot be told or excluded."""

import hashlib
import itertools
from collections import Counter
from collections.abc import Iterator

from kvexp.errors import IntegrityError
from kvexp.prereg.attempts import FOREIGN_ANCHOR, broken_chains
from kvexp.prereg.chain import UNANCHORED
from kvexp.prereg.evidence import Found, read_lock
from kvexp.prereg.forms import LOOKS, AttemptEvidence, Check, LockEvidence, Replayed, SealEvidence
from kvexp.prereg.lock import LockFiles
from kvexp.prereg.registration import Registered
from kvexp.prereg.seal import read_bytes
from kvexp.questions import asked_of, questions_digest

SHOWN = 3


def sentences(found: Found, attempts: list[AttemptEvidence], replay: Replayed | None) -> Iterator[Check]:
    """Every check, in the order of the story: registration, stamps, attempts, lock, looks, replay."""
    for seal in found.seals.values():
        yield _sealed(seal)
    yield _all_hold("stamps", found.problems, "every time stamp and paper can be read and verified")
    for one in found.registered:
        yield from _order(found, one.content.id, attempts)
        if one.content.parent is not None:
            yield _addendum(found, one.content.id, one.content.parent)
            yield from _earlier_data(one)
    yield from _amended(found)
    yield _counting(attempts)
    broken = broken_chains(found.attempts)
    yield _all_hold("chain", broken, "attempts are numbered without a gap and name the one before them")
    yield _clean(attempts)
    if any(seal.seal for seal in found.seals.values()):
        yield _questions(found)
    for lock in found.locks.values():
        yield _locked(lock, found)
    yield _looks(found)
    if replay is not None:
        yield _replayed(replay)


def _all_hold(name: str, problems: list[str], words: str) -> Check:
    more = f" (and {len(problems) - SHOWN} more)" if len(problems) > SHOWN else ""
    return Check(
        name=name, holds=not problems, words="; ".join(problems[:SHOWN]) + more if problems else words
    )


def _sealed(seal: SealEvidence) -> Check:
    name = f"seal {seal.id}"
    if seal.seal is None:
        return Check(name=name, holds=None, words="not sealed: nothing shows what was registered")
    if seal.differences:
        return _all_hold(name, [f"{line} since the seal" for line in seal.differences], "")
    return Check(name=name, holds=True, words="every sealed file is what it was when it was sealed")


def _order(found: Found, registration_id: str, attempts: list[AttemptEvidence]) -> Iterator[Check]:
    """Registration before data: by the anchor, which no clock can move, and by the clocks."""
    seal, name = found.seals[registration_id], f"{registration_id} before its data"
    mine = [one for one in attempts if found.owner(one.suite) == registration_id and one.counts]
    if seal.seal is None:
        return
    if not mine:
        if any(found.owner(one.suite) == registration_id for one in attempts):
            yield Check(name=name, holds=None, words="no attempt of its suites counts")
        return
    if seal.anchor == UNANCHORED:
        words = f"no time stamp: the {len(mine)} attempts that count may be older than the registration"
        yield Check(name=name, holds=None, words=words)
        return
    yield Check(
        name=name,
        holds=True,
        words=f"each of the {len(mine)} attempts that count carries the anchor of the time stamp, which did "
        "not exist before it, and the Poisson draws are keyed by it",
    )
    times = [stamp.time for stamp in seal.stamps if stamp.anchor == seal.anchor]
    first = min(one.started_at for one in mine)
    if times:
        is_later = first >= times[0][:19]
        order = "after" if is_later else "BEFORE"
        words = f"by the clocks, the first attempt began ({first}) {order} the time stamp ({times[0]})"
        yield Check(name=f"clocks of {registration_id}", holds=True if is_later else None, words=words)


def _addendum(found: Found, registration_id: str, parent: str) -> Check:
    name = f"addendum {registration_id}"
    files, above = found.home.seals(registration_id), found.home.chain(parent)[0]
    if not files.is_sealed() or not above.is_sealed():
        return Check(name=name, holds=None, words=f"{registration_id} and {parent} are not both sealed")
    if files.read_about().parent != above.read_manifest().digest:
        return Check(name=name, holds=False, words=f"its seal names another seal of {parent} as its parent")
    return Check(name=name, holds=True, words=f"sealed after {parent}, whose seal it names")


def _earlier_data(one: Registered) -> Iterator[Check]:
    """Claims of an addendum that read suites of its parent: their data may have been there, and seen."""
    mine = set(one.content.suites)
    for claim_id, claim in one.content.claim.items():
        rows = claim.population or claim.cells
        others = [] if rows is None else sorted(set(rows.suites) - mine)
        if others:
            seen = "; ".join(one.content.data_seen) or "nothing"
            words = (
                f"it reads {', '.join(others)}, which {one.content.id} does not key: nothing shows that it "
                f"came before those data; the author's word on data seen: {seen}"
            )
            yield Check(name=f"claim {claim_id}", holds=None, words=words)


def _amended(found: Found) -> Iterator[Check]:
    """Each step names the seal before it; one that says it came before data has no attempts under that."""
    for one in found.registered:
        chain = found.home.chain(one.content.id)
        for number, (before, after) in enumerate(itertools.pairwise(chain), start=1):
            digest, about = before.read_manifest().digest, after.read_about()
            seals = {attempt.attempt.seal for attempt in found.attempts}
            name = f"amendment {one.content.id}-{number}"
            if about.amends != digest:
                yield Check(name=name, holds=False, words="the seal after it does not name the one before it")
            elif about.data_seal is None and digest in seals:
                yield Check(
                    name=name, holds=False, words="it says that it came before data, and there are attempts"
                )
            else:
                stage = "before any attempt" if about.data_seal is None else "after attempts had been made"
                yield Check(name=name, holds=True, words=f"made {stage}; it names the seal before it")


def _counting(attempts: list[AttemptEvidence]) -> Check:
    left = [one for one in attempts if not one.counts]
    if forged := [one for one in left if one.reason == FOREIGN_ANCHOR]:
        words = f"{len(forged)} attempts name the seal, but {FOREIGN_ANCHOR} (first: {forged[0].shard_id})"
        return Check(name="attempts", holds=False, words=words)
    if not left:
        words = f"all {len(attempts)} attempts count" if attempts else "there is no attempt yet"
        return Check(name="attempts", holds=True if attempts else None, words=words)
    reasons = ", ".join(f"{n} {reason}" for reason, n in sorted(Counter(one.reason for one in left).items()))
    rows = sum(one.rows for one in left)
    words = f"{len(left)} of {len(attempts)} attempts do not count, with {rows:,} rows: {reasons}"
    return Check(name="attempts", holds=None, words=words)


def _clean(attempts: list[AttemptEvidence]) -> Check:
    dirty = sum(bool(one.git_dirty) for one in attempts if one.counts)
    unknown = sum(one.git_dirty is None for one in attempts if one.counts)
    if dirty:
        words = f"{dirty} attempts that count were made from a tree with uncommitted changes"
        return Check(name="clean tree", holds=None, words=words)
    if unknown:
        return Check(
            name="clean tree", holds=None, words=f"{unknown} attempts that count were made outside of git"
        )
    return Check(name="clean tree", holds=True, words="no attempt that counts had uncommitted changes")


def _questions(found: Found) -> Check:
    """The examples beside the logs are those that were sealed."""
    wrong, unread = [], 0
    for one in found.registered:
        for shard in found.standing(one.content.id).values():
            model, task = shard.config["model"]["name"], shard.config["task"]["name"]
            path = found.home.results / "examples" / f"{shard.suite}.{model}.{task}.jsonl"
            if not path.exists():
                unread += 1
                continue
            asked = asked_of(path)
            ids = shard.config["example_ids"]
            if any(i not in asked for i in ids):
                wrong.append(f"examples of {shard.shard_id} are missing in {path.name}")
            elif questions_digest({i: asked[i] for i in ids}) != shard.questions_sha256:
                wrong.append(f"examples of {shard.shard_id} are not those that were sealed")
    if not wrong and unread:
        words = f"the examples of {unread} sealed shards are not written yet"
        return Check(name="questions", holds=None, words=words)
    return _all_hold("questions", wrong, "the questions and references are those that were sealed")


def _locked(lock: LockEvidence, found: Found) -> Check:
    name = f"lock {lock.suite}"
    if lock.manifest is None:
        return Check(name=name, holds=None, words="not locked: its logs may still change")
    if lock.differences:
        return _all_hold(name, [f"{line} since the lock" for line in lock.differences], "")
    owner = found.owner(lock.suite)
    if read_lock(LockFiles(found.home.results, lock.suite)).seal != found.seals[owner].seal:
        again = f"kvexp lock {found.home.study} {lock.suite} --again"
        words = f"locked under another seal than {owner} has now: {again}"
        return Check(name=name, holds=None, words=words)
    when = ", ".join(stamp.time for stamp in lock.stamps) or "without a time stamp"
    reason = "" if lock.incomplete is None else f"; locked although rows are missing: {lock.incomplete}"
    return Check(name=name, holds=True, words=f"no log has changed since it was locked ({when}){reason}")


def _looks(found: Found) -> Check:
    path = found.home.results / LOOKS
    body = read_bytes(path) if path.exists() else b""
    for suite, lock in found.locks.items():
        if lock.manifest is None:
            continue
        about = read_lock(LockFiles(found.home.results, suite))
        until = b"".join(body.splitlines(keepends=True)[: about.looks])
        if hashlib.sha256(until).hexdigest() != about.looks_sha256:
            return Check(
                name="looks", holds=False, words=f"{LOOKS} is not what it was at the lock of {suite}"
            )
    if not found.looks:
        return Check(name="looks", holds=True, words="no unblinded analysis before the lock is recorded")
    count, first = len(found.looks), found.looks[0]
    words = f"{count} unblinded analyses before the lock, the first at {first.at} with {first.rows:,} rows"
    return Check(name="looks", holds=None, words=words)


def _replayed(replay: Replayed) -> Check:
    stack = "the software of the attempts" if replay.same_stack else "other software than the attempts'"
    words = (
        f"{replay.digests_equal} of {replay.rows} keep sets recomputed from the anchor on {stack} are the "
        f"logged ones, {replay.agreement:.5f} of {replay.probed:,} probed places agree, "
        f"{replay.scores_equal} scores are those of the logged text (rows chosen by --seed {replay.seed}; "
        "every row of every arm was scored again)"
    )
    if replay.disagreements:
        words = f"{words}; {len(replay.disagreements)} disagreements, first: {replay.disagreements[0]}"
    return Check(name="replay", holds=replay.holds, words=words)


def cannot_exclude(found: Found) -> Iterator[str]:
    """What a reader must take on trust, whatever the checks say."""
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
    yield (
        "Attempts that were deleted with every trace, and a lock that was thrown away to change logs and "
        "lock again, cannot be seen here; a cluster's own accounting, or a lock digest that was published, "
        "shows them."
    )
    yield (
        "A replay vouches for the keep sets of random arms and for the scores of logged texts; texts, "
        "certificates and log-probabilities are the logs' word until some rows are generated again."
    )
    levels = ", ".join(f"{seal.id}: {seal.existing_data}" for seal in found.seals.values())
    yield (
        "What deterministic arms answer follows from public models and data, so it could have been known "
        f"before the registration; the author's word on existing data is {levels}."
    )
    if any(seal.grade == 1 for seal in found.seals.values()):
        yield "The time stamps come from an authority that the author runs: the times are the author's word."
    roots = {(s.trust, s.root_sha256) for seal in found.seals.values() for s in seal.stamps if s.grade >= 2}
    for name, digest in sorted(roots):
        yield (
            f"That the pinned root {name} belongs to the authority of that name: compare its SHA-256 "
            f"fingerprint {digest} with the one that the authority publishes."
        )
    if any(seal.grade == 0 for seal in found.seals.values()):
        yield "Without a time stamp, the registration may have been written after the results."
    if any(lock.manifest is not None and lock.grade < 2 for lock in found.locks.values()):
        yield "No third party vouches for the time of the locks: logs may have been changed and locked again."


def refuse_failing(checks: list[Check]) -> None:
    """Raises IntegrityError, with the list, if a check fails."""
    failing = [f"{check.name}: {check.words}" for check in checks if check.holds is False]
    if failing:
        raise IntegrityError(f"{len(failing)} checks of the evidence fail", failing)
