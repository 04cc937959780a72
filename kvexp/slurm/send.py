"""`kvexp submit` on Slurm: what is missing and not in the queue becomes arrays; returns at once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.text import Text

from kvexp.records import FOOTER
from kvexp.run import log
from kvexp.run.launch import ShardJob
from kvexp.slurm import arrays
from kvexp.slurm.programs import SlurmError, is_here
from kvexp.slurm.reconcile import QueuedTask, read_queued, reconcile, refuse_simultaneous
from kvexp.slurm.submissions import Book, Refused, Sent
from kvexp.slurm.task import ArrayTask, Follow
from kvexp.study import provenance
from kvexp.study.schema import ClusterConf

SHOWN = 8


@dataclass(frozen=True)
class Sending:
    """What a submit wants of Slurm."""

    root: Path  # of the repository
    results: Path  # folder of the study
    cluster: ClusterConf  # where
    jobs: Sequence[ShardJob]  # of the shards that have no footer
    # By shard log, the files whose digest is the shards' protocol digest.
    code: Mapping[str, Mapping[str, str]]
    follow: Follow | None = None  # the analysis that comes after, if it is wanted

    def book(self) -> Book:
        return Book(self.root, self.results)


def refuse_absent() -> None:
    """Raises SlurmError where Slurm's programs are not installed."""
    for name in ("sbatch", "srun"):  # submitit asks for srun
        if not is_here(name):
            raise SlurmError(
                f"there is no {name} on this machine: submit from a login node of the cluster, or choose "
                "cluster=local"
            )


def send_all(one: Sending, console: Console) -> None:
    """Submit what is neither whole, nor in the queue, nor being written, and print the ids of the jobs.

    Raises SlurmError if the queue does not answer, IncompleteError if another submit is at work, SbatchError
    for what sbatch refuses.
    """
    refuse_absent()
    book = one.book()
    with book.locked(console):
        _, found = reconcile(book)
        todo = _free(one.jobs, found, console)
        commit, _ = provenance.git_state(one.root)
        ids = {task.sent.job_id for task in found if task.shard_id is not None}
        lanes: dict[tuple[str, int], str | None] = {}
        for piece in _pieces(one, todo):
            sent = _send_piece(one, book, piece, todo, commit, lanes.get((piece.suite, piece.lane)))
            lanes[piece.suite, piece.lane] = sent.job_id
            ids.add(sent.job_id)
            for line in sent.said:
                console.print(Text(line))
            console.print(
                f"job {sent.job_id}: {len(piece.shards)} shards of {piece.suite}, "
                f"{min(piece.width, len(piece.shards))} at a time"
            )
        if one.follow is not None:
            after = sorted(job_id for job_id in ids if job_id is not None)
            sent = book.write_before(
                None,
                [],
                one.cluster,
                lambda name: arrays.analysis_options(one.cluster, name, after),
                commit,
            )
            sent = arrays.send(book, sent, one.cluster, [one.follow])
            for line in sent.said:
                console.print(Text(line))
            console.print(f"job {sent.job_id}: the analysis, once the others have ended; its words go to")
            console.print(Text(f"  {sent.log(0)}"))


def print_all(one: Sending, console: Console) -> None:
    """`--dry-run`: the batch scripts that would be given to sbatch, and the shard of each task."""
    refuse_absent()
    book = one.book()
    found = read_queued(book.read())
    todo = _free(one.jobs, found, console)
    for piece in _pieces(one, todo):
        name = f"TIME-RANDOM.{piece.suite}"
        options = arrays.shard_options(one.cluster, book.job_name(name), piece.width)
        _print_script(one, book.logs(name), options, piece.shards, console)
    if one.follow is not None:
        name = "TIME-RANDOM.analysis"
        options = arrays.analysis_options(one.cluster, book.job_name(name), ["JOBS", "ABOVE"])
        _print_script(one, book.logs(name), options, [], console)


def _print_script(
    one: Sending, logs: str, options: dict[str, object], shards: Sequence[str], console: Console
) -> None:
    console.print(Text(arrays.script(one.cluster, one.root / logs, options, len(shards))))
    for task, shard_id in enumerate(shards):
        console.print(Text(f"# task {task}: {shard_id}"))
    console.print()


def _free(jobs: Sequence[ShardJob], found: Sequence[QueuedTask], console: Console) -> dict[str, ShardJob]:
    """Jobs by shard, without those in the queue and those that another process writes."""
    queued = {task.shard_id: task.entry.job_id for task in found}
    busy = [job.shard.shard_id for job in jobs if job.shard.shard_id in queued]
    if busy:
        ids = dict.fromkeys(queued[shard_id].partition("_")[0] for shard_id in busy)
        shown = ", ".join(list(ids)[:SHOWN]) + (", ..." if len(ids) > SHOWN else "")
        console.print(f"{len(busy)} shards are queued or running already (job {shown}): not submitted again")
    # Whoever held the lock before may have seen some of them through.
    free = {
        job.shard.shard_id: job
        for job in jobs
        if job.shard.shard_id not in queued and not (job.place.folder / FOOTER).exists()
    }
    written = [name for name, job in free.items() if log.is_locked(job.place.folder, job.shard.log)]
    if written:
        console.print(f"{len(written)} shards are being written by another process: not submitted")
    return {name: job for name, job in free.items() if name not in set(written)}


def _pieces(one: Sending, todo: Mapping[str, ShardJob]) -> list[arrays.Piece]:
    by_suite: dict[str, list[str]] = {}
    for shard_id, job in todo.items():
        by_suite.setdefault(job.shard.suite, []).append(shard_id)
    return list(arrays.pieces(by_suite, one.cluster.workers, arrays.max_array_size())) if todo else []


def _send_piece(
    one: Sending,
    book: Book,
    piece: arrays.Piece,
    todo: Mapping[str, ShardJob],
    commit: str | None,
    after: str | None,
) -> Sent:
    sent = book.write_before(
        piece.suite,
        piece.shards,
        one.cluster,
        lambda name: arrays.shard_options(one.cluster, name, piece.width, after),
        commit,
    )
    _refuse_overlap(book, sent)
    jobs = [todo[shard_id] for shard_id in piece.shards]
    return arrays.send(
        book, sent, one.cluster, [ArrayTask(job, one.root, one.code[job.shard.log]) for job in jobs]
    )


def _refuse_overlap(book: Book, mine: Sent) -> None:
    """Where a file lock does not reach from one login node to another, both see each other's record here."""
    for other in book.read():
        if other.before.name != mine.before.name and set(other.before.shards) & set(mine.before.shards):
            try:
                refuse_simultaneous(other)
            except Exception:
                reason = "another submit of the same shards is at work"
                book.write_after(mine, Refused(name=mine.before.name, reason=reason, at=provenance.now()))
                raise
