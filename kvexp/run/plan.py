"""What a study consists of, before anything runs, and what of it is not on this machine."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from kvexp.errors import InputError, IntegrityError, NotFetched
from kvexp.models.folder import content_digest
from kvexp.models.missing import Lacks, lines, missing, summary
from kvexp.run.attempt import Under, refuse_other_seals
from kvexp.run.log import check_closed, folder_of, is_complete, read_attempts
from kvexp.run.progress import PAPER_GPU_HOURS, minutes_of, project
from kvexp.study.compose import Selection
from kvexp.study.grid import Counts, chosen, counts_of, shards
from kvexp.study.plugins import family_of
from kvexp.study.schema import AttentionConf, SuiteConf, is_folder
from kvexp.study.shards import AttentionShard, GenerationShard, Shard
from kvexp.study.words import fetch_command, notes, own_rates, refuse_lent


def study_plan(selection: Selection, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """Counts by suite, task and arm, and minutes and hours expected from the cluster's rates (null: none).

    Tasks whose data are not here count as if they had all the examples that a suite asks for. `overrides`
    are the words that made the selection: the command that gets what is missing repeats them, and `notes`
    say what they do not do. A suite's `by_hand` names what of its `missing` no command gets.
    Raises ConfigError where submit would refuse the words.
    """
    refuse_lent(selection)
    made = chosen(shards(selection, "assume", {}), selection)
    cluster = own_rates(selection, overrides)
    lacks = Lacks(selection)
    absent = missing(selection, made, lacks)
    suites = [
        _suite(name, replace(selection, cluster=cluster), [s for s in made if s.suite == name], lacks)
        for name in dict.fromkeys(shard.suite for shard in made)
    ]
    return {
        "study": selection.study.name,
        "registered": selection.chosen["study"][0],
        "cluster": selection.cluster.name,
        "shards": len(made),
        **asdict(counts_of(made)),
        "expected_minutes": minutes_of(made, cluster),
        "projection": {**project(made, cluster).plain(), "paper_gpu_hours": PAPER_GPU_HOURS},
        "suites": suites,
        "missing": [asdict(one) for one in absent],
        "fetch": None if all(one.by_hand for one in absent) else fetch_command(selection, overrides),
        "notes": [*lacks.way_out(), *notes(selection, overrides)],
        "shard_ids": [shard.shard_id for shard in made],
    }


def _remarks(selection: Selection, suite: SuiteConf | AttentionConf, lacks: Lacks) -> Iterator[str]:
    """What task families say about the suite's tasks, where their data are on this machine."""
    for name in suite.tasks:
        conf = selection.tasks[name]
        if name in selection.chosen["task"] and lacks.task(name, suite) is None:
            remark = family_of(conf).remark(suite.n_examples)
            if remark is not None:
                yield remark


def _suite(name: str, selection: Selection, made: list[Shard], lacks: Lacks) -> dict[str, Any]:
    suite = next(s for s in selection.suites if s.name == name)
    absent = lacks(suite, made)
    return {
        "suite": name,
        "models": list(dict.fromkeys(shard.model.name for shard in made)),
        "tasks": list(dict.fromkeys(shard.task.name for shard in made)),
        "examples": sum(len(shard.example_ids) for shard in made),
        "shards": len(made),
        **asdict(counts_of(made)),
        "generations_per_example": _per_example(made[0]),
        "generations_by_arm": _by_arm(made),
        "cells_by_budget": _by_budget(made),
        "expected_minutes": minutes_of(made, selection.cluster),
        "missing": {name: str(error) for name, error in absent.items()},
        "by_hand": [name for name, error in absent.items() if not isinstance(error, NotFetched)],
        "remarks": list(_remarks(selection, suite, lacks)),
    }


def _by_arm(made: list[Shard]) -> dict[str, int]:
    arms: Counter[str] = Counter()
    for shard in made:
        if isinstance(shard, GenerationShard):
            for arm in shard.places():
                arms[arm.name] += len(shard.example_ids)
    return dict(arms)


def _by_budget(made: list[Shard]) -> dict[str, int]:
    budgets: Counter[str] = Counter()
    for shard in made:
        if isinstance(shard, AttentionShard):
            for budget in shard.attention.budgets:
                budgets[f"{budget:g}"] += shard.n_cells // len(shard.attention.budgets)
    return dict(budgets)


def _per_example(shard: Shard) -> int:
    return Counts.of(shard).generations // len(shard.example_ids)


# What stops a submit: what is not here, and complete shards that are not what is asked for.


def refuse_missing(selection: Selection, results: Path, overrides: Sequence[str]) -> None:
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


def refuse_others(results: Path, complete: list[Shard], under: Mapping[str, Under]) -> None:
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
