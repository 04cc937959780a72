"""Amendments: a change of sealed files, registered with its diff, its reason and what had been seen."""

import difflib
import hashlib
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from kvexp.ceremony.grid_changes import grid_changes, other_words
from kvexp.ceremony.home import KINDS, SHOWN, Home, protocols_of
from kvexp.ceremony.seal import Draft, draft, same
from kvexp.documents.forms import LOOKS, STAMPS, Amendment, Stage
from kvexp.documents.manifest import core_files, differences
from kvexp.documents.registration import Registered
from kvexp.documents.seals import STATEMENT, Seals, read_amendment
from kvexp.errors import ConfigError, first, printable
from kvexp.files import digest as digest_of
from kvexp.files import write_whole
from kvexp.study import provenance
from kvexp.study.compose import Selection

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
