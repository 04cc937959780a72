"""Post hoc (section 6.4): whose fault was it, and what does a second draw of an arm tell of the first?"""

import re
import string
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.core import populations, statistics
from analysis.core.data import WITHIN, Data, clusters_of, ids_of
from analysis.core.estimates import Bools, Floats, Integers, Statistic
from analysis.core.populations import risk, strata
from analysis.describe.parts import Part
from analysis.describe.scope import (
    CERTIFICATE,
    NO_SUCH_ROW,
    RIVAL,
    Scope,
    Suite,
    bools,
    floats,
    labelled,
    nothing,
    population,
    remembered,
    with_signal,
)
from analysis.describe.signals import signals_of
from analysis.describe.table import (
    AUCS,
    DIFFERENCE,
    LABEL_MEANS,
    STRATIFIED_MEANS,
    Row,
    Table,
    Value,
    column,
    columns,
    share,
)
from kvexp.documents.schema import Label

ORDER = 11


def describe(scope: Scope) -> Iterator[Part]:
    """Failures of the main tasks; then recomputation gated on two draws."""
    if found := attribution(scope):
        yield found
    if gated := disagreement(scope):
        yield gated


# How far two answers to one question differ in their words; no reference is needed.


_NO_PUNCTUATION = {ord(sign): None for sign in string.punctuation}
_ARTICLE = re.compile(r"\b(?:a|an|the)\b")


