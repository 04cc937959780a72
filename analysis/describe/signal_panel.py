"""Table 3 and figure 2: every signal of every arm against that arm's own and induced failures."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from analysis.core.estimates import Estimate
from analysis.core.populations import strata
from analysis.core.words import point
from analysis.describe.details import details_of
from analysis.describe.parts import Part, Picture, Words, picture_of
from analysis.describe.scope import Scope, Suite, has_signal, nothing, population
from analysis.describe.table import (
    LABEL_MEANS,
    NOT_ASKED,
    POOLED_MEANS,
    STRATIFIED_MEANS,
    Column,
    Table,
    Value,
)
from kvexp.documents.schema import Label

if TYPE_CHECKING:
    from matplotlib.figure import Figure

from collections.abc import Mapping

from matplotlib.figure import Figure

from analysis.describe.drawing import (
    INK,
    MARKS,
    NAVY,
    ORANGE,
    baseline,
    chance,
    figure,
    keyed,
    label,
    lines,
    shares,
    shortened_all,
    stratified,
    with_interval,
)

SIGNAL, RIVAL = "certificate", "output_logprob"
LABELS: tuple[tuple[Label, str], ...] = (("own_failure", "own"), ("induced_failure", "induced"))
TABLE3 = "Every signal against its own arm's failures, all tasks of a suite"
FIGURE2 = "Every signal against its own arm's induced failures, main tasks, suites pooled"
OTHER_SUCCESS = "the suites' registrations differ in what a success is or in how to resample"
REMARKS3 = (
    "own: any failure of the arm. induced: failures among what the full cache answers.",
    POOLED_MEANS,
    STRATIFIED_MEANS,
    LABEL_MEANS,
    "-: the arm has no such signal.",
)
REMARK2 = "Rows that the full cache answers, of all suites that run the arm; stratified pairs cross no suite."


@dataclass(frozen=True)
class Seen:
    """One signal of one arm against induced failures on the main tasks of all suites that run the arm.

    Attributes:
        arm: whose failures.
        signal: that is to foretell them.
        suites: pooled.
        positives: induced failures.
        pooled: AUC of all pairs.
        stratified: AUC of pairs within model, task, condition, budget.
        baseline: AUC of the condition x budget label alone.
    """

    arm: str
    signal: str
    suites: tuple[str, ...]
    positives: int
    pooled: Estimate
    stratified: Estimate
    baseline: Estimate


def signal_panel(scope: Scope) -> Part | None:
    """Table 3 by suite; figure 2 and its table over the suites with main tasks."""
    if not scope.suites:
        return None
    seen = tuple(row for arm in _arms(scope.suites) for row in _seen(scope, arm))
    tables = (_table3(scope), *([_table2(seen)] if seen else []))
    pictures = (figure2(seen, {suite.wanted.arm for suite in scope.suites}),) if seen else ()
    words = "Signals are oriented before data are seen: above .5, the signal rises where the arm fails."
    return Part("signal-panel", "Which signal sees which failure?", words, tables, pictures)


def _arms(suites: Sequence[Suite]) -> list[str]:
    """Arms of suites, those that carry the certificate last."""
    carriers = {suite.wanted.arm for suite in suites}
    return sorted({arm for suite in suites for arm in suite.arms}, key=lambda arm: (arm in carriers, arm))


# Table 3 --------------------------------------------------------------------------------------------


def _table3(scope: Scope) -> Table:
    signals = list(dict.fromkeys(signal for suite in scope.suites for signal in suite.wanted.signals))
    columns = [
        Column("suite", "suite"),
        Column("failures", "failures"),
        Column("arm", "arm"),
        Column("pairs", "pairs"),
        Column("positives", "failed"),
        Column("rows", "of rows"),
        *(Column(signal, signal, "share", is_estimate=True) for signal in signals),
        Column("baseline", "label alone", "share", is_estimate=True, has_interval=False),
    ]
    rows = [
        row
        for suite in scope.suites
        for label, words in LABELS
        for arm in _arms([suite])
        for row in _lines(scope, suite, label, words, arm, signals)
    ]
    return Table("table3", TABLE3, tuple(columns), tuple(rows), REMARKS3)


def _lines(
    scope: Scope, suite: Suite, label: Label, words: str, arm: str, signals: list[str]
) -> Iterator[tuple[Value, ...]]:
    """The pooled line of an arm and the stratified one below it."""
    found = details_of(scope, suite.registered).signals(suite, arm, label, is_whole=True)
    if not found:
        return
    largest = max(found.values(), key=lambda row: row.pooled.n)
    sizes: tuple[Value, ...] = (largest.positives, largest.pooled.n)
    if not largest.pooled.n:
        sizes = (None, None)
    for pairs in ("pooled", "stratified"):
        values = [getattr(found[one], pairs) if one in found else NOT_ASKED for one in signals]
        baseline = largest.cell_label if pairs == "pooled" else NOT_ASKED
        yield (suite.name, words, arm, pairs, *sizes, *values, baseline)


# Figure 2 -------------------------------------------------------------------------------------------


def _seen(scope: Scope, arm: str) -> list[Seen]:
    suites = [suite for suite in scope.suites if suite.main and arm in suite.arms]
    if not suites:
        return []
    names = tuple(suite.name for suite in suites)
    if len(suites) == 1:
        rows = details_of(scope, suites[0].registered).signals(suites[0], arm, "induced_failure")
        return [
            Seen(arm, row.signal, names, row.positives, row.pooled, row.stratified, row.cell_label)
            for row in rows.values()
        ]
    table = scope.report.study.table
    owed = dict.fromkeys(
        signal
        for suite in suites
        for signal in suite.wanted.signals
        if has_signal(table, suite.wanted, arm, signal)
    )
    asked = population(suites, "induced_failure", arms=[arm])
    if reason := _other(suites) or scope.lacks(asked):
        lost = nothing(reason)
        return [Seen(arm, signal, names, 0, lost, lost, lost) for signal in owed]
    data = scope.data(suites, asked)
    baseline = data.point(data.cell_auc(data.counted))
    # `within` knows of no suites: a model of another suite is another model, so that no pair crosses suites.
    apart = data.counted.assign(model=strata(data.counted, ("suite", "model")))
    return [
        Seen(
            arm,
            signal,
            names,
            int(data.counted["positive"].sum()),
            data.estimate(data.auc(data.counted, signal)),
            data.estimate(data.auc(apart, signal, within=True)),
            baseline,
        )
        for signal in owed
    ]


def _other(suites: Sequence[Suite]) -> str:
    """Why suites cannot be pooled."""
    first, *rest = (suite.registered.content for suite in suites)
    same = all((one.success, one.statistics) == (first.success, first.statistics) for one in rest)
    return "" if same else OTHER_SUCCESS


def _table2(seen: Sequence[Seen]) -> Table:
    columns = (
        Column("arm", "arm"),
        Column("signal", "signal"),
        Column("suites", "suites"),
        Column("positives", "induced failures"),
        Column("rows", "of rows"),
        Column("pooled", "AUC, pooled", "share", is_estimate=True),
        Column("stratified", "stratified", "share", is_estimate=True),
        Column("baseline", "label alone", "share", is_estimate=True, has_interval=False),
    )
    rows = tuple(
        (
            row.arm,
            row.signal,
            ", ".join(row.suites),
            row.positives if row.pooled.n else None,
            row.pooled.n or None,
            row.pooled,
            row.stratified,
            row.baseline,
        )
        for row in seen
    )
    return Table("figure2", FIGURE2, columns, rows, (REMARK2, POOLED_MEANS, STRATIFIED_MEANS, LABEL_MEANS))


def figure2(seen: Sequence[Seen], carriers: Collection[str]) -> Picture:
    """Figure 2, or why there is none; `carriers` are the arms whose certificate the study is about."""
    known = [row for row in seen if row.pooled.value is not None]
    numbers = [(row.arm, row.pooled) for row in seen]

    def draw() -> "Figure":
        return signal_panel_figure(known)

    return picture_of("figure2", FIGURE2, numbers, lambda: _words(known, carriers), draw)


def _words(seen: Sequence[Seen], carriers: Collection[str]) -> Words:
    """The certificate; and the highest of the other signals of the cache, and log-probability."""
    own = [_named(row) for row in seen if row.signal == SIGNAL and row.arm in carriers]
    told = "; ".join(own) or f"no {SIGNAL}"
    parts = list[str]()
    cache = [row for row in seen if row.arm not in carriers and row.signal not in (SIGNAL, RIVAL)]
    if cache:
        parts.append(f"Highest retained-set signal of another arm: {_named(max(cache, key=_auc))}")
    spoken = [row for row in seen if row.signal == RIVAL]
    if spoken:
        low, high = min(spoken, key=_auc), max(spoken, key=_auc)
        parts.append(f"{RIVAL}: {_auc(low):.3f} ({low.arm}) to {_auc(high):.3f} ({high.arm})")
    return f"AUC for induced failures, pooled: {told}.", "".join(f"{part}. " for part in parts).strip()


def _auc(row: Seen) -> float:
    return row.pooled.value or 0.0


def _named(row: Seen) -> str:
    beside = f"stratified {point(row.stratified)}, label alone {point(row.baseline)}"
    return f"{row.arm} {row.signal} {row.pooled} ({beside})"


# Figure 2: a line for each signal of each arm.


COLOURS = {"certificate": NAVY, "output_logprob": ORANGE}
LINE, EDGES = 0.24, 1.1  # inches


def signal_panel_figure(rows: Sequence[Seen]) -> Figure:
    """AUCs with intervals, arm by arm; see MARKS."""
    drawn = figure(EDGES + LINE * len(rows))
    axes = drawn.subplots()
    suites = list(dict.fromkeys(suite for row in rows for suite in row.suites))
    short = dict(zip(suites, shortened_all(suites), strict=True))
    names = [row.arm for row in rows]
    arms = shortened_all(names)
    words = [f"{arm}   {row.signal}{_only(row, short)}" for arm, row in zip(arms, rows, strict=True)]
    alone = [row.suites[0] for row in rows if len(row.suites) == 1 < len(suites)]
    key = [*keyed("arm", names, arms), *keyed("suite", alone, [short[suite] for suite in alone])]
    for at, row in enumerate(rows):
        colour = COLOURS.get(row.signal, INK)
        baseline(axes, row.baseline, at)
        with_interval(axes, row.pooled, at, colour)
        stratified(axes, row.stratified, at, colour)
        if at and rows[at - 1].arm != row.arm:
            axes.axhline(at - 0.42, color="#c8c8c8", linewidth=0.7)
    lines(axes, words)
    shares(axes, [one for row in rows for one in (row.pooled, row.stratified, row.baseline)])
    chance(axes)
    for tick, row in zip(axes.get_yticklabels(), rows, strict=True):
        tick.set_color(COLOURS.get(row.signal, INK))
    label(drawn, [], f"AUC for the arm's own induced failures\n{MARKS}", "", key)
    return drawn


def _only(row: Seen, short: Mapping[str, str]) -> str:
    """The suites of an arm that not all run."""
    if short.keys() == set(row.suites):
        return ""
    one, *others = row.suites
    return f" ({len(row.suites)} of {len(short)} suites)" if others else f" ({short[one]})"
