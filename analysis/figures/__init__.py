"""Figures of attention suites as SVG: the same numbers, the same bytes.

Importing this package loads matplotlib, so only what draws imports it.
"""

from collections.abc import Iterator

from matplotlib.figure import Figure

from analysis.attention import Attention
from analysis.figures.calibration import calibration
from analysis.figures.errors import errors
from analysis.figures.layers import layers
from analysis.figures.rare import rare
from analysis.figures.scatter import scatter
from analysis.figures.style import styled, to_svg
from analysis.figures.worlds import worlds

__all__ = ["NAMES", "figures_of", "to_svg"]

_DRAWN = {
    "scatter": scatter,
    "errors": errors,
    "calibration": calibration,
    "layers": layers,
    "rare": rare,
    "worlds": worlds,
}
NAMES = tuple(_DRAWN)


def figures_of(one: Attention) -> Iterator[tuple[str, Figure]]:
    """Names and figures of a suite that has numbers; `worlds` only where it has the demonstration."""
    for name, draw in _DRAWN.items():
        if one.budgets and (name != "worlds" or one.demonstrations):
            with styled():
                figure = draw(one)
            yield name, figure
