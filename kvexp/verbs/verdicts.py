"""`kvexp verdicts`: the frozen analysis of a study, as another program."""

import argparse
import subprocess

from rich.console import Console

from kvexp.ceremony.amend import print_edited
from kvexp.verbs.as_sealed import take_as_sealed
from kvexp.verbs.opened import STUDY, judged, take
from kvexp.verbs.report import analysis_command

WORDS = STUDY


def arguments(parser: argparse.ArgumentParser) -> None:
    """Which study, and by which registrations."""
    take(parser, "--registration")
    parser.add_argument("--json", action="store_true", help="print verdicts.json")
    parser.add_argument(
        "--blind",
        action="store_true",
        help="run the analysis on outcomes permuted within model and task: no verdict, no recorded look",
    )
    take_as_sealed(parser)


def run(parsed: argparse.Namespace, console: Console) -> int:
    """Say which registration judges if that may surprise, then let the analysis speak."""
    home = judged(parsed).home
    print_edited(home, Console(stderr=True) if parsed.json else console, parsed.registration)
    console.file.flush()
    options = [option for option in ("blind", "json") if getattr(parsed, option)]
    command = [*analysis_command("analysis", home, parsed.registration), *(f"--{one}" for one in options)]
    # Another program on purpose: it must run without kvexp's dependencies.
    return subprocess.run(command, cwd=home.root, check=False).returncode
