"""The jobs of a study as Slurm knows them: tasks in the queue, how others ended, GPU-hours.

What does not answer is said, never guessed.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import msgspec

from kvexp.errors import IntegrityError, printable
from kvexp.records import FOOTER, seconds_of
from kvexp.slurm.programs import SETUP_FAILED, Entry, Run, SlurmError, is_here, read_accounting, task_list
from kvexp.slurm.reconcile import QueuedTask, read_queued
from kvexp.slurm.submissions import Book, Sent

T = TypeVar("T")
# How a task ended that did not complete its shard: a category, and the last lines of its log.


UNSENT = "the submit that sent this task ended before it had written what to run: submit again"
TAIL_BYTES = 16_384
TAIL_LINES = 5
_BEGUN = re.compile(r"submitit INFO .* - Starting with JobEnvironment")
# The words of slurmstepd, of the kernel's memory control and of submitit, the most telling first.
_WORDS = (
    (
        "out_of_memory",
        re.compile(r"oom[-_ ]kill|exceeded (job |step )?memory limit|out of memory", re.IGNORECASE),
    ),
    ("setup", re.compile(r"kvexp: setup command failed")),
    ("timeout", re.compile(r"DUE TO TIME LIMIT|timed-out too many times")),
    ("node_failure", re.compile(r"DUE TO NODE FAILURE")),
    ("preempted", re.compile(r"DUE TO PREEMPTION")),
    ("cancelled", re.compile(r"CANCELLED AT")),
    ("stopped", re.compile(r"^kvexp: ", re.MULTILINE)),
    ("unsent", re.compile(r"could not find submitted jobs in path")),
    ("exception", re.compile(r"^Traceback |Submitted job triggered an exception", re.MULTILINE)),
    ("killed", re.compile(r"\bKilled\b|Exited with signal 9")),
)
_STATES = {
    "OUT_OF_MEMORY": "out_of_memory",
    "TIMEOUT": "timeout",
    "DEADLINE": "timeout",
    "NODE_FAIL": "node_failure",
    "BOOT_FAIL": "node_failure",
    "CANCELLED": "cancelled",
    "PREEMPTED": "preempted",
}


@dataclass(frozen=True)
class End:
    """What is known of it."""

    # One of out_of_memory, setup, timeout, node_failure, preempted, cancelled, stopped (by kvexp, with a
    # sentence), unsent, exception, killed, unknown.
    category: str
    tail: list[str]  # last lines of the log, fit for a terminal


def end_of(log: Path, run: Run | None) -> End:
    """Judge by the log of the last run, and by what accounting says of it, where it says something."""
    words = _last_run(log)
    tail = [printable(line)[:300] for line in words.splitlines() if line.strip()][-TAIL_LINES:]
    category = _category(words, run)
    return End(category, [UNSENT] if category == "unsent" else tail)


def _category(words: str, run: Run | None) -> str:
    if run is not None and run.state in _STATES:
        return _STATES[run.state]
    said = next((name for name, pattern in _WORDS if pattern.search(words)), None)
    if said is not None:
        return said
    if run is not None:
        status, _, signal = run.exit_code.partition(":")
        if "9" in (signal, status) and status != str(SETUP_FAILED):
            return "killed"
        if run.state == "FAILED":
            return "killed" if signal not in ("", "0") or status == "9" else "exception"
    return "unknown"


def _last_run(log: Path) -> str:
    """The end of the log, since the last start of the task."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    starts = list(_BEGUN.finditer(text))
    return text[starts[-1].end() :] if starts else text


# The tasks of a study.


STATUS_SECONDS = 10.0  # a status that waits longer says what it does not know


@dataclass(frozen=True)
class Ended:
    """The last task of a shard that is incomplete and no longer in the queue."""

    job_id: str
    log: Path  # relative to the repository
    end: End


@dataclass(frozen=True)
class Jobs:
    """The tasks of a study's shards."""

    root: Path  # of the repository
    sent: Sequence[Sent] = ()  # submissions that sbatch took
    queued: dict[str, QueuedTask] = field(default_factory=dict)  # by shard, its task in the queue
    runs: Sequence[Run] = ()  # what accounting knows of all tasks
    knows_queue: bool = False  # whether squeue answered; if not, nobody can tell which tasks are gone
    notes: tuple[str, ...] = ()  # what did not answer

    def ended(self, shard_id: str) -> Ended | None:
        """How the last task of an incomplete shard ended; None if it never had one, or it may be queued."""
        if not self.knows_queue or shard_id in self.queued or shard_id not in self._last:
            return None
        sent, task = self._last[shard_id]
        job_id, log = sent.task_id(task), sent.log(task)
        return Ended(job_id, log, end_of(self.root / log, self._last_run.get((sent.before.name, task))))

    @cached_property
    def held(self) -> dict[tuple[str, str], str]:
        """By job and reason, the tasks that wait for somebody to release them, in one word."""
        found: dict[tuple[str, str], list[Entry]] = {}
        for entry in (task.entry for task in self.queued.values()):
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


