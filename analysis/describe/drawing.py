"""What all figures share: size, type, colours, axes in words, and bytes that do not change."""

import io
import itertools
import re
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import matplotlib.style
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path
from matplotlib.ticker import FixedLocator, FuncFormatter, MultipleLocator, NullLocator

from analysis.core.estimates import Estimate, Floats
from analysis.describe.table import CHANCE, percent

WIDTH = 8.33  # inches; an SVG inch is 96 pixels, so 800 of them
PANEL_COLUMNS = 3  # panels in a row
NAME = 18  # characters of a name beside a line or bar, of two names together twice as many
KEYS = (96, 80, 64, 48)  # characters of a line below the axes, the first that fit
LINE = 0.15  # inches of such a line
TINY = 1e-30  # an error below it is 0 to a log axis, which has no place for either
# Colours that differ for colour-blind eyes and in grey (Okabe and Ito, darkened where they are lines).
NAVY, ORANGE, SKY, GREY, INK = "#1f3b73", "#d55e00", "#56b4e9", "#b4b4b4", "#262626"
SERIES = ((NAVY, "o"), (ORANGE, "s"), (SKY, "^"), (INK, "D"), ("#009e73", "v"), ("#cc79a7", "P"))
_RC = {
    "svg.hashsalt": "kvexp",  # otherwise ids inside the file are random
    "svg.fonttype": "none",  # text stays text
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # comes with matplotlib, so the layout is the same everywhere
    "font.size": 9.0,
    "axes.titlesize": 9.0,
    "axes.labelsize": 9.0,
    "axes.edgecolor": "#606060",
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.titlelocation": "left",
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.7,
    "xtick.labelsize": 8.0,
    "ytick.labelsize": 8.0,
    "xtick.color": "#404040",
    "ytick.color": "#404040",
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "text.color": INK,
    "axes.labelcolor": INK,
    "figure.constrained_layout.use": True,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.5,
}


@contextmanager
def styled() -> Iterator[None]:
    """The style of these figures and nothing of a user's own matplotlib settings."""
    with matplotlib.style.context(["default", _RC]):
        yield


def to_svg(figure: Figure) -> str:
    """The figure as text, without a date."""
    file = io.StringIO()
    with styled():
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    return "\n".join(line.rstrip() for line in _numbered(file.getvalue()).splitlines()) + "\n"


def _numbered(svg: str) -> str:
    """The drawing with its clip paths numbered: matplotlib names them by floats whose last bit may differ."""
    names = re.findall(r'<clipPath id="(p[0-9a-f]{10})">', svg)
    for at, name in enumerate(names):
        svg = svg.replace(f'"{name}"', f'"clip{at}"').replace(f"#{name})", f"#clip{at})")
    return svg


def figure(height: float) -> Figure:
    """An empty figure of README width, `height` in inches."""
    return Figure(figsize=(WIDTH, height))


def panels(count: int, height: float) -> tuple[Figure, list[Axes]]:
    """A figure of `count` panels on the same axes, three in a row; `height` of a row in inches."""
    columns = min(count, PANEL_COLUMNS)
    rows = -(-count // columns)
    drawn = figure(height * rows)
    every = list(drawn.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).flat)
    for empty in every[count:]:
        empty.remove()
    for lowest in every[max(0, count - columns) : count]:
        lowest.tick_params(labelbottom=True)
    return drawn, every[:count]


def label(drawn: Figure, places: Sequence[Axes], across: str, up: str, key: Sequence[str] = ()) -> None:
    """Words for the axes that all panels share, and below them the lines of `keyed`."""
    lines = list[str]()
    for most in KEYS:
        lines = [line for one in key for line in textwrap.wrap(one, most, break_on_hyphens=False)]
        if _width(lines, 9.0) < 0.97 * WIDTH:
            break
    drawn.set_figheight(drawn.get_figheight() + LINE * len(lines))
    drawn.supxlabel("\n".join([across, *lines]), fontsize=9, color=INK)
    for leftmost in places[::PANEL_COLUMNS]:
        leftmost.set_ylabel(up)


def shortened(name: str, most: int) -> str:
    """A name of at most `most` characters: of a longer one the middle is left out, its ends tell it apart."""
    if len(name) <= most:
        return name
    head = most // 2
    return f"{name[:head]}...{name[len(name) - (most - head - 3) :]}"


def shortened_all(names: Sequence[str], most: int = NAME) -> list[str]:
    """Names of at most `most` characters; where that makes different names the same, these are numbered.

    Names that differ differ here too.
    """
    short = {name: shortened(name, most) for name in dict.fromkeys(names)}
    counts = Counter(short.values())
    taken = {one for one, count in counts.items() if count == 1}
    for name, alike in short.items():
        if counts[alike] > 1:
            numbered = (
                shortened(name, most - len(end)) + end for end in map(" ({})".format, itertools.count(1))
            )
            short[name] = next(one for one in numbered if one not in taken)
            taken.add(short[name])
    return [short[name] for name in names]


def keyed(noun: str, names: Sequence[str], short: Sequence[str]) -> list[str]:
    """What shortened names stand for, a line each; `noun` says of what they are names."""
    both = dict.fromkeys(pair for pair in zip(short, names, strict=True) if pair[0] != pair[1])
    return [f"{noun} {one}: {name}" for one, name in both]


