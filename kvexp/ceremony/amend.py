"""Amending a sealed registration: what differs from the sealed text, and the new seal."""

import difflib
import hashlib
import json
import shlex
import shutil
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
from rich.console import Console
from rich.text import Text

from kvexp import files
from kvexp.ceremony.grid_changes import NOTHING, field_changes, grid_changes, other_words
from kvexp.ceremony.home import KINDS, SHOWN, Home, protocols_of
from kvexp.ceremony.seal import Draft, draft, same
from kvexp.documents.forms import COPIED, LOCKED, LOOKS, STAMPS, Amendment, Stage
from kvexp.documents.manifest import core_files, differences, read_bytes
from kvexp.documents.registration import Registered
from kvexp.documents.seals import STATEMENT, LockFiles, Seals, chain, read_amendment
from kvexp.errors import ConfigError, IntegrityError, first, printable
from kvexp.files import digest as digest_of
from kvexp.files import write_whole
from kvexp.study import provenance
from kvexp.study.compose import Selection

# How the registration that people edit differs from the file that judges, field by field, and what to do.


SHOWN_FIELDS = 8  # fields
LONGEST = 60  # characters of a value
DIGITS = 12


def print_edited(home: Home, console: Console, chosen: Path | None = None) -> None:
    """What a person must know before a verdict; nothing if the working files are those that judge.

    Registrations that were locked with the logs, or sealed as a copy, judge, wherever people edit them.
    `chosen`: the folder given as `--registration`, instead of the study's.
    """
    judging: dict[str, Path] = {}
    # A folder that was given stands in for the copy beside the results, not for what was locked.
    for folder in [home.results / LOCKED, *([home.results / COPIED] if chosen is None else [])]:
        for path in sorted(folder.glob("*.toml")):
            judging.setdefault(path.stem, folder)
    for name, judge in sorted(judging.items()):
        for folder in _working(home, judge, chosen):
            for line in _edited(home, name, judge, folder):
                console.print(Text(line))


def _working(home: Home, judge: Path, chosen: Path | None) -> list[Path]:
    """Where somebody may have edited what `judge` holds."""
    if chosen is not None:
        return [chosen.absolute()]
    is_its_own = home.registered in ("", home.study)  # else it is another study's, which may go on
    usual = [home.root / "preregistration" / home.study] if is_its_own else []
    folders = [home.results / COPIED, *usual]
    return [folder for folder in folders if folder != judge and folder.is_dir()]


def _edited(home: Home, name: str, judge: Path, folder: Path) -> Iterator[str]:
    """What judges, what differs, and the way out; nothing where the files are alike."""
    there, here = judge / f"{name}.toml", folder / f"{name}.toml"
    digest = files.digest(there)
    is_elsewhere = folder != home.folder and not here.exists()
    if digest in (files.ABSENT, files.digest(here)) or is_elsewhere:
        return
    yield (
        f"registration {name}: judged by {_named(home, there)} (sha256 {digest[:DIGITS]}); "
        f"{_named(home, here)} differs from it and judges nothing:"
    )
    fields = changes(there, here) if here.exists() else ["it is missing"]
    for line in first(fields, SHOWN_FIELDS) or ["in comments or layout only"]:
        yield f"  {line}"
    yield f"  {_todo(home, name, judge, folder)}"


def _todo(home: Home, name: str, judge: Path, folder: Path) -> str:
    there, here = (_named(home, one / f"{name}.toml") for one in (judge, folder))
    restore = f"to restore it: {shlex.join(['cp', there, here])}"
    amend = home.amend_command(name)
    if folder != home.folder:  # no seal is kept there, so there is nothing to amend
        own = _named(home, home.folder / f"{name}.toml")
        return f"{restore}; a change that is meant is made in {own} and amended there: {amend}"
    again = home.command("lock", *_locked_suites(home, judge / f"{name}.toml"), "--again")
    if _is_amended(judge, folder, name):
        return f"it was amended after the lock; to be judged by the amendment: {again}"
    return f"{restore}; or, if the change is meant: {amend}, then {again}"


def _locked_suites(home: Home, registration: Path) -> list[str]:
    """Of a registration, those whose logs are locked."""
    try:
        listed = _table(registration).get("suites", [])
    except (IntegrityError, ValueError, RecursionError):
        return []
    return [str(suite) for suite in listed if LockFiles(home.results, str(suite)).is_locked]


