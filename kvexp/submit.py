"""`kvexp submit`: write what must exist, start what is missing, show progress, say how it ended."""

import sys
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from functools import cache
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from kvexp import launch
from kvexp.compose import Selection
from kvexp.config import ModelConf
from kvexp.grid import chosen, shards
from kvexp.launch import Outcome, ShardJob
from kvexp.prepare import write_examples, write_grid
from kvexp.shard_log import check_closed
from kvexp.terminal import printable

PLAIN_SECONDS = 30  # between progress lines where there is no terminal


def submit(selection: Selection, root: Path, console: Console) -> int:
    """Run the chosen shards that have no footer; the exit code is that of the worst outcome."""
    results = root / "results" / selection.study.name
    made = shards(selection, "leave_out")
    wanted = chosen(made, selection)
    write_grid(results, made)
    write_examples(results, wanted, _tokenizers(selection))
    todo = [s for s in wanted if not launch.is_complete(results, s)]
    for shard in wanted:
        if shard not in todo:
            check_closed(launch.folder_of(results, shard), shard.digest, shard.log)
    console.print(
        f"study {selection.study.name}: {len(wanted) - len(todo)} of {len(wanted)} shards are complete, "
        f"{len(todo)} to run on cluster={selection.cluster.name}"
    )
    if not todo:
        return 0
    for model in {shard.model.name: shard.model for shard in todo}.values():
        launch.model_source(model)  # converts the embedded model once, before the workers ask for it
    jobs = launch.jobs(root, results, todo, selection.cluster)
    if selection.cluster.executor == "debug":
        events: Iterator[Outcome | None] = launch.run_here(jobs)
    else:
        logs = root / "slurm" / "logs" / selection.study.name
        events = launch.run_local(jobs, logs, selection.cluster)
    return _watch(events, jobs, results, console)


def _tokenizers(selection: Selection) -> Any:
    models = {model.name: model for model in selection.models}

    @cache
    def load(name: str) -> Any:
        from kvexp.replay.model import load_tokenizer

        model: ModelConf = models[name]
        return load_tokenizer(launch.model_source(model), model.revision)

    return load


def _watch(events: Iterator[Outcome | None], jobs: list[ShardJob], results: Path, console: Console) -> int:
    todo = [job.shard for job in jobs]
    count = RowCount([launch.folder_of(results, s) / s.log for s in todo])
    before, total = count(), sum(s.n_rows for s in todo)
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("rows, ETA"),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
        speed_estimate_period=600,
    )
    worst, whole = 0, 0
    started = told = time.monotonic()
    try:
        with closing(events), progress:  # type: ignore[type-var]
            bar = progress.add_task("running", total=total, completed=before)
            for event in events:
                done = min(count(), total)
                progress.update(bar, completed=done)
                if event is not None:
                    whole += event.error is None
                    worst = max(worst, event.exit_code)
                    if event.error is not None:
                        print(f"kvexp: {printable(event.error)}", file=sys.stderr)  # above a live bar
                now = time.monotonic()
                if not console.is_terminal and (event is not None or now - told > PLAIN_SECONDS):
                    told = now
                    console.print(_plain_line(done, before, total, now - started))
    except KeyboardInterrupt:
        console.print("the workers are stopped")
        raise
    console.print(f"{whole} of {len(todo)} shards completed in {(time.monotonic() - started) / 60:.1f} min")
    return worst


class RowCount:
    """Rows in growing logs, failed ones included; nothing is read twice."""

    def __init__(self, logs: list[Path]) -> None:
        self._seen = {path: (0, 0) for path in logs}  # bytes read, rows in them

    def __call__(self) -> int:
        """All rows that are there now."""
        for path, (position, rows) in self._seen.items():
            if not path.is_file():
                continue
            with suppress(OSError), path.open("rb") as file:
                file.seek(position)
                new = sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))
                self._seen[path] = (file.tell(), rows + new)
        return sum(rows for _, rows in self._seen.values())


def _plain_line(done: int, before: int, total: int, seconds: float) -> str:
    rate = (done - before) / seconds if seconds > 0 else 0
    eta = f"{(total - done) / rate / 60:.1f} min" if rate > 0 else "unknown"
    return f"{done:,} of {total:,} rows, ETA {eta}"
