"""Descriptive numbers as plain text for a terminal of 100 columns."""

import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from analysis.core.estimates import Estimate
from analysis.core.grid import FULL
from analysis.core.words import RULE, WIDTH, point, wrapped
from analysis.describe.attention.describe import Attention
from analysis.describe.attention.heads import LINE
from analysis.describe.attention.tables import ablations, tables_of
from analysis.describe.attention.worlds import Demonstration
from analysis.describe.details import Controlled, Known, PanelRow, Rate
from analysis.describe.scope import NO_FULL, NO_ROWS, SOME_FULL
from analysis.describe.table import Table, budget_words, digits
from kvexp.errors import printable

if TYPE_CHECKING:
    from analysis.describe.description import Section

from typing import TYPE_CHECKING

from analysis.core.as_text import joined

if TYPE_CHECKING:
    from analysis.describe.description import Description


# Attention suites as text: the certificate by budget, and what top-k cannot see.


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


# The no-context control as text: what models know without the context, and damage where they need it.


ALL = "all models"


def control_tables(suites: Sequence[Controlled]) -> Iterator[str]:
    """Lines of three tables a suite: accuracy without context, context-dependence, induced failures."""
    for one in suites:
        title = f"accuracy without context ({one.control}) on the examples of {one.suite}"
        yield from _by_task(title, one.known, [row.accuracy for row in one.known])
        title = f"context-dependent: what the full cache of {one.suite} answers and {one.control} does not"
        yield from _by_task(title, one.known, [row.dependent for row in one.known])
        yield from _induced(one)


def _by_task(title: str, known: Sequence[Known], numbers: Sequence[Estimate]) -> Iterator[str]:
    """A line for each model."""
    cells = {(row.model, row.task): number for row, number in zip(known, numbers, strict=True)}
    tasks = [task for task in dict.fromkeys(row.task for row in known) if task is not None]
    yield title
    yield f"{'model':25}{''.join(f'{task[:11]:>12}' for task in tasks)}   main tasks"
    yield RULE
    for model in dict.fromkeys(row.model for row in known):
        points = "".join(f"{point(cells[model, task]):>12}" for task in tasks)
        yield f"{model or ALL:25}{points}   {cells[model, None]}"
    yield from _reasons(numbers)
    yield ""


def _induced(one: Controlled) -> Iterator[str]:
    yield f"induced-failure rate, {one.suite}, main tasks: every example that the full cache answers, and the"
    yield "context-dependent ones alone"
    yield f"{'model':25}{'arm':18}{'condition':10}{'budget':8}{'every':21}context-dependent"
    yield RULE
    for row in one.induced:
        place = f"{row.model or ALL:25}{row.arm:18}{row.condition:10}{budget_words(row.budget):7} "
        yield f"{place}{row.every!s:21}{row.dependent}"
    yield from _reasons([number for row in one.induced for number in (row.every, row.dependent)])
    yield ""


def _reasons(numbers: Sequence[Estimate]) -> Iterator[str]:
    """Why numbers or intervals are undefined, each reason once."""
    for reason in dict.fromkeys(number.undefined for number in numbers if number.undefined):
        yield from wrapped("  undefined: ", reason)


# The descriptive tables: the signal panel, accuracy and induced-failure rates.


MAIN_SIGNALS = ("certificate", "output_logprob", "entropy")


def panel_tables(section: "Section", is_full: bool) -> Iterator[str]:
    """Lines of one table per suite, task set and arm; without `is_full` the main arm and signals only."""
    wanted = section.registered.content.details
    main = "" if wanted is None else wanted.arm
    rows = [
        row
        for row in section.details.panel
        if is_full or (row.arm == main and row.tasks == "main" and row.signal in MAIN_SIGNALS)
    ]
    for suite, tasks, arm in dict.fromkeys((row.suite, row.tasks, row.arm) for row in rows):
        here = [row for row in rows if (row.suite, row.tasks, row.arm) == (suite, tasks, arm)]
        title = f"AUC on {suite}, {tasks} tasks, arm {arm}"
        if reason := _lacking([row.pooled for row in here]):
            yield from (f"{title}: {reason}", "")
            continue
        yield title
        yield (f"{'label':17}{'signal':16}{'positive/rows':>15}  {'pooled':22}{'stratified':22}cell")
        yield RULE
        yield from map(_panel_line, here)
        yield ""


