"""What `kvexp cancel` and `kvexp account` do."""

import argparse
import shlex
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path

from rich.console import Console

from kvexp.errors import ConfigError, IncompleteError
from kvexp.run.prepare import written_ids
from kvexp.slurm.account import export
from kvexp.slurm.programs import SlurmError, run
from kvexp.slurm.reconcile import Flight, read_flights
from kvexp.slurm.submissions import Book
from kvexp.study.compose import Selection, project_root, select
from kvexp.study.grid import chosen, shards
from kvexp.study.results import GRID, results_of

# `kvexp cancel`: takes out of the queue what this study has there, and nothing else.


IDS_AT_ONCE = 200


def cancel(book: Book, shard_ids: Collection[str] | None, console: Console) -> None:
    """Cancel the tasks of these shards; None: all, and the analysis that follows them as well.

    Raises SlurmError if the queue does not answer or scancel refuses, IncompleteError if a submit that is at
    work does not end.
    """
    with book.locked(console):  # a submit that is at work sends all it has first
        _cancel(book, shard_ids, console)


def _cancel(book: Book, shard_ids: Collection[str] | None, console: Console) -> None:
    try:
        found = read_flights(book.read())
    except SlurmError as error:
        raise SlurmError(f"{error}, so nothing was cancelled: try again") from None
    chosen = [f for f in found if shard_ids is None or f.shard_id in shard_ids]
    if not chosen:
        console.print(f"study {book.study} has nothing of it in the queue")
        return
    ids = _ids(found, chosen)
    for start in range(0, len(ids), IDS_AT_ONCE):
        try:
            run(["scancel", *ids[start : start + IDS_AT_ONCE]])
        except SlurmError as error:
            rest = len(ids) - start
            raise SlurmError(
                f"{error}, so {rest} of {len(ids)} ids may not be cancelled: try again"
            ) from None
    running = sum(flight.entry.is_running for flight in chosen)
    console.print(
        f"cancelled {len(chosen)} of {len(found)} tasks that study {book.study} has in the queue, {running} "
        "of them running; the rows so far are kept"
    )


def _ids(found: Sequence[Flight], chosen: Sequence[Flight]) -> list[str]:
    """Whole arrays where nothing else of them is in the queue, else task by task."""
    there = Counter(flight.entry.job_id.partition("_")[0] for flight in found)
    meant = Counter(flight.entry.job_id.partition("_")[0] for flight in chosen)
    whole = {job_id for job_id, n in meant.items() if there[job_id] == n}
    parts = [f.entry.job_id for f in chosen if f.entry.job_id.partition("_")[0] not in whole]
    return [*sorted(whole, key=int), *parts]


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
