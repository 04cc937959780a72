"""Slurm's own programs: called so that they always speak alike, and read strictly, or why they do not answer.

No answer is no verdict: callers get an error, never an empty queue.
"""

import os
import pwd
import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated

import msgspec

from kvexp.errors import KvexpError, printable
from kvexp.records import ID_PATTERN

TIMEOUT_SECONDS = 60.0  # a busy controller takes its time
# Times as seconds since 1970: Slurm writes local ones otherwise.
_FILTERS = ("SQUEUE_", "SACCT_", "SCANCEL_", "SCONTROL_")
_ERROR = re.compile(r"\b(error|fatal):", re.IGNORECASE)
SETUP_FAILED = 9  # exit status of a job whose setup command fails
_ENVIRONMENT = {"SLURM_TIME_FORMAT": "%s", "LC_ALL": "C"}


class SlurmError(KvexpError):
    """A program of Slurm that is not there, does not answer or refuses."""

    exit_code = 3


def is_here(program: str = "sbatch") -> bool:
    """Whether this machine has a program of Slurm."""
    return shutil.which(program) is not None


def run(command: Sequence[str], seconds: float = TIMEOUT_SECONDS) -> str:
    """What a program prints. Raises SlurmError with its own words if it fails, or takes too long."""
    try:
        done = subprocess.run(
            command,
            env={**_environment(), **_ENVIRONMENT},
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=seconds,
            check=False,
        )
    except FileNotFoundError:
        raise SlurmError(f"there is no {command[0]} on this machine: run this on a login node") from None
    except subprocess.TimeoutExpired:
        raise SlurmError(f"{command[0]} has not answered for {seconds:.0f} s") from None
    if done.returncode != 0:
        raise SlurmError(f"{command[0]} does not answer: {said(done.stderr)}")
    return done.stdout


def _environment() -> dict[str, str]:
    """Without what would have a program leave something out, such as SQUEUE_STATES."""
    return {name: value for name, value in os.environ.items() if not name.startswith(_FILTERS)}


def said(text: str) -> str:
    """What a program complains of, on one line: its first error, or else its last words."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if _ERROR.search(line)]
    return printable((errors or lines[-1:])[0])[:300] if lines else "it said nothing"


# What a record says is asked of Slurm's programs: nothing else may stand there.
JobName = Annotated[str, msgspec.Meta(pattern=ID_PATTERN, max_length=700)]
JobNumber = Annotated[str, msgspec.Meta(pattern=r"\A[0-9]{1,18}\Z")]
_TASK = re.compile(r"\A[0-9]{1,18}(_[0-9]{1,9})?\Z")
TaskNumber = Annotated[str, msgspec.Meta(pattern=_TASK.pattern)]


def is_task(job_id: str) -> bool:
    """Whether this is a job's number, or that of one task of an array."""
    return _TASK.match(job_id) is not None


def task_of(job_id: str) -> int:
    """The index of a task in its array, from `123_4`; 0 for a job that is none."""
    last = job_id.partition("_")[2]
    return int(last) if last.isascii() and last.isdecimal() else 0


def task_list(array_id: str, tasks: Iterable[int]) -> str:
    """Some tasks of an array as scontrol and scancel take them, `123_[0,4-6]`."""
    runs: list[list[int]] = []
    for task in sorted(tasks):
        if runs and runs[-1][-1] == task - 1:
            runs[-1][1:] = [task]
        else:
            runs.append([task])
    words = ",".join("-".join(map(str, run)) for run in runs)
    return f"{array_id}_{words}" if words.isdigit() else f"{array_id}_[{words}]"


# The queue now.


# Names of ours hold no bar, so that only those of others, and the reason, may be cut or go on.
# The end of an entry is said, since names of others may hold line breaks.
_END = "|."
_FORMAT = f"%i|%T|%u|%j|%r{_END}"
RUNNING = ("RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT")


@dataclass(frozen=True)
class Entry:
    """A job, or one task of an array, that is pending or running."""

    job_id: str  # as squeue writes it, `123` or `123_4`
    task: int  # index in the array; 0 for a job that is none
    state: str  # Slurm's word
    reason: str  # why it is pending, in Slurm's words
    user: str  # whose it is
    name: str  # of the job; kvexp never gives the same one twice

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
    """One run of a job; a requeued job has several."""

    job_id: str  # as Slurm writes it, `123` or `123_4`
    raw_id: str  # the job's own number, which processes see as SLURM_JOB_ID
    name: str  # of the job
    state: str  # Slurm's word, without who cancelled
    exit_code: str  # `status:signal`
    start: str | None  # UTC; None: it never ran
    end: str | None  # UTC; None: it runs
    seconds: int  # that it ran
    gpus: int | None  # that it held; None: accounting does not count them
    nodes: str  # where

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
