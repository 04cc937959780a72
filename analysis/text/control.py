"""The no-context control as text: what models know without the context, and damage where they need it."""

from collections.abc import Iterator, Sequence

from analysis.control import Controlled, Known
from analysis.statistics import Estimate
from analysis.tables.base import budget_words
from analysis.verdict.words import RULE, point, wrapped

ALL = "all models"


def control_tables(suites: Sequence[Controlled]) -> Iterator[str]:
    """Lines of three tables a suite: accuracy without context, context-dependence, induced failures."""
    for one in suites:
        title = f"accuracy without context ({one.control}) on the examples of {one.suite}"
        yield from _by_task(title, one.known, [row.accuracy for row in one.known])
        title = f"context-dependent: what the full cache of {one.suite} answers and {one.control} does not"
        yield from _by_task(title, one.known, [row.dependent for row in one.known])
        yield from _induced(one)


def _by_task(title: str, known: Sequence[Known], numbers: Sequence[Estimate]) -> Iterator[str]:
    """A line for each model."""
    cells = {(row.model, row.task): number for row, number in zip(known, numbers, strict=True)}
    tasks = [task for task in dict.fromkeys(row.task for row in known) if task is not None]
    yield title
    yield f"{'model':25}{''.join(f'{task[:11]:>12}' for task in tasks)}   main tasks"
    yield RULE
    for model in dict.fromkeys(row.model for row in known):
        points = "".join(f"{point(cells[model, task]):>12}" for task in tasks)
        yield f"{model or ALL:25}{points}   {cells[model, None]}"
    yield from _reasons(numbers)
    yield ""


def _induced(one: Controlled) -> Iterator[str]:
    yield f"induced-failure rate, {one.suite}, main tasks: every example that the full cache answers, and the"
    yield "context-dependent ones alone"
    yield f"{'model':25}{'arm':18}{'condition':10}{'budget':8}{'every':21}context-dependent"
    yield RULE
    for row in one.induced:
        place = f"{row.model or ALL:25}{row.arm:18}{row.condition:10}{budget_words(row.budget):7} "
        yield f"{place}{row.every!s:21}{row.dependent}"
    yield from _reasons([number for row in one.induced for number in (row.every, row.dependent)])
    yield ""


def _reasons(numbers: Sequence[Estimate]) -> Iterator[str]:
    """Why numbers or intervals are undefined, each reason once."""
    for reason in dict.fromkeys(number.undefined for number in numbers if number.undefined):
        yield from wrapped("  undefined: ", reason)
