"""Aware and stream apart (section 6.2): certificate and log-probability against own and induced failure."""

from collections.abc import Iterator

import pandas as pd

from analysis.data import Data
from analysis.descriptive.rows import data_of, labelled, lacks, names_in, picks
from analysis.parts import Part
from analysis.scope import Scope, Suite, nothing
from analysis.tables.base import STRATIFIED_MEANS, Column, Table, Value
from kvexp.prereg.registration import Label

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
