"""Which file of a registration judges, and how the one that people edit differs from it, field by field."""

import shlex
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from kvexp import files
from kvexp.ceremony.changes import NOTHING, field_changes
from kvexp.ceremony.home import Home
from kvexp.documents.forms import COPIED, LOCKED
from kvexp.documents.locks import LockFiles
from kvexp.documents.manifest import read_bytes
from kvexp.documents.seals import chain
from kvexp.errors import IntegrityError, printable

SHOWN = 8  # fields
LONGEST = 60  # characters of a value
DIGITS = 12


@dataclass(frozen=True)
class Moved:
    """A registration whose working file is not the one that judges.

    Attributes:
        id: of the registration.
        judge: the file that judges, from the root of the repository.
        digest: its sha256.
        working: the file that differs.
        fields: how, one line each; empty: in comments or layout only.
        todo: what to do about it.
    """

    id: str
    judge: str
    digest: str
    working: str
    fields: tuple[str, ...]
    todo: str

    @property
    def lines(self) -> list[str]:
        """For a person: what judges, what differs, and the way out."""
        more = [f"  and {len(self.fields) - SHOWN} more"] if len(self.fields) > SHOWN else []
        told = [f"  {one}" for one in self.fields[:SHOWN]] or ["  in comments or layout only"]
        return [
            f"registration {self.id}: judged by {self.judge} (sha256 {self.digest[:DIGITS]}); "
            f"{self.working} differs from it and judges nothing:",
            *told,
            *more,
            f"  {self.todo}",
        ]


def moved(home: Home, chosen: Path | None = None) -> list[Moved]:
    """Registrations that were locked with the logs, or sealed as a copy, and differ where people edit them.

    `chosen`: the folder given as `--registration`, instead of the study's.
    """
    judging: dict[str, Path] = {}
    # A folder that was given stands in for the copy beside the results, not for what was locked.
    for folder in [home.results / LOCKED, *([home.results / COPIED] if chosen is None else [])]:
        for path in sorted(folder.glob("*.toml")):
            judging.setdefault(path.stem, folder)
    return [
        one
        for name, judge in sorted(judging.items())
        for folder in _working(home, judge, chosen)
        if (one := _moved(home, name, judge, folder)) is not None
    ]


def _working(home: Home, judge: Path, chosen: Path | None) -> list[Path]:
    """Where somebody may have edited what `judge` holds."""
    if chosen is not None:
        return [chosen.absolute()]
    is_its_own = home.registered in ("", home.study)  # else it is another study's, which may go on
    usual = [home.root / "preregistration" / home.study] if is_its_own else []
    folders = [home.results / COPIED, *usual]
    return [folder for folder in folders if folder != judge and folder.is_dir()]


def _moved(home: Home, name: str, judge: Path, folder: Path) -> Moved | None:
    there, here = judge / f"{name}.toml", folder / f"{name}.toml"
    found = files.digest(judge / there.name)
    if found in (files.ABSENT, files.digest(folder / here.name)) or (
        folder != home.folder and not here.exists()
    ):
        return None
    fields = tuple(changes(there, here)) if here.exists() else ("it is missing",)
    todo = _todo(home, name, judge, folder)
    return Moved(name, _named(home, there), found, _named(home, here), fields, todo)


def _todo(home: Home, name: str, judge: Path, folder: Path) -> str:
    there, here = (_named(home, one / f"{name}.toml") for one in (judge, folder))
    restore = f"to restore it: {shlex.join(['cp', there, here])}"
    if folder != home.folder:  # no seal is kept there, so there is nothing to amend
        own = _named(home, home.folder / f"{name}.toml")
        amend = home.amend_command(name)
        return f"{restore}; a change that is meant is made in {own} and amended there: {amend}"
    again = home.command("lock", *_locked_suites(home, judge / f"{name}.toml"), "--again")
    if _is_amended(judge, folder, name):
        return f"it was amended after the lock; to be judged by the amendment: {again}"
    return f"{restore}; or, if the change is meant: {home.amend_command(name)}, then {again}"


def _locked_suites(home: Home, registration: Path) -> list[str]:
    """Of a registration, those whose logs are locked."""
    try:
        listed = tomllib.loads(read_bytes(registration).decode()).get("suites", [])
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


def print_moved(home: Home, console: Console, chosen: Path | None = None) -> None:
    """What a person must know before a verdict; nothing if the working files are those that judge."""
    for one in moved(home, chosen):
        for line in one.lines:
            console.print(Text(line))


def changes(there: Path, here: Path) -> list[str]:
    """The fields in which two TOML files differ: `claim.R1.kill: 'a', in the working file 'b'`."""
    try:
        old, new = (tomllib.loads(read_bytes(path).decode()) for path in (there, here))
        found = field_changes(old, new)
    except (IntegrityError, ValueError, RecursionError) as error:
        return [f"it cannot be read: {printable(str(error))}"]
    return [
        f"{printable(name)}: {_shown(before)}, in the working file {_shown(after)}"
        for name, before, after in found
    ]


def _shown(value: Any) -> str:
    if value is NOTHING:
        return "absent"
    text = printable(repr(value) if isinstance(value, str) else str(value))
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def _named(home: Home, path: Path) -> str:
    return path.relative_to(home.root).as_posix() if path.is_relative_to(home.root) else str(path)
