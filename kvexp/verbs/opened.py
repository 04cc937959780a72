"""One way for a verb to take words, and to open the study that they are about."""

import argparse
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvexp.errors import ConfigError, IncompleteError, printable
from kvexp.study.compose import Selection, project_root, select
from kvexp.study.results import refuse_unstarted, results_of
from kvexp.study.words import recalled, refuse_choices, with_study

if TYPE_CHECKING:
    from rich.console import Console

    from kvexp.ceremony.home import Home
    from kvexp.slurm.submissions import Book

STUDY = "STUDY [OVERRIDE ...]"  # the words of most verbs


@dataclass(frozen=True)
class Opened:
    """A study, opened by the words of a command."""

    root: Path  # of the repository
    words: list[str]  # the overrides
    selection: Selection  # what they select
    names: list[str]  # of registrations or suites, for verbs that take them

    @cached_property
    def home(self) -> "Home":
        """Where its registrations lie."""
        from kvexp.ceremony.home import home_of

        return home_of(self.selection, self.root, self.words)

    def results(self, *, is_registered: bool = True) -> Path:
        """Where its logs lie."""
        return results_of(self.selection.study.name, self.root, is_registered=is_registered)


# Options that several verbs have.
OPTIONS: dict[str, dict[str, Any]] = {
    "--json": {"action": "store_true", "help": "print JSON for machines"},
    "--unregistered": {"action": "store_true", "help": "use the unregistered runs in results/scratch"},
    "--replay": {"type": int, "metavar": "N", "help": "draw the keep sets of N Poisson rows again"},
    "--decode": {"type": int, "metavar": "M", "help": "answer M examples again, with all arms"},
    "--seed": {"type": int, "metavar": "S", "help": "seed that chooses what is replayed (default: random)"},
    "--registration": {
        "type": Path,
        "metavar": "DIR",
        "help": "folder of registrations (default: the study's); a copy locked with the logs comes first",
    },
}


def take(parser: argparse.ArgumentParser, *options: str, names: str = "", is_study: bool = True) -> None:
    """The words of a verb and some of these options; `names`: what may be named after the study."""
    study = f"first the study, STUDY or study=STUDY{f'; then {names}' if names else ''}; " if is_study else ""
    choices = "suite=NAME, model=NAME, task=NAME, cluster=NAME, or " if is_study else ""
    words = f"{study}overrides: {choices}group.key=value"
    parser.add_argument("overrides", nargs="*", metavar="WORD", help=words)
    for option in options:
        parser.add_argument(option, **OPTIONS[option])


def tell(console: "Console", line: str) -> None:
    """One line, whatever is in it: no markup, no control character."""
    from rich.text import Text

    console.print(Text(printable(line)))


def opened(parsed: argparse.Namespace) -> Opened:
    """The study that the words of a command are about, or the usual one."""
    root = project_root()
    parsed.overrides = recalled(with_study(parsed.overrides), root)
    return Opened(root, parsed.overrides, select(parsed.overrides, root), [])


def registered(
    parsed: argparse.Namespace, parts: Sequence[str] = (), hint: str = "", *, is_copied: bool = False
) -> Opened:
    """A study whose registrations a verb is about, with the names after it.

    Args:
        parsed: of the command line.
        parts: groups of which the verb takes a part, as `suite`; to choose of others is refused.
        hint: what to say in place of such a choice.
        is_copied: the registrations get seals of their own, whatever the study.
    """
    from kvexp.ceremony.home import refuse_borrowed

    root = project_root()
    words = recalled(with_study(parsed.overrides), root)
    overrides = [word for word in words if "=" in word]
    if not any(word.startswith("study=") for word in overrides):
        raise ConfigError(f"say which study: kvexp {parsed.called} STUDY")
    study = Opened(root, overrides, select(overrides, root), [word for word in words if "=" not in word])
    refuse_choices(parsed.called, overrides, parts, hint)
    if not is_copied and any((study.home.folder / "seals").glob("*.sha256")):
        refuse_borrowed(study.home)
    return study


def judged(parsed: argparse.Namespace) -> Opened:
    """A study that was run, under the words that it was run with, and no part of it."""
    from kvexp.ceremony.grid_changes import refuse_other_grid

    study = opened(parsed)
    refuse_choices(parsed.called, study.words)
    refuse_unstarted(study.home.results, study.words)
    refuse_other_grid(study.home, study.selection)
    return study


def submitted(parsed: argparse.Namespace, what: str) -> tuple[Opened, "Book"]:
    """A study that Slurm was asked to run, with the book of that. Raises KvexpError for any other."""
    from kvexp.slurm.submissions import Book

    study = opened(parsed)
    book = Book(study.root, study.results(is_registered=not parsed.unregistered))
    scratch = Book(study.root, study.results(is_registered=False))
    if not (parsed.unregistered or book.read()) and scratch.read():
        words = shlex.join(["kvexp", parsed.called, *study.words, "--unregistered"])
        raise ConfigError(f"study {book.study} was only submitted with --unregistered: {words}")
    if not book.is_used:
        raise IncompleteError(f"study {book.study} was never submitted to Slurm: there is nothing to {what}")
    return study, book
