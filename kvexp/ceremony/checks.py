"""The evidence as a whole: every check of papers and logs, in one sentence each, and what none can tell.

Papers are seals, time stamps, addenda, amendments and copies, and their order to the data; logs are
attempts, trees, examples, locks, looks, and what was made again.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator

from kvexp.ceremony.attempts import FOREIGN_ANCHOR, broken_chains
from kvexp.ceremony.evidence import MEANS, NONE_YET, SEEN, Found, cannot_exclude
from kvexp.ceremony.home import protocols_of
from kvexp.documents.forms import (
    LOCKED,
    LOOKS,
    SHOWN,
    AttemptEvidence,
    Check,
    Evidence,
    LockEvidence,
    Regenerated,
    Replayed,
    SealEvidence,
    all_hold,
)
from kvexp.documents.judged_from import Judged
from kvexp.documents.manifest import differences, read_bytes
from kvexp.documents.registration import Registered
from kvexp.documents.seals import REPLACED, UNANCHORED, UNSEALED, UNSTAMPED, LockFiles, moved_on
from kvexp.run.prepare import asked_of, questions_digest

TOO_EARLY = (UNSEALED, UNSTAMPED, REPLACED)


def check(name: str, holds: bool | None, words: str) -> Check:
    """One sentence of the evidence; `holds` is None where it cannot be told."""
    return Check(name=name, holds=holds, words=words)


def sentences(
    found: Found,
    attempts: list[AttemptEvidence],
    jobs: Iterable[Check],
    replay: Replayed | None,
    regenerated: Regenerated | None = None,
) -> Iterator[Check]:
    """Every check, in the order of the story: registration, stamps, attempts, lock, looks, replay, jobs."""
    yield from of_papers(found, attempts)
    yield from of_logs(found, attempts, replay, regenerated)
    yield from jobs


def _read_digests(found: Found) -> dict[str, str]:
    """What all of this was judged from."""
    home = found.home
    judged = Judged(home.root, home.study, home.results, home.folder, home.prefix)
    suites = {one.content.id: one.content.suites for one in found.registered}
    sealed = [one.content.claim for one in found.registered if found.seals[one.content.id].seal is not None]
    digests = judged.digests(suites, {claim for claims in sealed for claim in claims})
    return {**digests, **judged.authorities({one.trust for one in found.stamps})}


def evidence_of(
    found: Found, jobs: Iterable[Check], replay: Replayed | None, regenerated: Regenerated | None = None
) -> Evidence:
    """All of it, with the sentences; `jobs`: what Slurm's accounting lets one say."""
    attempts = found.attempt_evidence()
    grades = [seal.grade for seal in found.seals.values()]
    return Evidence(
        study=found.home.study,
        home=found.home.prefix,
        read=_read_digests(found),
        grade=min(grades, default=0),
        seals=list(found.seals.values()),
        amendments=found.amendments,
        attempts=attempts,
        locks=list(found.locks.values()),
        looks=found.looks,
        replay=replay,
        checks=list(sentences(found, attempts, jobs, replay, regenerated)),
        cannot=list(cannot_exclude(found, regenerated)),
        regenerated=regenerated,
    )


# Papers.


def of_papers(found: Found, attempts: list[AttemptEvidence]) -> Iterator[Check]:
    """Every check of what was registered, in the order of the story."""
    for seal in found.seals.values():
        yield _sealed(seal)
        yield from _code(found, seal)
    yield all_hold("stamps", found.problems, "every time stamp and paper can be read and verified")
    for one in found.registered:
        name = one.content.id
        mine = [attempt for attempt in attempts if found.owner(attempt.suite) == name]
        yield from _order(found, name, mine)
        yield from _contradictions(found, name, mine)
        if one.content.parent is not None:
            yield _addendum(found, name, one.content.parent)
            yield from _earlier_data(one)
    yield from _amended(found)
    yield from _copies(found)


def _sealed(seal: SealEvidence) -> Check:
    if seal.seal is None:
        return check(f"seal {seal.id}", None, "not sealed: nothing shows what was registered")
    changed = [f"{line} since the seal" for line in seal.differences]
    return all_hold(f"seal {seal.id}", changed, "every sealed file is what it was when it was sealed")


def _code(found: Found, seal: SealEvidence) -> Iterator[Check]:
    """Whether this tree could make the data again: their attempts name the code that did, this one or not."""
    if seal.seal is None or not (sealed := protocols_of(found.home.seals(seal.id)).values()):
        return
    lines = sorted({line for one in sealed for line in differences(found.home.root, one)})
    name = f"code of {seal.id}"
    if not lines:
        yield check(name, True, "the files that make data are those that were sealed")
        return
    more = f" and {len(lines) - SHOWN} more" if len(lines) > SHOWN else ""
    words = "the files that make data are others now, so that nothing can be run again here"
    yield check(name, None, f"{words}: {'; '.join(lines[:SHOWN])}{more}")


