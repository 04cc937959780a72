"""`kvexp report`: verify, the page of answers, then the analysis with its report, one after the other."""

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from kvexp.ceremony.home import Home
from kvexp.errors import KvexpError, printable
from kvexp.verbs.as_sealed import take_as_sealed
from kvexp.verbs.opened import STUDY, judged, take, tell

WORDS = STUDY


def arguments(parser: argparse.ArgumentParser) -> None:
    """Which study, what is made again, and by which registrations."""
    take(parser, "--replay", "--decode", "--seed", "--registration")
    take_as_sealed(parser)


def analysis_command(module: str, home: Home, registration: Path | None) -> list[str]:
    """What runs a module of the analysis on a study, in the folder of the repository.

    Args:
        module: `analysis`, or `analysis.render` for the page of answers.
        home: of the study.
        registration: folder of registrations instead of the study's.
    """
    command = [sys.executable, "-m", module, str(Path("results") / home.study)]
    if registration is not None:  # the analysis runs in another folder
        return [*command, "--registration", str(registration.absolute())]
    if home.prefix != f"preregistration/{home.study}":  # a renamed grid is judged by the claims it varies
        return [*command, "--registration", home.prefix]
    return command


def run(parsed: argparse.Namespace, console: Console) -> int:
    """Make evidence.json, generations.html, verdicts and report.html anew; the worst exit code of them."""
    home = judged(parsed).home
    verified = _verify(parsed, console)
    # The page of answers first: the report links to it. What stops both is said once, by the analysis.
    answers = _run(analysis_command("analysis.render", home, parsed.registration), home.root, is_quiet=True)
    judges = _run(analysis_command("analysis", home, parsed.registration), home.root)
    console.file.flush()
    if answers.returncode and not judges.returncode:
        print(answers.stderr, end="", file=sys.stderr)
    pages = [name for name in ("report.html", "generations.html") if (home.results / name).is_file()]
    if pages:
        tell(console, f"pages: {', '.join(f'results/{home.study}/{name}' for name in pages)}")
    return max(verified, answers.returncode, judges.returncode)


def _verify(parsed: argparse.Namespace, console: Console) -> int:
    """Evidence that does not hold stops nothing here: the report says so."""
    from kvexp.verbs import verify  # here, since `analysis_command` serves verbs that need no stamps

    parsed.json = False
    try:
        return verify.run(parsed, console)
    except KvexpError as error:
        print(f"kvexp: {printable(str(error))}", file=sys.stderr)
        for line in error.details:
            print(f"  {printable(line)}", file=sys.stderr)
        return error.exit_code


def _run(command: Sequence[str], root: Path, *, is_quiet: bool = False) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, cwd=root, check=False, text=True, capture_output=is_quiet)
