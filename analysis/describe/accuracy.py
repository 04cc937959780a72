"""Table 5: accuracy by task, all models pooled; and every rate of every arm by task."""

from collections.abc import Sequence

from analysis.core.estimates import Estimate
from analysis.core.grid import FULL
from analysis.describe.details import Rate, details_of
from analysis.describe.parts import Part
from analysis.describe.scope import Scope, Suite
from analysis.describe.table import BUDGET, NOT_ASKED, Column, Table, Value, budget_words, exactly

MAIN = "main tasks"
# The deterministic arms of the paper's table, each where it is run; a study without them has fewer columns.
BESIDE = (("h2o", "stream"), ("topk", "aware"))
REMARK = "Accuracy: share of successes, models and draws pooled. -: the suite does not run it."
Place = tuple[str, str | None, float | None]  # arm, condition, budget


def accuracy(scope: Scope) -> Part | None:
    """Table 5, tasks by arms; and a long table of all arms with accuracy, induced failures and rescues."""
    if not scope.suites:
        return None
    tables = (_table5(scope), _by_task(scope))
    return Part("accuracy", "How much accuracy does eviction cost, task by task?", tables=tables)


def _rates(scope: Scope, suite: Suite, which: str) -> dict[tuple[str | None, Place], Estimate]:
    """Rates of a suite by task, None for its main tasks together, and place."""
    rates: Sequence[Rate] = getattr(details_of(scope, suite.registered), which)
    return {
        (rate.task, (rate.arm, rate.condition, rate.budget)): rate.estimate
        for rate in rates
        if rate.suite == suite.name
    }


def _tasks(suite: Suite) -> list[str | None]:
    """Main tasks, what anchors them, and the main ones together."""
    anchors = [task for task in suite.tasks if task not in suite.main]
    return [*suite.main, *anchors, *([None] if suite.main else [])]


def _table5(scope: Scope) -> Table:
    found = {suite.name: _rates(scope, suite, "accuracy") for suite in scope.suites}
    places: list[Place] = [(FULL, None, None)]
    run = {place for rates in found.values() for _, place in rates}
    wanted = [*BESIDE, *dict.fromkeys((suite.wanted.arm, "aware") for suite in scope.suites)]
    for arm, condition in dict.fromkeys(wanted):
        here = {place for place in run if place[:2] == (arm, condition)}
        places += sorted(here, key=lambda place: place[2] or 0.0)
    columns = [Column("suite", "suite"), Column("task", "task")]
    columns += [
        Column(_key(place), _words(place), "share", is_estimate=True, has_interval=False) for place in places
    ]
    rows: list[tuple[Value, ...]] = [
        (
            suite.name,
            MAIN if task is None else task,
            *(found[suite.name].get((task, place), NOT_ASKED) for place in places),
        )
        for suite in scope.suites
        for task in _tasks(suite)
    ]
    return Table("table5", "Accuracy by task", tuple(columns), tuple(rows), (REMARK,))


def _key(place: Place) -> str:
    return ".".join(part if isinstance(part, str) else exactly(part) for part in place if part is not None)


def _words(place: Place) -> str:
    arm, condition, budget = place
    return arm if budget is None else f"{arm} {condition} {budget_words(budget)}"


def _by_task(scope: Scope) -> Table:
    columns = [
        Column("suite", "suite"),
        Column("task", "task"),
        Column("arm", "arm"),
        Column("condition", "condition"),
        BUDGET,
        Column("accuracy", "accuracy", "share", is_estimate=True),
        Column("induced", "induced failures", "share", is_estimate=True),
        Column("rescued", "rescued", "share", is_estimate=True),
    ]
    rows = [row for suite in scope.suites for row in _all(scope, suite)]
    remarks = (
        "induced: failures among what the full cache answers. rescued: successes among what it does not.",
    )
    return Table(
        "rates_by_task", "Rates by task, arm, condition and budget", tuple(columns), tuple(rows), remarks
    )


def _all(scope: Scope, suite: Suite) -> list[tuple[Value, ...]]:
    every, induced, rescued = (_rates(scope, suite, which) for which in ("accuracy", "induced", "rescued"))
    return [
        (
            suite.name,
            MAIN if task is None else task,
            arm,
            condition or "",
            "" if budget is None else budget,
            found,
            induced.get((task, (arm, condition, budget)), NOT_ASKED),
            rescued.get((task, (arm, condition, budget)), NOT_ASKED),
        )
        for (task, (arm, condition, budget)), found in every.items()
    ]
