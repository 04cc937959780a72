"""The certificate's AUC in every cell: a panel for each suite, a line for each task and model."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure

from analysis.figures import dots
from analysis.figures.style import NAVY, WIDTH, grid, keyed, label, shortened_all, titles

if TYPE_CHECKING:
    from analysis.descriptive.cells import Cell

LINE = 0.19  # inches
HEAD = 0.55  # inches of a panel beside its lines
EDGE = 0.42  # inches below the last one
PAD = 12  # points between a panel and its title, for the name of chance

WHY: dict[str, Any] = {"va": "center", "fontsize": 7.5, "color": "#505050"}


def cells(suites: Sequence[tuple[str, Sequence["Cell"]]]) -> Figure:
    """Suites by name, each with its cells; one without an AUC has a line that says why."""
    heights = [HEAD + LINE * len(found) for _, found in suites]
    drawn = Figure(figsize=(WIDTH, sum(heights) + EDGE))
    places = list(drawn.subplots(len(suites), 1, sharex=True, squeeze=False, height_ratios=heights).flat)
    key = titles(places, [suite for suite, _ in suites], 1, pad=PAD)
    every = [cell for _, found in suites for cell in found]
    short = dict[tuple[str, str], str]()  # the same in all panels
    for noun in ("task", "model"):
        names = [getattr(cell, noun) for cell in every]
        told = shortened_all(names)
        short |= {(noun, name): one for name, one in zip(names, told, strict=True)}
        key += keyed(noun, names, told)
    for axes, (_, found) in zip(places, suites, strict=True):
        dots.lines(axes, [f"{short['task', cell.task]}, {short['model', cell.model]}" for cell in found])
        for at, cell in enumerate(found):
            dots.baseline(axes, cell.baseline, at)
            dots.with_interval(axes, cell.auc, at, NAVY)
            if cell.auc.value is None:
                axes.annotate(_why(cell), (dots.CHANCE, at), (4, 0), textcoords="offset points", **WHY)
        dots.chance(axes)
        grid(axes, "x")
    dots.shares(places[-1], [one for cell in every for one in (cell.auc, cell.baseline)])
    across = "AUC of the certificate; grey tick: the label condition x budget alone"
    label(drawn, [], across, "", key)
    return drawn


def _why(cell: "Cell") -> str:
    """Why a line is empty."""
    return "none fails" if cell.failures == 0 else "all fail" if cell.successes == 0 else "undefined"
