"""What Slurm knows of a study now, for `kvexp status`; what does not answer is said, never guessed."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

from kvexp.errors import IncompleteError, printable
from kvexp.records import seconds_of
from kvexp.slurm.ask import End, Entry, Run, end_of, read_accounting, read_queue, runs_named
from kvexp.slurm.programs import TIMEOUT_SECONDS, SlurmError, is_here, is_task, task_list
from kvexp.slurm.submissions import Book, Refused, Sent, Submitted
from kvexp.study import provenance

# Answers of sbatch that were lost, with a killed submit or on a full disk, found again by the job's name.


DAY = 86400
MARGIN = 2  # days, for clocks and zones


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


# Which shards are in the queue: submission records held against squeue, by names never used twice.


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


def read_flights(sent: Sequence[Sent], seconds: float = TIMEOUT_SECONDS) -> list[Flight]:
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
            sent[i] = found_again(book, one, job_id)
        else:
            refuse_simultaneous(one)
    with suppress(SlurmError):
        sent = answered(book, sent, LOST_SECONDS)
    by_name = {one.before.name: one for one in sent}
    return sent, [Flight(by_name[f.sent.before.name], f.entry, f.shard_id) for f in found]


def refuse_simultaneous(one: Sent) -> None:
    """Raises IncompleteError if a submission without an answer may still get one."""
    if one.may_be_at_work:
        raise IncompleteError(
            f"another submit of study {one.before.study} is at work, on {one.before.host} since "
            f"{one.before.at}: wait for it, then submit again"
        )


STATUS_SECONDS = 10.0  # a status that waits longer says what it does not know


@dataclass(frozen=True)
class Ended:
    """The last task of a shard that is incomplete and no longer in the queue."""

    job_id: str
    log: Path  # relative to the repository
    end: End


@dataclass(frozen=True)
class Standing:
    """The tasks of a study's shards.

    Attributes:
        root: of the repository.
        sent: submissions that sbatch took.
        flights: by shard, its task in the queue.
        runs: what accounting knows of all tasks.
        knows_queue: whether squeue answered; if not, nobody can tell which tasks are gone.
        notes: what did not answer.
    """

    root: Path
    sent: Sequence[Sent] = ()
    flights: dict[str, Flight] = field(default_factory=dict)
    runs: Sequence[Run] = ()
    knows_queue: bool = False
    notes: tuple[str, ...] = ()

    def ended(self, shard_id: str) -> Ended | None:
        """How the last task of an incomplete shard ended; None if it never had one, or it may be queued."""
        if not self.knows_queue or shard_id in self.flights or shard_id not in self._last:
            return None
        sent, task = self._last[shard_id]
        job_id, log = sent.task_id(task), sent.log(task)
        return Ended(job_id, log, end_of(self.root / log, self._last_run.get((sent.before.name, task))))

    @cached_property
    def held(self) -> dict[tuple[str, str], str]:
        """By job and reason, the tasks that wait for somebody to release them, in one word."""
        found: dict[tuple[str, str], list[Entry]] = {}
        for entry in (flight.entry for flight in self.flights.values()):
            if entry.is_held:
                found.setdefault((entry.array_id, entry.reason), []).append(entry)
        return {
            key: task_list(key[0], (entry.task for entry in same)) if "_" in same[0].job_id else key[0]
            for key, same in found.items()
        }

    @cached_property
    def _last(self) -> dict[str, tuple[Sent, int]]:
        """By shard, its newest submission and the index of its task."""
        return {shard: (one, task) for one in self.sent for task, shard in enumerate(one.before.shards)}

    @cached_property
    def _last_run(self) -> dict[tuple[str, int], Run]:
        return {(run.name, run.task): run for run in self.runs}


def standing(book: Book) -> Standing:
    """Ask the queue and accounting about the jobs of a study; neither must be there."""
    records = book.read()
    sent = [one for one in records if one.job_id is not None]
    if not records:
        return Standing(book.root)
    notes = []
    flights: list[Flight] = []
    knows_queue = False
    try:
        flights = read_flights(records, STATUS_SECONDS)
        knows_queue = True
    except SlurmError as error:
        notes.append(f"{error}, so it is not known which shards are queued")
    runs: list[Run] = []
    try:
        if is_here("sacct"):
            runs = read_accounting((str(one.job_id) for one in sent), STATUS_SECONDS)
        else:
            notes.append("there is no sacct on this machine")
    except SlurmError as error:
        notes.append(str(error))
    in_queue = {flight.sent.before.name for flight in flights}
    lost = [one for one in records if one.after is None and one.before.name not in in_queue]
    if lost and knows_queue:
        notes.append(
            f"sbatch's answer to {len(lost)} submissions is not recorded: the next submit or `kvexp account` "
            "asks accounting for their jobs"
        )
    names = {one.before.name for one in sent}
    return Standing(
        book.root,
        sent,
        {flight.shard_id: flight for flight in flights if flight.shard_id is not None},
        [run for run in runs if run.name in names],  # numbers of another cluster are not ours
        knows_queue,
        tuple(notes),
    )
