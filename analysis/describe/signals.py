"""Every signal of every arm against its failures: table 3, figures 2 and 3, and the whole panel."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.core.estimates import Estimate
from analysis.core.populations import strata
from analysis.core.verdict_text import point
from analysis.describe import drawing
from analysis.describe.drawing import INK, NAVY, ORANGE
from analysis.describe.parts import Part, Picture, Words, picture_of
from analysis.describe.scope import CERTIFICATE, RIVAL, Scope, Suite, aucs, population
from analysis.describe.table import (
    ALL,
    AUC,
    LABEL_MEANS,
    MAIN,
    NOT_ASKED,
    POOLED_MEANS,
    STRATIFIED_MEANS,
    Row,
    Table,
    Word,
    column,
    columns,
    share,
)
from kvexp.documents.schema import Label

ORDER = 3
LABELS: tuple[Label, ...] = ("own_failure", "induced_failure", "attribution")
COLOURS = {CERTIFICATE: NAVY, RIVAL: ORANGE}
BRIEF = (CERTIFICATE, RIVAL, "entropy")
AUCS = (share("pooled", "AUC, pooled"), share("stratified"), share("baseline", "label alone", bare=True))


@dataclass(frozen=True)
class PanelRow:
    """One signal of one arm, predicting one label.

    A pooled AUC mixes conditions, budgets and models, so two numbers stand beside each: the stratified AUC
    (pairs within model, task, condition, budget) and the AUC of the bare condition x budget label.
    """

    suite: str  # or several that are pooled, with commas between
    tasks: str  # "main", without the needle anchor, or "all"
    arm: str
    signal: str
    label: str
    positives: int
    pooled: Estimate
    stratified: Estimate
    cell_label: Estimate

    @property
    def suites(self) -> list[str]:
        """Their names."""
        return self.suite.split(", ")

    @property
    def counts(self) -> tuple[int | None, int | None]:
        """Positives and rows; None where rows are missing."""
        return (self.positives, self.pooled.n) if self.pooled.n else (None, None)

    @property
    def aucs(self) -> tuple[Estimate, Estimate, Estimate]:
        """As tables show them."""
        return self.pooled, self.stratified, self.cell_label


def describe(scope: Scope) -> Iterator[Part]:
    """Table 3 by suite, figure 2 over the suites with main tasks, the panel; and figure 3's questions."""
    if scope.suites:
        yield signal_panel(scope)
    if any(suite.has_carrier for suite in scope.main):
        yield questions(scope)


# The panel.


def panel_of(scope: Scope, suite: Suite) -> tuple[PanelRow, ...]:
    """A suite's main tasks, and all its tasks if there are others, arm by arm; computed once."""
    return scope.once(f"panel of {suite.name}", lambda: tuple(_panel(scope, suite)))


def _panel(scope: Scope, suite: Suite) -> Iterator[PanelRow]:
    sets: dict[Word, tuple[str, ...]] = {MAIN: suite.main} if suite.main else {}
    sets |= {ALL: suite.tasks} if suite.main != suite.tasks else {}
    for words, tasks in sets.items():
        for arm in suite.arms:
            owed = [one for one in suite.wanted.signals if scope.has_signal(suite.wanted, arm, one)]
            for of in LABELS:
                asked = population([suite], of, arms=[arm], tasks=tasks)
                reason = scope.lacks_of(asked)
                data = scope.data([suite], asked)
                for signal in owed:
                    found = aucs(data, data.counted, signal, reason, apart=data.counted)
                    place = (suite.name, str(words), arm, signal, of)
                    yield PanelRow(*place, found.positives or 0, *found.three)


def signals_of(
    scope: Scope, suite: Suite, arm: str, label: Label, *, is_whole: bool = False
) -> dict[str, PanelRow]:
    """The panel's rows of one arm by signal: of the main tasks, or of all tasks of the suite."""
    asked = ("all" if is_whole and suite.main != suite.tasks else "main", arm, label)
    rows = panel_of(scope, suite)
    return {row.signal: row for row in rows if (row.tasks, row.arm, row.label) == asked}


