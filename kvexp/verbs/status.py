"""`kvexp status`: how far each shard is, what needs a person first."""

import argparse
import json
from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from kvexp.errors import IntegrityError
from kvexp.slurm.status import Report, ShardStatus, report
from kvexp.study.grid import total
from kvexp.study.results import refuse_unstarted
from kvexp.verbs.opened import STUDY, opened, take, tell

WORDS = STUDY
MOST_LINES = 60  # of a table by shard; a longer one is by task
ORDER = ("broken", "failed", "dead", "running", "partial", "queued", "waiting", "complete")
ENDED = ("failed", "dead")
MOST_ENDED = 10


def arguments(parser: argparse.ArgumentParser) -> None:
    """Which part of which study, registered or not."""
    take(parser, "--unregistered", "--json")


def run(parsed: argparse.Namespace, console: Console) -> int:
    """Tell what the files and Slurm know; exit code 4 if a shard is broken."""
    study = opened(parsed)
    results = study.results(is_registered=not parsed.unregistered)
    refuse_unstarted(results, study.words)
    found = report(study.selection, study.root, results, study.words)
    if parsed.json:
        print(json.dumps(found.plain(), indent=2))
    else:
        print_report(found, console)
    return IntegrityError.exit_code if any(row.state == "broken" for row in found.rows) else 0


def print_report(found: Report, console: Console) -> None:
    """Shards, what is wrong with them below, GPU-hours and the time that is left."""
    print_status(found.study, found.rows, console)
    for note in found.notes:
        tell(console, note)
    if found.hours.total:
        estimated = found.hours.estimated
        source = "" if not estimated else f", of these at most {estimated:.2f} told by attempts alone"
        console.print(f"{found.hours.total:.2f} GPU-hours used{source}")
    if found.eta_minutes is not None:
        console.print(f"about {_duration(60 * found.eta_minutes)} of work left at the present width")


def print_status(study: str, rows: Sequence[ShardStatus], console: Console) -> None:
    """A table of shards, what is wrong with them below it, and one line of totals."""
    ordered = sorted(rows, key=lambda row: ORDER.index(row.state))
    console.print(_by_shard(study, ordered) if len(rows) <= MOST_LINES else _by_task(study, rows))
    for row in [row for row in ordered if row.state in ENDED and row.log][:MOST_ENDED]:
        tell(console, f"{row.shard_id}: {row.category}, job {row.job_id}: tail -n 50 {row.log}")
        for line in row.tail:
            tell(console, f"    {line}")
    for note in dict.fromkeys(row.note for row in rows if row.note):
        shared = [row.shard_id for row in rows if row.note == note]
        who = shared[0] if len(shared) == 1 else f"{len(shared)} shards from {shared[0]}"
        tell(console, f"{who}: {note}")
    told = total(r.rows for r in rows).done_of(total(r.whole for r in rows))
    console.print(f"{sum(r.state == 'complete' for r in rows)} of {len(rows)} shards complete, {told}")


def _table(study: str, *columns: str) -> Table:
    table = Table(box=None, title=f"study {study}", title_justify="left")
    table.add_column(columns[0], overflow="fold")  # an id cut short names nothing
    table.add_column(columns[1], no_wrap=True)
    for column in columns[2:]:
        table.add_column(column, no_wrap=True, justify="right")
    return table


def _by_shard(study: str, rows: Sequence[ShardStatus]) -> Table:
    table = _table(study, "shard", "state", "rows", "idle")
    for row in rows:
        idle = "" if row.idle_seconds is None or row.state == "complete" else _duration(row.idle_seconds)
        table.add_row(row.shard_id, row.state, f"{row.done:,}/{row.expected:,}", idle)
    return table


def _by_task(study: str, rows: Sequence[ShardStatus]) -> Table:
    """One line for the shards of a suite, model and task that are in the same state."""
    table = _table(study, "shards", "state", "number", "rows")
    lines: dict[tuple[str, str], list[ShardStatus]] = {}
    for row in rows:
        lines.setdefault((row.shard_id.rpartition(".")[0], row.state), []).append(row)
    for (name, state), same in sorted(lines.items(), key=lambda item: (ORDER.index(item[0][1]), item[0])):
        done, expected = sum(row.done for row in same), sum(row.expected for row in same)
        table.add_row(f"{name}.*", state, f"{len(same):,}", f"{done:,}/{expected:,}")
    counts = Counter(row.state for row in rows)
    table.caption = ", ".join(f"{counts[state]:,} {state}" for state in ORDER if counts[state])
    table.caption_justify = "left"
    return table


def _duration(seconds: float) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
