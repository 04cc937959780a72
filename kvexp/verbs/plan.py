"""`kvexp plan`: what a study consists of, before anything runs, and what of it is not on this machine."""

import argparse
import json
from typing import Any

from rich.console import Console
from rich.table import Table

from kvexp.errors import InputError
from kvexp.models.missing import Missing, lines, summary
from kvexp.run.plan import study_plan
from kvexp.study.grid import KINDS, Counts
from kvexp.verbs.opened import STUDY, opened, take, tell

WORDS = STUDY


def arguments(parser: argparse.ArgumentParser) -> None:
    """Which part of which study."""
    take(parser, "--json")


def run(parsed: argparse.Namespace, console: Console) -> int:
    """Tell it; the exit code is that of bad input if something is missing that no command gets."""
    study = opened(parsed)
    plan = study_plan(study.selection, study.words)
    if parsed.json:
        print(json.dumps(plan, indent=2))
    else:
        print_plan(plan, console)
    return InputError.exit_code if any(one["by_hand"] for one in plan["missing"]) else 0


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
        tell(console, remark)
    _print_missing([Missing(**one) for one in plan["missing"]], plan["fetch"], console)
    for note in plan["notes"]:
        tell(console, note)


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
        tell(console, f"  {basis}")
    if hours["lacking"]:
        names = ", ".join(hours["lacking"])
        tell(
            console,
            f"  no rate on cluster={plan['cluster']} of {names}: see rates and shapes in conf/cluster",
        )
    if hours["bases"]:
        console.print(f"  contexts at their nominal length; left out: {hours['left_out']}")


def _print_missing(absent: list[Missing], fetch: str | None, console: Console) -> None:
    """Everything once, whichever suites need it."""
    if fetch is not None:
        console.print(f"not on this machine: {summary([one for one in absent if not one.by_hand])}")
        for line in lines(absent):
            tell(console, f"  {line}")
    for one in absent:
        if one.by_hand:
            tell(console, one.reason)
    if fetch is not None:
        tell(console, f"to get it, where there is a network: {fetch}")


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
