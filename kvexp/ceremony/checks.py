"""All checks of a study's evidence together: what holds, what fails, and what cannot be told."""

from collections.abc import Iterable, Iterator

from kvexp.ceremony.cannot import cannot_exclude
from kvexp.ceremony.checks_of_logs import of_logs
from kvexp.ceremony.checks_of_papers import of_papers
from kvexp.ceremony.evidence import Found
from kvexp.documents.forms import AttemptEvidence, Check, Evidence, Regenerated, Replayed
from kvexp.documents.judged_from import Judged


def sentences(
    found: Found,
    attempts: list[AttemptEvidence],
    jobs: Iterable[Check],
    replay: Replayed | None,
    regenerated: Regenerated | None = None,
) -> Iterator[Check]:
    """Every check, in the order of the story: registration, stamps, attempts, lock, looks, replay, jobs."""
    yield from of_papers(found, attempts)
    yield from of_logs(found, attempts, replay, regenerated)
    yield from jobs


def _read_digests(found: Found) -> dict[str, str]:
    """What all of this was judged from."""
    home = found.home
    judged = Judged(home.root, home.study, home.results, home.folder, home.prefix)
    suites = {one.content.id: one.content.suites for one in found.registered}
    sealed = [one.content.claim for one in found.registered if found.seals[one.content.id].seal is not None]
    digests = judged.digests(suites, {claim for claims in sealed for claim in claims})
    return {**digests, **judged.authorities({one.trust for one in found.stamps})}


def evidence_of(
    found: Found, jobs: Iterable[Check], replay: Replayed | None, regenerated: Regenerated | None = None
) -> Evidence:
    """All of it, with the sentences; `jobs`: what Slurm's accounting lets one say."""
    attempts = found.attempt_evidence()
    grades = [seal.grade for seal in found.seals.values()]
    return Evidence(
        study=found.home.study,
        home=found.home.prefix,
        read=_read_digests(found),
        grade=min(grades, default=0),
        seals=list(found.seals.values()),
        amendments=found.amendments,
        attempts=attempts,
        locks=list(found.locks.values()),
        looks=found.looks,
        replay=replay,
        checks=list(sentences(found, attempts, jobs, replay, regenerated)),
        cannot=list(cannot_exclude(found, regenerated)),
        regenerated=regenerated,
    )
