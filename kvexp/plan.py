"""`kvexp plan`: what a study consists of, before anything runs."""

from collections import Counter
from typing import Any

from rich.console import Console
from rich.table import Table

from kvexp.compose import Selection
from kvexp.grid import Shard, chosen, expected_minutes, shards


def study_plan(selection: Selection) -> dict[str, Any]:
    """Counts by suite, task and arm, and minutes expected from measured rates (null without one)."""
    made = chosen(shards(selection), selection)
    minutes = [expected_minutes(shard, selection.cluster) for shard in made]
    return {
        "study": selection.study.name,
        "cluster": selection.cluster.name,
        "shards": len(made),
        "generations": sum(_count(shard) for shard in made),
        "expected_minutes": _total(minutes),
        "suites": [
            _suite(name, selection, [s for s in made if s.suite == name])
            for name in dict.fromkeys(shard.suite for shard in made)
        ],
        "shard_ids": [shard.shard_id for shard in made],
    }


def _suite(name: str, selection: Selection, made: list[Shard]) -> dict[str, Any]:
    arms: Counter[str] = Counter()
    for shard in made:
        for arm in shard.places():
            arms[arm.name] += len(shard.example_ids)
    return {
        "suite": name,
        "models": list(dict.fromkeys(shard.model.name for shard in made)),
        "tasks": list(dict.fromkeys(shard.task.name for shard in made)),
        "examples": sum(len(shard.example_ids) for shard in made),
        "generations_per_example": len(made[0].places()),
        "shards": len(made),
        "generations": sum(_count(shard) for shard in made),
        "generations_by_arm": dict(arms),
        "expected_minutes": _total([expected_minutes(s, selection.cluster) for s in made]),
    }


def _count(shard: Shard) -> int:
    return len(shard.example_ids) * len(shard.places())


def _total(minutes: list[float | None]) -> float | None:
    known = [m for m in minutes if m is not None]
    return round(sum(known), 1) if len(known) == len(minutes) else None


def print_plan(plan: dict[str, Any], console: Console) -> None:
    """The plan as two tables for a person: suites, then generations by arm and suite."""
    suites = plan["suites"]
    table = Table("suite", "tasks", box=None, title=f"study {plan['study']}", title_justify="left")
    for column in ("examples", "shards", "generations", "minutes"):
        table.add_column(column, justify="right")
    for s in suites:
        counts = [f"{s[key]:,}" for key in ("examples", "shards", "generations")]
        minutes = _minutes(s["expected_minutes"])
        table.add_row(s["suite"], ", ".join(s["tasks"]), *counts, minutes)
    console.print(table)
    by_arm = Table("arm", box=None, title="generations by arm", title_justify="left")
    for s in suites:
        by_arm.add_column(s["suite"], justify="right")
    for arm in dict.fromkeys(arm for s in suites for arm in s["generations_by_arm"]):
        by_arm.add_row(arm, *(f"{s['generations_by_arm'].get(arm, 0):,}" for s in suites))
    console.print(by_arm)
    console.print(
        f"{plan['shards']:,} shards, {plan['generations']:,} generations, "
        f"{_minutes(plan['expected_minutes'])} minutes expected on cluster={plan['cluster']}"
    )


def _minutes(value: float | None) -> str:
    return "unknown" if value is None else f"{value:,.0f}"
