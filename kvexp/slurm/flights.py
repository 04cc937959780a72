"""Which shards are in the queue: submission records held against squeue, by names never used twice."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from kvexp.errors import IncompleteError
from kvexp.slurm import lost
from kvexp.slurm.ids import is_task
from kvexp.slurm.programs import SECONDS, SlurmError
from kvexp.slurm.queue import Entry, read_queue
from kvexp.slurm.submission import Sent
from kvexp.slurm.submissions import Book
from kvexp.terminal import printable

LOST_SECONDS = 10.0  # a submit waits no longer for what accounting may add


@dataclass(frozen=True)
class Flight:
    """A shard, or the analysis, with its task in the queue."""

    sent: Sent
    entry: Entry
    shard_id: str | None  # None: the analysis that follows


def flights(sent: Sequence[Sent], queue: Iterable[Entry]) -> list[Flight]:
    """What of the submissions is in the queue. Raises SlurmError for tasks that no submission has."""
    by_name = {one.before.name: one for one in sent}
    found = []
    for entry in queue:
        one = by_name.get(entry.name)
        if one is None:
            continue
        shards = one.before.shards
        if not is_task(entry.job_id) or entry.task >= max(1, len(shards)):
            raise SlurmError(
                f"squeue names {printable(entry.job_id)!r} of job {entry.name}, which is none of its "
                f"{len(shards)} tasks"
            )
        found.append(Flight(one, entry, None if one.before.suite is None else shards[entry.task]))
    return found


def read_flights(sent: Sequence[Sent], seconds: float = SECONDS) -> list[Flight]:
    """Ask the queue. Raises SlurmError if it does not answer."""
    return flights(sent, read_queue((one.before.user for one in sent), seconds)) if sent else []


def reconcile(book: Book) -> tuple[list[Sent], list[Flight]]:
    """Records and queue, agreed; called by the one submit that holds the book.

    A submission whose answer was lost gets it from the queue, or from accounting if that answers. Raises
    IncompleteError while another submit may be at work.
    """
    sent = book.read()
    found = read_flights(sent)
    ids = {flight.sent.before.name: flight.entry.job_id.partition("_")[0] for flight in found}
    for i, one in enumerate(sent):
        if one.after is not None:
            continue
        if (job_id := ids.get(one.before.name)) is not None:
            sent[i] = lost.found(book, one, job_id)
        else:
            refuse_simultaneous(one)
    with suppress(SlurmError):
        sent = lost.answered(book, sent, LOST_SECONDS)
    by_name = {one.before.name: one for one in sent}
    return sent, [Flight(by_name[f.sent.before.name], f.entry, f.shard_id) for f in found]


def refuse_simultaneous(one: Sent) -> None:
    """Raises IncompleteError if a submission without an answer may still get one."""
    if one.may_be_at_work:
        raise IncompleteError(
            f"another submit of study {one.before.study} is at work, on {one.before.host} since "
            f"{one.before.at}: wait for it, then submit again"
        )
