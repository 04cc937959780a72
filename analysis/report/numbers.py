"""The descriptive numbers of `analysis.details` and `analysis.control` as tables of the page."""

from collections.abc import Iterator, Sequence

from analysis.control import Controlled
from analysis.details import Details, PanelRow, Rate
from analysis.report.grid import UNDEFINED, Grid, budget, estimate, grid
from analysis.statistics import Estimate
from analysis.tables.base import LABEL_MEANS, POOLED_MEANS, STRATIFIED_MEANS

MAIN, EVERY = "main tasks", "all models"
AUC_MEANS = (
    POOLED_MEANS,
    STRATIFIED_MEANS,
    LABEL_MEANS,
    "AUC above 0.5: the larger the risk that the signal sees, the more often positive.",
    "Bootstrap draws of their own, so the third digit may differ from the verdicts'.",
)


def tables_of(details: Details) -> Iterator[Grid]:
    """The signal panel, rates suite by suite, the control."""
    if details.panel:
        yield _panel(details.panel)
    for title, rates in (
        ("Accuracy", details.accuracy),
        ("Induced failures among what the full cache answers", details.induced),
        ("Rescues among what the full cache does not answer", details.rescued),
    ):
        for suite in dict.fromkeys(rate.suite for rate in rates):
            yield _rates(f"{title}, {suite}", [rate for rate in rates if rate.suite == suite])
    for one in details.control:
        yield from _control(one)


def _panel(panel: Sequence[PanelRow]) -> Grid:
    heads = [
        "suite",
        "tasks",
        "arm",
        "signal",
        "label",
        "positive",
        "rows",
        "pooled",
        "stratified",
        "label alone",
    ]
    rows = [
        (
            row.suite,
            row.tasks,
            row.arm,
            row.signal,
            row.label.replace("_", " "),
            row.positives if row.pooled.value is not None else None,
            row.pooled.n or None,
            row.pooled,
            row.stratified,
            row.cell_label,
        )
        for row in panel
    ]
    numbers = [one for row in panel for one in (row.pooled, row.stratified, row.cell_label)]
    return grid("AUC of every signal of every arm", heads, rows, [*AUC_MEANS, *_reasons(numbers)])


def _rates(title: str, rates: Sequence[Rate]) -> Grid:
    """A line for each arm, condition and budget, a column for each task; None is all main tasks."""
    tasks = [task for task in dict.fromkeys(rate.task for rate in rates) if task is not None]
    found = {(rate.arm, rate.condition, rate.budget, rate.task): rate.estimate for rate in rates}
    rows = []
    for arm, condition, amount in dict.fromkeys(key[:3] for key in found):
        numbers = [found.get((arm, condition, amount, task)) for task in (*tasks, None)]
        rows.append((arm, condition, budget(amount), *map(estimate, numbers)))
    heads = ["arm", "condition", "budget", *tasks, MAIN]
    return grid(title, heads, rows, _reasons([rate.estimate for rate in rates]))


def _control(one: Controlled) -> Iterator[Grid]:
    heads = ["model", "task", f"accuracy of {one.control}", "context-dependent"]
    known = [(row.model or EVERY, row.task or MAIN, row.accuracy, row.dependent) for row in one.known]
    numbers = [number for row in one.known for number in (row.accuracy, row.dependent)]
    means = f"context-dependent: what the full cache of {one.suite} answers and {one.control} does not."
    title = f"Without context ({one.control}), on the examples of {one.suite}"
    yield grid(title, heads, known, [means, *_reasons(numbers)])
    heads = ["model", "arm", "condition", "budget", "every example", "context-dependent ones"]
    induced = [
        (row.model or EVERY, row.arm, row.condition, budget(row.budget), row.every, row.dependent)
        for row in one.induced
    ]
    numbers = [number for row in one.induced for number in (row.every, row.dependent)]
    yield grid(
        f"Induced failures where the context is needed, {one.suite}", heads, induced, _reasons(numbers)
    )


def _reasons(numbers: Sequence[Estimate]) -> list[str]:
    return [f"{UNDEFINED}{reason}." for reason in dict.fromkeys(n.undefined for n in numbers if n.undefined)]
