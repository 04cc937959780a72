"""How the registration that people edit differs from the file that judges, field by field, and what to do."""

import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from kvexp import files
from kvexp.ceremony.grid_changes import NOTHING, field_changes
from kvexp.ceremony.home import Home
from kvexp.documents.forms import COPIED, LOCKED
from kvexp.documents.locks import LockFiles
from kvexp.documents.manifest import read_bytes
from kvexp.documents.seals import chain
from kvexp.errors import IntegrityError, first, printable

SHOWN = 8  # fields
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
    for line in first(fields, SHOWN) or ["in comments or layout only"]:
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
