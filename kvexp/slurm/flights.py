"""Which shards are in the queue: submission records held against squeue, by names never used twice."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kvexp import provenance
from kvexp.errors import IncompleteError
from kvexp.slurm.programs import SECONDS
from kvexp.slurm.queue import Entry, read_queue
from kvexp.slurm.submissions import Book, Sent, Submitted


@dataclass(frozen=True)
class Flight:
    """A shard, or the analysis, with its task in the queue."""

    sent: Sent
    entry: Entry
    shard_id: str | None  # None: the analysis that follows


def flights(sent: Sequence[Sent], queue: Iterable[Entry]) -> list[Flight]:
    """What of the submissions is in the queue."""
    by_name = {one.before.name: one for one in sent}
    found = []
    for entry in queue:
        one = by_name.get(entry.name)
        if one is None:
            continue
        shards = one.before.shards
        if one.before.suite is None:
            found.append(Flight(one, entry, None))
        elif entry.task < len(shards):
            found.append(Flight(one, entry, shards[entry.task]))
    return found


def read_flights(sent: Sequence[Sent], seconds: float = SECONDS) -> list[Flight]:
    """Ask the queue. Raises SlurmError if it does not answer."""
    return flights(sent, read_queue((one.before.user for one in sent), seconds)) if sent else []


def reconcile(book: Book) -> tuple[list[Sent], list[Flight]]:
    """Records and queue, agreed; called by the one submit that holds the book.

    A submission whose answer was lost gets it from the queue. Raises IncompleteError while another submit
    may be at work.
    """
    sent = book.read()
    found = read_flights(sent)
    ids = {flight.sent.before.name: flight.entry.job_id.partition("_")[0] for flight in found}
    for i, one in enumerate(sent):
        if one.after is not None:
            continue
        if (job_id := ids.get(one.before.name)) is not None:
            answer = Submitted(name=one.before.name, job_id=job_id, at=provenance.now(), found_in_queue=True)
            sent[i] = book.write_after(one, answer)
        else:
            refuse_simultaneous(one)
    by_name = {one.before.name: one for one in sent}
    return sent, [Flight(by_name[f.sent.before.name], f.entry, f.shard_id) for f in found]


def refuse_simultaneous(one: Sent) -> None:
    """Raises IncompleteError if a submission without an answer may still get one."""
    if one.may_be_at_work:
        raise IncompleteError(
            f"another submit of study {one.before.study} is at work, on {one.before.host} since "
            f"{one.before.at}: wait for it, then submit again"
        )