def titles(
    places: Sequence[Axes],
    suites: Sequence[str],
    columns: int,
    rests: Sequence[str] = (),
    *,
    size: float = 9.0,
    pad: float | None = None,
) -> list[str]:
    """Name panels, `columns` in a row, by their suites, short enough for their room; returns their `keyed`.

    `rests` stand behind the names and are never shortened.
    """
    rests = rests or [""] * len(suites)
    longest = max(len(rest.split("\n", maxsplit=1)[0]) for rest in rests)
    room = round((90 // columns - 18) * 9.0 / size) - longest
    short = shortened_all(suites, max(12, room))
    while room > 12 and _width(short, size) > 0.6 * WIDTH / columns:  # of wide letters
        room -= 4
        short = shortened_all(suites, max(12, room))
    for axes, name, rest in zip(places, short, rests, strict=True):
        axes.set_title(name + rest, fontsize=size, pad=pad)
    return keyed("suite", suites, short)


def _width(words: Sequence[str], size: float) -> float:
    """Inches of the widest of these lines; `size` in points."""
    font = FontProperties(family="DejaVu Sans", size=size)
    sizes = [text_to_path.get_text_width_height_descent(one, font, ismath=False) for one in words]
    return max((width / 72 for width, _, _ in sizes), default=0.0)


def percent_axis(axis: Axis) -> None:
    """Ticks of a share as percent."""
    axis.set_major_formatter(FuncFormatter(lambda value, _: percent(value)))


def plain_log(axis: Axis, low: float, high: float) -> None:
    """Ticks of a log axis as plain numbers: 0.01, 0.1, 1; also 0.02 and 0.05 where it is short."""
    decades = range(-30, 31)
    steps: Sequence[int] = (1,) if high / low > 300 else (1, 3) if high / low > 30 else (1, 2, 5)
    ticks = [step * 10.0**decade for decade in decades for step in steps]
    axis.set_major_locator(FixedLocator([tick for tick in ticks if low <= tick <= high]))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def coverage_limits(lows: Sequence[float]) -> tuple[float, float]:
    """From a little below the lowest share to a little above all."""
    low = min(lows)
    room = max(0.02, 1 - low) * 0.12
    return max(-0.02, low - room), 1 + room / 2


def ends_of(estimates: Sequence[Estimate]) -> tuple[Floats, Floats]:
    """Values, and how far their intervals reach below and above, (2, values), as error bars are drawn."""
    value, low, high = (
        np.array([getattr(one, name) for one in estimates], np.float64) for name in ("value", "lo", "hi")
    )
    return value, np.vstack([value - low, high - value])


def grid(axes: Axes, which: str = "y") -> None:
    """Light lines behind the data."""
    axes.grid(visible=True, axis="both" if which == "both" else "x" if which == "x" else "y")


# Dots with intervals on one share axis: AUCs beside chance, their stratified values and bare labels.


SMALL = 3.4  # points across, of a stratified value
BELOW = 0.27  # of a line, from an AUC to its stratified value
TICK = 0.24  # of a line, half of the tick of a bare label
MARKS = "open dot: pairs within model, task, condition, budget; grey tick: the label condition x budget alone"


def with_interval(axes: Axes, found: Estimate, height: float, colour: str) -> None:
    """One dot and its interval, if there are any."""
    if found.value is None:
        return
    if found.lo is not None and found.hi is not None:
        axes.plot([found.lo, found.hi], [height, height], color=colour, linewidth=1.6, solid_capstyle="butt")
    axes.plot([found.value], [height], color=colour, marker="o", markersize=5.5)


def stratified(axes: Axes, found: Estimate, height: float, colour: str) -> None:
    """A small open dot a little below the pooled one."""
    if found.value is not None:
        at = height + BELOW
        axes.plot([found.value], [at], color=colour, marker="o", markersize=SMALL, markerfacecolor="white")


def baseline(axes: Axes, found: Estimate, height: float) -> None:
    """A grey tick where the bare condition x budget label stands."""
    if found.value is not None:
        ends = [height - TICK, height + TICK]
        axes.plot([found.value] * 2, ends, color="#8a8a8a", linewidth=2.2, solid_capstyle="butt", zorder=1)


def dots(axes: Axes, height: float, aucs: Sequence[Estimate], colour: str) -> None:
    """A pooled AUC with its interval, the stratified one and the bare label, in one line."""
    pooled, within, label = aucs
    baseline(axes, label, height)
    with_interval(axes, pooled, height, colour)
    stratified(axes, within, height, colour)


def chance(axes: Axes) -> None:
    """The line that a signal without information lies on, named at its top."""
    axes.axvline(CHANCE, color=INK, linewidth=0.9, linestyle=(0, (4, 3)), zorder=0)
    axes.annotate(
        "chance",
        (CHANCE, 1.0),
        xycoords=("data", "axes fraction"),
        xytext=(0, 2),
        textcoords="offset points",
        ha="center",
        fontsize=7.5,
        color="#505050",
    )


def shares(axes: Axes, every: Sequence[Estimate]) -> None:
    """A share axis that holds all these and chance, with ticks people read."""
    ends = [end for one in every for end in (one.value, one.lo, one.hi) if end is not None]
    low, high = min([*ends, CHANCE - 0.05]), max([*ends, CHANCE + 0.05])
    room = 0.04 * (high - low)
    axes.set_xlim(max(low - room, -0.02), min(high + room, 1.02))
    axes.xaxis.set_major_locator(MultipleLocator(0.1 if high - low < 0.65 else 0.2))
    grid(axes, "x")


def lines(axes: Axes, words: Sequence[str]) -> None:
    """One line for each name, the first on top."""
    axes.set_yticks(range(len(words)), words)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(words) - 0.4, -0.6)
