"""The decided claims of a study with what they are bound to, and the exit code they earn."""

import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

import pandas as pd

from analysis.core.decide import Answer, Verdict, decide, fragile
from analysis.core.open import Bound
from analysis.core.populations import ORIENTATION
from analysis.core.study import Study
from kvexp.documents.condition import State
from kvexp.documents.registration import Registered
from kvexp.documents.source import RegistrationError

ANEW = "RE-ANALYSED"


@dataclass(frozen=True)
class Report:
    """A study and its verdicts, in the order of the registrations' ids."""

    study: Study
    registrations: list[Registered]
    verdicts: list[Verdict]
    bound: Bound = field(default_factory=Bound)
    is_blind: bool = False
    is_anew: bool = False  # judged by other code than the sealed one

    @property
    def exit_code(self) -> int:
        """0 decided, 3 incomplete, 4 integrity; the worst wins."""
        states = {verdict.answer.state for verdict in self.verdicts}
        shown = self.bound.shown
        if self.study.problems or shown.failed or shown.is_broken or State.INVALID in states:
            return 4
        return 3 if State.INCOMPLETE in states or any(map(self._lacks_rows, self.registrations)) else 0

    @property
    def unplanned(self) -> list[str]:
        """Registered suites that the grid does not have yet, sorted."""
        return self.study.unplanned(suite for one in self.registrations for suite in one.content.suites)

    @property
    def open_suites(self) -> list[str]:
        """Suites that are sealed and not locked, sorted."""
        return self.bound.open_suites(self.registrations)

    def provisional(self, verdict: Verdict) -> list[str]:
        """Why a verdict is a preview; empty: it is not."""
        content = verdict.registered.content
        owners = {suite: one.content.id for one in self.registrations for suite in one.content.suites}
        reasons = [] if content.id in self.bound.seals else [f"registration {content.id} is not sealed"]
        for suite in suites_of(verdict):
            if owners.get(suite) not in self.bound.seals:
                reasons.append(f"suite {suite} is not sealed")
            elif not self.bound.is_locked(suite):
                reasons.append(f"suite {suite} is not locked")
            elif suite in self.study.unanchored:
                reasons.append(f"no time stamp keys the draws of suite {suite}")
        return reasons

    def word(self, verdict: Verdict) -> str:
        """The state of a claim, as it may be said."""
        is_preview = self.provisional(verdict) and not self.is_blind
        return self.prefixed(f"PREVIEW {verdict.answer.state.value}" if is_preview else self.state(verdict))

    def state(self, verdict: Verdict) -> str:
        """The state of a claim without a preview's mark."""
        return "BLIND" if self.is_blind else verdict.answer.state.value

    def prefixed(self, words: str) -> str:
        """The words of a state, marked where other code than the sealed one decided it."""
        return f"{ANEW} {words}" if self.is_anew else words

    def label(self, verdict: Verdict) -> str:
        """The registered words for the state."""
        return "" if self.is_blind else verdict.label

    def history(self, verdict: Verdict) -> list[str]:
        """How the claim came to be registered as it stands, where that needs saying."""
        parent = verdict.registered.content.parent
        later = "" if parent is None else f"addendum to {parent}"
        return [words for words in (later, self.amended(verdict)) if words]

    def amended(self, verdict: Verdict) -> str:
        """Whether what decides the claim was changed after it was sealed; empty: it was not."""
        seal = self.bound.seals.get(verdict.registered.content.id)
        return "" if seal is None else seal.amended(verdict.claim_id)

    @property
    def marks(self) -> list[str]:
        """What a reader must know before anything else."""
        marks = {
            "BLIND": self.is_blind,
            "UNWITNESSED": not self.bound.shown.is_witnessed,
            "AMENDED AFTER DATA": any(one.is_amended_after_data for one in self.bound.seals.values()),
            "EVIDENCE FAILS": bool(self.bound.shown.failed),
        }
        return [words for words, is_true in marks.items() if is_true]

    def commands(self, answer: Answer) -> list[str]:
        """What to type to get the missing rows, one command per suite that is not locked."""
        wanted = {*(part.suite for part in answer.missing), *answer.unplanned}
        suites = sorted(wanted - self.bound.locks.keys())
        return [self._submit(suite) for suite in suites]

    def _submit(self, suite: str) -> str:
        name, bound = self.study.name, self.bound
        study = [f"study={name}"] if bound.has_file else ["study=STUDY", f"study.name={name}"]
        seals = [bound.seals[id_] for id_ in self._owners(suite) if id_ in bound.seals]
        # Without a seal nothing here knows them: a reader of the capitals does.
        words = list(seals[0].overrides) if seals else [] if bound.has_file else ["OVERRIDES"]
        return shlex.join(["kvexp", "submit", *study, f"suite={suite}", *words])

    def _owners(self, suite: str) -> list[str]:
        """The registration that lists a suite, if there is one."""
        return [one.content.id for one in self.registrations if suite in one.content.suites]

    def _lacks_rows(self, registered: Registered) -> bool:
        """Whether rows are missing for which no verdict speaks: worlds, and suites without claims."""
        suites, has_claims = registered.content.suites, bool(registered.content.claim)
        if not has_claims and self.study.unplanned(suites):
            return True
        tables = [self.study.worlds]
        if not has_claims:
            tables += [self.study.table, self.study.cells]
        return any(_lacks(table, suites) for table in tables)


def analyse(
    study: Study, registrations: Iterable[Registered], bound: Bound, *, is_blind: bool = False
) -> Report:
    """Decide. Raises RegistrationError before anything is decided on half a registration."""
    registrations = list(registrations)
    for one in registrations:
        _check_signals(one)
    verdicts = [verdict for one in registrations for verdict in decide(study, one)]
    if not is_blind:
        verdicts = [replace(one, fragile=fragile(study, one)) for one in verdicts]
    return Report(study, registrations, verdicts, bound, is_blind)


def suites_of(verdict: Verdict) -> Iterator[str]:
    """The suites that a claim is decided on; its readings may look at more."""
    claim = verdict.registered.content.claim[verdict.claim_id]
    rows = claim.population if claim.cells is None else claim.cells
    yield from [] if rows is None else rows.suites


def _check_signals(registered: Registered) -> None:
    """Refuse details on signals that nothing logs."""
    wanted = registered.content.details
    for signal in wanted.signals if wanted is not None else ():
        if signal not in ORIENTATION:
            known = ", ".join(ORIENTATION)
            raise RegistrationError(f"{registered.path}: [details] no signal '{signal}'; there are {known}")


def _lacks(table: pd.DataFrame, suites: list[str]) -> bool:
    return not table.loc[table["suite"].isin(suites), "present"].all()
