"""`kvexp submit`: write what must exist, start what is missing, show progress, say how it ended."""

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from kvexp.ceremony.gate import gate
from kvexp.ceremony.home import home_of
from kvexp.ceremony.lock import refuse_locked
from kvexp.documents.seals import UNREGISTERED
from kvexp.errors import ConfigError, InputError, IntegrityError, NotFetched, printable
from kvexp.models.folder import content_digest, model_source
from kvexp.models.load import check_heads, tokenizers
from kvexp.models.missing import Lacks, lines, missing, summary
from kvexp.records import CELLS, GENERATIONS
from kvexp.run import launch
from kvexp.run.attempt import Under, refuse_other_seals, refuse_other_weights
from kvexp.run.launch import Outcome, ShardJob
from kvexp.run.log import check_closed, folder_of, is_complete, read_attempts
from kvexp.run.prepare import write_examples, write_grid
from kvexp.run.progress import Work
from kvexp.slurm.send import Sending, print_all, refuse_absent, send_all
from kvexp.slurm.task import Follow
from kvexp.study.compose import Selection
from kvexp.study.grid import chosen, counts_of, protocols, shards
from kvexp.study.results import lost, results_of
from kvexp.study.schema import is_folder
from kvexp.study.shards import Shard
from kvexp.study.words import fetch_command, notes, refuse_lent, remember_words

PLAIN_SECONDS = 30  # between progress lines where there is no terminal


def submit(
    selection: Selection,
    root: Path,
    console: Console,
    *,
    overrides: Sequence[str] = (),
    is_registered: bool = True,
    allow_dirty: bool = False,
    dry_run: bool = False,
    then_analyze: bool = False,
) -> int:
    """Run the chosen shards that have no footer; the exit code is that of the worst outcome.

    Args:
        selection: the study and what was chosen of it.
        root: of the repository.
        console: where progress is shown.
        overrides: the words that made the selection, for the command that gets what is missing.
        is_registered: if not, nothing is checked against seals, and the logs go to results/scratch, which no
            analysis reads.
        allow_dirty: run sealed suites although tracked files differ from their commit.
        dry_run: only print what would be started; nothing is written.
        then_analyze: on Slurm, lock and analyse once everything has ended.
    """
    results = results_of(selection.study.name, root, is_registered=is_registered)
    refuse_lent(selection)
    _refuse_missing(selection, results, overrides)
    made = shards(selection, "leave_out")
    wanted = chosen(made, selection)
    scratch = {shard.suite: Under(anchor=UNREGISTERED) for shard in wanted}
    home = home_of(selection, root, overrides)
    under = gate(home, wanted, allow_dirty) if is_registered else scratch
    left_out = [s.name for s in selection.suites if s.name not in {shard.suite for shard in made}]
    todo = [s for s in wanted if not is_complete(results, s)]
    open_ids = {s.shard_id for s in todo}
    refuse_locked(results, [s.suite for s in todo])
    on_slurm = selection.cluster.executor == "slurm"
    if then_analyze and not (on_slurm and is_registered):
        raise ConfigError(
            "--then-analyze submits a job of its own: it needs a cluster with executor: slurm, and no "
            f"--unregistered (elsewhere, say `{home.command('lock')}` and `{home.command('verdicts')}` "
            "afterwards)"
        )
    if on_slurm:
        refuse_absent()
    if dry_run and not on_slurm:
        for shard in todo:
            console.print(f"would run {shard.shard_id}")
        return 0
    if dry_run:
        print_all(_sending(selection, root, results, todo, under, overrides, then_analyze), console)
        return 0
    for shard in {shard.model.name: shard for shard in todo}.values():
        model_source(shard.model)  # converts the embedded model once, before the workers ask for it
    check_heads(todo)
    refuse_other_weights(results, made, todo)
    gone = lost(results, wanted)
    write_grid(results, made, left_out)
    if is_registered:
        remember_words(selection, root, overrides)
    write_examples(results, wanted, tokenizers(selection))
    _refuse_others(results, [s for s in wanted if s.shard_id not in open_ids], under)
    for note in dict.fromkeys(one.note for one in under.values() if one.note):
        console.print(printable(note), markup=False)
    for path in gone:
        console.print(Text(printable(f"{path.relative_to(root)} was missing: written again")))
    for note in notes(selection, overrides):
        console.print(printable(note), markup=False)
    where = "" if is_registered else f", unregistered, into {results.relative_to(root)}"
    console.print(
        f"study {selection.study.name}: {len(wanted) - len(todo)} of {len(wanted)} shards are complete, "
        f"{len(todo)} to run on cluster={selection.cluster.name}{where}"
        f"{f': {counts_of(todo)}' if todo else ''}"
    )
    if on_slurm and (todo or then_analyze):
        send_all(_sending(selection, root, results, todo, under, overrides, then_analyze), console)
        return 0
    if not todo:
        return 0
    jobs = launch.jobs(root, results, todo, selection.cluster, under)
    if selection.cluster.executor == "debug":
        events: Iterator[Outcome | None] = launch.run_here(jobs)
    else:
        logs = root / "slurm" / "logs" / selection.study.name
        events = launch.run_local(jobs, logs, selection.cluster)
    logs_of = [folder_of(results, s) / s.log for s in todo]
    return _watch(events, jobs, Work(todo, logs_of, selection.cluster), console)


