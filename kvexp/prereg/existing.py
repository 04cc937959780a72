"""Where the author's word on existing data contradicts what is recorded: attempts, looks and amendments."""

from collections.abc import Iterator

from kvexp.prereg.chain import REPLACED, UNSEALED, UNSTAMPED
from kvexp.prereg.evidence import Found
from kvexp.prereg.forms import AttemptEvidence, Check

NONE_YET = "before-creation"
SEEN = "after-analysis"
MEANS = {
    NONE_YET: "there were none yet",
    "before-observation": "there were some, and nobody had observed them",
    "before-access": "there were some, and the author had no access to them",
    "before-analysis": "the author had them, and had not analysed them",
    SEEN: "the author had analysed them",
}
TOO_EARLY = (UNSEALED, UNSTAMPED, REPLACED)


def told(level: str) -> str:
    """A level of the registration's `existing_data` in words, as the author states it."""
    return f"{MEANS[level]} ({level})" if level in MEANS else level


def contradictions(found: Found, registration_id: str, attempts: list[AttemptEvidence]) -> Iterator[Check]:
    """What of the record is more than the registration's `existing_data` admits; nothing if that fits."""
    seal = found.seals[registration_id]
    if seal.seal is None or seal.existing_data == SEEN:
        return
    parts = [*_attempts(found, registration_id, attempts), *_amended(found, registration_id)]
    parts += _looks(found, registration_id)
    if parts:
        level = f"{seal.existing_data} ({MEANS.get(seal.existing_data)})"
        words = f"contradicted: existing data is said to be {level}, but {'; '.join(parts)}"
        yield Check(name=f"existing data of {registration_id}", holds=None, words=words)


def _attempts(found: Found, registration_id: str, attempts: list[AttemptEvidence]) -> Iterator[str]:
    mine = [one for one in attempts if found.owner(one.suite) == registration_id]
    early = [one for one in mine if one.reason in TOO_EARLY]
    if early and found.seals[registration_id].existing_data == NONE_YET:
        first = min(one.started_at for one in early)
        yield (
            f"{len(early)} attempts of its suites were made before the seal or its time stamp (the first "
            f"began {first}, by its clock)"
        )


def _amended(found: Found, registration_id: str) -> Iterator[str]:
    says_none = found.seals[registration_id].existing_data == NONE_YET
    for one in found.amended_after_data(registration_id):
        if says_none or one.looks:
            yield f"amendment {one.id}-{one.number} came after {one.attempts} attempts and {one.looks} looks"


def _looks(found: Found, registration_id: str) -> Iterator[str]:
    """Looks that are older than every time stamp of the seal that stands, by the clocks."""
    times = [stamp.time[:19] for stamp in found.seals[registration_id].stamps]
    looks = [one for one in found.looks if any(found.owns(registration_id, suite) for suite in one.suites)]
    early = [one for one in looks if times and one.at[:19] < min(times)]
    if early and not found.amended_after_data(registration_id):
        yield f"{len(early)} looks at its suites are older than its time stamp, by the clocks"
