"""Whose fault was it? (section 6.4): every signal on every arm, and what a second draw tells without one."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from analysis.core import statistics
from analysis.core.data import WITHIN, Data, clusters_of, ids_of
from analysis.core.estimates import Floats, Statistic
from analysis.core.populations import strata
from analysis.describe.common import labelled
from analysis.describe.details import PanelRow, details_of
from analysis.describe.parts import Part
from analysis.describe.posthoc.draws import Draws, draws_of
from analysis.describe.scope import Scope, Suite, nothing
from analysis.describe.table import LABEL_MEANS, STRATIFIED_MEANS, Column, Table, Value
from kvexp.documents.schema import Label

AUCS = (
    Column("auc", "AUC", "share", is_estimate=True),
    Column("stratified", "stratified", "share", is_estimate=True),
    Column("cell", "label alone", "share", is_estimate=True),
)
SIGNALS = (
    Column("suite", "suite"),
    Column("arm", "arm"),
    Column("signal", "signal"),
    Column("failures", "failures"),
    Column("induced", "induced"),
    *AUCS,
)
PROXIES = (
    Column("suite", "suite"),
    Column("arm", "arm"),
    Column("label", "positive is"),
    Column("signal", "signal"),
    Column("rows", "answers"),
    Column("positives", "positive"),
    *AUCS,
)
LABELS: tuple[Label, ...] = ("attribution", "induced_failure")
# A success of the partner blames the cache where the answer failed; before that is known it reassures.
TURN = {"attribution": 1.0, "induced_failure": -1.0}
REMARKS = (
    "Failures of main tasks; positive where the full cache succeeds, so that eviction is to blame.",
    STRATIFIED_MEANS,
    LABEL_MEANS,
)
PROXY_REMARKS = (
    "The partner is the answer of the arm's next seed to the same question. partner_success and score_gap "
    "read the references, which nobody has when serving; disagreement, 1 - token F1 of the two texts, does "
    "not. A partner's success speaks for the cache's fault among failures, and against an induced failure.",
    "certificate and output_logprob need one draw. All of them stand on the same answers.",
)
BESIDE = ("certificate", "output_logprob")


def attribution(scope: Scope) -> Part | None:
    """Failures of the main tasks: was it the cache?"""
    suites = [suite for suite in scope.suites if suite.main]
    rows = tuple(row for suite in suites for row in _signals(scope, suite))
    if not rows:
        return None
    tables = [
        Table("attribution", "Which signal tells induced from inherent failures", SIGNALS, rows, REMARKS)
    ]
    found = [draws for suite in suites for draws in draws_of(scope, suite)]
    if found:
        proxies = tuple(row for draws in found for row in _proxies(scope, draws))
        title = "What a second draw tells, beside one draw's signals"
        tables.append(Table("attribution.two-draws", title, PROXIES, proxies, PROXY_REMARKS))
    return Part("attribution", "Whose fault was it?", "", tuple(tables), is_posthoc=True)


def _signals(scope: Scope, suite: Suite) -> Iterator[tuple[Value, ...]]:
    details = details_of(scope, suite.registered)
    for arm in suite.arms:
        for signal, row in details.signals(suite, arm, "attribution").items():
            lost = row.pooled.value is None and not row.pooled.n
            counts = (None, None) if lost else (row.pooled.n, row.positives)
            yield (suite.name, arm, signal, *counts, *_aucs(row))


def _aucs(row: PanelRow) -> tuple[Value, ...]:
    return (row.pooled, row.stratified, row.cell_label)


def _proxies(scope: Scope, draws: Draws) -> Iterator[tuple[Value, ...]]:
    place = (draws.suite.name, draws.arm)
    details = details_of(scope, draws.suite.registered)
    for label in LABELS:
        rows = draws.rows if draws.reason else labelled(draws.rows, label)
        beside = details.signals(draws.suite, draws.arm, label)
        for name in BESIDE:
            if name in beside:
                row = beside[name]
                counts = (None, None) if draws.reason else (row.pooled.n, row.positives)
                yield (*place, label, name, *counts, *_aucs(row))
        for name in ("partner_success", "score_gap", "disagreement"):
            yield (*place, label, name, *_of_proxy(draws, rows, label, name))


def _of_proxy(draws: Draws, rows: pd.DataFrame, label: Label, name: str) -> tuple[Value, ...]:
    if draws.reason:
        lost = nothing(draws.reason)
        return (None, None, lost, lost, lost)
    score = rows[name].to_numpy(np.float64) * (TURN[label] if name == "partner_success" else 1.0)
    data: Data = draws.data
    return (
        len(rows),
        int(rows["positive"].sum()),
        data.estimate(auc(rows, score)),
        data.point(auc(rows, score, is_within=True)),
        data.point(data.cell_auc(rows)),
    )


def auc(rows: pd.DataFrame, score: Floats, *, is_within: bool = False) -> Statistic:
    """AUC of any score for `positive`, both (rows,)."""
    if not len(rows):
        return statistics.undefined("the population has no such row")
    stratum = strata(rows, WITHIN) if is_within else None
    positive = rows["positive"].to_numpy(bool)
    return statistics.auc(score, positive, clusters_of(rows), ids_of(rows), stratum)