PANEL = (
    *columns("suite", "tasks", "arm", "signal", "label"),
    column("positives", "positive"),
    column("rows"),
    *AUCS,
)
PANEL_REMARKS = (
    POOLED_MEANS,
    STRATIFIED_MEANS,
    LABEL_MEANS,
    "AUC above 0.5: the larger the risk that the signal sees, the more often positive.",
    "Bootstrap draws of their own, so the third digit may differ from the verdicts'.",
)


def _panel_table(scope: Scope) -> Table:
    every = [row for suite in scope.suites for row in panel_of(scope, suite)]
    rows = tuple(
        (row.suite, row.tasks, row.arm, row.signal, row.label, *row.counts, *row.aucs) for row in every
    )
    made = Table("signals", "AUC of every signal of every arm", PANEL, rows, PANEL_REMARKS)
    return made.briefly(*(_brief(scope, suite) for suite in scope.main))


def _brief(scope: Scope, suite: Suite) -> Table:
    """The main tasks, the arm that carries the certificate and few signals, narrow enough for a terminal."""
    heads = (
        *columns("label", "signal"),
        column("counts", "positive"),
        *(share("pooled"), share("stratified"), share("cell", bare=True)),
    )
    rows = [
        (row.label, row.signal, "/".join(f"{one or 0:,}" for one in row.counts), *row.aucs)
        for row in panel_of(scope, suite)
        if (row.tasks, row.arm) == (MAIN, suite.wanted.arm) and row.signal in BRIEF
    ]
    return Table("", f"AUC on {suite.name}, main tasks, arm {suite.wanted.arm}", heads, tuple(rows))


# Table 3: a line for each arm, a column for each signal.


KINDS: dict[str, Label] = {"own": "own_failure", "induced": "induced_failure"}
TABLE3 = "Every signal against its own arm's failures, all tasks of a suite"
REMARKS3 = (
    "own: any failure of the arm. induced: failures among what the full cache answers.",
    POOLED_MEANS,
    STRATIFIED_MEANS,
    LABEL_MEANS,
    "-: the arm has no such signal.",
)
PAIRS = (
    "pooled: all pairs of a failure and a success; stratified: within the same model, task, condition and "
    "budget"
)
FAILURES = "own: any failure of the arm; induced: failures among what the full cache answers"


def signal_panel(scope: Scope) -> Part:
    """Tables 3 and of figure 2, and figure 2."""
    seen = tuple(row for arm in _arms(scope.suites) for row in _seen(scope, arm))
    tables = (_table3(scope), *([_table2(seen)] if seen else []), _panel_table(scope))
    pictures = (figure2(seen, {suite.wanted.arm for suite in scope.suites}),) if seen else ()
    words = "Signals are oriented before data are seen: above .5, the signal rises where the arm fails."
    return Part("signal-panel", "Which signal sees which failure?", words, tables, pictures)


def _arms(suites: Sequence[Suite]) -> list[str]:
    """Arms of suites, those that carry the certificate last."""
    carriers = {suite.wanted.arm for suite in suites}
    return sorted({arm for suite in suites for arm in suite.arms}, key=lambda arm: (arm in carriers, arm))


def _table3(scope: Scope) -> Table:
    signals = list(dict.fromkeys(signal for suite in scope.suites for signal in suite.wanted.signals))
    heads = (
        column("suite"),
        column("failures", meaning=FAILURES, unit="name"),
        column("arm"),
        column("pairs", meaning=PAIRS, unit="name"),
        column("positives", "failed"),
        column("rows", "of rows"),
        *(
            share(signal, meaning=f"AUC of {_said(signal)} for these failures", unit=AUC)
            for signal in signals
        ),
        share("baseline", "label alone", bare=True),
    )
    rows = [
        row
        for suite in scope.suites
        for words in KINDS
        for arm in _arms([suite])
        for row in _lines(scope, suite, words, arm, signals)
    ]
    return Table("table3", TABLE3, heads, tuple(rows), REMARKS3)


