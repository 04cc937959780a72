"""report.html: everything that was decided and described, on one page."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from analysis.core.estimates import Estimate
from analysis.core.verdicts import Report
from analysis.describe.attention.describe import Attention
from analysis.describe.attention.tables import ablations, tables_of
from analysis.describe.blind_marks import marked_table
from analysis.describe.details import Controlled, Details, PanelRow, Rate
from analysis.describe.parts import Part
from analysis.describe.table import LABEL_MEANS, POOLED_MEANS, STRATIFIED_MEANS, Table
from analysis.render import page_claims, page_evidence
from analysis.render.html import render
from analysis.render.page_figures import Figure, of_attention, of_pictures
from analysis.render.page_tables import (
    UNDEFINED,
    Grid,
    budget,
    estimate,
    files_of,
    grid,
    of_table,
    remarks_of,
    repeated,
    without,
)

if TYPE_CHECKING:
    from analysis.describe.description import Description


# The title of a page: which study, what holds back its verdicts, and how much of it is there.


PREVIEW, INTEGRITY = "PREVIEW", "INTEGRITY"
MEANINGS = {
    "BLIND": "outcomes are permuted within model and task, so that nothing below is a result.",
    INTEGRITY: "the logs contradict themselves, or evidence.json cannot be read; see Evidence.",
    "EVIDENCE FAILS": "something that evidence.json tells does not hold; see Evidence.",
    "UNWITNESSED": "nobody but the author vouches for the time of the registrations.",
    "AMENDED AFTER DATA": "what was sealed was changed when there were data; see Evidence.",
}


def marks(report: Report) -> list[str]:
    """What a reader must know before any verdict: what the text says, and what holds for some claims."""
    is_broken = bool(report.study.problems) or report.bound.shown.is_broken
    is_preview = not report.verdicts or any(map(report.provisional, report.verdicts))
    own = {INTEGRITY: is_broken, PREVIEW: is_preview and not report.is_blind}
    return [*(mark for mark, is_true in own.items() if is_true), *report.marks]


def meanings(report: Report) -> Iterator[str]:
    """A sentence for each mark, in the same order, and what is to be known of where things lie."""
    for mark in marks(report):
        yield f"{mark}: {_preview(report) if mark == PREVIEW else MEANINGS.get(mark, 'see Evidence.')}"
    yield from report.bound.notes


def sizes(report: Report) -> list[str]:
    """How much is there of each kind of row."""
    kinds = [(report.study.table, "generations"), (report.study.cells, "attention cells")]
    shown = [kind for kind in kinds if len(kind[0])] or kinds[:1]
    return [f"{int(table['present'].sum()):,} of {len(table):,} {nouns}" for table, nouns in shown]


def _preview(report: Report) -> str:
    if not report.verdicts:
        return "no claim is registered, so whatever follows is exploratory."
    if not report.bound.seals:
        return "nothing is sealed or locked, so no verdict below is evidence yet."
    reasons = dict.fromkeys(reason for one in report.verdicts for reason in report.provisional(one))
    return f"not evidence yet: {'; '.join(reasons)}."


# The descriptive numbers of `analysis.describe.details` as tables of the page.


MAIN, EVERY = "main tasks", "all models"
AUC_MEANS = (
    POOLED_MEANS,
    STRATIFIED_MEANS,
    LABEL_MEANS,
    "AUC above 0.5: the larger the risk that the signal sees, the more often positive.",
    "Bootstrap draws of their own, so the third digit may differ from the verdicts'.",
)


def number_tables(details: Details) -> Iterator[Grid]:
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


VERDICTS = "verdicts"  # the part whose tables the page shows as its verdict table and claims
POSTHOC = "Post hoc: conceived after data were seen, no verdict"


@dataclass(frozen=True)
class Section:
    """One heading of descriptive numbers: what to know first, remarks on its tables, figures, tables."""

    id: str
    title: str
    words: str
    figures: tuple[Figure, ...]
    tables: tuple[Grid, ...]
    remarks: tuple[str, ...] = ()


def page(report: Report, found: "Description", files: Mapping[str, str | None], *, is_stale: bool) -> str:
    """The whole file. The same report and description give the same bytes.

    Args:
        report: the verdicts.
        found: what describes them.
        files: the tables and figures beside the page, by path.
        is_stale: whether a generations.html of other logs lies beside the page.
    """
    planned = [part for part in found.parts if not part.is_posthoc and part.key != VERDICTS]
    sections = [*map(_part, planned), *_numbers(found), *_attention(found.attention, found.is_blind)]
    remarks, sections = _said_once(sections)
    posthoc_remarks, posthoc = _said_once(
        [_part(part, with_figures=True) for part in found.parts if part.is_posthoc]
    )
    every = list(page_claims.claims_of(report))
    claim_remarks = repeated(grid.remarks for one in every for grid in one.tables)
    every = [replace(one, tables=without(claim_remarks, one.tables)) for one in every]
    figures = [figure for one in found.attention for figure in of_attention(one, files)]
    figures += [figure for part in planned for figure in of_pictures(part.pictures)]
    return render(
        "report.html",
        "report.css",
        "report.js",
        study=report.study.name,
        marks=marks(report),
        meanings=list(meanings(report)),
        sizes=sizes(report),
        unplanned=report.unplanned,
        claims=every,
        has_beside=any(one.has_beside for one in every),
        beside_means=(STRATIFIED_MEANS, LABEL_MEANS),
        claim_remarks=claim_remarks,
        verdict_files=_files_of_verdicts(found),
        evidence=page_evidence.evidence_of(report),
        figures=figures,
        sections=sections,
        remarks=remarks,
        posthoc=posthoc,
        posthoc_remarks=posthoc_remarks,
        posthoc_title=POSTHOC,
        has_generations=bool(len(report.study.table)),
        is_stale=is_stale,
    )


def _files_of_verdicts(found: "Description") -> list[str]:
    """The tables beside the page that say what the page's own verdict table says."""
    tables = [table for part in found.parts if part.key == VERDICTS for table in part.tables]
    return [file for table in tables for file in files_of(table)]


