"""Figure 3: a panel for each question, a line for each suite and signal."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from analysis.figures.dots import MARKS, baseline, chance, lines, shares, stratified, with_interval
from analysis.figures.style import NAVY, ORANGE, figure, keyed, label, shortened_all
from analysis.posthoc.questions import QUESTIONS, Answered

COLOURS = {"certificate": NAVY, "output_logprob": ORANGE}
LINE, EDGES = 0.36, 1.1  # inches


def questions(rows: Sequence[Answered]) -> Figure:
    """AUCs with intervals; see MARKS."""
    places = list(dict.fromkeys((row.suite, row.signal) for row in rows))
    drawn = figure(EDGES + LINE * len(places))
    every = drawn.subplots(1, len(QUESTIONS), sharex=True, sharey=True, squeeze=False).flat
    for axes, (of, words) in zip(every, QUESTIONS.items(), strict=True):
        for row in rows:
            if row.label == of:
                at = places.index((row.suite, row.signal))
                baseline(axes, row.baseline, at)
                with_interval(axes, row.pooled, at, COLOURS[row.signal])
                stratified(axes, row.stratified, at, COLOURS[row.signal])
                if row.pooled.value is None:
                    axes.annotate("undefined", (0.5, at), (4, 0), textcoords="offset points", fontsize=7.5)
        for at in range(1, len(places)):
            if places[at - 1][0] != places[at][0]:
                axes.axhline(at - 0.42, color="#c8c8c8", linewidth=0.7)
        axes.set_title(words, pad=16)
        chance(axes)
        axes.tick_params(axis="y", length=0)
    first = drawn.axes[0]
    suites = [suite for suite, _ in places]
    short = shortened_all(suites)
    lines(first, [f"{suite}   {signal}" for suite, (_, signal) in zip(short, places, strict=True)])
    for tick, (_, signal) in zip(first.get_yticklabels(), places, strict=True):
        tick.set_color(COLOURS[signal])
    shares(first, [one for row in rows for one in (row.pooled, row.stratified, row.baseline)])
    for axes in drawn.axes[1:]:
        axes.grid(visible=True, axis="x")
    label(drawn, [], f"AUC; {MARKS}", "", keyed("suite", suites, short))
    return drawn
