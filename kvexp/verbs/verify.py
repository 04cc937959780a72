"""`kvexp verify`: check all papers and logs, write evidence.json and say what holds."""

import argparse
from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from kvexp.ceremony.checks import of_logs, of_papers, told
from kvexp.ceremony.edited_registration import print_edited
from kvexp.ceremony.evidence import FILE, Found, find
from kvexp.ceremony.grid_changes import refuse_other_grid
from kvexp.ceremony.home import Home, named
from kvexp.ceremony.unprovable import cannot_exclude
from kvexp.documents.forms import (
    KINDS,
    WITNESSED,
    AttemptEvidence,
    Check,
    Evidence,
    Regenerated,
    Replayed,
)
from kvexp.documents.judged_from import Judged
from kvexp.errors import ConfigError, IntegrityError, printable
from kvexp.files import write_whole as write
from kvexp.records import encode
from kvexp.slurm.account import of_accounting
from kvexp.study.compose import Selection
from kvexp.verbs.as_sealed import take_as_sealed
from kvexp.verbs.opened import STUDY, registered, take_again, take_json, take_words

# The sentences of the evidence: what holds, what fails, and what cannot be told.


def sentences(
    found: Found,
    attempts: list[AttemptEvidence],
    replay: Replayed | None,
    regenerated: Regenerated | None = None,
) -> Iterator[Check]:
    """Every check, in the order of the story: registration, stamps, attempts, lock, looks, replay, jobs."""
    yield from of_papers(found, attempts)
    yield from of_logs(found, attempts, replay, regenerated)
    yield from of_accounting(found.home.root, found.home.results, set(found.locks), found.attempts)


def refuse_failing(evidence: Evidence) -> None:
    """Raises IntegrityError, with the list, if a check fails."""
    failing = [f"{check.name}: {check.words}" for check in evidence.checks if check.holds is False]
    ways = [
        f"if code has changed, verify by the sealed code: kvexp verify {evidence.study} --as-sealed",
        f"or judge by the code that is here: python -m analysis results/{evidence.study} --anew --out DIR",
    ]
    if failing:
        is_broken = any(seal.differences for seal in evidence.seals)
        raise IntegrityError(
            f"{len(failing)} checks of the evidence fail", [*failing, *(ways if is_broken else [])]
        )


HOLDS = {True: "holds", False: "FAILS", None: "open"}


WORDS = STUDY


def arguments(parser: argparse.ArgumentParser) -> None:
    """Which study, and what is made again."""
    take_words(parser)
    take_json(parser)
    take_again(parser)
    take_as_sealed(parser)


def run(parsed: argparse.Namespace, console: Console) -> int:
    """Exit code 4 if a check fails."""
    is_run = parsed.replay is not None or parsed.decode is not None
    study = registered(parsed, ["suite"] if is_run else [])
    home = study.home
    if study.names:
        raise ConfigError(f"verify is about the whole study, and {study.names[0]!r} is no part: leave it out")
    refuse_other_grid(home, study.selection)
    found = find(home, named(home, []))
    evidence = evidence_of(found, *_replay(study.selection, home, parsed, found))
    home.results.mkdir(parents=True, exist_ok=True)
    write(home.results / FILE, encode(evidence) + b"\n")
    if parsed.json:
        print((home.results / FILE).read_text(), end="")
    else:
        print_edited(home, console)
        _print(evidence, console)
    refuse_failing(evidence)
    return 0


def _replay(
    selection: Selection, home: Home, parsed: argparse.Namespace, found: Found
) -> tuple[Replayed | None, Regenerated | None]:
    """Keep sets and answers that were made again, as far as that was asked for."""
    if parsed.replay is None and parsed.decode is None:
        return None, None
    from kvexp.ceremony.replay_answers import answer_again
    from kvexp.ceremony.replay_draws import replay
    from kvexp.ceremony.replay_source import Source, random_seed

    anchors = {
        suite: found.seals[one.content.id].anchor
        for one in found.registered
        for suite in one.content.suites
        if found.seals[one.content.id].seal is not None
    }
    source, seed = Source.of(selection, home, anchors), random_seed(parsed.seed)
    kept = None if parsed.replay is None else replay(source, parsed.replay, seed)
    return kept, None if parsed.decode is None else answer_again(source, parsed.decode, seed)


def _print(evidence: Evidence, console: Console) -> None:
    title = f"EVIDENCE of study {evidence.study}"
    title += "" if evidence.grade >= WITNESSED else ", UNWITNESSED: no third party vouches for its time"
    console.print(Text(title))
    for seal in evidence.seals:
        digest = "not sealed" if seal.seal is None else f"seal {seal.seal[:12]}"
        console.print(
            Text(f"{seal.id}  {digest}; existing data: {told(seal.existing_data)}; {printable(seal.title)}")
        )
        for one in seal.stamps:
            console.print(Text(f"   {one.time} by {printable(one.witness)} ({KINDS[one.kind]})"))
    for step in evidence.amendments:
        console.print(Text(f"{step.id}-{step.number}  amended {step.stage}: {printable(step.why)}"))
    for check in evidence.checks:
        console.print(Text(f"{HOLDS[check.holds]:6} {check.name}: {printable(check.words)}"))
    console.print("What no file can exclude:")
    for sentence in evidence.cannot:
        console.print(Text(f"  {printable(sentence)}"))
    console.print(Text(f"written to results/{evidence.study}/{FILE}"))


def _read_digests(found: Found) -> dict[str, str]:
    """What all of this was judged from."""
    home = found.home
    judged = Judged(home.root, home.study, home.results, home.folder, home.prefix)
    suites = {one.content.id: one.content.suites for one in found.registered}
    sealed = [one.content.claim for one in found.registered if found.seals[one.content.id].seal is not None]
    digests = judged.digests(suites, {claim for claims in sealed for claim in claims})
    return {**digests, **judged.authorities({one.trust for one in found.stamps})}


def evidence_of(found: Found, replay: Replayed | None, regenerated: Regenerated | None = None) -> Evidence:
    """All of it, with the sentences."""
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
        checks=list(sentences(found, attempts, replay, regenerated)),
        cannot=list(cannot_exclude(found, regenerated)),
        regenerated=regenerated,
    )
