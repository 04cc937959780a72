"""Everything the analysis found about a study, and the exit code it earns."""

from collections.abc import Iterable
from dataclasses import dataclass

from analysis import attention
from analysis.attention import Attention
from analysis.decide import Answer, Verdict, decide
from analysis.details import Details, check, describe
from analysis.load import Study
from kvexp.prereg.condition import State
from kvexp.prereg.registration import Registered


@dataclass(frozen=True)
class Section:
    """One registration, its verdicts and its descriptive numbers."""

    registered: Registered
    verdicts: list[Verdict]
    details: Details


@dataclass(frozen=True)
class Report:
    """A study, one section per registration in the order of their ids, and its attention suites."""

    study: Study
    sections: list[Section]
    attention: list[Attention]

    @property
    def verdicts(self) -> list[Verdict]:
        """All verdicts, in order."""
        return [verdict for section in self.sections for verdict in section.verdicts]

    @property
    def exit_code(self) -> int:
        """0 decided, 3 incomplete, 4 integrity; the worst wins."""
        states = {verdict.answer.state for verdict in self.verdicts}
        if self.study.problems or State.INVALID in states:
            return 4
        return 3 if State.INCOMPLETE in states or any(map(self._lacks_rows, self.sections)) else 0

    @property
    def unplanned(self) -> list[str]:
        """Registered suites that the grid does not have yet, sorted."""
        suites = [suite for section in self.sections for suite in section.registered.content.suites]
        return self.study.unplanned(suites)

    def _lacks_rows(self, section: Section) -> bool:
        """Whether rows are missing for which no verdict speaks: worlds, and suites without claims."""
        suites = section.registered.content.suites
        if not section.verdicts and self.study.unplanned(suites):
            return True
        tables = [self.study.worlds]
        if not section.verdicts:
            tables += [self.study.table, self.study.cells]
        return any(not table.loc[table["suite"].isin(suites), "present"].all() for table in tables)


def analyse(study: Study, registrations: Iterable[Registered]) -> Report:
    """Decide and describe. Raises RegistrationError before anything is decided on half a registration."""
    registrations = list(registrations)
    for one in registrations:
        check(one)
    sections = [Section(one, decide(study, one), describe(study, one)) for one in registrations]
    return Report(study, sections, list(attention.describe(study, registrations)))


def submit_commands(study: Study, answer: Answer) -> list[str]:
    """What to type to get the missing rows, one command per suite."""
    suites = sorted({*(part.suite for part in answer.missing), *answer.unplanned})
    return [f"kvexp submit study={study.name} suite={suite}" for suite in suites]