def _sending(
    selection: Selection,
    root: Path,
    results: Path,
    todo: list[Shard],
    under: Mapping[str, Under],
    overrides: Sequence[str],
    then_analyze: bool,
) -> Sending:
    made = protocols(selection)
    # Whoever locks and judges is told its suites, and takes no other choice of a part.
    words = [w for w in overrides if not w.lstrip("+").startswith(("cluster", "suite=", "model=", "task="))]
    return Sending(
        root,
        results,
        selection.cluster,
        launch.jobs(root, results, todo, selection.cluster, under),
        {GENERATIONS: made["generations"].files, CELLS: made["cells"].files},
        Follow(root, selection.chosen["suite"], words) if then_analyze else None,
    )


def _refuse_missing(selection: Selection, results: Path, overrides: Sequence[str]) -> None:
    """Raises NotFetched or InputError that names everything at once; complete shards need no model."""
    made = chosen(shards(selection, "assume", {}), selection)
    models = {f"model {shard.model.name}" for shard in made if not is_complete(results, shard)}
    lacks = Lacks(selection)
    found = [
        one
        for one in missing(selection, made, lacks)
        if not one.name.startswith("model ") or one.name in models
    ]
    command = fetch_command(selection, overrides)
    if len(found) == 1 and not found[0].by_hand:
        raise NotFetched(f"{found[0].reason}; here that is `{command}`")
    if not found:
        return
    if len(found) == 1:
        raise InputError(": ".join([found[0].reason, *lacks.way_out()]))
    by_hand = [one.reason for one in found if one.by_hand]
    get = "" if len(by_hand) == len(found) else f"; to fetch, where there is a network: `{command}`"
    raise InputError(f"missing here: {summary(found)}{get}", [*lines(found), *by_hand, *lacks.way_out()])


def _refuse_others(results: Path, complete: list[Shard], under: Mapping[str, Under]) -> None:
    """Raises IntegrityError if a complete shard is not what is asked for: other rows, weights or seals."""
    digests = {s.model.name: content_digest(s.model) for s in complete if is_folder(s.model.source)}
    for shard in complete:
        folder = folder_of(results, shard)
        check_closed(folder, shard.digest, shard.log)
        attempts = read_attempts(folder)
        refuse_other_seals(folder, attempts, under[shard.suite])
        made_with = {attempt.model_digest for attempt in attempts}
        if shard.model.name in digests and digests[shard.model.name] not in made_with:
            raise IntegrityError(
                f"{folder} is complete, but was made with other files of model {shard.model.name} than those "
                f"in {shard.model.source}: run under another name with study.name=NAME"
            )


def _watch(events: Iterator[Outcome | None], jobs: list[ShardJob], work: Work, console: Console) -> int:
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
    console.print(f"{whole} of {len(jobs)} shards completed in {(time.monotonic() - started) / 60:.1f} min")
    return worst
