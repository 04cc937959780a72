"""`kvexp account`: what accounting knows of a study's jobs, kept beside the submission records.

Accounting forgets after some months; what was exported once stays.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from kvexp import files
from kvexp.ceremony.attempts import Started
from kvexp.ceremony.checks import check
from kvexp.documents.forms import Check, all_hold
from kvexp.errors import IntegrityError
from kvexp.files import digest
from kvexp.records import FOOTER, Count, Id, Reader, Record, RecordError, Size, encode, seconds_in, seconds_of
from kvexp.run import log
from kvexp.slurm.programs import JobName, JobNumber, Run, TaskNumber, read_accounting, task_of
from kvexp.slurm.reconcile import answered
from kvexp.slurm.submissions import Book, Sent, Submission
from kvexp.study.schema import gpus_of

FOLDER = "accounting"
SLACK_SECONDS = 120  # between the clocks of nodes and controller
STARTING_SECONDS = 600  # modules, containers, torch: a job looks for a footer only then
# That a job may end later than another one which found its footer; none is done again so fast.
EPILOG_SECONDS = 5
SHOWN = 3


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

    @property
    def began(self) -> float:
        return seconds_of(self.start)

    @property
    def ended(self) -> float:
        """Infinite while it runs."""
        return float("inf") if self.end is None else seconds_of(self.end)

    def ran_at(self, moment: float) -> bool:
        """Whether it ran then, as far as clocks of nodes and controller agree."""
        return self.began - SLACK_SECONDS <= moment <= self.ended + SLACK_SECONDS

    def distance(self, moment: float) -> float:
        """Seconds between a moment and the run; 0 within it."""
        return max(self.began - moment, moment - self.ended, 0.0)


_reader: Reader[Ran] = Reader(Ran)


def path_of(root: Path, results: Path) -> Path:
    """slurm/accounting/<study>.jsonl."""
    return root / "slurm" / FOLDER / f"{results.relative_to(root / 'results').as_posix()}.jsonl"


def read_export(path: Path) -> list[Ran]:
    """The exported runs; none without an export. Raises IntegrityError for lines that are none."""
    if path.is_symlink() and not path.exists():
        raise IntegrityError(f"{path} is a link that leads nowhere: restore the file")
    # It is written whole or not at all, so half a line was never written.
    if files.is_file(path) and not (path.read_bytes() or b"\n").endswith(b"\n"):
        raise IntegrityError(f"{path} was cut in its last line: restore it")
    found: dict[tuple[str, str], Ran] = {}
    for number, line in log.whole_lines(path):
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
    with files.on_disk(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write_whole(path, b"".join(encode(line) + b"\n" for line in lines))
    _print(book.study, lines, path.relative_to(book.root).as_posix(), console)
    return lines


def _known(sent: Iterable[Sent], runs: Iterable[Run]) -> Iterable[Ran]:
    """Runs that began, each with its shard; a number that another cluster uses is not ours."""
    by_name = {one.before.name: one.before for one in sent}
    for run in runs:
        before = by_name.get(run.name)
        if before is None or run.start is None:
            continue
        shard_id = before.shards[run.task] if run.task < len(before.shards) else None
        gpus = _asked(before) if run.gpus is None else run.gpus
        yield Ran(**{**asdict(run), "suite": before.suite, "shard_id": shard_id, "gpus": gpus})


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


# Attempts held against Slurm's accounting, both ways: no attempt without a job, no job without an attempt.
#
# A job that completed a shard and left no attempt is how a discarded run would look.


def of_accounting(
    root: Path, results: Path, suites: Collection[str], attempts: Sequence[Started]
) -> Iterator[Check]:
    """The checks of the registered suites; none for a study that no Slurm has seen."""
    mine = [one for one in attempts if "SLURM_JOB_ID" in one.attempt.slurm]
    submitted = {
        (one.before.name, task): f"{one.task_id(task)} ({shard_id})"
        for one in Book(root, results).read()
        if one.job_id is not None
        for task, shard_id in enumerate(one.before.shards)
    }
    path = path_of(root, results)
    if not (path.exists() or path.is_symlink()):
        if mine or submitted:
            words = (
                f"{len(submitted)} tasks were submitted to Slurm and {len(mine)} attempts name jobs, but "
                "its accounting was not exported: kvexp account"
            )
            yield check("accounting", None, words)
        return
    runs = read_export(path)
    by_job: dict[str, list[Ran]] = {}
    for run in runs:
        by_job.setdefault(run.raw_id, []).append(run)
    yield all_hold(
        "attempts in accounting",
        [words for one in mine if (words := _unknown(one, by_job))],
        f"Slurm's accounting knows the job of each of {len(mine)} attempts",
    )
    where = f"{path.relative_to(root).as_posix()} (sha256 {digest(path.resolve())})"
    words = f"{len(runs)} runs of jobs, as in {where}"
    yield check("accounting", True, words)
    if lacking := [
        submitted[key] for key in sorted(set(submitted) - {(run.name, task_of(run.job_id)) for run in runs})
    ]:
        words = (
            f"{len(lacking)} of {len(submitted)} tasks that were submitted are not in the export: they never "
            f"began, or it was made before or cut since: {_first(lacking)}"
        )
        yield check("jobs in accounting", None, words)
    yield from _jobs_without_attempts(results, suites, runs, by_job, attempts)


def _unknown(one: Started, by_job: dict[str, list[Ran]]) -> str:
    """Why accounting does not bear out an attempt, or nothing."""
    attempt, job = one.attempt, one.attempt.slurm["SLURM_JOB_ID"]
    who = f"attempt {attempt.number} of {attempt.shard_id}"
    if job not in by_job:
        return f"{who} names job {job}, which accounting does not know (or not yet: kvexp account)"
    if attempt.shard_id not in {run.shard_id for run in by_job[job]}:
        return f"{who} names job {job}, which was submitted for {by_job[job][0].shard_id}"
    if not any(run.ran_at(_began(one)) for run in by_job[job]):
        return f"{who} began at {attempt.started_at}, when job {job} did not run"
    return ""


def _jobs_without_attempts(
    results: Path,
    suites: Collection[str],
    runs: Sequence[Ran],
    by_job: dict[str, list[Ran]],
    attempts: Sequence[Started],
) -> Iterator[Check]:
    runs_of = [(one, _run_of(one, by_job)) for one in sorted(attempts, key=lambda one: one.attempt.number)]
    begun = {(run.raw_id, run.start) for _, run in runs_of if run is not None}
    # By suite and shard, the run of the last attempt.
    closers: dict[tuple[str | None, str | None], Ran | None] = {
        (one.suite, one.attempt.shard_id): run for one, run in runs_of
    }
    without = [
        run
        for run in runs
        if run.shard_id is not None
        and run.suite in suites
        and (run.raw_id, run.start) not in begun
        and not _was_closed(results, run, closers.get((run.suite, run.shard_id)))
    ]
    completed = [run for run in without if run.state == "COMPLETED"]
    yield all_hold(
        "jobs in attempts",
        [
            f"job {run.job_id} completed {run.shard_id} in {run.seconds} s and left no attempt"
            for run in completed
        ],
        f"each of {sum(run.suite in suites for run in runs)} runs of jobs has its attempt, had nothing "
        "left to do, or did not complete",
    )
    if early := [run for run in without if run.state != "COMPLETED"]:
        shown = _first([f"{run.job_id} {run.state} after {run.seconds} s" for run in early])
        words = f"{len(early)} runs ended before their attempt began: {shown}"
        yield check("jobs that ended early", None, words)


def _first(words: Sequence[str]) -> str:
    more = f" (and {len(words) - SHOWN} more)" if len(words) > SHOWN else ""
    return f"{', '.join(words[:SHOWN])}{more}"


def _run_of(one: Started, by_job: dict[str, list[Ran]]) -> Ran | None:
    """The run that an attempt belongs to, if it was on Slurm and accounting knows it: one, and no other."""
    moment = _began(one)
    runs = [
        run
        for run in by_job.get(one.attempt.slurm.get("SLURM_JOB_ID", ""), [])
        if (run.suite, run.shard_id) == (one.suite, one.attempt.shard_id) and run.ran_at(moment)
    ]
    return min(runs, key=lambda run: run.distance(moment)) if runs else None


def _was_closed(results: Path, run: Ran, closer: Ran | None) -> bool:
    """Whether the shard was complete when a run looked, and still at its end: there was nothing to do for it.

    What is compared comes from the same clock where accounting knows the run that completed the shard.
    """
    folder = results / str(run.suite) / str(run.shard_id)
    if not (folder / FOOTER).exists():
        return False
    if closer is not None and closer.end is not None:
        closed, epilog = closer.ended, EPILOG_SECONDS
    else:
        closed, epilog = seconds_in(folder / FOOTER, log.read_footer(folder).ended_at), 0
    return closed <= run.ended + epilog and closed <= run.began + STARTING_SECONDS


def _began(one: Started) -> float:
    return seconds_in(one.folder / f"attempt-{one.attempt.number:03d}.json", one.attempt.started_at)