def _is_amended(judge: Path, folder: Path, name: str) -> bool:
    """Whether the seal beside the judging file is an earlier one of the working folder."""
    try:
        old = chain(judge, name)[-1].read_manifest().digest
        return old in [link.read_manifest().digest for link in chain(folder, name)[:-1]]
    except IntegrityError:
        return False


def changes(there: Path, here: Path) -> list[str]:
    """The fields in which two TOML files differ: `claim.R1.kill: 'a', in the working file 'b'`."""
    try:
        found = field_changes(_table(there), _table(here))
    except (IntegrityError, ValueError, RecursionError) as error:
        return [f"it cannot be read: {printable(str(error))}"]
    return [
        f"{printable(name)}: {_shown(before)}, in the working file {_shown(after)}"
        for name, before, after in found
    ]


def _table(path: Path) -> dict[str, Any]:
    return tomllib.loads(read_bytes(path).decode())


def _shown(value: Any) -> str:
    if value is NOTHING:
        return "absent"
    text = printable(repr(value) if isinstance(value, str) else str(value))
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def _named(home: Home, path: Path) -> str:
    return path.relative_to(home.root).as_posix() if path.is_relative_to(home.root) else str(path)


# Amendments: a change of sealed files, registered with its diff, its reason and what had been seen.


DIFF = "change.diff"


@dataclass(frozen=True)
class Reason:
    """What the author says."""

    why: str
    data_seen: str
    accepts_protocol: bool
    changes_grid: bool = False  # the grid may become another one


@dataclass(frozen=True)
class Amended:
    """What the author stated, and how the grid changed: a line for each shard."""

    statement: Amendment
    grid: list[str]


def amend(home: Home, selection: Selection, one: Registered, reason: Reason) -> Amended:
    """Seal a registration again and keep the seal before it, with what changed.

    Raises ConfigError if it is not sealed, if nothing changed, if the reason is not complete, or if the grid
    changed and the reason does not say that it shall: a forgotten override changes it too.
    """
    seals = home.seals(one.content.id)
    if not seals.is_sealed():
        raise ConfigError(
            f"registration {one.content.id} of study {home.study} is not sealed: change it freely, then "
            f"`{home.seal_command()}`"
        )
    old = seals.read_manifest()
    begun = home.amendments(one.content.id)[-1:]
    if begun and read_amendment(begun[0]).replaces == old.digest:  # a kill left the old manifest standing
        folder, before = begun[0], Seals(begun[0], one.content.id).read_shards()
        grid = grid_changes(before, draft(home, selection, one).shards)
        _check_grid(home, one, grid, reason)
    else:
        folder, grid = _keep(home, selection, one, reason)
    statement = read_amendment(folder)
    about = Seals(folder, one.content.id).read_about()
    data_seal = (about.data_seal or old.digest) if statement.attempts else None
    # Before stamps go: without files that git tracks, the new seal could name no commit.
    new = draft(home, selection, one, amends=old.digest, data_seal=data_seal)
    for path in seals.files:
        if path.suffix in STAMPS:  # they vouch for the seal before
            path.unlink()
    new.write(home)
    return Amended(statement, grid)


def _check_grid(home: Home, one: Registered, grid: list[str], reason: Reason) -> None:
    if grid and not reason.changes_grid:
        raise ConfigError(
            f"{len(grid)} shards would be others than seal {one.content.id} of study {home.study} has"
            f"{other_words(home, [one.content.id])}: give the words that it was sealed with, or, if the grid "
            "is what shall change, say --change-grid",
            first(grid, SHOWN, "more shards"),
        )


