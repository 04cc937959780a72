"""Damage where the context is needed (section 6.2, appendix B): the no-context control as tables."""

from collections.abc import Iterator

from analysis.control import Controlled
from analysis.details import details_of
from analysis.parts import Part
from analysis.scope import Scope
from analysis.tables.base import BUDGET, MAIN, POOLED, Column, Table, Value

KNOWN = (
    Column("suite", "suite"),
    Column("model", "model"),
    Column("task", "task"),
    Column("asked", "examples"),
    Column("accuracy", "accuracy without context", "share", is_estimate=True),
    Column("answered", "answered with it"),
    Column("dependent", "of these context-dependent", "share", is_estimate=True),
)
INDUCED = (
    Column("suite", "suite"),
    Column("model", "model"),
    Column("arm", "arm"),
    Column("condition", "condition"),
    BUDGET,
    Column("rows", "answers"),
    Column("every", "induced failures", "share", is_estimate=True),
    Column("dependent_rows", "context-dependent answers"),
    Column("dependent", "induced among these", "share", is_estimate=True),
    Column("shift", "difference", "share", is_estimate=True),
)
REMARKS = (
    "An example is context-dependent for a model where the full cache of the suite answers it and the "
    "control, which asks without the context, does not. Main tasks. Induced failures: among what the "
    "full cache answers; the difference is paired.",
)


def context_dependence(scope: Scope) -> Part | None:
    """The suites that a registered control can be joined to; nothing without a control."""
    owners = dict.fromkeys(suite.registered.content.id for suite in scope.suites)
    by_id = {suite.registered.content.id: suite.registered for suite in scope.suites}
    found = [one for name in owners for one in details_of(scope, by_id[name]).control]
    if not found:
        return None
    controls = ", ".join(dict.fromkeys(one.control for one in found))
    known = tuple(row for one in found for row in _known(one))
    induced = tuple(row for one in found for row in _induced(one))
    pooled = tuple(row for row in induced if row[1] is POOLED)
    title = "Induced failures, on all examples and on context-dependent ones"
    tables = (
        Table("control.known", f"What models know without the context ({controls})", KNOWN, known, REMARKS),
        Table("control.induced", title, INDUCED, induced, REMARKS, excerpt=pooled),
    )
    return Part("context-dependence", "Is the damage small because the context is not needed?", "", tables)


def _known(one: Controlled) -> Iterator[tuple[Value, ...]]:
    for row in one.known:
        counts = [number.n if number.value is not None else None for number in (row.accuracy, row.dependent)]
        place = (one.suite, row.model or POOLED, row.task or MAIN)
        yield (*place, counts[0], row.accuracy, counts[1], row.dependent)


def _induced(one: Controlled) -> Iterator[tuple[Value, ...]]:
    for row in one.induced:
        counts = [number.n if number.value is not None else None for number in (row.every, row.dependent)]
        place = (one.suite, row.model or POOLED, row.arm, row.condition, row.budget)
        yield (*place, counts[0], row.every, counts[1], row.dependent, row.shift)