def _said(signal: str) -> str:
    return "the certificate" if signal == CERTIFICATE else signal


def _lines(scope: Scope, suite: Suite, words: str, arm: str, signals: list[str]) -> Iterator[Row]:
    """The pooled line of an arm and the stratified one below it."""
    found = signals_of(scope, suite, arm, KINDS[words], is_whole=True)
    if not found:
        return
    largest = max(found.values(), key=lambda row: row.pooled.n)
    for pairs in ("pooled", "stratified"):
        values = [getattr(found[one], pairs) if one in found else NOT_ASKED for one in signals]
        baseline = largest.cell_label if pairs == "pooled" else NOT_ASKED
        yield (suite.name, words, arm, pairs, *largest.counts, *values, baseline)


# Figure 2: all suites that run an arm are pooled.


OTHER_SUCCESS = "the suites' registrations differ in what a success is or in how to resample"
FIGURE2 = "Every signal against its own arm's induced failures, main tasks, suites pooled"
HEADS2 = (
    *columns("arm", "signal", "suites"),
    column(
        "positives",
        "induced failures",
        "answers that fail although the full cache answers their example",
        "count",
    ),
    column("rows", "of rows", "answers whose example the full cache answers", "count"),
    *AUCS,
)
REMARKS2 = (
    "Rows that the full cache answers, of all suites that run the arm; stratified pairs cross no suite.",
    POOLED_MEANS,
    STRATIFIED_MEANS,
    LABEL_MEANS,
)


def _seen(scope: Scope, arm: str) -> list[PanelRow]:
    """Every signal of an arm against induced failures on the main tasks of all suites that run it."""
    suites = [suite for suite in scope.main if arm in suite.arms]
    if len(suites) < 2:
        return [row for one in suites for row in signals_of(scope, one, arm, "induced_failure").values()]
    owed = dict.fromkeys(
        signal
        for suite in suites
        for signal in suite.wanted.signals
        if scope.has_signal(suite.wanted, arm, signal)
    )
    asked = population(suites, "induced_failure", arms=[arm])
    reason = _other(suites) or scope.lacks_of(asked)
    data = scope.data(suites, asked)
    # `within` knows of no suites: a model of another suite is another model, so that no pair crosses suites.
    apart = data.counted.assign(model=strata(data.counted, ("suite", "model")))
    names = ", ".join(suite.name for suite in suites)
    found = {signal: aucs(data, data.counted, signal, reason, apart=apart) for signal in owed}
    return [
        PanelRow(names, MAIN, arm, signal, "induced_failure", one.positives or 0, *one.three)
        for signal, one in found.items()
    ]


def _other(suites: Sequence[Suite]) -> str:
    """Why suites cannot be pooled."""
    first, *rest = (suite.registered.content for suite in suites)
    same = all((one.success, one.statistics) == (first.success, first.statistics) for one in rest)
    return "" if same else OTHER_SUCCESS


def _table2(seen: Sequence[PanelRow]) -> Table:
    rows = tuple((row.arm, row.signal, row.suite, *row.counts, *row.aucs) for row in seen)
    return Table("figure2", FIGURE2, HEADS2, rows, REMARKS2)


def figure2(seen: Sequence[PanelRow], carriers: Collection[str]) -> Picture:
    """Figure 2, or why there is none; `carriers` are the arms whose certificate the study is about."""
    known = [row for row in seen if row.pooled.value is not None]
    numbers = [(row.arm, row.pooled) for row in seen]
    return picture_of(
        "figure2", FIGURE2, numbers, lambda: _words2(known, carriers), lambda: signal_panel_figure(known)
    )


