"""What the registration verbs of the command line do and print: seal, stamp, lock, verify, amend."""

import argparse
import os
import shutil
from pathlib import Path

from rich.console import Console
from rich.text import Text

from kvexp.compose import Selection, project_root, select
from kvexp.errors import ConfigError
from kvexp.prereg.chain import UNANCHORED
from kvexp.prereg.checks import refuse_failing
from kvexp.prereg.evidence import FILE, Found, evidence_of, find
from kvexp.prereg.forms import COPIED, GRADES, WITNESSED, Evidence, Replayed
from kvexp.prereg.home import Home, home_of, named
from kvexp.prereg.lock import LockFiles, lock
from kvexp.prereg.seal import read_manifest
from kvexp.prereg.stamp import read_token, write_query
from kvexp.prereg.stamping import network_answer, own_answer, stamp, take_reply
from kvexp.prereg.trust import load_trust
from kvexp.records import encode
from kvexp.shard_log import read_attempt
from kvexp.shard_log import replace as write
from kvexp.terminal import printable

# Imports that bring torch stand inside the verbs that need it.

HOLDS = {True: "holds", False: "FAILS", None: "open"}


def seal_study(parsed: argparse.Namespace, console: Console) -> int:
    """Seal the registrations of a study; those that are sealed already stay as they are."""
    from kvexp.prereg.sealing import draft, same

    selection, home, ids = _opened(parsed, copy=parsed.copy)
    for one in named(home, ids):
        made = draft(home, selection, one)
        if made.seals.is_sealed():
            if not same(home, made):
                raise ConfigError(
                    f"registration {one.content.id} of study {home.study} is sealed, and what it covers has "
                    f"changed since: restore it, register the change with `kvexp amend {home.study} "
                    f"{one.content.id}`, or begin anew under another name with study.name=NAME"
                    f"{_or_delete(home)}"
                )
            console.print(f"{one.content.id}: sealed already, {_short(made.seals.manifest)}")
            continue
        manifest = made.write(home)
        console.print(
            f"{one.content.id}: sealed {len(manifest.files)} files as {manifest.digest[:12]} "
            f"({_relative(home, made.seals.manifest)})"
        )
        if made.about.git_commit is None:
            console.print("  the tree differs from its commit, so the seal names none: commit, better before")
        if begun := sorted({path.parts[-3] for path in home.attempts(one.content.suites)}):
            console.print(f"  attempts of {', '.join(begun)} were made before the seal: they will not count")
    commit = "" if home.folder.name == COPIED else "git commit, then "
    console.print(f"next: {commit}kvexp stamp {home.study}")
    return 0


def stamp_study(parsed: argparse.Namespace, console: Console) -> int:
    """Time stamps for seals and locks: ask an authority, or write the query and take the reply by file."""
    _, home, names = _opened(parsed)
    todo = _to_stamp(home, names)
    if not todo:
        raise ConfigError(f"study {home.study} has no seal and no lock yet: kvexp seal {home.study}")
    if (parsed.reply or parsed.witness) and len(todo) > 1:
        raise ConfigError(f"say which one is meant: {', '.join(name for name, _ in todo)}")
    for name, manifest in todo:
        _stamp_one(parsed, home, name, manifest, console)
    return 0


def _to_stamp(home: Home, names: list[str]) -> list[tuple[str, Path]]:
    """Seals and locks by name; by default all that there are."""
    registered = home.registrations()
    there = {one.content.id: home.seals(one.content.id).manifest for one in registered}
    suites = {suite for one in registered for suite in one.content.suites}
    there |= {suite: LockFiles(home.results, suite).manifest for suite in sorted(suites)}
    for name in names:
        if name not in there or not there[name].is_file():
            raise ConfigError(
                f"study {home.study} has no seal or lock {name!r} (see kvexp verify {home.study})"
            )
    return [(name, path) for name, path in there.items() if path.is_file() and (not names or name in names)]


def _stamp_one(parsed: argparse.Namespace, home: Home, name: str, manifest: Path, console: Console) -> None:
    trusts = load_trust(home.root, home.folder)
    token = read_token(manifest, trusts)
    if token is not None and not parsed.witness:
        console.print(Text(f"{name}: stamped already, {token.time} by {printable(token.witness)}"))
        return
    witness = parsed.witness if token is not None else None
    if parsed.query:
        path = write_query(manifest, witness)
        console.print(
            f"{name}: post {_relative(home, path)} to an authority, then give its reply with --reply"
        )
        return
    if parsed.reply:
        token = take_reply(manifest, home, parsed.reply, witness)
    elif parsed.own:
        token = stamp(manifest, home, own_answer(home), witness)
    else:
        wanted = parsed.witness or parsed.tsa
        token = stamp(manifest, home, network_answer(trusts, wanted), witness)
    mine = [suite for one in home.registrations() if one.content.id == name for suite in one.content.suites]
    if any(read_attempt(path).anchor == UNANCHORED for path in home.attempts(mine)):
        console.print(f"{name}: there are attempts from before the stamp; they will not count")
    console.print(
        Text(
            f"{name}: stamped {token.time} by {printable(token.witness)}: {GRADES[token.grade]}; "
            f"anchor {token.anchor[:12]}"
        )
    )


