"""What Slurm's accounting says ran: every run of every job, requeued ones too. It may lag or be absent."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from kvexp.slurm.ids import task_of
from kvexp.slurm.programs import SECONDS, run

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
IDS_AT_ONCE = 200


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
    """Every run of the jobs, by start. Raises SlurmError if accounting does not answer."""
    ids = sorted(set(job_ids), key=int)
    runs: list[Run] = []
    for start in range(0, len(ids), IDS_AT_ONCE):
        runs += _ask(ids[start : start + IDS_AT_ONCE], seconds)
    return sorted(runs, key=lambda one: (one.start or "", int(one.raw_id)))


def _ask(ids: Sequence[str], seconds: float) -> list[Run]:
    # -D: runs before a requeue as well; -X: jobs, not their steps.
    text = run(["sacct", "-n", "-P", "-D", "-X", "-j", ",".join(ids), "-o", ",".join(_FIELDS)], seconds)
    return [_run(line) for line in text.splitlines() if line.count("|") >= len(_FIELDS) - 1]


def _run(line: str) -> Run:
    job_id, raw_id, state, exit_code, start, end, elapsed, tres, nodes, name = line.split(
        "|", len(_FIELDS) - 1
    )
    gpus = _GPUS.search(tres)
    return Run(
        job_id=job_id,
        raw_id=raw_id,
        name=name,
        state=state.split()[0] if state else "UNKNOWN",
        exit_code=exit_code,
        start=_time(start),
        end=_time(end),
        seconds=int(elapsed) if elapsed.isdigit() else 0,
        gpus=int(gpus[1]) if gpus else None,
        nodes="" if nodes == "None assigned" else nodes,
    )


def _time(text: str) -> str | None:
    """Seconds since 1970 as UTC; `Unknown` and `None` are none."""
    if not text.isdigit() or int(text) == 0:
        return None
    return datetime.fromtimestamp(int(text), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
