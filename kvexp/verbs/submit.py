"""`kvexp submit`: check, write what must exist, start what is missing, show progress, say how it ended."""

import argparse
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from kvexp.ceremony.gate import gate
from kvexp.ceremony.lock import refuse_locked
from kvexp.documents.seals import UNREGISTERED
from kvexp.errors import ConfigError, printable
from kvexp.models.folder import model_source
from kvexp.models.load import check_heads, tokenizers
from kvexp.records import CELLS, GENERATIONS
from kvexp.run import launch
from kvexp.run.attempt import Under, refuse_other_weights
from kvexp.run.launch import Outcome, ShardJob
from kvexp.run.log import folder_of, is_complete
from kvexp.run.plan import refuse_missing, refuse_others
from kvexp.run.prepare import write_examples, write_grid
from kvexp.run.progress import Work
from kvexp.slurm.send import Sending, print_all, refuse_absent, send_all
from kvexp.slurm.task import Follow
from kvexp.study.grid import chosen, counts_of, protocols, shards
from kvexp.study.results import lost
from kvexp.study.schema import ClusterConf
from kvexp.study.shards import Shard
from kvexp.study.words import notes, refuse_lent, remember_words
from kvexp.verbs.opened import STUDY, Opened, opened, take, tell

WORDS = STUDY
PLAIN_SECONDS = 30  # between progress lines where there is no terminal


def arguments(parser: argparse.ArgumentParser) -> None:
    """Which part of which study, under a seal or not, and what comes after."""
    take(parser)
    add = parser.add_argument
    add(
        "--unregistered",
        action="store_true",
        help="check no seal; logs go to results/scratch, which no analysis reads",
    )
    add("--allow-dirty", action="store_true", help="run a sealed suite although tracked files have changed")
    add("--dry-run", action="store_true", help="only print what would be started")
    add(
        "--then-analyze",
        action="store_true",
        help="on Slurm: add a job that locks complete suites and runs the analysis when all arrays end",
    )


def run(parsed: argparse.Namespace, console: Console) -> int:
    """Run the chosen shards that have no footer; the exit code is that of the worst outcome."""
    wanted = check(parsed)
    if parsed.dry_run:
        return show(wanted, console)
    write(wanted, console)
    return start(wanted, console)


@dataclass(frozen=True)
class Submission:
    """What a submit found to be allowed."""

    study: Opened  # with the words that made the selection
    is_registered: bool  # if not, nothing was checked against seals, and logs go to results/scratch
    then_analyze: bool  # on Slurm, lock and analyse once everything has ended
    results: Path  # folder of the logs
    made: list[Shard]  # all shards whose data are here
    chosen: list[Shard]  # of these, the part that the words choose
    todo: list[Shard]  # of these, what has no footer
    under: Mapping[str, Under]  # by suite, what it is registered under

    @property
    def cluster(self) -> ClusterConf:
        return self.study.selection.cluster

    @property
    def on_slurm(self) -> bool:
        return self.cluster.executor == "slurm"

    @cached_property
    def jobs(self) -> list[ShardJob]:
        return launch.jobs(self.study.root, self.results, self.todo, self.cluster, self.under)

    @property
    def sending(self) -> Sending:
        """For Slurm. Whoever locks and judges is told its suites, and takes no other choice of a part."""
        made, parts = protocols(self.study.selection), ("cluster", "suite=", "model=", "task=")
        words = [word for word in self.study.words if not word.lstrip("+").startswith(parts)]
        code = {GENERATIONS: made["generations"].files, CELLS: made["cells"].files}
        follow = Follow(self.study.root, self.study.selection.chosen["suite"], words)
        return Sending(
            self.study.root,
            self.results,
            self.cluster,
            self.jobs,
            code,
            follow if self.then_analyze else None,
        )