def lock_suites(parsed: argparse.Namespace, console: Console) -> int:
    """Close suites: their logs are complete, or locked as they are for a reason."""
    selection, home, suites = _opened(parsed)
    owners = {suite: one for one in home.registrations() for suite in one.content.suites}
    for name in suites or selection.chosen["suite"]:
        if name not in owners:
            raise ConfigError(f"no registration in {home.prefix} lists the suite {name!r}")
    for name in suites or selection.chosen["suite"]:
        files = LockFiles(home.results, name)
        if files.is_locked and not parsed.again:
            console.print(f"{name}: locked already, {_short(files.manifest)}")
            continue
        made = lock(home, owners[name], name, parsed.incomplete)
        console.print(f"{name}: locked {made.rows:,} of {made.expected:,} rows as {_short(files.manifest)}")
    console.print(f"next: kvexp stamp {home.study}, then kvexp verify {home.study}")
    return 0


def verify_study(parsed: argparse.Namespace, console: Console) -> int:
    """Check all papers and logs, write evidence.json and say what holds."""
    selection, home, _ = _opened(parsed)
    found = find(home, named(home, []))
    replayed = _replay(selection, home, parsed, found) if parsed.replay is not None else None
    evidence = evidence_of(found, replayed)
    home.results.mkdir(parents=True, exist_ok=True)
    write(home.results / FILE, encode(evidence) + b"\n")
    if parsed.json:
        print((home.results / FILE).read_text(), end="")
    else:
        _print_evidence(evidence, console)
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


def _print_evidence(evidence: Evidence, console: Console) -> None:
    title = f"EVIDENCE of study {evidence.study}"
    title += "" if evidence.grade >= WITNESSED else ", UNWITNESSED: no third party vouches for its time"
    console.print(Text(title))
    for seal in evidence.seals:
        digest = "not sealed" if seal.seal is None else f"seal {seal.seal[:12]}"
        console.print(
            Text(f"{seal.id}  {digest}; existing data: {seal.existing_data}; {printable(seal.title)}")
        )
        for one in seal.stamps:
            console.print(Text(f"   {one.time} by {printable(one.witness)} ({GRADES[one.grade]})"))
    for step in evidence.amendments:
        console.print(Text(f"{step.id}-{step.number}  amended {step.stage}: {printable(step.why)}"))
    for check in evidence.checks:
        console.print(Text(f"{HOLDS[check.holds]:6} {check.name}: {printable(check.words)}"))
    console.print("What no file can exclude:")
    for sentence in evidence.cannot:
        console.print(Text(f"  {printable(sentence)}"))
    console.print(f"written to results/{evidence.study}/{FILE}")


def amend_study(parsed: argparse.Namespace, console: Console) -> int:
    """Register a change of sealed files."""
    from kvexp.prereg.amend import Reason, amend

    selection, home, ids = _opened(parsed)
    if len(ids) != 1:
        raise ConfigError(f"say which registration is amended: kvexp amend {home.study} ID --why ...")
    reason = Reason(parsed.why, parsed.data_seen, parsed.accept_protocol)
    made = amend(home, selection, named(home, ids)[0], reason)
    folder = f"{home.prefix}/amendments/{made.registration}-{made.number}"
    console.print(f"{made.registration}: amended {made.stage}, {len(made.files)} files, see {folder}")
    for path, kind in made.files.items():
        console.print(Text(f"  {kind:8} {printable(path)}"))
    console.print(f"next: git commit, then kvexp stamp {home.study} {made.registration}")
    return 0


def new_study(parsed: argparse.Namespace, console: Console) -> int:
    """Copy a study and its registrations under a new name."""
    from kvexp.prereg.scaffold import new_study as copy

    root = project_root()
    for path in copy(root, parsed.name, parsed.source):
        console.print(Text(f"wrote {path.relative_to(root)}"))
    console.print(
        f"fill in what says FILL IN, then: kvexp plan study={parsed.name}, kvexp seal {parsed.name}"
    )
    return 0


def _opened(parsed: argparse.Namespace, copy: bool = False) -> tuple[Selection, Home, list[str]]:
    """The study, the home of its registrations, and the bare words after its name."""
    bare = [word for word in parsed.overrides if "=" not in word]
    overrides = [word for word in parsed.overrides if "=" in word]
    if not any(word.startswith("study=") for word in overrides):
        if not bare:
            raise ConfigError(f"say which study: kvexp {parsed.called} STUDY")
        overrides.insert(0, f"study={bare.pop(0)}")
    root = project_root()
    selection = select(overrides, root)
    if copy:
        _copy_home(home_of(selection, root), root / "results" / selection.study.name / COPIED)
    return selection, home_of(selection, root), bare


def _or_delete(home: Home) -> str:
    copied = home.folder.name == COPIED
    return f" (a sealed copy that nobody relies on can go: delete results/{home.study})" if copied else ""


def _copy_home(home: Home, target: Path) -> None:
    """Registrations alone: a copy is sealed anew."""
    if target.is_dir():
        return
    temporary = target.with_name(f"{target.name}.{os.getpid()}.tmp")
    temporary.mkdir(parents=True)
    for path in sorted(home.folder.glob("*.toml")):
        shutil.copyfile(path, temporary / path.name)
    temporary.rename(target)


def _short(manifest: Path) -> str:
    return read_manifest(manifest).digest[:12]


def _relative(home: Home, path: Path) -> str:
    return path.relative_to(home.root).as_posix()
