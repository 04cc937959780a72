"""`kvexp seal`: seal the registrations of a study; those that are sealed already stay as they are."""

import argparse
import os
import shutil
from collections.abc import Iterable
from dataclasses import replace

from rich.console import Console

from kvexp.ceremony.grid_changes import grid_changes, other_words
from kvexp.ceremony.home import Home, named
from kvexp.ceremony.seal import Draft, commit_for, draft, is_to_be_made_again, is_unused, same
from kvexp.documents.forms import COPIED
from kvexp.documents.manifest import core_files, differences
from kvexp.errors import ConfigError, first, printable
from kvexp.study.words import remember_words
from kvexp.verbs.opened import Opened, registered, take, tell

WORDS = "STUDY [ID ...] [OVERRIDE ...]"
SHOWN = 20


def arguments(parser: argparse.ArgumentParser) -> None:
    """Which registrations, and where the seal lies."""
    take(parser, names="registrations by their ids, by default all")
    parser.add_argument(
        "--copy", action="store_true", help="seal a copy of the registrations, in the results folder"
    )


def run(parsed: argparse.Namespace, console: Console) -> int:
    """Seal what is named, by default all; parents before their addenda."""
    study = registered(parsed, hint="registrations are named by their ids", is_copied=parsed.copy)
    home = _copied(study) if parsed.copy else study.home
    wanted = {one.content.id: one for one in named(home, study.names)}
    # A seal that is made again may be in the commit, which then differs from it.
    commits = {name: commit_for(home, study.selection, one) for name, one in wanted.items()}
    for name, one in wanted.items():
        made = draft(home, study.selection, one, commit=commits[name])
        is_again = made.seals.is_sealed()
        if is_again:
            if not same(home, made, whatever_parent=is_unused(home, name)):
                raise _other(home, made)
            if not is_to_be_made_again(home, one, made, wanted):
                tell(console, f"{name}: sealed already, {made.seals.read_manifest().digest[:12]}")
                continue
        manifest = made.write(home)
        tell(
            console,
            f"{name}: sealed {len(manifest.files)} files as {manifest.digest[:12]} "
            f"({home.named(made.seals.manifest)}){', again, with its commit' if is_again else ''}",
        )
        for line in _remarks(home, made, one.content.suites):
            tell(console, f"  {line}")
    is_whole = all(one.name is None or one.holds_all is not None for one in commits.values())
    tell(console, f"next: {_next(home, is_whole)}")
    return 0


def _copied(study: Opened) -> Home:
    """The home of a copy beside the results: registrations alone, which are sealed anew."""
    home, target = study.home, study.results() / COPIED
    remember_words(study.selection, study.root, study.words)
    if not target.is_dir():
        temporary = target.with_name(f"{target.name}.{os.getpid()}.tmp")
        temporary.mkdir(parents=True)
        for path in sorted(home.folder.glob("*.toml")):
            shutil.copyfile(path, temporary / path.name)
        temporary.rename(target)
    return replace(home, folder=target)


def _other(home: Home, made: Draft) -> ConfigError:
    """What differs from the seal that is there: files, then the grid."""
    name, seals = made.about.id, made.seals
    files = differences(home.root, seals.read_manifest(), core_files(home.root, made.claims))
    grid = [f"grid: {line}" for line in grid_changes(seals.read_shards(), made.shards)]
    words, found = other_words(home, [name]), [*files, *grid]
    copied = home.folder.name == COPIED
    delete = f" (a sealed copy that nobody relies on can go: delete results/{home.study})" if copied else ""
    if words and grid and not files:
        return ConfigError(
            f"registration {name} of study {home.study} is sealed for another grid{words}: say the "
            f"words that it was sealed with, or begin anew under another name with study.name=NAME{delete}",
            first(found, SHOWN),
        )
    return ConfigError(
        f"registration {name} of study {home.study} is sealed, and what it covers has changed since"
        f"{words}: restore it, register the change with "
        f"`{home.amend_command(name)}`, or begin anew under another name with study.name=NAME{delete}",
        first(found, SHOWN),
    )


def _remarks(home: Home, made: Draft, suites: Iterable[str]) -> list[str]:
    """What a person may not expect of this seal."""
    found, commit = [], made.commit
    if commit.name is not None and commit.is_dirty:
        found.append(
            "the tree differs from its commit, so the seal names none: git commit, then seal again, before "
            "the stamp"
        )
    elif commit.lacking:
        rest = f" and {len(commit.lacking) - 3} more" if len(commit.lacking) > 3 else ""
        shown = printable(", ".join(commit.lacking[:3]))
        found.append(
            f"not all sealed files are in commit {str(commit.name)[:7]} ({shown}{rest}), so the seal names "
            "none: git add, git commit, then seal again, before the stamp"
        )
    if begun := sorted({path.parts[-3] for path in home.attempts(suites)}):
        found.append(f"attempts of {', '.join(begun)} were made before the seal: they will not count")
    return found


def _next(home: Home, is_whole: bool) -> str:
    if home.folder.name == COPIED:
        return home.command("stamp")
    if not is_whole:
        return f"git add and commit, then again {home.seal_command()}"
    return f"git add and commit the seals, then {home.command('stamp')}"