def _lacking(numbers: Sequence[Estimate]) -> str:
    """What the grid or the logs lack for every number of a table; empty if there is one, or none is asked."""
    reasons = list(dict.fromkeys(one.undefined for one in numbers))
    lacks_all = bool(reasons) and set(reasons) <= {NO_ROWS, NO_FULL, SOME_FULL}
    return "; ".join(reasons) if lacks_all else ""


def _panel_line(row: PanelRow) -> str:
    size = f"{row.positives:,}/{row.pooled.n:,}"
    return f"{row.label:17}{row.signal:16}{size:>15}  {row.pooled!s:22}{row.stratified!s:22}{row.cell_label}"


def is_only_full(suite: str, accuracy: Sequence[Rate]) -> bool:
    """Whether a suite runs the full cache alone, as a control without contexts does."""
    return {rate.arm for rate in accuracy if rate.suite == suite} == {FULL}


def rate_table(title: str, suite: str, rates: Sequence[Rate]) -> Iterator[str]:
    """Lines of one table: arms, conditions and budgets by task."""
    here = [rate for rate in rates if rate.suite == suite]
    if reason := _lacking([rate.estimate for rate in here]):
        yield from (f"{title}, {suite}: {reason}", "")
        return
    tasks = list(dict.fromkeys(rate.task for rate in here if rate.task is not None))
    cells = {(rate.arm, rate.condition, rate.budget, rate.task): rate.estimate for rate in here}
    yield f"{title}, {suite}"
    heads = "".join(f"{task[:12]:>13}" for task in tasks)
    yield f"{'arm':18}{'condition':10}{'budget':8}{heads}   main tasks"
    yield RULE
    for arm, condition, budget in dict.fromkeys(key[:3] for key in cells):
        key = (arm, condition, budget)
        points = [point(cells.get((*key, task))) for task in tasks]
        row = "".join(f"{text:>13}" for text in points)
        amount = "" if budget is None else budget_words(budget)
        pooled = cells.get((*key, None))
        yield f"{arm:18}{condition or '':10}{amount:7} {row}   {'-' if pooled is None else pooled}"
    yield ""


def to_text(found: "Description", *, is_full: bool) -> str:
    """Everything for people; without `is_full` only the main arm and signals of the panel."""
    lines = ["BLIND: outcomes are permuted.", ""] if found.is_blind else []
    lines += attention_tables(found.attention, is_full)
    lines += _details(found, is_full=is_full)
    if not is_full:
        is_only_cells = len(found.study.cells) and not len(found.study.table)
        full = "In full" if is_only_cells else "All arms, signals and tasks"
        lines += [f"{full}: details.md; everything for machines: verdicts.json, details.json"]
        if found.attention:
            lines += ["Attention suites drawn: figures/*.svg; as tables: tables/*.md, tables/*.csv"]
    return joined(lines)


def _details(found: "Description", *, is_full: bool) -> Iterator[str]:
    """The tables of every registration that describes suites with generations."""
    absent = set(found.unplanned)
    sections = [
        one
        for one in found.sections
        if one.registered.content.details is not None and set(one.registered.content.suites) - absent
    ]
    if not sections:
        return
    yield "AUC beside the verdicts, with bootstrap draws of their own. stratified: pairs within model, task,"
    yield "condition and budget; cell: what the bare condition x budget label tells without any signal."
    yield ""
    for section in sections:
        yield from panel_tables(section, is_full)
    for section in sections:
        for suite in section.registered.content.suites:
            if suite in found.study.cell_suites or suite in absent:
                continue
            yield from rate_table("accuracy", suite, section.details.accuracy)
            if is_only_full(suite, section.details.accuracy):
                continue  # nothing is evicted in it
            yield from rate_table("induced-failure rate", suite, section.details.induced)
            if is_full:
                yield from rate_table("rescue rate", suite, section.details.rescued)
    for section in sections if is_full else ():
        yield from control_tables(section.details.control)
