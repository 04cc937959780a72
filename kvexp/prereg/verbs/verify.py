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
from kvexp.prereg.forms import WITNESSED, Evidence, Replayed
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
    study = opened(parsed, choices=[] if parsed.replay is None else ["suite"])
    home = study.home
    if study.names:
        raise ConfigError(f"verify is about the whole study, and {study.names[0]!r} is no part: leave it out")
    refuse_other_grid(home, study.selection)
    found = find(home, named(home, []))
    replayed = None if parsed.replay is None else _replay(study.selection, home, parsed, found)
    evidence = evidence_of(found, replayed)
    home.results.mkdir(parents=True, exist_ok=True)
    write(home.results / FILE, encode(evidence) + b"\n")
    if parsed.json:
        print((home.results / FILE).read_text(), end="")
    else:
        print_moved(home, console)
        _print(evidence, console)
    refuse_failing(evidence.checks)
    return 0


def _replay(selection: Selection, home: Home, parsed: argparse.Namespace, found: Found) -> Replayed:
    from kvexp.prereg.replay import replay_study

    anchors = {
        suite: found.seals[one.content.id].anchor
        for one in found.registered
        for suite in one.content.suites
        if found.seals[one.content.id].seal is not None
    }
    return replay_study(selection, home, parsed.replay, parsed.seed, anchors)


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
