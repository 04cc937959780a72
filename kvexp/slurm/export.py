"""`kvexp account`: what accounting knows of a study's jobs, kept beside the submission records.

Accounting forgets after some months; what was exported once stays.
"""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from rich.console import Console

from kvexp import shard_log
from kvexp.config import gpus_of
from kvexp.errors import IntegrityError
from kvexp.moments import seconds_of
from kvexp.records import Count, Id, Reader, Record, RecordError, Size, encode
from kvexp.slurm.accounting import Run, read_accounting
from kvexp.slurm.ids import JobName, JobNumber, TaskNumber
from kvexp.slurm.lost import answered
from kvexp.slurm.submission import Sent, Submission
from kvexp.slurm.submissions import Book

FOLDER = "accounting"


class Ran(Record, frozen=True, kw_only=True, tag="ran/1"):
    """One run of one task: a requeued task has several lines."""

    job_id: TaskNumber  # as Slurm writes it, 123 or 123_4
    raw_id: JobNumber  # SLURM_JOB_ID of its processes
    name: JobName  # as in its submission record
    suite: Id | None  # null: the analysis
    shard_id: Id | None
    state: str
    exit_code: str  # status:signal
    start: str  # UTC
    end: str | None  # null: it ran when this was exported
    seconds: Count
    gpus: Size | None  # null: accounting does not count them
    nodes: str

    def __post_init__(self) -> None:
        for moment in (self.start, self.end):
            if moment is not None:
                seconds_of(moment)


_reader: Reader[Ran] = Reader(Ran)


def path_of(root: Path, results: Path) -> Path:
    """slurm/accounting/<study>.jsonl."""
    return root / "slurm" / FOLDER / f"{results.relative_to(root / 'results').as_posix()}.jsonl"


def read_export(path: Path) -> list[Ran]:
    """The exported runs; none without an export. Raises IntegrityError for lines that are none."""
    if path.is_symlink() and not path.exists():
        raise IntegrityError(f"{path} is a link that leads nowhere: restore the file")
    # It is written whole or not at all, so half a line was never written.
    if shard_log.is_file(path) and not (path.read_bytes() or b"\n").endswith(b"\n"):
        raise IntegrityError(f"{path} was cut in its last line: restore it")
    found: dict[tuple[str, str], Ran] = {}
    for number, line in shard_log.whole_lines(path):
        try:
            one = _reader(line)
        except RecordError as error:
            raise IntegrityError(f"{path}:{number} is no line of an export ({error}): restore it") from None
        if found.setdefault((one.raw_id, one.start), one) is not one:
            raise IntegrityError(f"{path}:{number} is a second line for the same run: restore it")
    return list(found.values())


def export(book: Book, results: Path, console: Console) -> list[Ran]:
    """Ask accounting for every job of the study and write what it says, beside what it said before.

    Raises SlurmError if accounting does not answer, IncompleteError if a submit does not end.
    """
    with book.locked(console):
        return _export(book, results, console)


def _export(book: Book, results: Path, console: Console) -> list[Ran]:
    path, sent = path_of(book.root, results), answered(book, book.read())
    runs = read_accounting(one.job_id for one in sent if one.job_id is not None)
    merged = {(one.raw_id, one.start): one for one in read_export(path)}
    for one in _known(sent, runs):
        before = merged.get((one.raw_id, one.start))
        # A job that is requeued after it has completed becomes REQUEUED, and would hide a run thrown away.
        if before is None or before.state != "COMPLETED":
            merged[one.raw_id, one.start] = one
    lines = sorted(merged.values(), key=lambda one: (one.start, int(one.raw_id)))
    with shard_log.on_disk(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        shard_log.replace(path, b"".join(encode(line) + b"\n" for line in lines))
    _print(book.study, lines, path.relative_to(book.root).as_posix(), console)
    return lines


def _known(sent: Iterable[Sent], runs: Iterable[Run]) -> Iterable[Ran]:
    """Runs that began, each with its shard; a number that another cluster uses is not ours."""
    by_name = {one.before.name: one.before for one in sent}
    for run in runs:
        before = by_name.get(run.name)
        if before is None or run.start is None:
            continue
        yield Ran(
            job_id=run.job_id,
            raw_id=run.raw_id,
            name=run.name,
            suite=before.suite,
            shard_id=before.shards[run.task] if run.task < len(before.shards) else None,
            state=run.state,
            exit_code=run.exit_code,
            start=run.start,
            end=run.end,
            seconds=run.seconds,
            gpus=_asked(before) if run.gpus is None else run.gpus,
            nodes=run.nodes,
        )


def _asked(before: Submission) -> float | None:
    """GPUs of a job where accounting counts none: it asked for none, or for parts, no GPUs there."""
    asked = gpus_of(before.options.get("gres"), before.gpu_share)
    return asked if asked == 0 or before.gpu_share < 1 else None


def _print(study: str, lines: list[Ran], path: str, console: Console) -> None:
    if not lines:
        console.print(f"accounting knows no run of study {study} yet; written to {path}")
        return
    states = Counter(line.state for line in lines)
    hours = sum(line.seconds for line in lines) / 3600
    counted = [line.seconds * line.gpus for line in lines if line.gpus is not None]
    gpu = f", {sum(counted) / 3600:.2f} GPU-hours" if counted else ", GPUs not counted by accounting"
    console.print(
        f"{len(lines)} runs of {len({line.job_id for line in lines})} tasks, {hours:.2f} hours{gpu}: "
        + ", ".join(f"{n} {state}" for state, n in sorted(states.items()))
    )
    console.print(f"written to {path}")