def jobs_of(book: Book) -> Jobs:
    """Ask the queue and accounting about the jobs of a study; neither must be there."""
    records = book.read()
    sent = [one for one in records if one.job_id is not None]
    if not records:
        return Jobs(book.root)
    notes = []
    tasks: list[QueuedTask] = []
    knows_queue = False
    try:
        tasks = read_queued(records, STATUS_SECONDS)
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
    in_queue = {task.sent.before.name for task in tasks}
    lost = [one for one in records if one.after is None and one.before.name not in in_queue]
    if lost and knows_queue:
        notes.append(
            f"sbatch's answer to {len(lost)} submissions is not recorded: the next submit or `kvexp account` "
            "asks accounting for their jobs"
        )
    names = {one.before.name for one in sent}
    return Jobs(
        book.root,
        sent,
        {task.shard_id: task for task in tasks if task.shard_id is not None},
        [run for run in runs if run.name in names],  # numbers of another cluster are not ours
        knows_queue,
        tuple(notes),
    )


# GPU-hours: from accounting where it knows the job, else from the attempts of the shards.


@dataclass(frozen=True)
class GpuHours:
    """Hours times GPUs."""

    accounted: float = 0.0  # by Slurm's accounting
    # Of attempts that it does not know, from their start to the next one's, or to the last word of the log:
    # at most what they used.
    estimated: float = 0.0

    @property
    def total(self) -> float:
        return self.accounted + self.estimated


class _Segment(msgspec.Struct):
    job_id: str | None


class _Closed(msgspec.Struct):
    """Of a footer, what is needed here."""

    segments: list[_Segment]
    ended_at: str

    def __post_init__(self) -> None:
        seconds_of(self.ended_at)


class _Began(msgspec.Struct):
    """Of an attempt, what is needed here: a status has thousands to read, and has judged them already."""

    started_at: str
    device: str
    slurm: dict[str, str]

    def __post_init__(self) -> None:
        seconds_of(self.started_at)


def gpu_hours(folders: Sequence[tuple[Path, str]], slurm: Jobs) -> GpuHours:
    """Of shards, each given by its folder and the name of its log."""
    asked = {str(one.job_id): one.gpus for one in slurm.sent}
    wanted = {folder.name for folder, _ in folders}
    tasks = {
        (one.before.name, task)
        for one in slurm.sent
        for task, shard_id in enumerate(one.before.shards)
        if shard_id in wanted
    }
    mine = [run for run in slurm.runs if (run.name, run.task) in tasks]
    accounted = sum(
        run.seconds * (asked.get(run.job_id.partition("_")[0], 0) if run.gpus is None else run.gpus)
        for run in mine
    )
    known = {run.raw_id for run in mine if run.start is not None}
    estimated = sum(_estimate(folder, log, known, asked) for folder, log in folders)
    return GpuHours(accounted / 3600, estimated / 3600)


def _estimate(folder: Path, log: str, known: set[str], asked: dict[str, float]) -> float:
    """GPU-seconds of the attempts that accounting does not know."""
    footer = _read(folder / FOOTER, _Closed)
    if footer is not None and all(segment.job_id in known for segment in footer.segments):
        return 0.0
    attempts = [one for path in sorted(folder.glob("attempt-*.json")) if (one := _read(path, _Began))]
    if not attempts:
        return 0.0
    path = folder / log
    last = path.stat().st_mtime if path.exists() else 0.0
    if footer is not None:
        last = seconds_of(footer.ended_at)
    ends = [*(seconds_of(one.started_at) for one in attempts[1:]), last]
    return sum(
        max(0.0, end - seconds_of(one.started_at)) * _gpus(one, asked)
        for one, end in zip(attempts, ends, strict=True)
        if one.slurm.get("SLURM_JOB_ID") not in known
    )


def _read(path: Path, kind: type[T]) -> T | None:
    """Raises IntegrityError for a file that holds something else; None: there is no file."""
    if not path.exists():
        return None
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise IntegrityError(
            f"{path} is not a record of this version of kvexp ({error}): restore it"
        ) from None


def _gpus(attempt: _Began, asked: dict[str, float]) -> float:
    job_id = attempt.slurm.get("SLURM_ARRAY_JOB_ID", attempt.slurm.get("SLURM_JOB_ID"))
    if job_id is not None and job_id in asked:
        return asked[job_id]
    return int(attempt.device.startswith("cuda"))
