"""Aware and stream apart (section 6.2): certificate and log-probability against own and induced failure."""

from collections.abc import Iterator

import pandas as pd

from analysis.core.data import Data
from analysis.describe.common import data_of, labelled, lacks, names_in, picks
from analysis.describe.details import Controlled, details_of
from analysis.describe.parts import Part
from analysis.describe.scope import Scope, Suite, nothing
from analysis.describe.table import BUDGET, MAIN, POOLED, STRATIFIED_MEANS, Column, Table, Value
from kvexp.documents.schema import Label

SIGNALS = ("certificate", "output_logprob")
LABELS: tuple[Label, ...] = ("own_failure", "induced_failure", "attribution")
COLUMNS = (
    Column("suite", "suite"),
    Column("condition", "condition"),
    Column("label", "positive is"),
    Column("signal", "signal"),
    Column("rows", "answers"),
    Column("positives", "positive"),
    Column("auc", "AUC", "share", is_estimate=True),
    Column("stratified", "stratified", "share", is_estimate=True),
    Column("cell", "label alone", "share", is_estimate=True),
)
REMARKS = (
    "Main tasks, the arm that carries the certificate. Induced failures: among what the full cache answers. "
    "Attribution: among failures, positive where the full cache succeeds.",
    STRATIFIED_MEANS,
    "label alone: AUC of the bare budget within one condition, the smaller the riskier.",
)


def conditions(scope: Scope) -> Part | None:
    """Each condition of every suite with main tasks."""
    suites = [suite for suite in scope.suites if suite.main and suite.wanted.arm in suite.arms]
    if not suites:
        return None
    rows = tuple(row for suite in suites for row in _of_suite(scope, suite))
    table = Table("conditions", "What signals see in each condition", COLUMNS, rows, REMARKS)
    return Part("conditions", "Where is there damage to see?", tables=(table,))


def _of_suite(scope: Scope, suite: Suite) -> Iterator[tuple[Value, ...]]:
    data = data_of(scope, suite, "conditions", [suite.wanted.arm], suite.main)
    for condition in names_in(data.rows, "condition"):
        here = data.rows[picks(data.rows, condition=condition)]
        for label in LABELS:
            reason = lacks(scope, here, label)
            counted = here if reason else labelled(here, label)
            for signal in SIGNALS:
                if signal in suite.wanted.signals:
                    yield (
                        suite.name,
                        condition,
                        label,
                        signal,
                        *_numbers(data, counted, signal, reason),
                    )


def _numbers(data: Data, rows: pd.DataFrame, signal: str, reason: str) -> tuple[Value, ...]:
    if reason:
        lost = nothing(reason)
        return (None, None, lost, lost, lost)
    return (
        len(rows),
        int(rows["positive"].sum()),
        data.estimate(data.auc(rows, signal)),
        data.point(data.auc(rows, signal, within=True)),
        data.point(data.cell_auc(rows)),
    )


# Damage where the context is needed (section 6.2, appendix B): the no-context control as tables.


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
CONTROL_REMARKS = (
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
        Table(
            "control.known",
            f"What models know without the context ({controls})",
            KNOWN,
            known,
            CONTROL_REMARKS,
        ),
        Table("control.induced", title, INDUCED, induced, CONTROL_REMARKS, excerpt=pooled),
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
