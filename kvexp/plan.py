"""`kvexp plan`: what a study consists of, before anything runs, and what of it is not on this machine."""

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from rich.console import Console
from rich.table import Table

from kvexp.compose import Selection
from kvexp.config import AttentionConf, SuiteConf, is_folder
from kvexp.errors import InputError, NotFetched
from kvexp.families import family_of
from kvexp.folders import check_folder
from kvexp.grid import chosen, expected_minutes, shards
from kvexp.launch import model_source
from kvexp.resolved import AttentionShard, GenerationShard, Shard
from kvexp.terminal import printable


def study_plan(selection: Selection, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """Counts by suite, task and arm, and minutes expected from measured rates (null without one).

    Tasks whose data are not here count as if they had all the examples that a suite asks for. `overrides`
    are the words that made the selection: the command that gets what is missing repeats them. A suite's
    `by_hand` names what of its `missing` no command gets.
    """
    made = chosen(shards(selection, "assume"), selection)
    minutes = [expected_minutes(shard, selection.cluster) for shard in made]
    lacks = _Lacks(selection)
    suites = [
        _suite(name, selection, [s for s in made if s.suite == name], lacks)
        for name in dict.fromkeys(shard.suite for shard in made)
    ]
    to_fetch = any(suite["missing"].keys() - suite["by_hand"] for suite in suites)
    return {
        "study": selection.study.name,
        "cluster": selection.cluster.name,
        "shards": len(made),
        "generations": sum(map(_generations, made)),
        "cells": sum(map(_cells, made)),
        "expected_minutes": _total(minutes),
        "suites": suites,
        "fetch": shlex.join(["kvexp", "fetch", *_fetch_words(overrides)]) if to_fetch else None,
        "shard_ids": [shard.shard_id for shard in made],
    }


def _fetch_words(overrides: Sequence[str]) -> list[str]:
    return [word for word in overrides if not word.startswith("cluster")]


class _Lacks:
    """What a suite's models and tasks lack on this machine: names with the error that says why."""

    def __init__(self, selection: Selection) -> None:
        self.selection = selection
        self.model = cache(self._model)

    def _model(self, name: str) -> InputError | None:
        model = next(m for m in self.selection.models if m.name == name)
        if model.source == "embedded":  # comes with the installation, and is converted when it is needed
            return None
        try:
            if is_folder(model.source):
                check_folder(model)
            else:
                model_source(model)
        except InputError as error:
            return error
        return None

    def task(self, name: str, suite: SuiteConf | AttentionConf) -> NotFetched | None:
        conf = self.selection.tasks[name]
        try:
            family = family_of(conf)
            family.example_ids(suite.n_examples, suite.example_seed, suite.context_tokens)
        except NotFetched as error:
            return error
        return None

    def __call__(self, suite: SuiteConf | AttentionConf, made: list[Shard]) -> dict[str, InputError]:
        models = {f"model {s.model.name}": self.model(s.model.name) for s in made}
        tasks = {f"data of {name}": self.task(name, suite) for name in {s.task.name: 0 for s in made}}
        return {name: error for name, error in {**models, **tasks}.items() if error is not None}


def _remarks(selection: Selection, suite: SuiteConf | AttentionConf, lacks: "_Lacks") -> Iterator[str]:
    """What task families say about the suite's tasks, where their data are on this machine."""
    for name in suite.tasks:
        conf = selection.tasks[name]
        if name in selection.chosen["task"] and lacks.task(name, suite) is None:
            remark = family_of(conf).remark(suite.n_examples)
            if remark is not None:
                yield remark


def _suite(name: str, selection: Selection, made: list[Shard], lacks: _Lacks) -> dict[str, Any]:
    suite = next(s for s in selection.suites if s.name == name)
    missing = lacks(suite, made)
    return {
        "suite": name,
        "models": list(dict.fromkeys(shard.model.name for shard in made)),
        "tasks": list(dict.fromkeys(shard.task.name for shard in made)),
        "examples": sum(len(shard.example_ids) for shard in made),
        "shards": len(made),
        "generations": sum(map(_generations, made)),
        "generations_per_example": _per_example(made[0]),
        "generations_by_arm": _by_arm(made),
        "cells": sum(map(_cells, made)),
        "cells_by_budget": _by_budget(made),
        "expected_minutes": _total([expected_minutes(s, selection.cluster) for s in made]),
        "missing": {name: str(error) for name, error in missing.items()},
        "by_hand": [name for name, error in missing.items() if not isinstance(error, NotFetched)],
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
    return _generations(shard) // len(shard.example_ids)


def _generations(shard: Shard) -> int:
    return shard.n_rows if isinstance(shard, GenerationShard) else 0


def _cells(shard: Shard) -> int:
    return shard.n_cells if isinstance(shard, AttentionShard) else 0


def _total(minutes: list[float | None]) -> float | None:
    known = [m for m in minutes if m is not None]
    return round(sum(known), 1) if len(known) == len(minutes) else None


def print_plan(plan: dict[str, Any], console: Console) -> None:
    """The plan as tables for a person: suites, then generations by arm and cells by budget."""
    suites = plan["suites"]
    table = Table("suite", "tasks", box=None, title=f"study {plan['study']}", title_justify="left")
    kinds = [kind for kind in ("generations", "cells") if plan[kind]]
    for column in ("examples", "shards", *kinds, "minutes"):
        table.add_column(column, justify="right")
    for s in suites:
        counts = [f"{s[key]:,}" for key in ("examples", "shards", *kinds)]
        table.add_row(s["suite"], ", ".join(s["tasks"]), *counts, _minutes(s["expected_minutes"]))
    console.print(table)
    _print_counts("arm", "generations", "generations_by_arm", suites, console)
    _print_counts("budget", "attention cells", "cells_by_budget", suites, console)
    counts = [f"{plan[kind]:,} {kind}" for kind in kinds]
    console.print(
        f"{plan['shards']:,} shards, {', '.join(counts)}, "
        f"{_minutes(plan['expected_minutes'])} minutes expected on cluster={plan['cluster']}"
    )
    for remark in dict.fromkeys(remark for s in suites for remark in s["remarks"]):
        console.print(remark, markup=False)
    for s in suites:
        if to_fetch := [name for name in s["missing"] if name not in s["by_hand"]]:
            console.print(f"not on this machine, for suite {s['suite']}: {', '.join(to_fetch)}")
    for reason in dict.fromkeys(s["missing"][name] for s in suites for name in s["by_hand"]):
        console.print(printable(reason), markup=False)
    if plan["fetch"]:
        console.print(f"to get it, where there is a network: {plan['fetch']}")


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
