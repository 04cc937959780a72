"""`kvexp fetch`: bring the models and data of a study to this machine."""

import argparse

from rich.console import Console

from kvexp.models.fetch import fetch
from kvexp.verbs.opened import STUDY, opened, take

WORDS = STUDY


def arguments(parser: argparse.ArgumentParser) -> None:
    """Which study, and whether only to ask."""
    take(parser)
    parser.add_argument("--dry-run", action="store_true", help="only list what is missing, with sizes")


def run(parsed: argparse.Namespace, console: Console) -> int:
    """Fetch what is missing of the chosen suites."""
    return fetch(opened(parsed).selection, console, parsed.dry_run)
