"""`kvexp new-study`: copy a study and its registrations under a new name."""

import argparse

from rich.console import Console

from kvexp.ceremony.scaffold import new_study
from kvexp.study.compose import project_root
from kvexp.verbs.opened import tell

WORDS = "NAME [--from STUDY]"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Names of the new study and of its source."""
    parser.add_argument("name", metavar="NAME", help="name of the new study")
    parser.add_argument("--from", dest="source", default="embedded", metavar="STUDY", help="study to copy")


def run(parsed: argparse.Namespace, console: Console) -> int:
    """Write the files, and say what comes next."""
    root = project_root()
    for path in new_study(root, parsed.name, parsed.source):
        tell(console, f"wrote {path.relative_to(root)}")
    tell(
        console,
        f"fill in what says FILL IN, git add and commit; then: kvexp plan {parsed.name}, "
        f"kvexp seal {parsed.name}",
    )
    return 0
