"""The sentences of the evidence: what holds, what fails, and what cannot be told."""

from collections.abc import Iterator

from kvexp.errors import IntegrityError
from kvexp.prereg.checks_of_logs import of_logs
from kvexp.prereg.checks_of_papers import of_papers
from kvexp.prereg.evidence import Found
from kvexp.prereg.forms import AttemptEvidence, Check, Regenerated, Replayed
from kvexp.slurm.crosscheck import of_accounting


def sentences(
    found: Found,
    attempts: list[AttemptEvidence],
    replay: Replayed | None,
    regenerated: Regenerated | None = None,
) -> Iterator[Check]:
    """Every check, in the order of the story: registration, stamps, attempts, lock, looks, replay, jobs."""
    yield from of_papers(found, attempts)
    yield from of_logs(found, attempts, replay, regenerated)
    yield from of_accounting(found.home.root, found.home.results, set(found.locks), found.attempts)


def refuse_failing(checks: list[Check]) -> None:
    """Raises IntegrityError, with the list, if a check fails."""
    failing = [f"{check.name}: {check.words}" for check in checks if check.holds is False]
    if failing:
        raise IntegrityError(f"{len(failing)} checks of the evidence fail", failing)
