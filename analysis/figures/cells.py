"""The certificate's AUC in every cell: a panel for each suite, a line for each task and model."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from analysis.figures import dots
from analysis.figures.style import INK, NAVY, WIDTH, grid, shortened_all, title

if TYPE_CHECKING:
    from analysis.descriptive.cells import Cell

LINE = 0.19  # inches
HEAD = 0.42  # inches of a panel beside its lines


def cells(suites: Sequence[tuple[str, Sequence["Cell"]]]) -> Figure:
    """Suites by name, each with its cells; one without an AUC keeps its empty line."""
    heights = [HEAD + LINE * len(found) for _, found in suites]
    drawn = Figure(figsize=(WIDTH, sum(heights) + HEAD))
    places = drawn.subplots(len(suites), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
    for axes, (suite, found) in zip(places, suites, strict=True):
        title(axes, suite, 1)
        tasks, models = (shortened_all([getattr(cell, name) for cell in found]) for name in ("task", "model"))
        dots.lines(axes, [", ".join(both) for both in zip(tasks, models, strict=True)])
        for at, cell in enumerate(found):
            dots.baseline(axes, cell.baseline, at)
            dots.with_interval(axes, cell.auc, at, NAVY)
        dots.chance(axes)
        grid(axes, "x")
    every = [one for _, found in suites for cell in found for one in (cell.auc, cell.baseline)]
    dots.shares(places[-1], every)
    drawn.supxlabel(
        "AUC of the certificate; grey tick: the label condition x budget alone", fontsize=9, color=INK
    )
    return drawn
