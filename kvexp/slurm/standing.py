"""What Slurm knows of a study now, for `kvexp status`; what does not answer is said, never guessed."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from kvexp.slurm.accounting import Run, read_accounting
from kvexp.slurm.ends import End, end_of
from kvexp.slurm.flights import Flight, read_flights
from kvexp.slurm.ids import task_list
from kvexp.slurm.programs import SlurmError, is_here
from kvexp.slurm.queue import Entry
from kvexp.slurm.submission import Sent
from kvexp.slurm.submissions import Book

SECONDS = 10.0  # a status that waits longer says what it does not know


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
        flights = read_flights(records, SECONDS)
        knows_queue = True
    except SlurmError as error:
        notes.append(f"{error}, so it is not known which shards are queued")
    runs: list[Run] = []
    try:
        if is_here("sacct"):
            runs = read_accounting((str(one.job_id) for one in sent), SECONDS)
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
