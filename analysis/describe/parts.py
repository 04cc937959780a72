"""A description is a list of parts; a part is tables and pictures under one heading, whoever shows them."""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from analysis.core.estimates import Estimate
from analysis.describe import drawing
from analysis.describe.table import Table

Words = tuple[str, str]  # the sentence that a picture supports, and details in a shorter line


@dataclass(frozen=True)
class Picture:
    """A figure."""

    name: str  # of the file figures/NAME.svg
    title: str  # one line
    sentence: str  # what it supports, in one sentence with its numbers
    svg: str | None  # the drawing; None if the rows it needs are not there
    undefined: str = ""  # why there is no drawing
    more: str = ""  # details that the sentence leaves out, in a shorter line


@dataclass(frozen=True)
class Part:
    """One heading of the pages. It has no verdict and no field for one."""

    key: str  # anchor and name, letters, digits and dashes
    title: str  # one line
    words: str = ""  # what a reader must know first, one or two sentences
    tables: tuple[Table, ...] = ()  # files tables/NAME.csv and tables/NAME.md
    pictures: tuple[Picture, ...] = ()  # in order
    # Conceived after data were seen (in the paper, or here); shown in its own section.
    is_posthoc: bool = False
    undefined: str = ""  # why no table has a row and no picture is drawn; empty if something is there


def picture(name: str, title: str, words: Words, draw: Callable[[], Figure]) -> Picture:
    """Draw figures/NAME.svg."""
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # it talks of caches on stderr
    with drawing.styled():
        figure = draw()
    sentence, more = words
    return Picture(name, title, sentence, drawing.to_svg(figure), more=more)


def picture_of(
    name: str,
    title: str,
    numbers: Sequence[tuple[str, Estimate]],
    words: Callable[[], Words],
    draw: Callable[[], Figure],
) -> Picture:
    """A picture of named numbers, and which of them it lacks; none, and why, where all are undefined.

    `words` and `draw` are called only if some number is there.
    """
    if all(found.value is None for _, found in numbers):
        reasons = (found.undefined for _, found in numbers)
        return no_picture(name, title, next(reasons, "there is no such number"))
    sentence, more = words()
    return picture(name, title, (sentence, (more + what_lacks(numbers)).strip()), draw)


def no_picture(name: str, title: str, reason: str) -> Picture:
    """A picture that cannot be drawn, and why."""
    return Picture(name, title, "", None, undefined=reason)


def what_lacks(numbers: Iterable[tuple[str, Estimate]]) -> str:
    """A sentence on the numbers that a picture would show and does not, by name; nothing if all are there."""
    reasons = dict[str, dict[str, None]]()
    for name, found in numbers:
        if found.value is None:
            reasons.setdefault(found.undefined, {})[name] = None
    told = "; ".join(f"{', '.join(names)} ({reason})" for reason, names in reasons.items())
    return f" Undefined: {told}." if told else ""
