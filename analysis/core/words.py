"""How numbers, truths and long lines look in every table."""

import textwrap

from analysis.core.estimates import Estimate

WIDTH = 100
RULE = "-" * WIDTH


def number(estimate: Estimate) -> str:
    """A count as a whole number, everything else with its interval."""
    is_count = estimate.value is not None and not estimate.clusters
    return f"{estimate.value:g}" if is_count else str(estimate)


def point(estimate: Estimate | None) -> str:
    """A value without its interval; "-" where there is none."""
    return "-" if estimate is None or estimate.value is None else f"{estimate.value:.3f}"


def word(truth: bool | None) -> str:
    """A three-valued truth."""
    return {True: "true", False: "false", None: "unknown"}[truth]


def wrapped(head: str, text: str) -> list[str]:
    """Text behind a head, as many lines as it takes, indented like the first."""
    rest = " " * len(head)
    lines = textwrap.wrap(text, WIDTH, initial_indent=head, subsequent_indent=rest)
    return lines or [head]
