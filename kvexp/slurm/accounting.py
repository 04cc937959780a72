"""What Slurm's accounting says ran: every run of every job, requeued ones too. It may lag or be absent."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from kvexp.slurm.ids import is_task, task_of
from kvexp.slurm.programs import SECONDS, SlurmError, run
from kvexp.terminal import printable

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


def read_accounting(job_ids: Iterable[str], seconds: float = SECONDS) -> list[Run]:
    """Every run of the jobs, by start. Raises SlurmError if accounting does not answer, or in other words."""
    ids = sorted(set(job_ids), key=int)
    runs: list[Run] = []
    for start in range(0, len(ids), IDS_AT_ONCE):
        runs += _ask(["-j", ",".join(ids[start : start + IDS_AT_ONCE])], seconds)
    return sorted(runs, key=lambda one: (one.start or "", int(one.raw_id)))


def runs_named(names: Sequence[str], days: int, seconds: float = SECONDS) -> list[Run]:
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
