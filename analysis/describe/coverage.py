"""Risk-coverage (sections 5 and 6.2): how wrong the answers are that a signal lets pass."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.core import statistics
from analysis.core.data import Data, clusters_of, ids_of
from analysis.core.estimates import Bools, Estimate, Floats, Statistic
from analysis.core.populations import risk
from analysis.describe import drawing
from analysis.describe.drawing import GREY, INK, NAVY, ORANGE
from analysis.describe.parts import Part, Picture, no_picture, picture, what_lacks
from analysis.describe.scope import (
    CERTIFICATE,
    RIVAL,
    Scope,
    Suite,
    bools,
    nothing,
    plain,
    remembered,
    with_signal,
)
from analysis.describe.table import ALL, DIFFERENCE, MAIN, SHARE, Row, Table, column, columns, share, shown

ORDER = 6
PASSING = 0.3  # section 5's coverage
DIGITS = 12  # of a difference of shares: beyond them stands what floating point left over
GRID = tuple(round(0.05 * step, 2) for step in range(1, 21))
VERSUS = "error at 30 % by certificate minus by log-probability, paired"
COLUMNS = (
    *columns("suite", "tasks"),
    column("signal", "ranked by"),
    column("rows", "answers"),
    share(
        "error_30",
        "error at 30 % coverage",
        "failures among the 30 % of answers of lowest risk by the signal",
    ),
    share("error_100", "at 100 %", "failures among all answers"),
    share("gain_30", "at 30 % minus at 100 %", "the first minus the second", DIFFERENCE),
    share("area", "area under the curve", "mean of the error over all coverages, from one answer to all"),
    share("versus_30", "at 30 %, certificate minus log-probability", VERSUS, DIFFERENCE),
)
CURVE = (
    *columns("suite", "tasks"),
    column("signal", "ranked by"),
    column("coverage", "", "share of the answers that pass, lowest risk first", SHARE, "share"),
    share("error", "", "failures among these"),
)
BARE = share("", bare=True)
REMARKS = (
    "Answers of the arm that carries the certificate, all conditions, budgets and seeds; the lowest risk "
    "passes first, ties share the last places. Error: share of failures among what passes. Area: mean of "
    "the error over all coverages from one answer to all.",
)


@dataclass(frozen=True)
class Ranking:
    """The answers of a suite ranked by one signal; curve and area are None where they are undefined."""

    suite: str
    tasks: str
    signal: str
    rows: int
    at_share: Estimate
    at_all: Estimate
    gain: Estimate
    area: Estimate
    curve: Floats | None
    reason: str = ""


def describe(scope: Scope) -> Iterator[Part]:
    """Main tasks of every suite that has some, all tasks of the others."""
    rankings, summary = list[Ranking](), list[Row]()
    for suite in scope.suites:
        found, versus = _of_suite(scope, suite) if suite.has_carrier else ([], nothing(""))
        rankings += found
        summary += [
            (one.suite, one.tasks, one.signal, one.rows, one.at_share, one.at_all, one.gain, one.area, versus)
            for one in found
        ]
    if rankings:
        curves = tuple(row for one in rankings for row in _curve_rows(one))
        title = "Error of the answers that pass, at 30 % and at full coverage"
        tables = (
            Table("coverage", title, COLUMNS, tuple(summary), REMARKS),
            Table("coverage.curve", "The whole risk-coverage curve", CURVE, curves, REMARKS),
        )
        yield Part("coverage", "Does holding answers back help?", "", tables, (_picture(rankings),))


def one_class(rankings: Sequence[Ranking]) -> str:
    """What is the same of all answers of a suite, so that no signal can rank them; empty: they differ."""
    shares = {one.at_all.value for one in rankings}
    return "no answer fails" if shares == {0.0} else "every answer fails" if shares == {1.0} else ""


def error_at(score: Floats, failed: Bools, share: float, rows: pd.DataFrame) -> Statistic:
    """Failures among the share of the rows with the lowest score; rows tied at the cut share its places."""
    wrong, passed = failed.astype(np.float64), np.zeros(len(failed))
    # Gating the riskiest rows to "no failure" leaves the failures that pass, over all rows.
    kept = statistics.gated(score, wrong, passed, 1 - share, clusters_of(rows), ids_of(rows))
    return replace(kept, of=lambda weights: kept.of(weights) / share)


def expected_errors(score: Floats, failed: Bools) -> Floats:
    """Error among the k answers of lowest score for k = 1 ... n; within a tie its mean over all orders."""
    order = np.argsort(score, kind="stable")
    ordered, wrong = score[order], failed[order].astype(np.float64)
    starts = np.concatenate([[0], np.flatnonzero(ordered[1:] != ordered[:-1]) + 1])
    size = np.diff(np.append(starts, len(score)))
    each = np.repeat(np.add.reduceat(wrong, starts) / size, size)
    errors: Floats = np.cumsum(each) / np.arange(1, len(score) + 1)
    return errors


def _of_suite(scope: Scope, suite: Suite) -> tuple[list[Ranking], Estimate]:
    words, tasks = (MAIN, suite.main) if suite.main else (ALL, suite.tasks)
    data = scope.data_of(suite, "coverage", [suite.wanted.arm], tasks)
    names = [name for name in (CERTIFICATE, RIVAL) if name in suite.wanted.signals]
    place = (suite.name, words)
    if reason := scope.lacks(data.rows):
        lost = nothing(reason)
        rows = len(data.rows)
        return [Ranking(*place, name, rows, lost, lost, lost, lost, None, reason) for name in names], lost
    passing = {name: _passing(suite, data.rows, name) for name in names}
    rankings = [_ranking(suite, data, place, name, passing[name]) for name in names]
    return rankings, _versus(suite, data, passing)


def _passing(suite: Suite, rows: pd.DataFrame, signal: str) -> Statistic:
    """The error at PASSING on the rows that have the signal; read more than once."""
    kept, reason = with_signal(suite, rows, signal)
    if reason:
        return statistics.undefined(reason, ids_of(rows))
    return remembered(error_at(risk(kept, signal), bools(kept, "positive"), PASSING, kept))


def _ranking(suite: Suite, data: Data, place: tuple[str, str], signal: str, passing: Statistic) -> Ranking:
    rows, reason = with_signal(suite, data.rows, signal)
    everything = data.rate(rows)
    at_all = data.estimate(everything)
    if reason:
        lost = nothing(reason)
        return Ranking(*place, signal, len(rows), lost, at_all, lost, lost, None, reason)
    errors = expected_errors(risk(rows, signal), bools(rows, "positive"))
    return Ranking(
        *place,
        signal,
        len(rows),
        data.estimate(passing),
        at_all,
        _without_dust(data.estimate(statistics.difference(passing, everything))),
        plain(float(errors.mean()), len(rows)),
        errors,
    )


def _versus(suite: Suite, data: Data, passing: Mapping[str, Statistic]) -> Estimate:
    """The paired difference on the answers that have both signals."""
    if len(passing) < 2:
        return nothing("the registration does not list both signals")
    both = list(passing.values())
    rows = data.rows[data.rows[list(passing)].notna().all(axis=1)]
    if len(rows) < len(data.rows) and not any(one.undefined for one in both):
        both = [_passing(suite, rows, name) for name in passing]
    return _without_dust(data.estimate(statistics.difference(*both)))


def _without_dust(found: Estimate) -> Estimate:
    """A difference of two shares to DIGITS decimals: equal ones differ by nothing, not by 2e-16."""
    value, lo, hi = (None if x is None else round(x, DIGITS) + 0.0 for x in (found.value, found.lo, found.hi))
    return replace(found, value=value, lo=lo, hi=hi)


def _curve_rows(one: Ranking) -> Iterator[Row]:
    for passing in GRID:
        error = nothing(one.reason) if one.curve is None else plain(_at(one.curve, passing), one.rows)
        yield one.suite, one.tasks, one.signal, passing, error


def _at(curve: Floats, share: float) -> float:
    """The error at a coverage, between whole numbers of answers on the line between them."""
    passed = np.concatenate([[0.0], curve * np.arange(1, len(curve) + 1)])  # failures among the first k
    place = share * len(curve)
    return float(np.interp(place, np.arange(len(passed)), passed) / place)


def _picture(rankings: Sequence[Ranking]) -> Picture:
    title = "Error among the answers that pass, against coverage"
    drawn = [one for one in rankings if one.curve is not None]
    if not drawn:
        return no_picture("coverage", title, rankings[0].reason)
    by_suite = {suite: [one for one in drawn if one.suite == suite] for suite in [one.suite for one in drawn]}
    at_share = "; ".join(
        f"{suite} {', '.join(f'{shown(one.at_share, BARE)} by {one.signal}' for one in found)}"
        for suite, found in by_suite.items()
    )
    at_all = "; ".join(f"{suite} {shown(found[0].at_all, BARE)}" for suite, found in by_suite.items())

    sentence = f"Error if only the 30 % of lowest risk pass: {at_share}."
    flat = "".join(
        f" {suite}: {same}, so there is nothing to rank."
        for suite, found in by_suite.items()
        if (same := one_class(found))
    )
    lost = [(f"{one.suite} by {one.signal}", nothing(one.reason)) for one in rankings if one.curve is None]
    words = (sentence, f"If all pass: {at_all}.{flat}{what_lacks(lost)}")
    return picture("coverage", title, words, lambda: coverage_figure(drawn))


# Risk-coverage curves: a panel for each suite, a line for each signal, a rule at the error of all.


COLOURS = {CERTIFICATE: NAVY, RIVAL: ORANGE}
WORDS = {CERTIFICATE: "certificate", RIVAL: "log-probability"}
POINTS = 200  # of a line, whatever the number of answers
FIRST = 0.05  # coverage below which single answers make the line jump
HEIGHT = 2.9
TICKS = (0.2, 0.4, 0.6, 0.8, 1.0)  # not 0, which would meet the 100 % of the panel before
ROOM = 1.18  # above the highest line, for its name


def coverage_figure(rankings: Sequence[Ranking]) -> Figure:
    """The drawing; every ranking has its curve. Where all answers fail or none does, it says so."""
    suites = list(dict.fromkeys(one.suite for one in rankings))
    figure, places = drawing.panels(len(suites), HEIGHT)
    by_suite = [[one for one in rankings if one.suite == suite] for suite in suites]
    tasks = [f", {here[0].tasks} tasks" for here in by_suite]
    key = drawing.titles(places, suites, min(len(suites), drawing.PANEL_COLUMNS), tasks)
    for here, axes in zip(by_suite, places, strict=True):
        if level := one_class(here):
            _flat(axes, here[0], level)
        else:
            for one in here:
                _line(axes, one)
            _names(axes, here)
        axes.set_xlim(0, 1.02)
        axes.set_xticks(TICKS)
        drawing.percent_axis(axes.xaxis)
        drawing.percent_axis(axes.yaxis)
        drawing.grid(axes)
    places[0].set_ylim(0, ROOM * max(float(_points(one)[1].max()) for one in rankings) or 1)
    drawing.label(figure, places, "coverage: share of the answers that pass, lowest risk first", "error", key)
    return figure


def _flat(axes: Axes, one: Ranking, level: str) -> None:
    """One line for all signals, which would lie on each other, and why there is nothing to see."""
    axes.plot(*_points(one), color=INK)
    words = f"{level},\nso there is nothing to rank"
    axes.text(0.5, 0.5, words, transform=axes.transAxes, ha="center", va="center", fontsize=8.5)


def _line(axes: Axes, one: Ranking) -> None:
    across, up = _points(one)
    colour = COLOURS.get(one.signal, INK)
    axes.plot(across, up, color=colour)
    if one.at_all.value is not None:
        axes.axhline(one.at_all.value, color=GREY, linewidth=0.9, linestyle=(0, (4, 3)), zorder=0)
    if one.at_share.value is not None:
        axes.plot([0.3], [one.at_share.value], marker="o", color=colour, linestyle="none")


def _points(one: Ranking) -> tuple[np.ndarray, np.ndarray]:
    assert one.curve is not None
    count = len(one.curve)
    first = min(count, max(1, round(FIRST * count)))
    at = np.unique(np.linspace(first, count, POINTS).round().astype(int))
    return at / count, one.curve[at - 1]


def _names(axes: Axes, here: Sequence[Ranking]) -> None:
    """A name at each line: above the upper one and below the lower one, where they are furthest apart."""
    shares = np.linspace(0.5, 0.58, 5)  # a name as long as half a panel ends or begins here
    heights = [np.interp(shares, *_points(one)) for one in here]
    at = int(np.argmax(np.abs(heights[0] - heights[-1]))) if len(here) > 1 else 2
    mean = float(np.mean([height[at] for height in heights]))
    for one, height in zip(here, heights, strict=True):
        is_upper = height[at] > mean or (len(here) > 1 and one is here[0] and height[at] == mean)
        axes.annotate(
            WORDS.get(one.signal, one.signal),
            (shares[at], height[at]),
            xytext=(-4, 7) if is_upper else (4, -8),
            textcoords="offset points",
            ha="right" if is_upper else "left",
            va="bottom" if is_upper else "top",
            color=COLOURS.get(one.signal, INK),
            fontsize=8.5,
        )
