"""The evidence of a study, as evidence.md and as a section of the page."""

import shlex
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from analysis.core.seals import CLAIMS, SHORT, AmendmentStep, Seal
from analysis.core.verdict_text import STAGES, WORD, joined, missing_evidence, touched, worth, wrapped
from analysis.core.verdicts import Report
from analysis.render.page_tables import NONE, Cell, Grid, code, grid
from kvexp.documents.forms import (
    GRADES,
    KINDS,
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
from kvexp.documents.manifest import Manifest, home_prefix
from kvexp.documents.seals import Seals, chain
from kvexp.errors import printable

# evidence.md: who said what when, what was run, locked, looked at and amended, and what that proves.


HOLDS = {True: "holds", False: "FAILS", None: "open"}


def evidence_text(report: Report) -> str:
    """What was known before, every amendment, and all that evidence.json says."""
    lines = list[str]()
    for one in report.registrations:
        lines += _line(f"  {one.content.id}  existing data: ", one.content.existing_data_note)
    for name, seal in sorted(report.bound.seals.items()):
        for number, step in enumerate(seal.steps):
            if number == 0:
                lines += ["", *_line(f"AMENDMENTS of {name}, first sealed as ", step.stated.replaces[:SHORT])]
            lines += _step(step, report, seal)
    shown = report.bound.shown
    if shown.evidence is not None:
        lines += ["", *_line("EVIDENCE ", f"{WORD}: run kvexp verify {shown.evidence.study} yourself")]
        lines += _full(shown.evidence)
    elif shown.note or report.bound.seals:
        lines += ["", *_line("EVIDENCE: ", shown.note or missing_evidence(report.study.name))]
    return joined(lines)


def _line(head: str, text: str) -> list[str]:
    """Text of unknown origin behind a head; long words do not break the page."""
    return wrapped(printable(head), printable(text))


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
    sealed = "not sealed" if seal.seal is None else f"seal {seal.seal[:SHORT]}"
    yield from _line(f"  {seal.id}  ", f"{sealed}: {seal.title}")
    if seal.seal is None:
        return
    yield from _line("     ", f"{worth(seal)}; existing data: {seal.existing_data}")
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
    yield from _line("  ", f"suite {lock.suite} locked, {lock.manifest[:SHORT]}: {worth(lock)}")
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


# How to get the verdict by a seal that was amended: by its registration and its code, on the same logs.


def commands(step: AmendmentStep, study: str, seal: Seal, parent: Seal | None) -> Iterator[str]:
    """Lines to type at the root of a clone, uncut; or why there are none.

    Args:
        step: whose seal before it is wanted.
        study: name of the results folder.
        seal: the one that stands.
        parent: of the registration that it is an addendum to.
    """
    words = f"     the verdict by seal {step.stated.replaces[:SHORT]}"
    above = None if parent is None else _above(step.before, parent)
    if step.commit is None:
        yield f"{words}: no command, the seal names no commit (files had changes when it was made)"
    elif parent is not None and above is None:
        yield f"{words}: no command, no seal of its parent was made by the same code"
    else:
        yield f"{words}, PREVIEW because no lock is of it; at the root of a clone:"
        yield from (f"       {line}" for line in _lines(step, study, seal, above))


def _lines(step: AmendmentStep, study: str, seal: Seal, above: tuple[Seals, str] | None) -> Iterator[str]:
    before, name = step.before, step.stated.registration
    prefix = home_prefix(before.read_manifest(), name)
    there = f"../{study}-before-{step.name}"
    results, home = f"results/{study}", f"{there}/{prefix}"
    yield _typed("git", "worktree", "add", there, str(step.commit))
    yield _typed("rm", "-rf", f"{there}/{results}")
    yield _typed("mkdir", "-p", f"{there}/results")
    yield _typed("cp", "-r", results, f"{there}/results/")
    yield _typed("rm", "-rf", f"{there}/{results}/locks", f"{home}/seals", f"{home}/amendments")
    yield _typed("mkdir", "-p", f"{home}/seals", f"{home}/amendments")
    for number in range(1, step.stated.number):
        yield _typed("cp", "-r", f"{seal.where}/amendments/{name}-{number}", f"{home}/amendments/")
    for one, where in ((before, f"{seal.where}/amendments/{step.name}"), *([above] if above else [])):
        yield f"cp {shlex.quote(where)}/{one.id}.* {shlex.quote(f'{home}/seals/')}"
        yield _typed("cp", f"{where}/{one.id}.toml", f"{home}/")
    yield f"(cd {shlex.quote(there)} && python -m analysis {shlex.quote(results)})"


def _above(before: Seals, parent: Seal) -> tuple[Seals, str] | None:
    """The seal of the parent that was made by the same code, and its folder."""
    first, code = chain(parent.home, parent.name)[0], _code(before.read_manifest())
    if _code(first.read_manifest()) != code:
        return None
    return first, f"{parent.where}/{first.folder.relative_to(parent.home).as_posix()}"


def _code(sealed: Manifest) -> dict[str, str]:
    return {
        path: digest
        for path, digest in sealed.files.items()
        if not path.startswith((CLAIMS, "preregistration/", "results/"))
    }


def _typed(*words: str) -> str:
    return shlex.join(words)


# Amendments: the seal before, what the author stated, what changed.


def _step(step: AmendmentStep, report: Report, seal: Seal) -> Iterator[str]:
    stated = step.stated
    yield from _line(f"  seal {stated.replaces[:SHORT]}", _amended_when(step, report))
    for stamp in _stamps(step, report):
        yield from stamp_lines("     stamped ", stamp)
    made = (
        f"{STAGES[stated.stage]}, {stated.attempts} attempts and {stated.looks} recorded looks: {stated.why}"
    )
    yield from _line(f"  {step.name} ", made)
    yield from _line("     data seen: ", stated.data_seen)
    for path, kind in sorted(stated.files.items()):
        yield from _line("     ", f"{kind}  {path}")
    yield from _line("     ", touched(step))
    for line in step.lines:
        yield from _line("     ", line)
    yield from commands(step, report.study.name, seal, report.bound.seals.get(seal.parent or ""))


def _amended_when(step: AmendmentStep, report: Report) -> str:
    if _stamps(step, report):
        return ""
    is_known = report.bound.shown.evidence is not None
    return ": no time stamp" if is_known else f": for its time stamp run kvexp verify {report.study.name}"


def _stamps(step: AmendmentStep, report: Report) -> list[Stamp]:
    """Of the seal that it replaced, as the evidence has them."""
    found = report.bound.shown.evidence
    steps = [] if found is None else found.amendments
    return [stamp for one in steps if one.replaces == step.stated.replaces for stamp in one.stamps]


# The evidence as the page shows it: who said what when, what was run, locked, looked at and amended.


REPLAY = "replay"
TALLIED = {HOLDS[False]: "fail", HOLDS[None]: "open", HOLDS[True]: "hold"}  # the worst first


Facts = tuple[tuple[str, str], ...]  # names and words


class Sentence(NamedTuple):
    """One sentence of the evidence and whether it holds: holds, fails or unknown."""

    state: str
    about: str
    words: str


class Registration(NamedTuple):
    """A registration as its author wrote it."""

    id: str
    title: str
    facts: Facts


class Amended(NamedTuple):
    """One amendment; `before`: how to get the verdict by the seal before."""

    name: str
    facts: Facts
    lines: tuple[str, ...]
    before: tuple[str, ...]


@dataclass(frozen=True)
class Shown:
    """The whole section."""

    note: str  # why there is no evidence, or none that counts
    registrations: tuple[Registration, ...]  # what was registered
    problems: tuple[str, ...]  # contradictions in the logs
    tables: tuple[Grid, ...] = ()  # seals, locks, attempts that do not count, looks
    facts: tuple[str, ...] = ()  # counts in a sentence each
    amendments: tuple[Amended, ...] = ()  # in order
    checks: tuple[Sentence, ...] = ()  # what fails, then what is open, then what holds
    cannot: tuple[str, ...] = ()  # what no file can exclude

    @property
    def tally(self) -> str:
        """How many checks there are of each kind."""
        counts = Counter(one.state for one in self.checks)
        return ", ".join(f"{counts[state]} {word}" for state, word in TALLIED.items())


def evidence_of(report: Report) -> Shown:
    """What evidence.json says, or why it says nothing."""
    registrations = tuple(_registrations(report))
    problems = tuple(one.message for one in report.study.problems)
    amendments = tuple(_amendments(report))
    shown, study = report.bound.shown, report.study.name
    if shown.evidence is None:
        note = shown.note or f"there is no evidence.json: kvexp verify {study} makes it"
        return Shown(note, registrations, problems, amendments=amendments)
    found = shown.evidence
    checks = [Sentence(HOLDS[one.holds], one.name, one.words) for one in found.checks]
    if (again := found.replay) is not None and REPLAY not in (one.name for one in found.checks):
        words = (
            f"keep sets of {again.rows:,} of {again.of:,} random rows were recomputed from the anchor: "
            f"{again.digests_equal:,} are the same, {again.agree:,} of {again.probed:,} tokens agree"
        )
        checks.append(Sentence(HOLDS[again.holds], REPLAY, words))
    checks.sort(key=lambda one: list(TALLIED).index(one.state))
    return Shown(
        "",
        registrations,
        problems,
        tables=tuple(_tables(found)),
        facts=tuple(_facts(found)),
        amendments=amendments,
        checks=tuple(checks),
        cannot=tuple(found.cannot),
    )


def _registrations(report: Report) -> Iterator[Registration]:
    for registered in report.registrations:
        content = registered.content
        seal = report.bound.seals.get(content.id)
        facts = [
            ("suites", ", ".join(content.suites)),
            ("seal", "not sealed" if seal is None else seal.id),
            ("sha256", registered.digest),
            ("authors", ", ".join(content.authors)),
            ("existing data", content.existing_data),
            ("about that data", content.existing_data_note),
            ("stopping", content.stopping),
            ("exclusions", content.exclusions),
            ("missing rows", content.missing),
        ]
        if content.parent is not None:
            facts.insert(1, ("parent", content.parent))
        if content.data_seen:
            facts.append(("data seen", " ".join(content.data_seen)))
        if content.registered_at is not None:
            facts.append(("registered, by the author's word", content.registered_at.isoformat()))
        if content.registrations_made is not None:
            facts.append(("registrations of this question", f"{content.registrations_made:,}"))
        yield Registration(content.id, content.title, tuple(facts))


def _tables(found: Evidence) -> Iterator[Grid]:
    heads = ["registration", "seal", "stamped", "what that proves", "existing data", "differs"]
    rows = [
        (
            one.id,
            code(one.seal[:SHORT]) if one.seal else "not sealed",
            _stamps_cell(one.stamps),
            _words(one),
            one.existing_data,
            "; ".join(one.differences),
        )
        for one in found.seals
    ]
    yield grid("Seals", heads, rows, is_open=True)
    heads = ["suite", "lock", "stamped", "what that proves", "incomplete", "differs"]
    locks = [
        (
            one.suite,
            code(one.manifest[:SHORT]) if one.manifest else "not locked",
            _stamps_cell(one.stamps),
            _words(one) if one.manifest else NONE,
            one.incomplete or "",
            "; ".join(one.differences),
        )
        for one in found.locks
    ]
    if locks:
        yield grid("Locks: the logs are closed", heads, locks, is_open=True)
    if looks := found.looks:
        heads = ["when", "who", "suites that were open", "rows", "claims"]
        seen = [(one.at, one.user, ", ".join(one.suites), one.rows, ", ".join(one.claims)) for one in looks]
        yield grid("Looks before the lock", heads, seen)
    if rest := [one for one in found.attempts if not one.counts]:
        heads = ["shard", "attempt", "rows", "shard closed", "why it does not count"]
        left = [
            (
                f"{one.suite}/{one.shard_id}",
                one.number,
                one.rows,
                "yes" if one.is_closed else "no",
                one.reason,
            )
            for one in rest
        ]
        yield grid("Process starts that do not count", heads, left)


def _words(one: SealEvidence | LockEvidence) -> str:
    return vouched(one.stamps) if one.stamps else GRADES[one.grade]


def _stamps_cell(stamps: list[Stamp]) -> Cell:
    words = [f"{one.time} by {one.witness} ({one.trust}, serial {one.serial})" for one in stamps]
    return Cell("; ".join(words) or "no time stamp")


def _facts(found: Evidence) -> Iterator[str]:
    counted = sum(one.counts for one in found.attempts)
    yield f"{WORD.capitalize()}: run kvexp verify {found.study} yourself."
    yield f"{counted:,} process starts count, {len(found.attempts) - counted:,} do not."
    locked = sum(one.manifest is not None for one in found.locks)
    yield f"{locked} of {len(found.locks)} suites are locked."
    yield f"{len(found.looks):,} unblinded analyses were recorded before the lock."


def _amendments(report: Report) -> Iterator[Amended]:
    """Of every registration that is sealed, in order."""
    seals = report.bound.seals
    for _, seal in sorted(seals.items()):
        for step in seal.steps:
            lines = commands(step, report.study.name, seal, seals.get(seal.parent or ""))
            yield Amended(step.name, tuple(_facts_of(step)), step.lines, tuple(lines))


def _facts_of(step: AmendmentStep) -> Iterator[tuple[str, str]]:
    stated = step.stated
    claims = [f"{name} ({', '.join(what)})" for name, what in step.claims.items()]
    yield "stage", f"{STAGES[stated.stage]}, {stated.attempts} attempts, {stated.looks} recorded looks"
    yield "why", stated.why
    yield "data seen", stated.data_seen
    yield "replaces", f"seal {stated.replaces[:SHORT]}"
    yield "files", "; ".join(f"{kind} {path}" for path, kind in sorted(stated.files.items()))
    yield (
        "touches",
        f"every claim: {', '.join(step.shared)}" if step.shared else ", ".join(claims) or "no claim",
    )
