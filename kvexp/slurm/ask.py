"""What is in the queue now. No answer is no verdict: callers get an error, never an empty queue."""

import os
import pwd
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from kvexp.errors import printable
from kvexp.slurm.programs import TIMEOUT_SECONDS, SlurmError, is_task, run, task_of

# Names of ours hold no bar, so that only those of others, and the reason, may be cut or go on.
# The end of an entry is said, since names of others may hold line breaks.
_END = "|."
_FORMAT = f"%i|%T|%u|%j|%r{_END}"
RUNNING = ("RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT")


@dataclass(frozen=True)
class Entry:
    """A job, or one task of an array, that is pending or running.

    Attributes:
        job_id: as squeue writes it, `123` or `123_4`.
        task: index in the array; 0 for a job that is none.
        state: Slurm's word.
        reason: why it is pending, in Slurm's words.
        user: whose it is.
        name: of the job; kvexp never gives the same one twice.
    """

    job_id: str
    task: int
    state: str
    reason: str
    user: str
    name: str

    @property
    def is_running(self) -> bool:
        """Whether it has a node; else it waits, for the first time or after a requeue."""
        return self.state in RUNNING

    @property
    def is_held(self) -> bool:
        """Whether it waits for somebody to release it: JobHeldAdmin, launch failed requeued held."""
        return not self.is_running and "held" in self.reason.lower()

    @property
    def array_id(self) -> str:
        """The job's number, that of all its tasks."""
        return self.job_id.partition("_")[0]


def me() -> str:
    """The user who calls."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def read_queue(users: Iterable[str], seconds: float = TIMEOUT_SECONDS) -> list[Entry]:
    """Every task of these users and of the caller in the queue.

    Raises SlurmError without an answer, or for one that is none: what cannot be read is no empty queue.
    """
    known = sorted({me(), *(user for user in users if _exists(user))})
    text = run(["squeue", "-h", "-r", "-u", ",".join(known), "-o", _FORMAT], seconds)
    entries = text.split(f"{_END}\n")
    if rest := entries.pop().strip():
        raise SlurmError(f"squeue says what nobody asked, {printable(rest)[:80]!r}")
    return [_entry(one) for one in entries]


def _exists(user: str) -> bool:
    """squeue refuses the whole question for one user whom it does not know."""
    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True


def _entry(line: str) -> Entry:
    if line.count("|") < 4:
        raise SlurmError(f"squeue says what nobody asked, {printable(line)[:80]!r}")
    job_id, state, user, name, reason = line.split("|", 4)
    return Entry(job_id, task_of(job_id), state, reason, user, name)


# What Slurm's accounting says ran: every run of every job, requeued ones too. It may lag or be absent.


_FIELDS = (
    "JobID",
    "JobIDRaw",
    "State",
    "ExitCode",
    "Start",
    "End",
    "ElapsedRaw",
    "AllocTRES",
    "NodeList",
    "JobName",
)
_GPUS = re.compile(r"(?:^|,)gres/gpu=([0-9]+)")
_NUMBER = re.compile(r"[0-9]{1,11}")
_WAITING = re.compile(r"[0-9]+_\[.*\]|[0-9]+\+[0-9]+")  # or parts of a heterogeneous job, never ours
IDS_AT_ONCE, NAMES_AT_ONCE = 200, 50


@dataclass(frozen=True)
class Run:
    """One run of a job; a requeued job has several.

    Attributes:
        job_id: as Slurm writes it, `123` or `123_4`.
        raw_id: the job's own number, which processes see as SLURM_JOB_ID.
        name: of the job.
        state: Slurm's word, without who cancelled.
        exit_code: `status:signal`.
        start: UTC; None: it never ran.
        end: UTC; None: it runs.
        seconds: that it ran.
        gpus: that it held; None: accounting does not count them.
        nodes: where.
    """

    job_id: str
    raw_id: str
    name: str
    state: str
    exit_code: str
    start: str | None
    end: str | None
    seconds: int
    gpus: int | None
    nodes: str

    @property
    def task(self) -> int:
        """Index in its array."""
        return task_of(self.job_id)


def read_accounting(job_ids: Iterable[str], seconds: float = TIMEOUT_SECONDS) -> list[Run]:
    """Every run of the jobs, by start. Raises SlurmError if accounting does not answer, or in other words."""
    ids = sorted(set(job_ids), key=int)
    runs: list[Run] = []
    for start in range(0, len(ids), IDS_AT_ONCE):
        runs += _ask(["-j", ",".join(ids[start : start + IDS_AT_ONCE])], seconds)
    return sorted(runs, key=lambda one: (one.start or "", int(one.raw_id)))


def runs_named(names: Sequence[str], days: int, seconds: float = TIMEOUT_SECONDS) -> list[Run]:
    """Every run of jobs of these names in so many days. Raises SlurmError as above."""
    runs: list[Run] = []
    for start in range(0, len(names), NAMES_AT_ONCE):
        some = ",".join(names[start : start + NAMES_AT_ONCE])
        runs += _ask([f"--name={some}", "-S", f"now-{days}days"], seconds)
    return runs


def _ask(which: Sequence[str], seconds: float) -> list[Run]:
    # -D: runs before a requeue as well; -X: jobs, not their steps; -a: whoever submitted them.
    text = run(["sacct", "-n", "-P", "-D", "-X", "-a", *which, "-o", ",".join(_FIELDS)], seconds)
    return [one for line in text.splitlines() if line.strip() and (one := _run(line)) is not None]


def _run(line: str) -> Run | None:
    """One line; None for what cannot be a run of ours. Raises SlurmError for what is no such line."""
    fields = line.split("|", len(_FIELDS) - 1)
    if len(fields) == len(_FIELDS) and _WAITING.fullmatch(fields[0]):
        return None
    try:
        job_id, raw_id, state, exit_code, start, end, elapsed, tres, nodes, name = fields
        if not (is_task(job_id) and is_task(raw_id) and "_" not in raw_id and _NUMBER.fullmatch(elapsed)):
            raise ValueError
        began, ended = _time(start), _time(end)
    except (ValueError, OverflowError, OSError):
        raise SlurmError(f"sacct says what kvexp cannot read, {printable(line)[:80]!r}") from None
    gpus = _GPUS.search(tres)
    return Run(
        job_id=job_id,
        raw_id=raw_id,
        name=name,
        state=state.split()[0] if state else "UNKNOWN",
        exit_code=exit_code,
        start=began,
        end=ended,
        seconds=int(elapsed),
        gpus=int(gpus[1]) if gpus else None,
        nodes="" if nodes == "None assigned" else nodes,
    )


def _time(text: str) -> str | None:
    """Seconds since 1970 as UTC; `Unknown` and `None` are none. Raises ValueError for other words."""
    if text in ("", "0", "None", "Unknown"):
        return None
    if not _NUMBER.fullmatch(text):
        raise ValueError
    return datetime.fromtimestamp(int(text), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


# How a task ended that did not complete its shard: a category, and the last lines of its log.


SETUP_FAILED = 9  # exit status of a job whose setup command fails
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
    """What is known of it.

    Attributes:
        category: out_of_memory, setup, timeout, node_failure, preempted, cancelled, stopped (by kvexp, with
            a sentence), unsent, exception, killed, or unknown.
        tail: last lines of the log, fit for a terminal.
    """

    category: str
    tail: list[str]


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
