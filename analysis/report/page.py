"""report.html: everything that was decided and described, on one page."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from analysis.attention import Attention
from analysis.blind_marks import marked_table
from analysis.parts import Part
from analysis.report import claims, evidence, head, numbers
from analysis.report.figures import Figure, of_attention, of_pictures
from analysis.report.grid import Grid, of_table
from analysis.report.templating import render
from analysis.tables import Table, ablations, tables_of
from analysis.verdict.report import Report

if TYPE_CHECKING:
    from analysis.description import Description

POSTHOC = "Post hoc: conceived after data were seen, no verdict"


@dataclass(frozen=True)
class Section:
    """One heading of descriptive numbers: what to know first, figures, tables."""

    id: str
    title: str
    words: str
    figures: tuple[Figure, ...]
    tables: tuple[Grid, ...]


def page(report: Report, found: "Description", files: Mapping[str, str | None], *, is_stale: bool) -> str:
    """The whole file. The same report and description give the same bytes.

    Args:
        report: the verdicts.
        found: what describes them.
        files: the tables and figures beside the page, by path.
        is_stale: whether a generations.html of other logs lies beside the page.
    """
    planned = [part for part in found.parts if not part.is_posthoc]
    sections = [*map(_part, planned), *_numbers(found), *_attention(found.attention, found.is_blind)]
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
        claims=list(claims.claims_of(report)),
        evidence=evidence.evidence_of(report),
        figures=figures,
        sections=sections,
        posthoc=[_part(part, with_figures=True) for part in found.parts if part.is_posthoc],
        posthoc_title=POSTHOC,
        has_generations=bool(len(report.study.table)),
        is_stale=is_stale,
    )


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
