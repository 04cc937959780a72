"""Where a study stands: from its files, and from what Slurm's queue and accounting add to them."""

import shlex
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from kvexp import files
from kvexp.errors import InputError, IntegrityError
from kvexp.records import CELLS, FOOTER, Footer, World
from kvexp.run import log as shard_log
from kvexp.run.log import folder_of
from kvexp.run.prepare import written_ids
from kvexp.run.progress import Progress, RowCount, eta_minutes
from kvexp.slurm.jobs import GpuHours, Jobs, gpu_hours, jobs_of
from kvexp.slurm.reconcile import QueuedTask
from kvexp.slurm.submissions import Book
from kvexp.study.compose import Selection
from kvexp.study.grid import NONE, Counts, chosen, shards
from kvexp.study.plugins import family_of
from kvexp.study.results import GRID, example_file, lost
from kvexp.study.shards import Shard
from kvexp.study.words import fetch_command

FETCH = "`kvexp fetch`"  # as the reasons for missing data say it


@dataclass(frozen=True)
class ShardStatus:
    """One line of `kvexp status`."""

    shard_id: str
    # Complete, running, queued, failed (some example failed), dead (its last job ended without completing
    # it), partial, waiting, or broken.
    state: str
    done: int  # rows that are there
    expected: int  # rows that a complete shard holds
    idle_seconds: float | None  # since the log last grew; None without a log
    note: str  # what is wrong, or empty
    job_id: str | None = None  # of its task in the queue, or of the last one if it failed
    category: str | None = None  # how that ended, in one word; None: it did not, or nobody knows
    log: str | None = None  # what that wrote, relative to the repository
    tail: tuple[str, ...] = ()  # its last lines
    rows: Counts = NONE  # `done` by kind
    whole: Counts = NONE  # `expected` by kind


@dataclass(frozen=True)
class Report:
    """A study, or the chosen part of it."""

    study: str
    rows: list[ShardStatus]  # its shards, in order
    hours: GpuHours  # GPU-hours that they have used
    eta_minutes: float | None  # of work, if something runs and its speed is known
    notes: tuple[str, ...]  # what did not answer

    def plain(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "study": self.study,
            "shards": [asdict(row) for row in self.rows],
            "gpu_hours": round(self.hours.total, 4),
            "gpu_hours_estimated": round(self.hours.estimated, 4),
            "eta_minutes": None if self.eta_minutes is None else round(self.eta_minutes, 1),
            "notes": list(self.notes),
        }


def report(selection: Selection, root: Path, results: Path, overrides: Sequence[str] = ()) -> Report:
    """Read the files of the chosen shards and ask Slurm, if anything was ever submitted to it.

    `overrides` are the words that made the selection, for the commands that notes name.
    """
    made = _made(selection, results)
    slurm = jobs_of(Book(root, results))
    rows = [_with_slurm(row, slurm) for row in _statuses(selection, results, made)]
    if any(FETCH in row.note for row in rows):
        command = f"`{fetch_command(selection, overrides)}`"
        rows = [replace(row, note=row.note.replace(FETCH, command)) for row in rows]
    folders = [(folder_of(results, shard), shard.log) for shard in made]
    healthy = [place for place, row in zip(folders, rows, strict=True) if row.state != "broken"]
    progress = [
        Progress(shard, folder, row.expected - row.done, row.state == "complete", row.state == "running")
        for shard, (folder, _), row in zip(made, folders, rows, strict=True)
    ]
    return Report(
        selection.study.name,
        rows,
        gpu_hours(healthy, slurm),
        eta_minutes(progress, selection.cluster),
        slurm.notes,
    )


def study_status(selection: Selection, results: Path) -> list[ShardStatus]:
    """The chosen shards, from files alone. Where data are not here, examples are those of grid.jsonl."""
    return _statuses(selection, results, _made(selection, results))


def _made(selection: Selection, results: Path) -> list[Shard]:
    return chosen(shards(selection, "assume", written_ids(results / GRID)), selection)


def _statuses(selection: Selection, results: Path, made: Iterable[Shard]) -> list[ShardStatus]:
    made = list(made)
    absent = {key: _absent(selection, *key) for key in {(s.suite, s.task.name) for s in made}}
    found, gone = [], lost(results, made)
    for shard in made:
        status, reason = shard_status(results, shard), absent[shard.suite, shard.task.name]
        if (path := example_file(results, shard)) in gone:
            reason = f"{path} is missing: restore it, or submit again, which writes it"
        found.append(status if reason is None else replace(status, note=status.note or reason))
    return found


