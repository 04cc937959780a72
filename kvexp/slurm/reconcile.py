"""Submission records held against the queue and accounting, by names of jobs, which are never used twice."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from kvexp.errors import IncompleteError, printable
from kvexp.records import seconds_of
from kvexp.slurm.programs import TIMEOUT_SECONDS, Entry, SlurmError, is_task, read_queue, runs_named
from kvexp.slurm.submissions import Book, Refused, Sent, Submitted
from kvexp.study import provenance

DAY = 86400
MARGIN = 2  # days, for clocks and zones
LOST_SECONDS = 10.0  # a submit waits no longer for what accounting may add


# Answers of sbatch that were lost, with a killed submit or on a full disk, found again by the job's name.


def answered(book: Book, sent: Sequence[Sent], seconds: float = TIMEOUT_SECONDS) -> list[Sent]:
    """The submissions, those without an answer with accounting's, where it knows their jobs.

    Called by whoever holds the book. Raises SlurmError if accounting does not answer.
    """
    lost = [one for one in sent if one.after is None and not one.may_be_at_work]
    if not lost:
        return list(sent)
    oldest = min(seconds_of(one.before.at) for one in lost)
    days = int(max(0.0, datetime.now(UTC).timestamp() - oldest) // DAY) + MARGIN
    runs = runs_named([one.before.name for one in lost], days, seconds)
    ids = {run.name: run.job_id.partition("_")[0] for run in runs}
    return [_settled(book, one, ids.get(one.before.name)) if one in lost else one for one in sent]


def _settled(book: Book, one: Sent, job_id: str | None) -> Sent:
    """With accounting's answer; after a day without, there was no job, and nobody asks again."""
    if job_id is not None:
        return found_again(book, one, job_id)
    if datetime.now(UTC).timestamp() - seconds_of(one.before.at) < DAY:
        return one
    reason = "neither the queue nor accounting has ever had such a job"
    return book.write_after(one, Refused(name=one.before.name, reason=reason, at=provenance.now()))


def found_again(book: Book, one: Sent, job_id: str) -> Sent:
    """Record an answer that somebody else remembers."""
    return book.write_after(
        one, Submitted(name=one.before.name, job_id=job_id, at=provenance.now(), found_in_queue=True)
    )


# Which shards are in the queue.


@dataclass(frozen=True)
class QueuedTask:
    """A shard, or the analysis, with its task in the queue."""

    sent: Sent
    entry: Entry
    shard_id: str | None  # None: the analysis that follows


def match_queue(sent: Sequence[Sent], queue: Iterable[Entry]) -> list[QueuedTask]:
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
        found.append(QueuedTask(one, entry, None if one.before.suite is None else shards[entry.task]))
    return found


def read_queued(sent: Sequence[Sent], seconds: float = TIMEOUT_SECONDS) -> list[QueuedTask]:
    """Ask the queue. Raises SlurmError if it does not answer."""
    return match_queue(sent, read_queue((one.before.user for one in sent), seconds)) if sent else []


def reconcile(book: Book) -> tuple[list[Sent], list[QueuedTask]]:
    """Records and queue, agreed; called by the one submit that holds the book.

    A submission whose answer was lost gets it from the queue, or from accounting if that answers. Raises
    IncompleteError while another submit may be at work.
    """
    sent = book.read()
    found = read_queued(sent)
    ids = {task.sent.before.name: task.entry.array_id for task in found}
    for i, one in enumerate(sent):
        if one.after is not None:
            continue
        if (job_id := ids.get(one.before.name)) is not None:
            sent[i] = found_again(book, one, job_id)
        else:
            refuse_simultaneous(one)
    with suppress(SlurmError):
        sent = answered(book, sent, LOST_SECONDS)
    by_name = {one.before.name: one for one in sent}
    return sent, [QueuedTask(by_name[f.sent.before.name], f.entry, f.shard_id) for f in found]


def refuse_simultaneous(one: Sent) -> None:
    """Raises IncompleteError if a submission without an answer may still get one."""
    if one.may_be_at_work:
        raise IncompleteError(
            f"another submit of study {one.before.study} is at work, on {one.before.host} since "
            f"{one.before.at}: wait for it, then submit again"
        )
