"""`kvexp plan`: what a study consists of, before anything runs, and what of it is not on this machine."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

from rich.console import Console
from rich.table import Table

from kvexp.errors import InputError, NotFetched, printable
from kvexp.models.missing import Lacks, Missing, lines, missing, summary
from kvexp.run.projection import PAPER_GPU_HOURS, minutes_of, project
from kvexp.study.compose import Selection
from kvexp.study.grid import KINDS, Counts, chosen, counts_of, shards
from kvexp.study.plugins import family_of
from kvexp.study.schema import AttentionConf, SuiteConf
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


def exit_code(plan: dict[str, Any]) -> int:
    """0, or that of bad input if something is missing that no command gets."""
    return InputError.exit_code if any(one["by_hand"] for one in plan["missing"]) else 0


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


def print_plan(plan: dict[str, Any], console: Console) -> None:
    """The plan as tables for a person: suites, then generations by arm and cells by budget."""
    suites, hours = plan["suites"], plan["projection"]
    table = Table("suite", "tasks", box=None, title=f"study {plan['study']}", title_justify="left")
    kinds = {kind: words for kind, words in KINDS.items() if plan[kind]}
    least = "at least " if hours["is_floor"] else ""
    for column in ("examples", "shards", *kinds.values(), f"{least}minutes", hours["unit"]):
        table.add_column(column, justify="right")
    for s in suites:
        counts = [f"{s[key]:,}" for key in ("examples", "shards", *kinds)]
        spent = _hours(hours["by_suite"][s["suite"]])
        table.add_row(s["suite"], ", ".join(s["tasks"]), *counts, _minutes(s["expected_minutes"]), spent)
    console.print(table)
    _print_counts("arm", "generations", "generations_by_arm", suites, console)
    _print_counts("budget", "cells", "cells_by_budget", suites, console)
    console.print(
        f"{plan['shards']:,} shards, {Counts(*(plan[kind] for kind in KINDS))}, "
        f"{least}{_minutes(plan['expected_minutes'])} minutes expected on cluster={plan['cluster']}"
    )
    _print_projection(plan, console)
    for remark in dict.fromkeys(remark for s in suites for remark in s["remarks"]):
        console.print(remark, markup=False)
    _print_missing([Missing(**one) for one in plan["missing"]], plan["fetch"], console)
    for note in plan["notes"]:
        console.print(printable(note), markup=False)


def _print_projection(plan: dict[str, Any], console: Console) -> None:
    """What all of it costs, where that number comes from, and what it leaves out."""
    hours = plan["projection"]
    beside = f" (the paper's whole grid took roughly {hours['paper_gpu_hours']} GPU-hours)"
    is_like_it = hours["unit"] == "GPU-hours" or plan["registered"] == "paper"
    told = f"{_hours(hours['total'])} {hours['unit']} projected"
    if hours["is_floor"]:
        told = f"at least {told}, a floor and no forecast"
    console.print(f"{told}{beside if is_like_it else ''}")
    for basis in hours["bases"]:
        console.print(f"  {printable(basis)}", markup=False)
    if hours["lacking"]:
        names = ", ".join(hours["lacking"])
        console.print(
            f"  no rate on cluster={plan['cluster']} of {names}: see rates and shapes in conf/cluster",
            markup=False,
        )
    if hours["bases"]:
        console.print(f"  contexts at their nominal length; left out: {hours['left_out']}")


def _print_missing(absent: list[Missing], fetch: str | None, console: Console) -> None:
    """Everything once, whichever suites need it."""
    if fetch is not None:
        console.print(f"not on this machine: {summary([one for one in absent if not one.by_hand])}")
        for line in lines(absent):
            console.print(f"  {printable(line)}", markup=False)
    for one in absent:
        if one.by_hand:
            console.print(printable(one.reason), markup=False)
    if fetch is not None:
        console.print(printable(f"to get it, where there is a network: {fetch}"), markup=False)


def _print_counts(axis: str, what: str, key: str, suites: list[dict[str, Any]], console: Console) -> None:
    """One table, a column for every suite that has such rows; nothing if none has."""
    there = [s for s in suites if s[key]]
    if not there:
        return
    table = Table(axis, box=None, title=f"{what} by {axis}", title_justify="left")
    for s in there:
        table.add_column(s["suite"], justify="right")
    for name in dict.fromkeys(name for s in there for name in s[key]):
        table.add_row(name, *(f"{s[key].get(name, 0):,}" for s in there))
    console.print(table)


def _minutes(value: float | None) -> str:
    return "unknown" if value is None else f"{value:,.0f}"


def _hours(value: float | None) -> str:
    return "unknown" if value is None else f"{value:,.2f}"
