"""`kvexp verify`: check all papers and logs, write evidence.json and say what holds."""

import argparse

from rich.console import Console

from kvexp.ceremony.amend import print_edited
from kvexp.ceremony.checks import evidence_of
from kvexp.ceremony.evidence import FILE, Found, find, told
from kvexp.ceremony.grid_changes import refuse_other_grid
from kvexp.ceremony.home import Home, named
from kvexp.documents.forms import KINDS, WITNESSED, Evidence, Regenerated, Replayed
from kvexp.errors import ConfigError, IntegrityError
from kvexp.files import write_whole
from kvexp.records import encode
from kvexp.slurm.account import of_accounting
from kvexp.study.compose import Selection
from kvexp.verbs.as_sealed import take_as_sealed
from kvexp.verbs.opened import STUDY, registered, take, tell

WORDS = STUDY
HOLDS = {True: "holds", False: "FAILS", None: "open"}


def arguments(parser: argparse.ArgumentParser) -> None:
    """Which study, and what is made again."""
    take(parser, "--json", "--replay", "--decode", "--seed")
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
    jobs = of_accounting(home.root, home.results, set(found.locks), found.attempts)
    evidence = evidence_of(found, jobs, *_replay(study.selection, home, parsed, found))
    home.results.mkdir(parents=True, exist_ok=True)
    write_whole(home.results / FILE, encode(evidence) + b"\n")
    if parsed.json:
        print((home.results / FILE).read_text(), end="")
    else:
        print_edited(home, console)
        _print(evidence, console)
    refuse_failing(evidence)
    return 0


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
    tell(console, title)
    for seal in evidence.seals:
        digest = "not sealed" if seal.seal is None else f"seal {seal.seal[:12]}"
        tell(console, f"{seal.id}  {digest}; existing data: {told(seal.existing_data)}; {seal.title}")
        for one in seal.stamps:
            tell(console, f"   {one.time} by {one.witness} ({KINDS[one.kind]})")
    for step in evidence.amendments:
        tell(console, f"{step.id}-{step.number}  amended {step.stage}: {step.why}")
    for check in evidence.checks:
        tell(console, f"{HOLDS[check.holds]:6} {check.name}: {check.words}")
    console.print("What no file can exclude:")
    for sentence in evidence.cannot:
        tell(console, f"  {sentence}")
    tell(console, f"written to results/{evidence.study}/{FILE}")
