"""`kvexp verify`: check all papers and logs, write evidence.json and say what holds."""

import argparse

from rich.console import Console
from rich.text import Text

from kvexp.compose import Selection
from kvexp.errors import ConfigError
from kvexp.prereg.authorities import KINDS
from kvexp.prereg.checks import refuse_failing
from kvexp.prereg.evidence import FILE, Found, evidence_of, find
from kvexp.prereg.existing import told
from kvexp.prereg.fits import refuse_other_grid
from kvexp.prereg.forms import WITNESSED, Evidence, Regenerated, Replayed
from kvexp.prereg.home import Home, named
from kvexp.prereg.verbs.opened import opened
from kvexp.prereg.working import print_moved
from kvexp.records import encode
from kvexp.shard_log import replace as write
from kvexp.terminal import printable

# Imports that bring torch stand where they are needed.

HOLDS = {True: "holds", False: "FAILS", None: "open"}


def run(parsed: argparse.Namespace, console: Console) -> int:
    """Exit code 4 if a check fails."""
    is_run = parsed.replay is not None or parsed.decode is not None
    study = opened(parsed, choices=["suite"] if is_run else [])
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
        print_moved(home, console)
        _print(evidence, console)
    refuse_failing(evidence.checks)
    return 0


def _replay(
    selection: Selection, home: Home, parsed: argparse.Namespace, found: Found
) -> tuple[Replayed | None, Regenerated | None]:
    """Keep sets and answers that were made again, as far as that was asked for."""
    if parsed.replay is None and parsed.decode is None:
        return None, None
    from kvexp.prereg.replay import replay_study
    from kvexp.prereg.replay_answers import answer_study
    from kvexp.prereg.replay_rows import random_seed

    anchors = {
        suite: found.seals[one.content.id].anchor
        for one in found.registered
        for suite in one.content.suites
        if found.seals[one.content.id].seal is not None
    }
    seed = random_seed(parsed.seed)
    kept = answered = None
    if parsed.replay is not None:
        kept = replay_study(selection, home, parsed.replay, seed, anchors)
    if parsed.decode is not None:
        answered = answer_study(selection, home, parsed.decode, seed, anchors)
    return kept, answered


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