def check(parsed: argparse.Namespace) -> Submission:
    """What would run. Raises KvexpError for whatever forbids it; nothing is written."""
    study = opened(parsed)
    selection, is_registered = study.selection, not parsed.unregistered
    results = study.results(is_registered=is_registered)
    refuse_lent(selection)
    refuse_missing(selection, results, study.words)
    made = shards(selection, "leave_out")
    wanted = chosen(made, selection)
    scratch = {shard.suite: Under(anchor=UNREGISTERED) for shard in wanted}
    under = gate(study.home, wanted, parsed.allow_dirty) if is_registered else scratch
    todo = [shard for shard in wanted if not is_complete(results, shard)]
    refuse_locked(results, [shard.suite for shard in todo])
    found = Submission(study, is_registered, parsed.then_analyze, results, made, wanted, todo, under)
    if parsed.then_analyze and not (found.on_slurm and is_registered):
        raise ConfigError(
            "--then-analyze submits a job of its own: it needs a cluster with executor: slurm, and no "
            f"--unregistered (elsewhere, say `{study.home.command('lock')}` and "
            f"`{study.home.command('verdicts')}` afterwards)"
        )
    if found.on_slurm:
        refuse_absent()
    return found


def show(wanted: Submission, console: Console) -> int:
    """What would be started."""
    if wanted.on_slurm:
        print_all(wanted.sending, console)
        return 0
    for shard in wanted.todo:
        console.print(f"would run {shard.shard_id}")
    return 0


def write(wanted: Submission, console: Console) -> None:
    """What must exist before anything runs, and what a person may not expect of it."""
    selection, results, todo = wanted.study.selection, wanted.results, wanted.todo
    for shard in {shard.model.name: shard for shard in todo}.values():
        model_source(shard.model)  # converts the embedded model once, before the workers ask for it
    check_heads(todo)
    refuse_other_weights(results, wanted.made, todo)
    gone = lost(results, wanted.chosen)
    there = {shard.suite for shard in wanted.made}
    write_grid(results, wanted.made, [s.name for s in selection.suites if s.name not in there])
    if wanted.is_registered:
        remember_words(selection, wanted.study.root, wanted.study.words)
    write_examples(results, wanted.chosen, tokenizers(selection))
    open_ids = {shard.shard_id for shard in todo}
    complete = [shard for shard in wanted.chosen if shard.shard_id not in open_ids]
    refuse_others(results, complete, wanted.under)
    for note in [
        *dict.fromkeys(one.note for one in wanted.under.values() if one.note),
        *(f"{path.relative_to(wanted.study.root)} was missing: written again" for path in gone),
        *notes(selection, wanted.study.words),
    ]:
        tell(console, note)


def start(wanted: Submission, console: Console) -> int:
    """Hand the shards to Slurm, or run them and wait."""
    study, todo, cluster = wanted.study.selection.study.name, wanted.todo, wanted.cluster
    where = wanted.results.relative_to(wanted.study.root)
    console.print(
        f"study {study}: {len(wanted.chosen) - len(todo)} of {len(wanted.chosen)} shards are complete, "
        f"{len(todo)} to run on cluster={cluster.name}"
        f"{'' if wanted.is_registered else f', unregistered, into {where}'}"
        f"{f': {counts_of(todo)}' if todo else ''}"
    )
    if wanted.on_slurm and (todo or wanted.then_analyze):
        send_all(wanted.sending, console)
        return 0
    if not todo:
        return 0
    if cluster.executor == "debug":
        events: Iterator[Outcome | None] = launch.run_here(wanted.jobs)
    else:
        events = launch.run_local(wanted.jobs, wanted.study.root / "slurm" / "logs" / study, cluster)
    logs = [folder_of(wanted.results, shard) / shard.log for shard in todo]
    return _watch(events, len(todo), Work(todo, logs, cluster), console)


def _watch(events: Iterator[Outcome | None], n_shards: int, work: Work, console: Console) -> int:
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[rows]}, ETA"),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
        speed_estimate_period=600,
    )
    worst, whole = 0, 0
    started = told = time.monotonic()
    try:
        with closing(events), progress:  # type: ignore[type-var]
            bar = progress.add_task("running", total=1.0, rows=work.told)
            for event in events:
                work.update()
                progress.update(bar, completed=work.share, rows=work.told)
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
    console.print(f"{whole} of {n_shards} shards completed in {(time.monotonic() - started) / 60:.1f} min")
    return worst