def _keep(home: Home, selection: Selection, one: Registered, reason: Reason) -> tuple[Path, list[str]]:
    """The folder of a new amendment, which appears whole, and how the grid changed.

    The folder holds the seal before it, the statement and the diff.
    """
    seals = home.seals(one.content.id)
    made = draft(home, selection, one)
    if same(home, made):
        raise ConfigError(f"nothing that seal {one.content.id} of study {home.study} covers has changed")
    grid = grid_changes(seals.read_shards(), made.shards)
    _check_grid(home, one, grid, reason)
    old, about = seals.read_manifest(), seals.read_about()
    attempts = len(home.attempts({*about.suites, *one.content.suites}))
    stage: Stage = "after-data" if attempts else "before-data"
    _check_reason(reason, stage, attempts)
    changed = differences(home.root, old, core_files(home.root, one.content.claim))
    statement = Amendment(
        format="kvexp-amendment/1",
        registration=one.content.id,
        number=len(home.amendments(one.content.id)) + 1,
        stage=stage,
        why=reason.why,
        data_seen=reason.data_seen or "none: nothing had been run",
        replaces=old.digest,
        accepts_protocol=reason.accepts_protocol,
        attempts=attempts,
        looks=_looks(home),
        files={
            **dict(_protocol_changes(seals, made)),
            **{path: kind for kind, path in (line.split("  ", 1) for line in changed)},
        },
    )
    folder = home.folder / "amendments" / f"{one.content.id}-{statement.number}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder.parent, prefix=".unfinished-") as name:
        temporary = Path(name) / folder.name
        temporary.mkdir()
        diffs, told = _diffs(home, seals, statement.files), [f"# grid: {printable(line)}\n" for line in grid]
        for path in seals.files:
            shutil.copyfile(path, temporary / path.name)
        write_whole(temporary / DIFF, "".join([*diffs, *told]).encode())
        write_whole(temporary / STATEMENT, _toml(statement).encode())
        temporary.rename(folder)
    return folder, grid


def _protocol_changes(seals: Seals, made: Draft) -> Iterator[tuple[str, str]]:
    """Files that make data and are others now; the seal lists them through its protocol manifests."""
    sealed = protocols_of(seals)
    for kind in KINDS:
        before = sealed[kind].files if kind in sealed else {}
        now = made.protocols.get(kind, {})
        for name in sorted(before.keys() | now.keys()):
            if before.get(name) != now.get(name):
                yield name, "added" if name not in before else "missing" if name not in now else "changed"


def _check_reason(reason: Reason, stage: Stage, attempts: int) -> None:
    if not reason.why.strip():
        raise ConfigError("an amendment needs a reason: --why 'what is wrong, and what is done about it'")
    if stage == "after-data" and not reason.data_seen.strip():
        raise ConfigError(
            f"{attempts} attempts have been made, so an amendment must say what you have seen of the data: "
            "--data-seen '...' (for instance: the verdicts; only that a shard failed)"
        )


def _looks(home: Home) -> int:
    path = home.results / LOOKS
    return path.read_bytes().count(b"\n") if path.is_file() else 0


def _diffs(home: Home, seals: Seals, files: dict[str, str]) -> Iterator[str]:
    """Unified diffs of what changed, as far as the text before can be found again."""
    commit, old = seals.read_about().git_commit, dict(seals.read_manifest().files)
    for sealed in protocols_of(seals).values():
        old |= sealed.files
    for path, kind in files.items():
        yield f"# {kind}  {path}\n"
        before = b"" if kind == "added" else _sealed_bytes(home, seals, path, old[path], commit)
        after = b"" if kind == "missing" else (home.root / path).read_bytes()
        if before is None:
            now = digest_of(home.root / path)
            yield f"# sha256 before {old[path]}, after {now}; the text before is not at hand\n"
            continue
        for line in difflib.unified_diff(_lines(before), _lines(after), f"a/{path}", f"b/{path}"):
            yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


def _lines(body: bytes) -> list[str]:
    return body.decode(errors="replace").splitlines(keepends=True)


def _sealed_bytes(home: Home, seals: Seals, path: str, digest: str, commit: str | None) -> bytes | None:
    """What was sealed: the registration as the seal keeps it, or the file as git does."""
    if path == f"{home.prefix}/{seals.id}.toml" and seals.text.is_file():
        found: bytes | None = seals.text.read_bytes()
    else:
        found = None if commit is None else provenance.git(home.root, "show", f"{commit}:{path}")
    return found if found is not None and hashlib.sha256(found).hexdigest() == digest else None


def _toml(statement: Amendment) -> str:
    """TOML's basic strings are JSON's, so that no library is needed to write these few lines."""
    body = msgspec.to_builtins(statement)
    files = body.pop("files")
    lines = [f"{key} = {_quoted(value)}" for key, value in body.items()]
    listed = [f"{_quoted(path)} = {_quoted(kind)}" for path, kind in files.items()]
    return "\n".join([*lines, "", "[files]", *listed, ""])


def _quoted(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
