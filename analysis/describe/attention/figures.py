"""Figures of attention suites as SVG: the same numbers, the same bytes.

Importing this package loads matplotlib, so only what draws imports it.
"""

from collections.abc import Iterator

from matplotlib.figure import Figure

from analysis.describe.attention.budgets import scatter_figure
from analysis.describe.attention.calibration import calibration_figure
from analysis.describe.attention.describe import Attention
from analysis.describe.attention.errors import errors_figure
from analysis.describe.attention.layers import layers_figure
from analysis.describe.attention.rare import rare_figure
from analysis.describe.attention.worlds import worlds_figure
from analysis.describe.drawing import styled, to_svg

__all__ = ["NAMES", "figures_of", "to_svg"]

_DRAWN = {
    "scatter": scatter_figure,
    "errors": errors_figure,
    "calibration": calibration_figure,
    "layers": layers_figure,
    "rare": rare_figure,
    "worlds": worlds_figure,
}
NAMES = tuple(_DRAWN)


def figures_of(one: Attention) -> Iterator[tuple[str, Figure]]:
    """Names and figures of a suite that has numbers; `worlds` only where it has the demonstration."""
    for name, draw in _DRAWN.items():
        if one.budgets and (name != "worlds" or one.demonstrations):
            with styled():
                figure = draw(one)
            yield name, figure


FIGURES = ("scatter", "errors", "calibration", "layers", "rare", "worlds")
