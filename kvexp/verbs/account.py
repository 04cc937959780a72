"""`kvexp account`: export the runs of all jobs of a study, whatever part of it is chosen."""

import argparse

from rich.console import Console

from kvexp.slurm.account import export
from kvexp.slurm.programs import SlurmError
from kvexp.verbs.opened import STUDY, submitted, take

WORDS = STUDY


def arguments(parser: argparse.ArgumentParser) -> None:
    """Which study, registered or not."""
    take(parser, "--unregistered")


def run(parsed: argparse.Namespace, console: Console) -> int:
    """Ask accounting, and write its answer beside the logs."""
    study, book = submitted(parsed, "export")
    try:
        export(book, study.results(is_registered=not parsed.unregistered), console)
    except SlurmError as error:
        raise SlurmError(
            f"{error}, so nothing was exported (an earlier export is kept; without accounting `kvexp verify` "
            "says that jobs were held against nothing)"
        ) from None
    return 0
