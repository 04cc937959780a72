"""`kvexp cancel`: take out of the queue what a study has there, and nothing else."""

import argparse
from collections import Counter
from collections.abc import Collection, Sequence

from rich.console import Console

from kvexp.run.prepare import written_ids
from kvexp.slurm.programs import SlurmError
from kvexp.slurm.programs import run as run_program
from kvexp.slurm.reconcile import QueuedTask, read_queued
from kvexp.slurm.submissions import Book
from kvexp.study.grid import chosen, shards
from kvexp.study.results import GRID
from kvexp.verbs.opened import STUDY, submitted, take

WORDS = STUDY
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
        found = read_queued(book.read())
    except SlurmError as error:
        raise SlurmError(f"{error}, so nothing was cancelled: try again") from None
    chosen = [f for f in found if shard_ids is None or f.shard_id in shard_ids]
    if not chosen:
        console.print(f"study {book.study} has nothing of it in the queue")
        return
    ids = _ids(found, chosen)
    for start in range(0, len(ids), IDS_AT_ONCE):
        try:
            run_program(["scancel", *ids[start : start + IDS_AT_ONCE]])
        except SlurmError as error:
            rest = len(ids) - start
            raise SlurmError(
                f"{error}, so {rest} of {len(ids)} ids may not be cancelled: try again"
            ) from None
    running = sum(task.entry.is_running for task in chosen)
    console.print(
        f"cancelled {len(chosen)} of {len(found)} tasks that study {book.study} has in the queue, {running} "
        "of them running; the rows so far are kept"
    )


def _ids(found: Sequence[QueuedTask], chosen: Sequence[QueuedTask]) -> list[str]:
    """Whole arrays where nothing else of them is in the queue, else task by task."""
    there = Counter(task.entry.array_id for task in found)
    meant = Counter(task.entry.array_id for task in chosen)
    whole = {job_id for job_id, n in meant.items() if there[job_id] == n}
    parts = [f.entry.job_id for f in chosen if f.entry.array_id not in whole]
    return [*sorted(whole, key=int), *parts]


def arguments(parser: argparse.ArgumentParser) -> None:
    """Which part of which study, registered or not."""
    take(parser, "--unregistered")


def run(parsed: argparse.Namespace, console: Console) -> int:
    """Cancel what the chosen part of a study has in the queue."""
    study, book = submitted(parsed, "cancel")
    written = written_ids(study.results(is_registered=not parsed.unregistered) / GRID)
    made = shards(study.selection, "assume", written)
    meant = {shard.shard_id for shard in chosen(made, study.selection)}
    cancel(book, None if len(meant) == len(made) else meant, console)
    return 0
