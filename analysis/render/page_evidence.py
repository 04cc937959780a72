"""The evidence as the page shows it: who said what when, what was run, locked, looked at and amended."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from analysis.core.amendments import AmendmentStep
from analysis.core.seals import SHORT
from analysis.core.verdict_text import STAGES, WORD
from analysis.core.verdicts import Report
from analysis.render.evidence_text import HOLDS, commands
from analysis.render.page_tables import NONE, Cell, Grid, code, grid
from kvexp.documents.forms import GRADES, Evidence, LockEvidence, SealEvidence, Stamp, vouched

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
    """The whole section.

    Attributes:
        note: why there is no evidence, or none that counts.
        registrations: what was registered.
        problems: contradictions in the logs.
        tables: seals, locks, attempts that do not count, looks.
        facts: counts in a sentence each.
        amendments: in order.
        checks: what fails, then what is open, then what holds.
        cannot: what no file can exclude.
    """

    note: str
    registrations: tuple[Registration, ...]
    problems: tuple[str, ...]
    tables: tuple[Grid, ...] = ()
    facts: tuple[str, ...] = ()
    amendments: tuple[Amended, ...] = ()
    checks: tuple[Sentence, ...] = ()
    cannot: tuple[str, ...] = ()

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
            _stamped(one.stamps),
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
            _stamped(one.stamps),
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


def _stamped(stamps: list[Stamp]) -> Cell:
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
