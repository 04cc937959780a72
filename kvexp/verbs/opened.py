"""What a registration verb is about: the study, the home of its registrations, and the names after it."""

import argparse
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kvexp.ceremony.home import Home, home_of, refuse_borrowed
from kvexp.documents.forms import COPIED
from kvexp.documents.manifest import read_manifest
from kvexp.errors import ConfigError
from kvexp.study.compose import Selection, project_root, select
from kvexp.study.words import recalled, refuse_choices, remember_words


@dataclass(frozen=True)
class Opened:
    """A study, opened by the words of a command."""

    selection: Selection
    home: Home
    names: list[str]  # of registrations or suites


def opened(
    parsed: argparse.Namespace, copy: bool = False, choices: Sequence[str] = (), hint: str = ""
) -> Opened:
    """Read the words of a command.

    Args:
        parsed: of the command line.
        copy: its registrations are copied beside its results first, to be sealed there.
        choices: groups of which the verb takes a part, as `suite`; to choose of others is refused.
        hint: what to say in place of such a choice.
    """
    root = project_root()
    words = recalled(parsed.overrides, root, is_bare=True)
    names = [word for word in words if "=" not in word]
    overrides = [word for word in words if "=" in word]
    if not any(word.startswith("study=") for word in overrides):
        if not names:
            raise ConfigError(f"say which study: kvexp {parsed.called} STUDY")
        overrides.insert(0, f"study={names.pop(0)}")
    selection = select(overrides, root)
    refuse_choices(parsed.called, overrides, choices, hint)
    home = home_of(selection, root, overrides)
    if copy:
        remember_words(selection, root, overrides)
        _copy(home, root / "results" / selection.study.name / COPIED)
        home = home_of(selection, root, overrides)
    if any((home.folder / "seals").glob("*.sha256")):
        refuse_borrowed(home)
    return Opened(selection, home, names)


def _copy(home: Home, target: Path) -> None:
    """Registrations alone: a copy is sealed anew."""
    if target.is_dir():
        return
    temporary = target.with_name(f"{target.name}.{os.getpid()}.tmp")
    temporary.mkdir(parents=True)
    for path in sorted(home.folder.glob("*.toml")):
        shutil.copyfile(path, temporary / path.name)
    temporary.rename(target)


def short(manifest: Path) -> str:
    """The digest of a manifest, as it is shown."""
    return read_manifest(manifest).digest[:12]


def relative(home: Home, path: Path) -> str:
    """A file as it is named from the repository's root."""
    return path.relative_to(home.root).as_posix()