def _order(found: Found, registration_id: str, mine: list[AttemptEvidence]) -> Iterator[Check]:
    """Registration before data: by the anchor, which no clock can move, and by the clocks."""
    seal, name = found.seals[registration_id], f"{registration_id} before its data"
    counting = [one for one in mine if one.counts]
    if seal.seal is None or not mine:
        return
    if not counting:
        yield check(name, None, "no attempt of its suites counts")
        return
    if seal.anchor == UNANCHORED:
        n = len(counting)
        yield check(
            name, None, f"no time stamp: the {n} attempts that count may be older than the registration"
        )
        return
    carries = (
        f"each of the {len(counting)} attempts that count carries the anchor of the time stamp, which did "
        "not exist before it, and the Poisson draws are keyed by it"
    )
    if late := found.amended_after_data(registration_id):
        steps = ", ".join(f"{one.id}-{one.number}" for one in late)
        words = f"true of the seal under which data began ({carries}), but amended after data: {steps}"
        yield check(name, None, words)
    else:
        yield check(name, True, carries)
    yield from _clocks(found, registration_id, min(one.started_at for one in counting))


def _clocks(found: Found, registration_id: str, began: str) -> Iterator[Check]:
    """The order by the clocks: shown, never decisive."""
    seal = found.seals[registration_id]
    steps = (one.stamps for one in found.amendments if one.id == registration_id)
    stamps = [stamp for stamped in (seal.stamps, *steps) for stamp in stamped]
    times = [stamp.time for stamp in stamps if stamp.anchor == seal.anchor]
    if not times:
        return
    stamped = times[0][:19]
    order = "BEFORE" if began[:19] < stamped else "after"
    words = f"by the clocks, the first attempt began ({began}) {order} the time stamp ({times[0]})"
    if began[:19] == stamped:
        words = (
            f"by the clocks, the first attempt began in the very second of the time stamp ({times[0]}), "
            "which they cannot order; its anchor shows that the time stamp was there"
        )
    yield check(f"clocks of {registration_id}", None if order == "BEFORE" else True, words)


def _contradictions(found: Found, registration_id: str, mine: list[AttemptEvidence]) -> Iterator[Check]:
    """What of the record is more than the registration's `existing_data` admits; nothing if that fits."""
    seal = found.seals[registration_id]
    if seal.seal is None or seal.existing_data == SEEN:
        return
    if parts := list(_more_than_admitted(found, seal, mine)):
        level = f"{seal.existing_data} ({MEANS.get(seal.existing_data)})"
        words = f"contradicted: existing data is said to be {level}, but {'; '.join(parts)}"
        yield check(f"existing data of {registration_id}", None, words)


def _more_than_admitted(found: Found, seal: SealEvidence, mine: list[AttemptEvidence]) -> Iterator[str]:
    """Attempts, amendments, and looks that are older than every time stamp of the seal that stands."""
    says_none = seal.existing_data == NONE_YET
    early = [one for one in mine if one.reason in TOO_EARLY]
    if early and says_none:
        began = min(one.started_at for one in early)
        yield (
            f"{len(early)} attempts of its suites were made before the seal or its time stamp (the first "
            f"began {began}, by its clock)"
        )
    late = found.amended_after_data(seal.id)
    for one in late:
        if says_none or one.looks:
            yield f"amendment {one.id}-{one.number} came after {one.attempts} attempts and {one.looks} looks"
    times = [stamp.time[:19] for stamp in seal.stamps]
    suites = found.suites(seal.id)
    older = [one for one in found.looks if suites & set(one.suites) and times and one.at[:19] < min(times)]
    if older and not late:
        yield f"{len(older)} looks at its suites are older than its time stamp, by the clocks"


def _addendum(found: Found, registration_id: str, parent: str) -> Check:
    name = f"addendum {registration_id}"
    files, above = found.home.seals(registration_id), found.home.chain(parent)[0]
    if not files.is_sealed() or not above.is_sealed():
        return check(name, None, f"{registration_id} and {parent} are not both sealed")
    if files.read_about().parent != above.read_manifest().digest:
        return check(name, False, f"its seal names another seal of {parent} as its parent")
    return check(name, True, f"sealed after {parent}, whose seal it names")


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
            yield check(f"claim {claim_id}", None, words)


def _amended(found: Found) -> Iterator[Check]:
    """What says that it came before data has no attempts under the seal before it; `chain` sees the rest."""
    seals = {attempt.attempt.seal for attempt in found.attempts}
    for one in found.amendments:
        name, is_late = f"amendment {one.id}-{one.number}", one.stage == "after-data"
        if not is_late and one.replaces in seals:
            yield check(name, False, "it says that it came before data, and there are attempts")
            continue
        seen = f"after {one.attempts} attempts and {one.looks} recorded looks had been made"
        words = f"made {seen if is_late else 'before any attempt'}; it names the seal before it"
        yield check(name, True, words)


