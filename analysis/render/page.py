"""report.html: everything that was decided and described, on one page."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from analysis.core.verdicts import Report
from analysis.describe.parts import Part
from analysis.describe.table import LABEL_MEANS, STRATIFIED_MEANS
from analysis.render import evidence, page_claims
from analysis.render.html import render
from analysis.render.page_figures import Figure, of_pictures
from analysis.render.page_tables import Grid, files_of, of_table, remarks_of, repeated, without

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


def page(report: Report, parts: Sequence[Part], *, is_stale: bool) -> str:
    """The whole file. The same report and description give the same bytes.

    Args:
        report: the verdicts.
        parts: what describes them.
        is_stale: whether a generations.html of other logs lies beside the page.
    """
    planned = [part for part in parts if not part.is_posthoc and part.key != VERDICTS]
    remarks, sections = _said_once([_section(part, ()) for part in planned])
    posthoc_remarks, posthoc = _said_once(
        [_section(part, tuple(of_pictures(part.pictures))) for part in parts if part.is_posthoc]
    )
    every = list(page_claims.claims_of(report))
    claim_remarks = repeated(grid.remarks for one in every for grid in one.tables)
    every = [replace(one, tables=without(claim_remarks, one.tables)) for one in every]
    verdicts = [table for part in parts if part.key == VERDICTS for table in part.tables]
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
        verdict_files=[file for table in verdicts for file in files_of(table)],
        evidence=evidence.evidence_of(report),
        figures=[figure for part in planned if not part.undefined for figure in of_pictures(part.pictures)],
        sections=sections,
        remarks=remarks,
        posthoc=posthoc,
        posthoc_remarks=posthoc_remarks,
        posthoc_title=POSTHOC,
        has_generations=bool(len(report.study.table)),
        is_stale=is_stale,
    )


def _said_once(sections: Sequence[Section]) -> tuple[tuple[str, ...], list[Section]]:
    """What tables of several sections say, and the sections, each with what several of its tables say."""
    shared = repeated(remarks_of(one.tables) for one in sections)
    made = list[Section]()
    for one in sections:
        tables = without(shared, one.tables)
        own = repeated(one.remarks for one in tables)
        made.append(replace(one, tables=without(own, tables), remarks=own))
    return shared, made


def _section(part: Part, figures: tuple[Figure, ...]) -> Section:
    words = f"No numbers: {part.undefined}." if part.undefined else part.words
    tables = () if part.undefined else tuple(map(of_table, part.tables))
    return Section(f"part-{part.key}", part.title, words, figures, tables)
