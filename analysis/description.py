"""Everything descriptive, made after the verdicts: details.json, details.md, tables, figures, report.html.

No seal covers this module or what it imports, and no verdict reads any of it.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from analysis import attention, descriptive, details_as_json, paper, posthoc, written
from analysis.attention import Attention
from analysis.blind_marks import marked_parts, marked_suites
from analysis.details import Details, details_of
from analysis.load import Study
from analysis.outputs import outputs
from analysis.parts import Part
from analysis.report import browser
from analysis.report.page import page
from analysis.scope import Scope
from analysis.tables.attention import tables_of
from analysis.text import to_text
from analysis.verdict import write
from analysis.verdict.report import Report
from analysis.verdict.write import complain
from kvexp.prereg.registration import Registered


@dataclass(frozen=True)
class Section:
    """One registration and the descriptive numbers of its suites."""

    registered: Registered
    details: Details


@dataclass(frozen=True)
class Description:
    """A study described: one section a registration in the order of their ids, and its attention suites."""

    study: Study
    sections: list[Section]
    attention: list[Attention]
    parts: list[Part]  # descriptive ones, then what is post hoc
    unplanned: list[str]  # registered suites that the grid does not have yet
    is_blind: bool = False


def make(report: Report, out: Path | None) -> str:
    """Describe, write all files below `out` or say in one line what was not; returns what people see."""
    try:
        found = of(report)
        files = {} if out is None else _files(out, report, found)
    except Exception:
        if out is not None:
            with suppress(OSError):
                written.forget(out)  # pages of an earlier state would stand beside these verdicts
        raise
    if out is not None:
        _write(out, found, files)
    return to_text(found, is_full=False)


def of(report: Report) -> Description:
    """Describe the study of a report."""
    scope = Scope(report)
    sections = [Section(one, details_of(scope, one)) for one in report.registrations]
    suites = list(attention.describe(report.study, report.registrations))
    builders = (*descriptive.BUILDERS, *posthoc.BUILDERS)
    parts = [part for build in builders if (part := build(scope)) is not None]
    tables = [
        *(table for part in parts for table in part.tables),
        *(t for one in suites for t in tables_of(one)),
    ]
    last = paper.beside(tables, scope)
    parts += [] if last is None else [last]
    parts = marked_parts(parts) if report.is_blind else parts
    return Description(report.study, sections, suites, parts, report.unplanned, report.is_blind)


def _files(folder: Path, report: Report, found: Description) -> dict[str, str | None]:
    """Tables, figures and the page by path; None: the file must not be there."""
    shown = replace(found, attention=marked_suites(found.attention)) if found.is_blind else found
    files = dict(outputs(shown.attention, shown.parts, is_blind=found.is_blind))
    return {
        **files,
        "report.html": page(report, shown, files, is_stale=browser.is_stale(folder, report.study)),
    }


def _write(folder: Path, found: Description, files: Mapping[str, str | None]) -> None:
    try:
        write.replace(folder / "details.json", details_as_json.to_json(found))
        write.replace(folder / "details.md", write.block("Details", to_text(found, is_full=True)))
        written.tidy(folder, files)
    except OSError as error:
        complain(f"not all details, figures and tables were written to {folder}: {error.strerror}")
