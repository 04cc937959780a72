"""Attention suites as text: the certificate by budget, and what top-k cannot see."""

import textwrap
from collections.abc import Iterator, Sequence

from analysis.attention import Attention
from analysis.attention.demonstration import Demonstration
from analysis.attention.heads import LINE
from analysis.tables import ablations, tables_of
from analysis.tables.base import Table, budget_words, digits
from analysis.verdict.words import RULE, WIDTH
from kvexp.terminal import printable

NAMED = 3  # heads in the short form
INTERVALS = 3  # budgets beside each other that leave room for intervals
MAIN = (
    *("budget", "promised", "coverage", "spearman", "spearman_within", "ratio"),
    *("hajek", "topk", "no_offset", "uniform", "lost", "spent", "silent"),
)
MAIN_MEANS = (
    "covered: true error <= certificate; promised: 1 - delta. Spearman: of certificate and error.",
    "ratio: median certificate / median error. error: median relative error of the attention output.",
    "lost: (no offset - Poisson) / (top-k - Poisson), what the offset is worth; above 1: all and more.",
    "budget spent: expected tokens kept / allowed. silent: variance 0 though tokens were evicted.",
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
            yield from [*table_lines(main.only(MAIN, MAIN_MEANS))][:-1]
            yield from _head_lines(one)
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


def _head_lines(one: Attention) -> Iterator[str]:
    """Heads that are covered too seldom, and the three that are least."""
    few = ", ".join(str(of.below_line) for of in one.heads)
    heads = max(of.heads for of in one.heads)
    lowest: dict[tuple[int, int], str] = {}
    least = [(row.coverage, row.layer, row.head, of.budget) for of in one.heads for row in of.least]
    for coverage, layer, head, budget in sorted(least):
        lowest.setdefault(
            (layer, head), f"layer {layer} head {head} ({coverage:.3f} at {budget_words(budget)})"
        )
    words = f"heads covered in less than {100 * LINE:g} % of their cells: {few} of {heads}; least: "
    yield from _wrapped("  ", words + ", ".join([*lowest.values()][:NAMED]))
    yield ""


def _demonstration_lines(one: Attention) -> Iterator[str]:
    """One line for each change of the evicted values."""
    prompts = " and ".join(sorted({f"{of.prompts} of {one.prompts} prompts" for of in one.demonstrations}))
    worlds = max(of.changed for of in one.demonstrations)
    title = f"Values of top-k's evicted tokens changed in {worlds} worlds, {one.name}; {prompts}"
    yield from _wrapped("", title)
    heads = (
        *("change", "score", "looks the same", "top-k error", "span", "rise"),
        *("Poisson covered", "cert. > error"),
    )
    widths = (12, 15, 15, 17, 6, 6, 16, 0)
    yield _spaced(heads, widths)
    yield RULE
    for of in one.demonstrations:
        yield _spaced(_demonstration(of), widths)
    yield "  looks the same: (prompt, layer) with all that top-k can compute the same bytes in all worlds."
    for of in one.demonstrations:
        yield from _wrapped("  ", _extremes(of))
    yield "  span: largest / smallest error of a cell, rise: largest error / unchanged; both: median cell."
    yield "  cert. > error: worlds, unchanged included, with Poisson's mean certificate above its mean error."
    yield ""


def _demonstration(of: Demonstration) -> tuple[str, ...]:
    covered = [row.coverage.value for row in of.worlds if row.coverage.value is not None]
    return (
        of.change,
        of.score,
        f"{of.identical:,} of {of.compared:,}",
        f"{digits(of.smallest, 'number')} to {digits(of.largest, 'number')}",
        _number(of.median_span),
        _number(of.median_rise),
        f"{min(covered):.3f} to {max(covered):.3f}" if covered else "undefined",
        f"{sum(row.certificate_exceeds for row in of.worlds)} of {len(of.worlds)}",
    )


def _extremes(of: Demonstration) -> str:
    span, rise, mean = map(_number, (of.largest_span, of.largest_rise, of.median_mean_rise))
    return (
        f"{of.change}: span at most {span}, rise at most {rise}; mean of {of.changed} worlds / unchanged, "
        f"median cell: {mean}"
    )


def _number(value: float | None) -> str:
    return "-" if value is None else digits(value, "number")


def _wrapped(indent: str, text: str) -> list[str]:
    """Lines that end at spaces only: the names of suites and shards are full of hyphens."""
    lines = textwrap.wrap(printable(text), WIDTH - len(indent), break_on_hyphens=False)
    return [indent + line for line in lines]


def _spaced(texts: Sequence[str], widths: Sequence[int]) -> str:
    return "".join(f"{text:{width}}" for text, width in zip(texts, widths, strict=True)).rstrip()
