"""Recomputation gated on two-draw disagreement (Table 4's note), beside the certificate at the same rate."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.core import statistics
from analysis.core.data import Data, clusters_of, ids_of
from analysis.core.estimates import Bools, Floats, Statistic
from analysis.core.populations import risk
from analysis.describe.common import remembered, with_signal
from analysis.describe.parts import Part
from analysis.describe.posthoc.draws import Draws, draws_of
from analysis.describe.scope import Scope, nothing
from analysis.describe.table import BUDGET, Column, Table, Value

SIGNAL = "certificate"
MEAN = "mean"
COLUMNS = (
    Column("suite", "suite"),
    Column("condition", "condition"),
    BUDGET,
    Column("seed", "seed"),
    Column("fires_on", "fires where differ"),
    Column("rows", "answers"),
    Column("fires", "it fires on", "share", is_estimate=True),
    Column("base", "accuracy before", "share", is_estimate=True, has_interval=False),
    Column("full", "of the full cache", "share", is_estimate=True, has_interval=False),
    Column("random", "random at this rate", "share", is_estimate=True, has_interval=False),
    Column("gated", "by disagreement", "share", is_estimate=True),
    Column("certificate", "by certificate", "share", is_estimate=True),
    Column("difference", "disagreement minus certificate", "share", is_estimate=True),
)
REMARKS = (
    "Main tasks of the arm that carries the certificate. Where the answers of a seed and of the next one "
    "differ, in success or in their words (token F1 below 1), the full cache answers the query instead. The "
    "certificate re-runs the same share of the queries, the highest first; random is the exact expectation. "
    "Differing in success reads the references, which nobody has when serving.",
)


@dataclass(frozen=True)
class Gates:
    """Accuracies of one seed's answers under each gate."""

    fires: Statistic
    base: Statistic
    full: Statistic
    random: Statistic
    gated: Statistic
    certificate: Statistic


def disagreement(scope: Scope) -> Part | None:
    """Every condition, budget and seed of every suite, and the mean over its seeds."""
    carriers = [
        draws
        for suite in scope.suites
        for draws in draws_of(scope, suite)
        if draws.arm == suite.wanted.arm and SIGNAL in suite.wanted.signals
    ]
    rows = tuple(row for draws in carriers for row in _rows(draws))
    if not rows:
        return None
    title = "Recomputation where two draws disagree, and where the certificate is high"
    table = Table("recomputation.two-draws", title, COLUMNS, rows, REMARKS)
    return Part("two-draws", "Is a second draw a better alarm?", "", (table,), is_posthoc=True)


def _rows(draws: Draws) -> Iterator[tuple[Value, ...]]:
    for (condition, budget), here in draws.data.split(draws.rows, "condition", "budget").items():
        by_seed = draws.data.split(here, "seed")
        for fires_on in ("success", "text"):
            gates = [] if draws.reason else [_gates(draws, rows, fires_on) for rows in by_seed.values()]
            for at, (seed, rows) in enumerate(by_seed.items()):
                place = (draws.suite.name, condition, budget, f"{seed:g}", fires_on, len(rows))
                yield (*place, *_numbers(draws, gates[at : at + 1]))
            place = (draws.suite.name, condition, budget, MEAN, fires_on, len(here))
            yield (*place, *_numbers(draws, gates))


def _gates(draws: Draws, rows: pd.DataFrame, fires_on: str) -> Gates:
    fires = _fires(rows, fires_on)
    share = float(fires.mean())
    own, full = (rows[name].to_numpy(bool) for name in ("success", "full_success"))
    kept, reason = with_signal(draws.suite, rows, SIGNAL)
    by_signal = statistics.undefined(reason, ids_of(rows)) if reason else _by_certificate(kept, share)
    random = statistics.random_gate(_floats(own), _floats(full), share, clusters_of(rows), ids_of(rows))
    return Gates(
        fires=_rate(rows, fires),
        base=_rate(rows, own),
        full=_rate(rows, full),
        random=random,
        gated=_rate(rows, np.where(fires, full, own)),
        certificate=remembered(by_signal),
    )


def _fires(rows: pd.DataFrame, fires_on: str) -> Bools:
    if fires_on == "success":
        found: Bools = rows["success"].to_numpy(bool) != rows["partner_success"].to_numpy(bool)
        return found
    differs: Bools = rows["disagreement"].to_numpy(np.float64) > 0
    return differs


def _by_certificate(rows: pd.DataFrame, share: float) -> Statistic:
    own, full = (_floats(rows[name].to_numpy(bool)) for name in ("success", "full_success"))
    return statistics.gated(risk(rows, SIGNAL), own, full, share, clusters_of(rows), ids_of(rows))


def _numbers(draws: Draws, gates: Sequence[Gates]) -> list[Value]:
    """The mean over some seeds; undefined without any."""
    if not gates:
        return [nothing(draws.reason)] * 7
    data: Data = draws.data
    names = ("fires", "base", "full", "random", "gated", "certificate")
    means = {name: statistics.mean([getattr(one, name) for one in gates]) for name in names}
    points = [data.point(means[name]) for name in ("base", "full", "random")]
    both = [data.estimate(means[name]) for name in ("gated", "certificate")]
    apart = data.estimate(statistics.difference(means["gated"], means["certificate"]))
    return [data.estimate(means["fires"]), *points, *both, apart]


def _rate(rows: pd.DataFrame, outcome: Bools) -> Statistic:
    return statistics.rate(outcome, clusters_of(rows), ids_of(rows))


def _floats(outcome: Bools) -> Floats:
    return outcome.astype(np.float64)
