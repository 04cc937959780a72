"""What the logs bear out: attempts, trees, examples, locks, looks and the replay."""

import hashlib
from collections import Counter
from collections.abc import Iterator

from kvexp.ceremony.attempts import FOREIGN_ANCHOR, broken_chains
from kvexp.ceremony.evidence import Found
from kvexp.documents.forms import LOOKS, AttemptEvidence, Check, LockEvidence, Regenerated, Replayed, all_hold
from kvexp.documents.locks import LockFiles
from kvexp.documents.manifest import read_bytes
from kvexp.run.prepare import asked_of, questions_digest

# What answering examples again bears out, in one sentence.


def answers_check(again: Regenerated) -> Check:
    """The sentence of `kvexp verify --decode`."""
    words = "; ".join(_parts(again))
    return Check(name="answers", holds=again.holds, words=words)


def _parts(again: Regenerated) -> Iterator[str]:
    stack = "the software of the attempts" if again.same_stack else "other software than the attempts'"
    yield (
        f"{again.examples} of {again.of} examples were answered again with all arms on {stack} (chosen by "
        f"--seed {again.seed})"
    )
    yield (
        f"{again.equal} of {again.rows} rows are the logged ones in every digit, {again.texts_equal} have "
        f"the same text and {again.keep_sets_equal} the same keep set"
    )
    if again.near_ties:
        yield f"{again.near_ties} texts part at a near-tie of two tokens"
    if not again.same_stack and again.largest:
        name, value = max(again.largest.items(), key=lambda item: item[1])
        yield f"the largest difference of a signal that can be compared is {value:.2g} ({name})"
    if again.failed or again.missing:
        yield f"left out: {again.failed} examples that failed and {again.missing} that lack rows"
    if again.disagreements:
        yield f"{len(again.disagreements)} disagreements, first: {again.disagreements[0]}"


def of_logs(
    found: Found,
    attempts: list[AttemptEvidence],
    replay: Replayed | None,
    regenerated: Regenerated | None = None,
) -> Iterator[Check]:
    """Every check of what was run, in the order of the story: attempts, locks, looks, replay."""
    yield _counting(attempts)
    broken = broken_chains(found.attempts)
    yield all_hold("chain", broken, "attempts are numbered without a gap and name the one before them")
    yield _clean(attempts)
    if any(seal.seal for seal in found.seals.values()):
        yield _questions(found)
    for lock in found.locks.values():
        yield _locked(lock, found)
    yield _looks(found)
    if replay is not None:
        yield _replayed(replay)
    if regenerated is not None:
        yield answers_check(regenerated)


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
    return all_hold("questions", wrong, "the questions and references are those that were sealed")


def _locked(lock: LockEvidence, found: Found) -> Check:
    name = f"lock {lock.suite}"
    if lock.manifest is None:
        return Check(name=name, holds=None, words="not locked: its logs may still change")
    if lock.differences:
        return all_hold(name, [f"{line} since the lock" for line in lock.differences], "")
    owner = found.owner(lock.suite)
    if LockFiles(found.home.results, lock.suite).read_about().seal != found.seals[owner].seal:
        again = found.home.command("lock", lock.suite, "--again")
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
        about = LockFiles(found.home.results, suite).read_about()
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
        f"{replay.scores_equal} of their scores are those of the logged text (rows chosen by --seed "
        f"{replay.seed}); every logged text of every arm was scored again"
    )
    if replay.disagreements:
        words = f"{words}; {len(replay.disagreements)} disagreements, first: {replay.disagreements[0]}"
    return Check(name="replay", holds=replay.holds, words=words)
