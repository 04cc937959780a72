"""One call of sbatch as its records have it: what was to be submitted, and what sbatch answered."""

import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec

from kvexp.config import gpus_of
from kvexp.moments import seconds_of
from kvexp.records import Count, Fraction, Id, Record
from kvexp.slurm.ids import JobName, JobNumber

FRESH_SECONDS = 300.0
MOST_SAID = 4000
# Records are asked of Slurm's programs and opened as files: nothing else may stand there.
User = Annotated[str, msgspec.Meta(pattern=r"\A[^\x00-\x20,-][^\x00-\x20,]*\Z", max_length=200)]
Folder = Annotated[
    str, msgspec.Meta(pattern=r"\A[A-Za-z0-9][A-Za-z0-9._=-]*(/[A-Za-z0-9][A-Za-z0-9._=-]*)*\Z")
]


class Submission(Record, frozen=True, kw_only=True, tag="submission/1"):
    """What one call of sbatch is to start: an array, a single job, or the analysis that follows."""

    name: JobName  # of the job, unique
    study: Folder  # below results/
    suite: Id | None  # null: the analysis
    shards: list[Id]  # task k of the array runs the k-th
    cluster: str  # name of the file in conf/cluster
    options: dict[str, Any]  # of sbatch, as given to submitit
    logs: Folder  # relative to the repository
    git_commit: str | None
    user: User
    host: str
    pid: Count
    at: str  # UTC
    gpu_share: Fraction = 1.0  # of a GPU that one unit of options.gres is

    def __post_init__(self) -> None:
        seconds_of(self.at)
        if not isinstance(self.options.get("gres"), str | None):
            raise ValueError("options.gres is text or null")
        if len(set(self.shards)) < len(self.shards):
            raise ValueError("a shard is listed twice")


class Submitted(Record, frozen=True, kw_only=True, tag="submitted/1"):
    """sbatch's answer."""

    name: JobName
    job_id: JobNumber
    at: str
    found_in_queue: bool = False  # the answer was lost with its reader; the queue, or accounting, had the job
    said: Annotated[str, msgspec.Meta(max_length=MOST_SAID)] = ""  # beside it: warnings, for instance

    def __post_init__(self) -> None:
        seconds_of(self.at)


class Refused(Record, frozen=True, kw_only=True, tag="refused/1"):
    """sbatch, or another submit at the same moment, did not let it through."""

    name: JobName
    reason: str
    at: str

    def __post_init__(self) -> None:
        seconds_of(self.at)


@dataclass(frozen=True)
class Sent:
    """A submission and its answer; None: there is none."""

    before: Submission
    after: Submitted | Refused | None
    path: Path  # of the record before

    @property
    def job_id(self) -> str | None:
        return self.after.job_id if isinstance(self.after, Submitted) else None

    @property
    def said(self) -> list[str]:
        """What sbatch said beside its answer, line by line, fit for a terminal."""
        return self.after.said.splitlines() if isinstance(self.after, Submitted) else []

    @property
    def may_be_at_work(self) -> bool:
        """Without an answer: whether another machine may still be waiting for it.

        On this machine nobody is: the caller holds the lock of the book.
        """
        if self.after is not None or self.before.host == socket.gethostname():
            return False
        return time.time() - self.path.stat().st_mtime < FRESH_SECONDS

    @property
    def is_array(self) -> bool:
        """submitit makes no array of one."""
        return len(self.before.shards) > 1

    def task_id(self, task: int) -> str:
        """The job id of a task, as Slurm writes it."""
        return f"{self.job_id}_{task}" if self.is_array else str(self.job_id)

    def log(self, task: int) -> Path:
        """Where a task writes, all its runs one after the other; relative to the repository."""
        return Path(self.before.logs) / f"{self.task_id(task)}_0_log.out"

    @property
    def gpus(self) -> float:
        """GPUs that each task asked for."""
        return gpus_of(self.before.options.get("gres"), self.before.gpu_share)
