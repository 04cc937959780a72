"""Figure 2: a line for each signal of each arm."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from analysis.descriptive.signal_panel import Seen
from analysis.figures.dots import MARKS, baseline, chance, lines, shares, stratified, with_interval
from analysis.figures.style import INK, NAME, NAVY, ORANGE, figure, label, shortened, shortened_all

COLOURS = {"certificate": NAVY, "output_logprob": ORANGE}
LINE, EDGES = 0.24, 1.1  # inches


def signal_panel(rows: Sequence[Seen]) -> Figure:
    """AUCs with intervals, arm by arm; see MARKS."""
    drawn = figure(EDGES + LINE * len(rows))
    axes = drawn.subplots()
    every = {suite for row in rows for suite in row.suites}
    arms = shortened_all([row.arm for row in rows])
    words = [f"{arm}   {row.signal}{_only(row, every)}" for arm, row in zip(arms, rows, strict=True)]
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
    label(drawn, [], f"AUC for the arm's own induced failures\n{MARKS}", "")
    return drawn


def _only(row: Seen, every: set[str]) -> str:
    """The suites of an arm that not all run."""
    if every == set(row.suites):
        return ""
    one, *others = row.suites
    return f" ({len(row.suites)} of {len(every)} suites)" if others else f" ({shortened(one, NAME)})"
