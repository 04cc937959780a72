"""Everything descriptive, made after the verdicts: details.json, details.md, tables, figures, report.html.

No seal covers this module or what it imports, and no verdict reads any of it.
"""

from dataclasses import dataclass

from analysis.core.study import Study
from analysis.core.verdicts import Report
from analysis.describe import attention, paper, posthoc
from analysis.describe import builders as descriptive
from analysis.describe.attention.describe import Attention
from analysis.describe.attention.tables import tables_of
from analysis.describe.blind_marks import marked_parts
from analysis.describe.details import Details, details_of
from analysis.describe.parts import Part
from analysis.describe.scope import Scope
from kvexp.documents.registration import Registered


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


def described(report: Report) -> Description:
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