def _absent(selection: Selection, suite_name: str, task: str) -> str | None:
    """Why the data of a suite's task cannot be read here, or None."""
    suite = next(s for s in selection.suites if s.name == suite_name)
    try:
        family_of(selection.tasks[task]).example_ids(
            suite.n_examples, suite.example_seed, suite.context_tokens
        )
    except InputError as error:
        return f"told without its data: {error}"
    return None


def shard_status(results: Path, shard: Shard) -> ShardStatus:
    """Reads the folder of one shard; a broken log is a state, not an error."""
    return replace(_shard_status(results, shard), whole=Counts.of(shard))


def _shard_status(results: Path, shard: Shard) -> ShardStatus:
    folder, expected = folder_of(results, shard), shard.n_rows
    idle = None
    try:
        log = folder / shard.log
        idle = max(0.0, time.time() - log.stat().st_mtime) if log.exists() else None
        if (closed := _closed(folder, shard.log)) is not None:
            note = _foreign(folder, shard, closed)
            whole = Counts.of(shard)
            rows = whole if closed.rows == whole.total else RowCount([log])()[0]
            return ShardStatus(shard.shard_id, "complete", closed.rows, expected, idle, note, rows=rows)
        state = shard_log.read_state(folder, shard.log)
    except (IntegrityError, OSError) as error:
        return ShardStatus(shard.shard_id, "broken", 0, expected, idle, str(error))
    word, note = "waiting", ""
    if shard_log.is_locked(folder, shard.log):
        word = "running"
    elif state.failed:
        word = "failed"
        last = state.failed[-1]
        note = f"{len(state.failed)} examples failed, last {last.example_id}: {last.message}"
    elif state.rows or state.attempts:
        word = "partial"
    category = state.failed[-1].category if word == "failed" else None
    worlds = sum(isinstance(row, World) for row in state.rows.values())
    others = len(state.rows) - worlds
    rows = Counts(cells=others, worlds=worlds) if shard.log == CELLS else Counts(others)
    return ShardStatus(
        shard.shard_id, word, len(state.rows), expected, idle, note, category=category, rows=rows
    )


def _closed(folder: Path, log: str) -> Footer | None:
    """Of a complete shard. Raises IntegrityError unless log and attempts are those that it closed."""
    if not (folder / FOOTER).exists():
        return None
    footer = shard_log.read_footer(folder)
    if footer.sha256 == files.digest(folder / log) and all(
        (folder / f"attempt-{segment.attempt:03d}.json").is_file() for segment in footer.segments
    ):
        return footer
    return shard_log.read_state(folder, log).footer  # raises, and says what is wrong


def _foreign(folder: Path, shard: Shard, footer: Footer) -> str:
    if footer.shard_digest == shard.digest:
        return ""
    commit = (shard_log.read_attempts(folder)[-1].git_commit or "unknown")[:7]
    return f"made under another configuration or protocol, at commit {commit}"


def _with_slurm(row: ShardStatus, slurm: Jobs) -> ShardStatus:
    """A task in the queue is work in hand; one that has left it without a footer is a loss."""
    if row.state in ("complete", "broken"):
        return row
    if (task := slurm.queued.get(row.shard_id)) is not None:
        word = "running" if task.entry.is_running or row.state == "running" else "queued"
        note = "" if word == "running" else _waits_for(task, slurm)
        return replace(row, state=word, note=note, job_id=task.entry.job_id, category=None)
    if row.state == "running" or (ended := slurm.ended(row.shard_id)) is None:
        return row
    return replace(
        row,
        state="failed" if row.state == "failed" else "dead",
        job_id=ended.job_id,
        category=row.category or ended.end.category,
        log=ended.log.as_posix(),
        tail=tuple(ended.end.tail),
    )


def _waits_for(task: QueuedTask, slurm: Jobs) -> str:
    """What a person may have to do something about; waiting for its turn is nothing of this kind."""
    reason = task.entry.reason
    if task.entry.is_held:
        tasks = shlex.quote(slurm.held[task.entry.array_id, reason])
        return (
            f"Slurm holds it ({reason}): `scontrol release {tasks}` lets it run (a site may keep that to its "
            f"administrators), `scancel {tasks}` ends it, and the next submit takes it up again"
        )
    usual = ("None", "Priority", "Resources", "JobArrayTaskLimit", "BeginTime", "Dependency")
    return "" if reason in usual else f"queued, and waits: {reason}"
