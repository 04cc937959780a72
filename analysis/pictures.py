"""From numbers to a picture: matplotlib is imported here, when something is drawn, and not before."""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from analysis.parts import Picture
from analysis.statistics import Estimate

if TYPE_CHECKING:
    from matplotlib.figure import Figure


Words = tuple[str, str]  # the sentence that a picture supports, and details in a shorter line


def picture(name: str, title: str, words: Words, draw: Callable[[], "Figure"]) -> Picture:
    """Draw figures/NAME.svg; `draw` imports what it needs of analysis.figures itself."""
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # it talks of caches on stderr
    from analysis.figures import style

    with style.styled():
        figure = draw()
    sentence, more = words
    return Picture(name, title, sentence, style.to_svg(figure), more=more)


def picture_of(
    name: str,
    title: str,
    numbers: Sequence[tuple[str, Estimate]],
    words: Callable[[], Words],
    draw: Callable[[], "Figure"],
) -> Picture:
    """A picture of named numbers, and which of them it lacks; none, and why, where all are undefined.

    `words` and `draw` are called only if some number is there.
    """
    if all(found.value is None for _, found in numbers):
        return no_picture(name, title, numbers[0][1].undefined)
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