def _copies(found: Found) -> Iterator[Check]:
    """What was locked with the logs is what judges them; the folder of registrations may have moved on."""
    home = found.home
    for one in found.registered:
        beside = home.results / LOCKED
        if beside == home.folder or not (beside / one.path.name).is_file():
            continue
        lines = moved_on(home.folder, beside, one.content.id)
        if lines and f"seals/{one.content.id}.sha256" not in lines:  # of another seal the lock's check speaks
            words = (
                f"{home.prefix} is not what was locked with the logs ({', '.join(lines[:SHOWN])}): the copy "
                f"in results/{home.study}/{LOCKED} is what counts"
            )
            yield check(f"copy of {one.content.id}", None, words)


# Logs.


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
    yield _clean([one for one in attempts if one.counts])
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
        return check("attempts", False, words)
    if not attempts:
        return check("attempts", None, "there is no attempt yet")
    if not left:
        return check("attempts", True, f"all {len(attempts)} attempts count")
    reasons = ", ".join(f"{n} {reason}" for reason, n in sorted(Counter(one.reason for one in left).items()))
    rows = sum(one.rows for one in left)
    words = f"{len(left)} of {len(attempts)} attempts do not count, with {rows:,} rows: {reasons}"
    return check("attempts", None, words)


def _clean(counting: list[AttemptEvidence]) -> Check:
    if dirty := sum(bool(one.git_dirty) for one in counting):
        words = f"{dirty} attempts that count were made from a tree with uncommitted changes"
        return check("clean tree", None, words)
    if unknown := sum(one.git_dirty is None for one in counting):
        return check("clean tree", None, f"{unknown} attempts that count were made outside of git")
    return check("clean tree", True, "no attempt that counts had uncommitted changes")


def _questions(found: Found) -> Check:
    """The examples beside the logs are those that were sealed."""
    wrong, unread = [], 0
    for shard in (shard for one in found.registered for shard in found.standing(one.content.id).values()):
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
        return check("questions", None, f"the examples of {unread} sealed shards are not written yet")
    return all_hold("questions", wrong, "the questions and references are those that were sealed")


def _locked(lock: LockEvidence, found: Found) -> Check:
    name = f"lock {lock.suite}"
    if lock.manifest is None:
        return check(name, None, "not locked: its logs may still change")
    if lock.differences:
        return all_hold(name, [f"{line} since the lock" for line in lock.differences], "")
    owner = found.owner(lock.suite)
    if LockFiles(found.home.results, lock.suite).read_about().seal != found.seals[owner].seal:
        again = found.home.command("lock", lock.suite, "--again")
        return check(name, None, f"locked under another seal than {owner} has now: {again}")
    when = ", ".join(stamp.time for stamp in lock.stamps) or "without a time stamp"
    reason = "" if lock.incomplete is None else f"; locked although rows are missing: {lock.incomplete}"
    return check(name, True, f"no log has changed since it was locked ({when}){reason}")


def _looks(found: Found) -> Check:
    path = found.home.results / LOOKS
    body = read_bytes(path) if path.exists() else b""
    for suite, lock in found.locks.items():
        if lock.manifest is None:
            continue
        about = LockFiles(found.home.results, suite).read_about()
        until = b"".join(body.splitlines(keepends=True)[: about.looks])
        if hashlib.sha256(until).hexdigest() != about.looks_sha256:
            return check("looks", False, f"{LOOKS} is not what it was at the lock of {suite}")
    if not found.looks:
        return check("looks", True, "no unblinded analysis before the lock is recorded")
    count, one = len(found.looks), found.looks[0]
    words = f"{count} unblinded analyses before the lock, the first at {one.at} with {one.rows:,} rows"
    return check("looks", None, words)


# What was made again.


def _stack(is_same: bool) -> str:
    return "the software of the attempts" if is_same else "other software than the attempts'"


def _disagreements(sentences: list[str]) -> list[str]:
    return [f"{len(sentences)} disagreements, first: {sentences[0]}"] if sentences else []


def _replayed(replay: Replayed) -> Check:
    """The sentence of `kvexp verify --replay`."""
    words = (
        f"{replay.digests_equal} of {replay.rows} keep sets recomputed from the anchor on "
        f"{_stack(replay.same_stack)} are the logged ones, {replay.agreement:.5f} of {replay.probed:,} "
        f"probed places agree, {replay.scores_equal} of their scores are those of the logged text (rows "
        f"chosen by --seed {replay.seed}); every logged text of every arm was scored again"
    )
    return check("replay", replay.holds, "; ".join([words, *_disagreements(replay.disagreements)]))


def answers_check(again: Regenerated) -> Check:
    """The sentence of `kvexp verify --decode`."""
    return check("answers", again.holds, "; ".join(_answers(again)))


def _answers(again: Regenerated) -> Iterator[str]:
    yield (
        f"{again.examples} of {again.of} examples were answered again with all arms on "
        f"{_stack(again.same_stack)} (chosen by --seed {again.seed})"
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
    yield from _disagreements(again.disagreements)
