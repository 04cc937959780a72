"""Figure 4: accuracy after recomputation, a panel for each suite and budget, a bar for each choice."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.figures.style import (
    COLUMNS,
    GREY,
    INK,
    NAVY,
    ORANGE,
    SKY,
    grid,
    label,
    panels,
    percent_axis,
    titles,
)
from analysis.posthoc.recomputation import Recomputed, points
from analysis.tables.base import budget_words, percent

BARS = {
    "base": ("no recomputation", GREY),
    "random": ("at random", SKY),
    "logprob": ("by log-probability", ORANGE),
    "certificate": ("by certificate", NAVY),
    "full": ("everything", "#8c8c8c"),
}
ROOM = 1.28  # of the longest bar, for its number


def recomputation(rows: Sequence[Recomputed]) -> Figure:
    """Bars with intervals; the paired gain of the certificate over random choice stands in the title."""
    drawn, places = panels(len(rows), 1.95)
    ends = [row.numbers[name] for row in rows for name in BARS]
    most = max(max(one.value or 0.0, one.hi or 0.0) for one in ends)
    for axes, row in zip(places, rows, strict=True):
        _panel(axes, row)
    rests = [
        f", budget {budget_words(row.budget)}\ngain over random {points(row.numbers['over_random'])}"
        for row in rows
    ]
    key = titles(places, [row.suite for row in rows], min(len(rows), COLUMNS), rests, size=8)
    places[0].set_xlim(0, min(most * ROOM, 1.15) or 1.0)
    places[0].set_yticks(range(len(BARS)), [words for words, _ in BARS.values()])
    places[0].set_ylim(len(BARS) - 0.4, -0.6)
    percent_axis(places[0].xaxis)
    across = f"accuracy, mean over seeds; recomputed with the full cache: {percent(rows[0].rate)}"
    label(drawn, [], across, "", key)
    return drawn


def _panel(axes: Axes, row: Recomputed) -> None:
    for at, (name, (_, colour)) in enumerate(BARS.items()):
        found = row.numbers[name]
        if found.value is None:
            continue
        axes.barh([at], [found.value], height=0.74, color=colour)
        end = found.value if found.hi is None else max(found.hi, found.value)
        if found.lo is not None and found.hi is not None:
            axes.plot([found.lo, found.hi], [at, at], color=INK, linewidth=1.0)
        words = f"{100 * found.value:.1f}"
        axes.annotate(words, (end, at), (3, 0), textcoords="offset points", va="center", fontsize=7.5)
    axes.tick_params(axis="y", length=0)
    grid(axes, "x")
