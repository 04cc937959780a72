"""`kvexp submit`: write what must exist, start what is missing, show progress, say how it ended."""

import sys
import time
from collections.abc import Iterator
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from kvexp import launch
from kvexp.compose import Selection
from kvexp.config import ModelConf
from kvexp.grid import chosen, shards
from kvexp.launch import Outcome, ShardJob
from kvexp.prepare import write_examples, write_grid
from kvexp.progress import Work
from kvexp.shard_log import check_closed
from kvexp.terminal import printable

PLAIN_SECONDS = 30  # between progress lines where there is no terminal


def submit(selection: Selection, root: Path, console: Console) -> int:
    """Run the chosen shards that have no footer; the exit code is that of the worst outcome."""
    results = root / "results" / selection.study.name
    made = shards(selection, "leave_out")
    wanted = chosen(made, selection)
    left_out = [s.name for s in selection.suites if s.name not in {shard.suite for shard in made}]
    write_grid(results, made, left_out)
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
    for shard in {shard.model.name: shard for shard in todo}.values():
        launch.model_source(shard.model)  # converts the embedded model once, before the workers ask for it
    launch.check_heads(todo)
    jobs = launch.jobs(root, results, todo, selection.cluster)
    if selection.cluster.executor == "debug":
        events: Iterator[Outcome | None] = launch.run_here(jobs)
    else:
        logs = root / "slurm" / "logs" / selection.study.name
        events = launch.run_local(jobs, logs, selection.cluster)
    logs_of = [launch.folder_of(results, s) / s.log for s in todo]
    return _watch(events, jobs, Work(todo, logs_of, selection.cluster), console)


def _tokenizers(selection: Selection) -> Any:
    models = {model.name: model for model in selection.models}

    @cache
    def load(name: str) -> Any:
        from kvexp.replay.model import load_tokenizer

        model: ModelConf = models[name]
        return load_tokenizer(launch.model_source(model), model.revision)

    return load


def _watch(events: Iterator[Outcome | None], jobs: list[ShardJob], work: Work, console: Console) -> int:
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[rows]:,}/{task.fields[of]:,} rows, ETA"),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
        speed_estimate_period=600,
    )
    worst, whole = 0, 0
    started = told = time.monotonic()
    try:
        with closing(events), progress:  # type: ignore[type-var]
            bar = progress.add_task("running", total=1.0, rows=work.rows, of=work.total)
            for event in events:
                work.update()
                progress.update(bar, completed=work.share, rows=work.rows)
                if event is not None:
                    whole += event.error is None
                    worst = max(worst, event.exit_code)
                    if event.error is not None:
                        print(f"kvexp: {printable(event.error)}", file=sys.stderr)  # above a live bar
                now = time.monotonic()
                if not console.is_terminal and (event is not None or now - told > PLAIN_SECONDS):
                    told = now
                    console.print(work.line(now - started))
    except KeyboardInterrupt:
        console.print("the workers are stopped")
        raise
    console.print(f"{whole} of {len(jobs)} shards completed in {(time.monotonic() - started) / 60:.1f} min")
    return worst
