"""The descriptive tables: the signal panel, accuracy and induced-failure rates."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from analysis.details import PanelRow, Rate
from analysis.load.grid import FULL
from analysis.scope import NO_FULL, NO_ROWS, SOME_FULL
from analysis.statistics import Estimate
from analysis.tables.base import budget_words
from analysis.verdict.words import RULE, point

if TYPE_CHECKING:
    from analysis.description import Section

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
