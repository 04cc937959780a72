"""Where a study stands, from its files alone."""

import time
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from kvexp import shard_log
from kvexp.compose import Selection
from kvexp.errors import InputError, IntegrityError
from kvexp.example_files import example_file, lost
from kvexp.families import family_of
from kvexp.grid import chosen, shards
from kvexp.launch import folder_of
from kvexp.prepare import written_ids
from kvexp.resolved import Shard
from kvexp.started import GRID
from kvexp.terminal import printable


@dataclass(frozen=True)
class ShardStatus:
    """One line of `kvexp status`.

    Attributes:
        state: complete, running, failed (some example failed), partial, waiting, or broken.
        done: rows that are there, generations or cells.
        expected: rows that a complete shard holds.
        idle_seconds: since the log last grew; None without a log.
        note: what is wrong, or empty.
    """

    shard_id: str
    state: str
    done: int
    expected: int
    idle_seconds: float | None
    note: str


def study_status(selection: Selection, results: Path) -> list[ShardStatus]:
    """The chosen shards. Where data are not on this machine, their examples are those of grid.jsonl."""
    made = chosen(shards(selection, "assume", written_ids(results / GRID)), selection)
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
    folder, expected = folder_of(results, shard), shard.n_rows
    idle = None
    try:
        log = folder / shard.log
        idle = max(0.0, time.time() - log.stat().st_mtime) if log.exists() else None
        state = shard_log.read_state(folder, shard.log)
    except (IntegrityError, OSError) as error:
        return ShardStatus(shard.shard_id, "broken", 0, expected, idle, str(error))
    word, note = "waiting", ""
    if state.footer is not None:
        word = "complete"
        if state.footer.shard_digest != shard.digest:
            commit = (state.attempts[-1].git_commit or "unknown")[:7]
            note = f"made under another configuration or protocol, at commit {commit}"
    elif shard_log.is_locked(folder, shard.log):
        word = "running"
    elif state.failed:
        word = "failed"
        last = state.failed[-1]
        note = f"{len(state.failed)} examples failed, last {last.example_id}: {last.message}"
    elif state.rows or state.attempts:
        word = "partial"
    return ShardStatus(shard.shard_id, word, len(state.rows), expected, idle, note)


ORDER = ("broken", "failed", "running", "partial", "waiting", "complete")  # what needs a person first


def print_status(study: str, rows: list[ShardStatus], console: Console) -> None:
    """A table of shards, what is wrong with them below it, and one line of totals."""
    table = Table(box=None, title=f"study {study}", title_justify="left")
    table.add_column("shard", overflow="fold")  # an id cut short names nothing
    table.add_column("state", no_wrap=True)
    table.add_column("rows", no_wrap=True, justify="right")
    table.add_column("idle", no_wrap=True, justify="right")
    for row in sorted(rows, key=lambda r: ORDER.index(r.state)):
        idle = "" if row.idle_seconds is None or row.state == "complete" else _duration(row.idle_seconds)
        table.add_row(row.shard_id, row.state, f"{row.done:,}/{row.expected:,}", idle)
    console.print(table)
    for note in dict.fromkeys(row.note for row in rows if row.note):
        shared = [row.shard_id for row in rows if row.note == note]
        who = shared[0] if len(shared) == 1 else f"{len(shared)} shards from {shared[0]}"
        console.print(Text(f"{who}: {printable(note)}"))
    done, expected = sum(r.done for r in rows), sum(r.expected for r in rows)
    whole = sum(r.state == "complete" for r in rows)
    console.print(f"{whole} of {len(rows)} shards complete, {done:,} of {expected:,} rows")


def _duration(seconds: float) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