def _words2(seen: Sequence[PanelRow], carriers: Collection[str]) -> Words:
    """The certificate; and the highest of the other signals of the cache, and log-probability."""
    own = [_named(row) for row in seen if row.signal == CERTIFICATE and row.arm in carriers]
    told = "; ".join(own) or f"no {CERTIFICATE}"
    parts = list[str]()
    cache = [row for row in seen if row.arm not in carriers and row.signal not in (CERTIFICATE, RIVAL)]
    if cache:
        parts.append(f"Highest retained-set signal of another arm: {_named(max(cache, key=_auc))}")
    spoken = [row for row in seen if row.signal == RIVAL]
    if spoken:
        low, high = min(spoken, key=_auc), max(spoken, key=_auc)
        parts.append(f"{RIVAL}: {_auc(low):.3f} ({low.arm}) to {_auc(high):.3f} ({high.arm})")
    return f"AUC for induced failures, pooled: {told}.", "".join(f"{part}. " for part in parts).strip()


def _auc(row: PanelRow) -> float:
    return row.pooled.value or 0.0


def _named(row: PanelRow) -> str:
    beside = f"stratified {point(row.stratified)}, label alone {point(row.cell_label)}"
    return f"{row.arm} {row.signal} {row.pooled} ({beside})"


def signal_panel_figure(rows: Sequence[PanelRow]) -> Figure:
    """AUCs with intervals, arm by arm, a line for each signal; see drawing.MARKS."""
    drawn = drawing.figure(1.1 + 0.24 * len(rows))
    axes = drawn.subplots()
    suites = list(dict.fromkeys(suite for row in rows for suite in row.suites))
    short = dict(zip(suites, drawing.shortened_all(suites), strict=True))
    names = [row.arm for row in rows]
    arms = drawing.shortened_all(names)
    words = [f"{arm}   {row.signal}{_only(row, short)}" for arm, row in zip(arms, rows, strict=True)]
    alone = [row.suites[0] for row in rows if len(row.suites) == 1 < len(suites)]
    key = [
        *drawing.keyed("arm", names, arms),
        *drawing.keyed("suite", alone, [short[suite] for suite in alone]),
    ]
    for at, row in enumerate(rows):
        drawing.dots(axes, at, row.aucs, COLOURS.get(row.signal, INK))
        _rule(axes, names, at)
    drawing.lines(axes, words)
    drawing.shares(axes, [one for row in rows for one in row.aucs])
    drawing.chance(axes)
    for tick, row in zip(axes.get_yticklabels(), rows, strict=True):
        tick.set_color(COLOURS.get(row.signal, INK))
    drawing.label(drawn, [], f"AUC for the arm's own induced failures\n{drawing.MARKS}", "", key)
    return drawn


def _rule(axes: Axes, names: Sequence[str], at: int) -> None:
    """A rule above a line whose name is not that of the line before."""
    if at and names[at - 1] != names[at]:
        axes.axhline(at - 0.42, color="#c8c8c8", linewidth=0.7)


def _only(row: PanelRow, short: Mapping[str, str]) -> str:
    """The suites of an arm that not all run."""
    if short.keys() == set(row.suites):
        return ""
    one, *others = row.suites
    return f" ({len(row.suites)} of {len(short)} suites)" if others else f" ({short[one]})"


# Figure 3: two of its questions are those of registered claims; the third, whose fault a failure is, was
# asked in the paper after these had been answered, so the part is post hoc.


FIGURE3 = "The certificate against log-probability on three questions, main tasks"
QUESTIONS: dict[Label, str] = {
    "own_failure": "Is the answer wrong?",
    "induced_failure": "Did eviction break it?",
    "attribution": "Wrong: is eviction to blame?",
}
HEADS3 = (
    *columns("suite", "label", "signal"),
    column("positives", "positive"),
    column("rows", "of rows"),
    *AUCS,
)
QUESTION_REMARKS = (
    "own_failure: all rows, positive is a failure. induced_failure: rows that the full cache answers, "
    "positive is a failure. attribution: failures, positive is one that the full cache answers.",
    STRATIFIED_MEANS,
    LABEL_MEANS,
)


