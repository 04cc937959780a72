"""Attention suites as text: the certificate by budget, and what top-k cannot see."""

import textwrap
from collections.abc import Iterator, Sequence

from analysis.attention import Attention
from analysis.attention.demonstration import Demonstration
from analysis.tables import ablations, tables_of
from analysis.tables.base import Table, digits
from analysis.text.words import RULE, WIDTH
from kvexp.terminal import printable

INTERVALS = 3  # budgets beside each other that leave room for intervals
MAIN = (
    *("budget", "coverage", "spearman", "spearman_within", "ratio"),
    *("hajek", "topk", "no_offset", "uniform", "lost", "silent"),
)
MAIN_MEANS = (
    "covered: true error <= certificate. Spearman: certificate with error; within heads: median head.",
    "ratio: median certificate / median error. error: median relative error of the attention output.",
    "lost: (no offset - Poisson) / (top-k - Poisson), what the offset is worth; above 1: all and more.",
    "silent cells: variance 0 although tokens were evicted. Intervals resample prompts.",
)
COMPARED = ("suite", "budget", "coverage", "spearman", "ratio", "hajek", "topk", "no_offset", "uniform")
COMPARED_MEANS = (
    "Points only; tables/ablations.md has intervals. Poisson to uniform: median relative error.",
)


def attention_tables(suites: Sequence[Attention], is_full: bool) -> Iterator[str]:
    """Lines of every suite; without `is_full` the main numbers of each and a line for each demonstration."""
    for one in suites:
        main, *others = tables_of(one)
        if one.undefined:
            yield from table_lines(main)
        elif is_full:
            for table in (main, *others):
                yield from table_lines(table)
        else:
            yield from table_lines(main.only(MAIN, MAIN_MEANS))
            yield from _demonstration_lines(one) if one.demonstrations else ()
    if len(suites) > 1:
        yield from table_lines(ablations(suites).only(COMPARED, COMPARED_MEANS), has_intervals=False)


def table_lines(table: Table, *, has_intervals: bool = True) -> Iterator[str]:
    """Lines of one table with its remarks, and a blank one."""
    yield from _wrapped("", table.title)
    if table.rows:
        fits = not table.is_tall or len(table.rows) <= INTERVALS
        lines = table.shown(has_intervals=has_intervals and fits)
        widths = [max(map(len, column)) + 2 for column in zip(*lines, strict=True)]
        for number, line in enumerate(lines):
            yield "".join(f"{text:{width}}" for text, width in zip(line, widths, strict=True)).rstrip()
            if number == 0:
                yield RULE
    for remark in table.remarks:
        yield from _wrapped("  ", remark)
    for reason in table.reasons() if has_intervals else ():
        yield from _wrapped("  ", f"undefined: {reason}")
    yield ""


def _demonstration_lines(one: Attention) -> Iterator[str]:
    """One line for each change of the evicted values."""
    title = f"Values of top-k's evicted tokens changed, {one.name}; error of one cell over the changed worlds"
    yield from _wrapped("", title)
    heads = ("change", "looks the same", "top-k error", "ratio", "most", "rise", "Poisson covered", "warned")
    widths = (13, 16, 19, 7, 7, 7, 17, 0)
    yield _spaced(heads, widths)
    yield RULE
    for of in one.demonstrations:
        yield _spaced(_demonstration(of), widths)
    yield "  looks the same: (prompt, layer) with all that top-k can compute the same bytes in all worlds."
    yield "  ratio: largest / smallest error, median cell; most: any cell; rise: largest / unchanged, median."
    yield "  warned: worlds in which the mean certificate of Poisson exceeds its mean error."
    yield ""


def _demonstration(of: Demonstration) -> tuple[str, ...]:
    covered = [row.coverage.value for row in of.worlds if row.coverage.value is not None]
    return (
        of.change,
        f"{of.identical:,} of {of.compared:,}",
        f"{digits(of.smallest, 'number')} to {digits(of.largest, 'number')}",
        "-" if of.median_ratio is None else digits(of.median_ratio, "number"),
        "-" if of.largest_ratio is None else digits(of.largest_ratio, "number"),
        "-" if of.median_rise is None else digits(of.median_rise, "number"),
        f"{min(covered):.3f} to {max(covered):.3f}" if covered else "undefined",
        f"{sum(row.is_warned for row in of.worlds)} of {len(of.worlds)}",
    )


def _wrapped(indent: str, text: str) -> list[str]:
    """Lines that end at spaces only: the names of suites and shards are full of hyphens."""
    lines = textwrap.wrap(printable(text), WIDTH - len(indent), break_on_hyphens=False)
    return [indent + line for line in lines]


def _spaced(texts: Sequence[str], widths: Sequence[int]) -> str:
    return "".join(f"{text:{width}}" for text, width in zip(texts, widths, strict=True)).rstrip()