def words(text: str) -> Counter[str]:
    """The words of an answer as LongBench counts them: lower case, no ASCII punctuation, no articles."""
    return Counter(_ARTICLE.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def token_f1(one: Counter[str], other: Counter[str]) -> float:
    """F1 of two bags of words, the same either way round; two answers without words agree."""
    if one == other:
        return 1.0
    shared = sum(min(count, other[word]) for word, count in one.items() if word in other)
    return 2 * shared / (one.total() + other.total())


def disagreements(pairs: Iterable[tuple[str, str]]) -> list[float]:
    """1 - token F1 of each pair of texts, in [0, 1]."""
    known = dict[str, Counter[str]]()

    def counted(text: str) -> Counter[str]:
        if text not in known:
            known[text] = words(text)
        return known[text]

    return [0.0 if a == b else 1 - token_f1(counted(a), counted(b)) for a, b in pairs]


SAME = ("model", "task", "example_id", "condition", "budget")
UNEVEN = "not every answer has as many draws"


@dataclass(frozen=True)
class Draws:
    """One arm of a suite's main tasks."""

    suite: Suite
    arm: str
    data: Data  # all its rows, labelled own failure
    # These with what the partner says, the answer of the next seed to the same question in the same place,
    # the first seed following the last: partner_success (bool), score_gap (absolute difference of raw scores)
    # and disagreement (1 - token F1 of the two texts). Undefined with `reason`.
    rows: pd.DataFrame
    reason: str = ""  # why there are no partners; empty if there are


def draws_of(scope: Scope, suite: Suite) -> list[Draws]:
    """The arms of a suite that draw more than once, with partners; nothing for a suite without main tasks."""
    return scope.once(f"draws of {suite.name}", lambda: _draws(scope, suite))


def _draws(scope: Scope, suite: Suite) -> list[Draws]:
    table = scope.table
    here = table[(table["suite"] == suite.name) & table["task"].isin(suite.main)]
    arms = [arm for arm in suite.arms if here.loc[here["arm"] == arm, "seed"].nunique() > 1]
    return [_of_arm(scope, suite, arm) for arm in arms]


def _of_arm(scope: Scope, suite: Suite, arm: str) -> Draws:
    data = scope.data_of(suite, "draws", [arm], suite.main)
    if reason := scope.lacks(data.rows, "attribution"):
        return Draws(suite, arm, data, data.rows, reason)
    found = partners(data.rows)
    if found is None:
        return Draws(suite, arm, data, data.rows, UNEVEN)
    own, other = data.rows, data.rows.iloc[found]
    asked = population([suite], "own_failure", arms=[arm])
    texts = scope.report.study.table.loc[populations.selected(scope.table, asked), "text"].to_numpy(object)
    rows = own.assign(
        partner_success=bools(other, "success"),
        score_gap=np.abs(floats(own, "score_value") - floats(other, "score_value")),
        disagreement=disagreements(zip(texts, texts[found], strict=True)),
    )
    return Draws(suite, arm, data, rows)


def partners(rows: pd.DataFrame) -> Integers | None:
    """Position of each row's partner, (rows,); None if places differ in their number of seeds."""
    place = strata(rows, SAME)
    order = np.lexsort((rows["seed"].to_numpy(np.float64), place))
    sizes = np.bincount(place)
    if not len(sizes) or sizes.min() != sizes.max() or sizes[0] < 2:
        return None
    groups = order.reshape(-1, sizes[0])
    found = np.empty(len(rows), np.int64)
    found[groups] = np.roll(groups, -1, axis=1)
    return found


# Every signal of every arm on failures, and what the partner's answer tells.


SIGNALS = (
    *columns("suite", "arm", "signal", "failures"),
    column("induced", "", "failures whose example the full cache answers", "count"),
    *AUCS,
)
PROXIES = (
    *columns("suite", "arm"),
    column("label", "positive is"),
    column("signal"),
    column("rows", "answers"),
    column("positives", "positive"),
    *AUCS,
)
BLAMED: tuple[Label, ...] = ("attribution", "induced_failure")
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


def attribution(scope: Scope) -> Part | None:
    """Failures of the main tasks: was it the cache?"""
    rows = tuple(row for suite in scope.main for row in _signals(scope, suite))
    if not rows:
        return None
    title = "Which signal tells induced from inherent failures"
    tables = [Table("attribution", title, SIGNALS, rows, REMARKS)]
    found = [draws for suite in scope.main for draws in draws_of(scope, suite)]
    if found:
        proxies = tuple(row for draws in found for row in _proxies(scope, draws))
        title = "What a second draw tells, beside one draw's signals"
        tables.append(Table("attribution.two-draws", title, PROXIES, proxies, PROXY_REMARKS))
    return Part("attribution", "Whose fault was it?", "", tuple(tables), is_posthoc=True)


def _signals(scope: Scope, suite: Suite) -> Iterator[Row]:
    for arm in suite.arms:
        for signal, row in signals_of(scope, suite, arm, "attribution").items():
            yield (suite.name, arm, signal, *reversed(row.counts), *row.aucs)


def _proxies(scope: Scope, draws: Draws) -> Iterator[Row]:
    place = (draws.suite.name, draws.arm)
    for label in BLAMED:
        rows = draws.rows if draws.reason else labelled(draws.rows, label)
        beside = signals_of(scope, draws.suite, draws.arm, label)
        for name in (CERTIFICATE, RIVAL):
            if name in beside:
                row = beside[name]
                counts = (None, None) if draws.reason else (row.pooled.n, row.positives)
                yield (*place, label, name, *counts, *row.aucs)
        for name in ("partner_success", "score_gap", "disagreement"):
            yield (*place, label, name, *_of_proxy(draws, rows, label, name))


def _of_proxy(draws: Draws, rows: pd.DataFrame, label: Label, name: str) -> Row:
    if draws.reason:
        lost = nothing(draws.reason)
        return (None, None, lost, lost, lost)
    score = floats(rows, name) * (TURN[label] if name == "partner_success" else 1.0)
    return (
        len(rows),
        int(rows["positive"].sum()),
        draws.data.estimate(auc(rows, score)),
        draws.data.point(auc(rows, score, is_within=True)),
        draws.data.point(draws.data.cell_auc(rows)),
    )


def auc(rows: pd.DataFrame, score: Floats, *, is_within: bool = False) -> Statistic:
    """AUC of any score for `positive`, both (rows,)."""
    if not len(rows):
        return statistics.undefined(NO_SUCH_ROW)
    stratum = strata(rows, WITHIN) if is_within else None
    return statistics.auc(score, bools(rows, "positive"), clusters_of(rows), ids_of(rows), stratum)


# Recomputation gated on two-draw disagreement (table 4's note), beside the certificate at the same rate.


MEAN = "mean"
GATES = ("fires", "base", "full", "random", "gated", "certificate")
GATED = "accuracy when the full cache answers these queries"
BY_CERTIFICATE = "accuracy when it answers as many queries, those with the largest certificate"
COLUMNS = (
    *columns("suite", "condition", "budget", "seed"),
    column(
        "fires_on",
        "fires where differ",
        "what must differ between the two draws: success, or text",
        "name",
    ),
    column("rows", "answers"),
    share("fires", "it fires on", "queries on which they differ"),
    share("base", "accuracy before", bare=True),
    share("full", "of the full cache", bare=True),
    share("random", "random at this rate", bare=True),
    share("gated", "by disagreement", GATED),
    share("certificate", "by certificate", BY_CERTIFICATE),
    share(
        "difference",
        "disagreement minus certificate",
        "by disagreement minus by certificate, paired",
        DIFFERENCE,
    ),
)
GATE_REMARKS = (
    "Main tasks of the arm that carries the certificate. Where the answers of a seed and of the next one "
    "differ, in success or in their words (token F1 below 1), the full cache answers the query instead. The "
    "certificate re-runs the same share of the queries, the highest first; random is the exact expectation. "
    "Differing in success reads the references, which nobody has when serving.",
)


def disagreement(scope: Scope) -> Part | None:
    """Every condition, budget and seed of every suite, and the mean over its seeds."""
    carriers = [
        draws
        for suite in scope.suites
        for draws in draws_of(scope, suite)
        if draws.arm == suite.wanted.arm and CERTIFICATE in suite.wanted.signals
    ]
    rows = tuple(row for draws in carriers for row in _gated(draws))
    if not rows:
        return None
    title = "Recomputation where two draws disagree, and where the certificate is high"
    table = Table("recomputation.two-draws", title, COLUMNS, rows, GATE_REMARKS)
    return Part("two-draws", "Is a second draw a better alarm?", "", (table,), is_posthoc=True)


def _gated(draws: Draws) -> Iterator[Row]:
    for (condition, budget), here in draws.data.split(draws.rows, "condition", "budget").items():
        by_seed = draws.data.split(here, "seed")
        for fires_on in ("success", "text"):
            gates = [] if draws.reason else [_gates(draws, rows, fires_on) for rows in by_seed.values()]
            places = [
                (f"{seed:g}", len(rows), gates[at : at + 1])
                for at, (seed, rows) in enumerate(by_seed.items())
            ]
            for seed, count, some in [*places, (MEAN, len(here), gates)]:
                place = (draws.suite.name, condition, budget, seed, fires_on, count)
                yield (*place, *_means(draws, some))


def _gates(draws: Draws, rows: pd.DataFrame, fires_on: str) -> dict[str, Statistic]:
    """Accuracies of one seed's answers under each gate."""
    fires = _fires(rows, fires_on)
    rate = float(fires.mean())
    own, full = bools(rows, "success"), bools(rows, "full_success")
    kept, reason = with_signal(draws.suite, rows, CERTIFICATE)
    by_signal = statistics.undefined(reason, ids_of(rows)) if reason else _by_certificate(kept, rate)
    place = (clusters_of(rows), ids_of(rows))
    return {
        "fires": statistics.rate(fires, *place),
        "base": statistics.rate(own, *place),
        "full": statistics.rate(full, *place),
        "random": statistics.random_gate(own.astype(np.float64), full.astype(np.float64), rate, *place),
        "gated": statistics.rate(np.where(fires, full, own), *place),
        "certificate": remembered(by_signal),
    }


def _fires(rows: pd.DataFrame, fires_on: str) -> Bools:
    if fires_on == "success":
        found: Bools = bools(rows, "success") != bools(rows, "partner_success")
        return found
    differs: Bools = floats(rows, "disagreement") > 0
    return differs


def _by_certificate(rows: pd.DataFrame, rate: float) -> Statistic:
    own, full = (bools(rows, name).astype(np.float64) for name in ("success", "full_success"))
    return statistics.gated(risk(rows, CERTIFICATE), own, full, rate, clusters_of(rows), ids_of(rows))


def _means(draws: Draws, gates: Sequence[dict[str, Statistic]]) -> list[Value]:
    """The mean over some seeds; undefined without any."""
    if not gates:
        return [nothing(draws.reason)] * 7
    data, means = draws.data, {name: statistics.mean([one[name] for one in gates]) for name in GATES}
    points = [data.point(means[name]) for name in ("base", "full", "random")]
    both = [data.estimate(means[name]) for name in ("gated", "certificate")]
    apart = data.estimate(statistics.difference(means["gated"], means["certificate"]))
    return [data.estimate(means["fires"]), *points, *both, apart]
