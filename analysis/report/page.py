"""report.html: everything that was decided and described, on one page."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from analysis.attention import Attention
from analysis.blind_marks import marked_table
from analysis.parts import Part
from analysis.report import claims, evidence, head, numbers
from analysis.report.figures import Figure, of_attention, of_pictures
from analysis.report.grid import Grid, files_of, of_table, remarks_of, repeated, without
from analysis.report.templating import render
from analysis.tables import Table, ablations, tables_of
from analysis.tables.base import LABEL_MEANS, STRATIFIED_MEANS
from analysis.verdict.report import Report

if TYPE_CHECKING:
    from analysis.description import Description

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
    every = list(claims.claims_of(report))
    claim_remarks = repeated(grid.remarks for one in every for grid in one.tables)
    every = [replace(one, tables=without(claim_remarks, one.tables)) for one in every]
    figures = [figure for one in found.attention for figure in of_attention(one, files)]
    figures += [figure for part in planned for figure in of_pictures(part.pictures)]
    return render(
        "report.html",
        "report.css",
        "report.js",
        study=report.study.name,
        marks=head.marks(report),
        meanings=list(head.meanings(report)),
        sizes=head.sizes(report),
        unplanned=report.unplanned,
        claims=every,
        has_beside=any(one.has_beside for one in every),
        beside_means=(STRATIFIED_MEANS, LABEL_MEANS),
        claim_remarks=claim_remarks,
        verdict_files=_files_of_verdicts(found),
        evidence=evidence.evidence_of(report),
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
        tables = tuple(numbers.tables_of(one.details))
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