def _said_once(sections: Sequence[Section]) -> tuple[tuple[str, ...], list[Section]]:
    """What tables of several sections say, and the sections, each with what several of its tables say."""
    shared = repeated(remarks_of(one.tables) for one in sections)
    made = list[Section]()
    for one in sections:
        tables = without(shared, one.tables)
        own = repeated(one.remarks for one in tables)
        made.append(replace(one, tables=without(own, tables), remarks=own))
    return shared, made


def _part(part: Part, *, with_figures: bool = False) -> Section:
    figures = tuple(of_pictures(part.pictures)) if with_figures else ()
    return Section(f"part-{part.key}", part.title, part.words, figures, tuple(map(of_table, part.tables)))


def _numbers(found: "Description") -> Iterator[Section]:
    for one in found.sections:
        tables = tuple(number_tables(one.details))
        if tables:
            content = one.registered.content
            title = f"Signals and rates, registration {content.id}"
            words = f"Suites {', '.join(content.suites)}. No verdict reads these numbers."
            yield Section(f"numbers-{content.id}", title, words, (), tables)


def _attention(suites: Sequence[Attention], is_blind: bool) -> Iterator[Section]:
    shown = marked_table if is_blind else _as_it_is
    for one in suites:
        words = one.undefined and f"No numbers: {one.undefined}."
        title = f"Attention suite {one.name}"
        tables = () if one.undefined else tuple(of_table(shown(table)) for table in tables_of(one))
        yield Section(f"attention-{one.name}", title, words, (), tables)
    if len(suites) > 1:
        beside = of_table(shown(ablations(suites)))
        yield Section("ablations", "Attention suites side by side", "", (), (beside,))


def _as_it_is(table: Table) -> Table:
    return table
