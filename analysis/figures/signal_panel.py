"""Figure 2: a line for each signal of each arm."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from analysis.descriptive.signal_panel import Seen
from analysis.figures.dots import MARKS, baseline, chance, lines, shares, stratified, with_interval
from analysis.figures.style import INK, NAVY, ORANGE, figure, keyed, label, shortened_all

COLOURS = {"certificate": NAVY, "output_logprob": ORANGE}
LINE, EDGES = 0.24, 1.1  # inches


def signal_panel(rows: Sequence[Seen]) -> Figure:
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
