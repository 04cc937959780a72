"""What `kvexp cancel` and `kvexp account` do."""

import argparse
import shlex
from pathlib import Path

from rich.console import Console

from kvexp.compose import Selection, project_root, select
from kvexp.errors import ConfigError, IncompleteError
from kvexp.grid import chosen, shards
from kvexp.prepare import written_ids
from kvexp.slurm.cancel import cancel
from kvexp.slurm.export import export
from kvexp.slurm.programs import SlurmError
from kvexp.slurm.submissions import Book
from kvexp.started import GRID, results_of


def cancel_study(parsed: argparse.Namespace, console: Console) -> int:
    """Cancel what the chosen part of a study has in the queue."""
    selection, book, results = _opened(parsed)
    if not book.is_used:
        raise IncompleteError(f"study {book.study} was never submitted to Slurm: there is nothing to cancel")
    made = shards(selection, "assume", written_ids(results / GRID))
    meant = {shard.shard_id for shard in chosen(made, selection)}
    cancel(book, None if len(meant) == len(made) else meant, console)
    return 0


def account_study(parsed: argparse.Namespace, console: Console) -> int:
    """Export the runs of all jobs of a study, whatever part of it is chosen."""
    _, book, results = _opened(parsed)
    if not book.is_used:
        raise IncompleteError(f"study {book.study} was never submitted to Slurm: there is nothing to export")
    try:
        export(book, results, console)
    except SlurmError as error:
        raise SlurmError(
            f"{error}, so nothing was exported (an earlier export is kept; without accounting `kvexp verify` "
            "says that jobs were held against nothing)"
        ) from None
    return 0


def _opened(parsed: argparse.Namespace) -> tuple[Selection, Book, Path]:
    root = project_root()
    selection = select(parsed.overrides, root)
    results = results_of(selection.study.name, root, is_registered=not parsed.unregistered)
    book = Book(root, results)
    if not (parsed.unregistered or book.read()):
        scratch = results_of(selection.study.name, root, is_registered=False)
        if Book(root, scratch).read():
            words = shlex.join(["kvexp", parsed.called, *parsed.overrides, "--unregistered"])
            raise ConfigError(f"study {book.study} was only submitted with --unregistered: {words}")
    return selection, book, results
