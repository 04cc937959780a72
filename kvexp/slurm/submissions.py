"""Submission records: what was about to be given to sbatch, and what it answered, one pair of files each.

`slurm/submissions/<study>/<name>.before.json` is on the disk before sbatch is called, `<name>.after.json`
once it has answered. A record without its answer means that something ended in between: the job's name,
which is in the record and never used twice, says in the queue and in accounting whether there is a job.
"""

import os
import secrets
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec
from rich.console import Console

from kvexp import files
from kvexp.errors import IncompleteError, IntegrityError
from kvexp.records import Count, Fraction, Id, Reader, Record, RecordError, seconds_of
from kvexp.run import log
from kvexp.slurm.programs import JobName, JobNumber, me
from kvexp.study import provenance
from kvexp.study.schema import ClusterConf, gpus_of

# One call of sbatch as its records have it: what was to be submitted, and what sbatch answered.


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


FOLDER = "submissions"
LOCK_SECONDS = 300.0  # another submit of thousands of shards takes a while
TOLD_SECONDS = 2.0
BEFORE, AFTER = ".before.json", ".after.json"
_before: Reader[Submission] = Reader(Submission)
_after: Reader[Submitted | Refused] = Reader(Submitted | Refused)


class Book:
    """The submission records of one study."""

    def __init__(self, root: Path, results: Path) -> None:
        self.root = root
        self.study = results.relative_to(root / "results").as_posix()
        self.folder = root / "slurm" / FOLDER / self.study

    def read(self) -> list[Sent]:
        """Every submission, oldest first. Raises IntegrityError for files that are no records or pairs."""
        if self.folder.exists() and not self.folder.is_dir():
            raise IntegrityError(
                f"{self.folder} is no folder: move it away, and restore the submission records"
            )
        paths = sorted(self.folder.glob(f"*{BEFORE}"))
        answers = {path.name.removesuffix(AFTER): path for path in sorted(self.folder.glob(f"*{AFTER}"))}
        found = [self._sent(path, answers.pop(path.name.removesuffix(BEFORE), None)) for path in paths]
        for name, path in answers.items():
            raise IntegrityError(
                f"{path} answers a submission whose record, {name}{BEFORE}, is not there: restore that record"
            )
        by_job = Counter(one.job_id for one in found if one.job_id is not None)
        if twice := [job_id for job_id, n in by_job.items() if n > 1]:
            raise IntegrityError(
                f"{self.folder} has two answers with job id {twice[0]}: restore the right ones"
            )
        return found

    def _sent(self, path: Path, answer: Path | None) -> Sent:
        before: Submission = _read(path, _before)
        after: Submitted | Refused | None = None if answer is None else _read(answer, _after)
        for file, name in ((path, before.name), *([] if after is None else [(answer, after.name)])):
            if name != self.job_name(path.name.removesuffix(BEFORE)):
                raise IntegrityError(f"{file} is called otherwise than its job, {name}: restore it")
        return Sent(before, after, path)

    def job_name(self, name: str) -> str:
        """A name in Slurm says which study it is of."""
        return f"{self.study.replace('/', '.')}.{name}"

    def logs(self, name: str) -> str:
        """The folder of a submission's logs, relative to the repository."""
        return f"slurm/logs/{self.study}/{name}"

    def write_before(
        self,
        suite: str | None,
        shards: Sequence[str],
        cluster: ClusterConf,
        options: Callable[[str], dict[str, Any]],
        git_commit: str | None,
    ) -> Sent:
        """Record what is about to be submitted, on the disk; `options`: of sbatch, for the job's name."""
        now = provenance.now()
        name = f"{now.replace(':', '').replace('-', '')}-{secrets.token_hex(3)}.{suite or 'analysis'}"
        job = self.job_name(name)
        before = Submission(
            name=job,
            study=self.study,
            suite=suite,
            shards=list(shards),
            cluster=cluster.name,
            options=options(job),
            logs=self.logs(name),
            git_commit=git_commit,
            user=me(),
            host=socket.gethostname(),
            pid=os.getpid(),
            at=now,
            gpu_share=cluster.slurm.gpu_share,
        )
        path = self.folder / f"{name}{BEFORE}"
        with files.on_disk(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            log.write_new(path, before)
        return Sent(before, None, path)

    def write_after(self, sent: Sent, answer: Submitted | Refused) -> Sent:
        """Record the answer, on the disk."""
        with files.on_disk(self.folder):
            log.write_new(sent.path.with_name(sent.path.name.replace(BEFORE, AFTER)), answer)
        return Sent(sent.before, answer, sent.path)

    @property
    def is_used(self) -> bool:
        """Whether something was, or is being, submitted."""
        return self.folder.exists()

    @contextmanager
    def locked(self, console: Console) -> Iterator[None]:
        """For one command at a time; says if it waits. Raises IncompleteError if the other does not end."""
        with files.on_disk(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.folder / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
        try:
            start = told = time.monotonic()
            end = start + LOCK_SECONDS
            while not files.try_lock(descriptor):
                if told == start and time.monotonic() > start + TOLD_SECONDS:
                    told = end
                    console.print(f"another command works on the submissions of study {self.study}: waiting")
                if time.monotonic() > end:
                    raise IncompleteError(
                        f"another command works on the submissions of study {self.study} (it holds "
                        f"{self.folder / '.lock'}): wait for it"
                    )
                time.sleep(0.1)
            yield
        finally:
            os.close(descriptor)


def _read(path: Path, reader: Reader[Any]) -> Any:
    try:
        if not files.is_file(path):
            raise RecordError("a link that leads nowhere")
        return reader(path.read_bytes())
    except RecordError as error:
        raise IntegrityError(
            f"{path} is not a submission record of this version of kvexp ({error}): restore it, or move it "
            "away"
        ) from None
