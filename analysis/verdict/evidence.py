"""The evidence as text: who said when, what was run, locked, looked at and amended, and what that proves."""

from collections.abc import Iterator

from analysis.sealed.evidence import FILE
from analysis.sealed.seals import SHORT
from analysis.verdict.report import Report
from analysis.verdict.words import wrapped
from kvexp.prereg.authorities import KINDS
from kvexp.prereg.forms import (
    GRADES,
    AttemptEvidence,
    Check,
    Evidence,
    LockEvidence,
    Look,
    Regenerated,
    SealEvidence,
    Stamp,
    vouched,
)
from kvexp.terminal import printable

FEW = 3
HOLDS = {True: "holds", False: "FAILS", None: "open"}
WORD = "as told by evidence.json, whose digests fit the files here; no time stamp was checked again"


def evidence_lines(report: Report, *, is_full: bool) -> Iterator[str]:
    """Lines of the section; without `is_full` what fails, and the rest in few words."""
    shown, study = report.bound.shown, report.study.name
    if shown.evidence is None:
        note = shown.note
        if not note and report.bound.seals:
            note = f"there is no {FILE}: run kvexp verify {study}"
        if note:
            yield from _line("EVIDENCE: ", note)
            yield ""
        return
    yield from _line("EVIDENCE ", f"{WORD}: run kvexp verify {shown.evidence.study} yourself")
    yield from _full(shown.evidence) if is_full else _short(shown.evidence)
    yield ""


def _short(found: Evidence) -> Iterator[str]:
    failing = [one for one in found.checks if one.holds is False]
    for check in failing[:FEW]:
        yield from _line("  FAILS: ", check.words)
    for check in found.checks:
        if check.name.startswith("existing data"):
            yield from _line("  ", check.words)
    sealed = [one for one in found.seals if one.seal is not None]
    for seal in sealed[:FEW]:
        times = ", ".join(stamp.time for stamp in seal.stamps) or "no time stamp"
        yield from _line(f"  seal {seal.id} {_id(seal.seal)}: ", f"{times}; {_words(seal)}")
    counted = sum(one.counts for one in found.attempts)
    locks = ", ".join(one.suite for one in found.locks if one.manifest is not None) or "none"
    words = f"attempts: {counted} counted, {len(found.attempts) - counted} not; locks: {locks}"
    yield from _line("  ", f"{words}; looks before the lock: {len(found.looks)}")
    told = [one.holds for one in found.checks]
    words = f"{told.count(True)} hold, {told.count(False)} fail, {told.count(None)} open"
    yield from _line("  ", f"checks: {words}; in full, with what no file can exclude: verdicts.md")


def _words(one: SealEvidence | LockEvidence) -> str:
    return vouched(one.stamps) if one.stamps else GRADES[one.grade]


def _full(found: Evidence) -> Iterator[str]:
    for seal in found.seals:
        yield from _seal(seal)
    yield from _attempts(found.attempts)
    for lock in found.locks:
        yield from _lock(lock)
    yield f"  looks before the lock: {len(found.looks)}"
    for look in found.looks:
        yield from _look(look)
    for check in found.checks:
        yield from _check(check)
    if found.replay is not None:
        again = found.replay
        words = (
            f"keep sets of {again.rows:,} of {again.of:,} random rows were recomputed from the anchor: "
            f"{again.digests_equal:,} are the same, {again.agree:,} of {again.probed:,} tokens agree"
        )
        yield from _line(f"  {HOLDS[again.holds]}: ", words)
    if found.regenerated is not None:
        yield from _regenerated(found.regenerated)
    for sentence in found.cannot:
        yield from _line("  cannot be excluded: ", sentence)


def _regenerated(again: Regenerated) -> Iterator[str]:
    stack = "the software of the attempts" if again.same_stack else "other software than the attempts'"
    words = (
        f"all {again.rows:,} rows of {again.examples:,} of {again.of:,} random examples were answered again "
        f"on {stack}: {again.equal:,} are the same in every digit, {again.texts_equal:,} texts are the same, "
        f"{again.near_ties:,} part at a near-tie"
    )
    yield from _line(f"  {HOLDS[again.holds]}: ", words)
    for one in again.disagreements:
        yield from _line("     disagrees: ", one)
    if again.failed or again.missing:
        left = f"{again.failed:,} examples that failed, {again.missing:,} that lack rows"
        yield from _line("     left out: ", left)


def _seal(seal: SealEvidence) -> Iterator[str]:
    sealed = "not sealed" if seal.seal is None else f"seal {_id(seal.seal)}"
    yield from _line(f"  {seal.id}  ", f"{sealed}: {seal.title}")
    if seal.seal is None:
        return
    yield from _line("     ", f"{_words(seal)}; existing data: {seal.existing_data}")
    if seal.registered_at is not None:
        yield from _line("     ", f"registered {seal.registered_at}, by the author's word")
    if seal.registrations_made is not None:
        made = f"{seal.registrations_made} registrations of this question, by the author's word"
        yield from _line("     ", made)
    for stamp in seal.stamps:
        yield from stamp_lines("     stamped ", stamp)
    for line in seal.differences:
        yield from _line("     differs: ", line)


def stamp_lines(head: str, stamp: Stamp) -> list[str]:
    """Who signed when, and what that is worth."""
    words = f"{stamp.time} by {stamp.witness} ({stamp.trust}, serial {stamp.serial}): {KINDS[stamp.kind]}"
    return _line(head, words)


def _attempts(attempts: list[AttemptEvidence]) -> Iterator[str]:
    counted = [one for one in attempts if one.counts]
    rest = [one for one in attempts if not one.counts]
    yield f"  attempts: {len(counted)} counted, {len(rest)} not"
    for one in rest:
        closed = "" if one.is_closed else ", shard not closed"
        where = f"{one.suite}/{one.shard_id} attempt {one.number}"
        yield from _line("     ", f"{where}: {one.rows:,} rows{closed}, not counted: {one.reason}")


def _lock(lock: LockEvidence) -> Iterator[str]:
    if lock.manifest is None:
        yield from _line("  ", f"suite {lock.suite} is not locked")
        return
    yield from _line("  ", f"suite {lock.suite} locked, {_id(lock.manifest)}: {_words(lock)}")
    if lock.incomplete is not None:
        yield from _line("     incomplete: ", lock.incomplete)
    for stamp in lock.stamps:
        yield from stamp_lines("     stamped ", stamp)
    for line in lock.differences:
        yield from _line("     differs: ", line)


def _look(look: Look) -> Iterator[str]:
    seen = f"{look.at} {look.user}: {', '.join(look.suites)}, {look.rows:,} rows, {', '.join(look.claims)}"
    yield from _line("     ", seen)


def _check(check: Check) -> Iterator[str]:
    yield from _line(f"  {HOLDS[check.holds]}: ", check.words)


def _id(digest: str | None) -> str:
    return "" if digest is None else digest[:SHORT]


def _line(head: str, text: str) -> list[str]:
    """Text of unknown origin behind a head; long words do not break the page."""
    return wrapped(printable(head), printable(text))