def questions(scope: Scope) -> Part:
    """AUCs of both signals for own failure, induced failure and attribution, by suite (figure 3)."""
    found = [
        row
        for suite in scope.main
        if suite.has_carrier
        for question in QUESTIONS
        for panel in (signals_of(scope, suite, suite.wanted.arm, question),)
        for row in (panel[signal] for signal in COLOURS if signal in panel)
    ]
    rows = tuple((row.suite, row.label, row.signal, *row.counts, *row.aucs) for row in found)
    return Part(
        "questions",
        "Which signal answers which question?",
        "Attribution was not registered: the paper came to it when prediction had failed.",
        (Table("figure3", FIGURE3, HEADS3, rows, QUESTION_REMARKS),),
        (figure3(found),),
        is_posthoc=True,
    )


def figure3(rows: Sequence[PanelRow]) -> Picture:
    """Figure 3, or why there is none."""
    known = [row for row in rows if row.pooled.value is not None]
    numbers = [(f"{row.suite} {row.label} {row.signal}", row.pooled) for row in rows]
    return picture_of("figure3", FIGURE3, numbers, lambda: _words3(known), lambda: questions_figure(rows))


def _words3(rows: Sequence[PanelRow]) -> Words:
    """In how many suites the first signal has the larger AUC, question by question."""
    pooled, stratified = (_compared(rows, pairs, RIVAL, pairs) for pairs in ("pooled", "stratified"))
    label = _compared(rows, "pooled", CERTIFICATE, "cell_label")
    told = ", ".join(f"{counts} ({QUESTIONS[question]})" for question, counts in pooled.items())
    within, bare = (", ".join(one.values()) or "undefined" for one in (stratified, label))
    return (
        f"Suites in which the pooled AUC of {CERTIFICATE} is larger than that of {RIVAL}: "
        f"{told or 'undefined'}.",
        f"Of stratified pairs: {within}. Larger than the AUC of the bare condition x budget label: {bare}.",
    )


def _compared(rows: Sequence[PanelRow], own: str, rival: str, other: str) -> dict[Label, str]:
    """By question, of how many suites the certificate's `own` is larger than the rival's `other`."""
    found = {(row.label, row.suite, row.signal): row for row in rows}
    counts = dict[Label, str]()
    for question in QUESTIONS:
        both = [
            (getattr(row, own).value, getattr(found[question, row.suite, rival], other).value)
            for row in rows
            if (row.label, row.signal) == (question, CERTIFICATE) and (question, row.suite, rival) in found
        ]
        known = [(a, b) for a, b in both if a is not None and b is not None]
        if known:
            counts[question] = f"{sum(a > b for a, b in known)} of {len(known)}"
    return counts


def questions_figure(rows: Sequence[PanelRow]) -> Figure:
    """AUCs with intervals: a panel for each question, a line for each suite and signal; see drawing.MARKS."""
    places = list(dict.fromkeys((row.suite, row.signal) for row in rows))
    suites = [suite for suite, _ in places]
    drawn = drawing.figure(1.1 + 0.36 * len(places))
    every = drawn.subplots(1, len(QUESTIONS), sharex=True, sharey=True, squeeze=False).flat
    for axes, (of, words) in zip(every, QUESTIONS.items(), strict=True):
        for row in rows:
            if row.label == of:
                at = places.index((row.suite, row.signal))
                drawing.dots(axes, at, row.aucs, COLOURS[row.signal])
                if row.pooled.value is None:
                    axes.annotate("undefined", (0.5, at), (4, 0), textcoords="offset points", fontsize=7.5)
        for at in range(len(suites)):
            _rule(axes, suites, at)
        axes.set_title(words, pad=16)
        drawing.chance(axes)
        axes.tick_params(axis="y", length=0)
    first = drawn.axes[0]
    short = drawing.shortened_all(suites)
    drawing.lines(first, [f"{suite}   {signal}" for suite, (_, signal) in zip(short, places, strict=True)])
    for tick, (_, signal) in zip(first.get_yticklabels(), places, strict=True):
        tick.set_color(COLOURS[signal])
    drawing.shares(first, [one for row in rows for one in row.aucs])
    for axes in drawn.axes[1:]:
        axes.grid(visible=True, axis="x")
    drawing.label(drawn, [], f"AUC; {drawing.MARKS}", "", drawing.keyed("suite", suites, short))
    return drawn
