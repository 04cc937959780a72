"""GPU-hours of a study: from accounting where it knows the job, else from the attempts of the shards."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from kvexp.errors import IntegrityError
from kvexp.records import FOOTER, seconds_of
from kvexp.slurm.standing import Standing

T = TypeVar("T")


@dataclass(frozen=True)
class GpuHours:
    """Hours times GPUs.

    Attributes:
        accounted: by Slurm's accounting.
        estimated: of attempts that it does not know, from their start to the next one's, or to the last word
            of the log: at most what they used.
    """

    accounted: float = 0.0
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


def gpu_hours(folders: Sequence[tuple[Path, str]], slurm: Standing) -> GpuHours:
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
