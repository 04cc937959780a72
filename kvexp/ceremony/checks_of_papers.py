"""What the papers bear out: seals, time stamps, addenda and amendments, and their order to the data."""

from collections.abc import Iterator

from kvexp.ceremony.evidence import Found
from kvexp.ceremony.home import KINDS
from kvexp.documents.forms import LOCKED, SHOWN, AttemptEvidence, Check, SealEvidence, all_hold
from kvexp.documents.manifest import differences, read_manifest
from kvexp.documents.registration import Registered
from kvexp.documents.seals import REPLACED, UNANCHORED, UNSEALED, UNSTAMPED, moved_on

# Where the author's word on existing data contradicts what is recorded: attempts, looks and amendments.


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
    parts = [*_attempts(found, registration_id, attempts), *_amended_word(found, registration_id)]
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


def _amended_word(found: Found, registration_id: str) -> Iterator[str]:
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


def of_papers(found: Found, attempts: list[AttemptEvidence]) -> Iterator[Check]:
    """Every check of what was registered, in the order of the story."""
    for seal in found.seals.values():
        yield _sealed(seal)
        yield from _code(found, seal)
    yield all_hold("stamps", found.problems, "every time stamp and paper can be read and verified")
    for one in found.registered:
        name = one.content.id
        yield from _order(found, name, attempts)
        yield from contradictions(found, name, attempts)
        if one.content.parent is not None:
            yield _addendum(found, name, one.content.parent)
            yield from _earlier_data(one)
    yield from _amended(found)
    yield from _copies(found)


def _sealed(seal: SealEvidence) -> Check:
    name = f"seal {seal.id}"
    if seal.seal is None:
        return Check(name=name, holds=None, words="not sealed: nothing shows what was registered")
    if seal.differences:
        return all_hold(name, [f"{line} since the seal" for line in seal.differences], "")
    return Check(name=name, holds=True, words="every sealed file is what it was when it was sealed")


def _code(found: Found, seal: SealEvidence) -> Iterator[Check]:
    """Whether this tree could make the data again: their attempts name the code that did, this one or not."""
    seals = found.home.seals(seal.id)
    paths = [path for kind in KINDS if (path := seals.protocol(kind)).exists()]
    if seal.seal is None or not paths:
        return
    lines = sorted({line for path in paths for line in differences(found.home.root, read_manifest(path))})
    name = f"code of {seal.id}"
    if not lines:
        yield Check(name=name, holds=True, words="the files that make data are those that were sealed")
        return
    more = f" and {len(lines) - SHOWN} more" if len(lines) > SHOWN else ""
    words = "the files that make data are others now, so that nothing can be run again here"
    yield Check(name=name, holds=None, words=f"{words}: {'; '.join(lines[:SHOWN])}{more}")


def _order(found: Found, registration_id: str, attempts: list[AttemptEvidence]) -> Iterator[Check]:
    """Registration before data: by the anchor, which no clock can move, and by the clocks."""
    seal, name = found.seals[registration_id], f"{registration_id} before its data"
    mine = [one for one in attempts if found.owner(one.suite) == registration_id and one.counts]
    if seal.seal is None:
        return
    if not mine:
        if any(found.owner(one.suite) == registration_id for one in attempts):
            yield Check(name=name, holds=None, words="no attempt of its suites counts")
        return
    if seal.anchor == UNANCHORED:
        words = f"no time stamp: the {len(mine)} attempts that count may be older than the registration"
        yield Check(name=name, holds=None, words=words)
        return
    carries = (
        f"each of the {len(mine)} attempts that count carries the anchor of the time stamp, which did not "
        "exist before it, and the Poisson draws are keyed by it"
    )
    if late := found.amended_after_data(registration_id):
        steps = ", ".join(f"{one.id}-{one.number}" for one in late)
        words = f"true of the seal under which data began ({carries}), but amended after data: {steps}"
        yield Check(name=name, holds=None, words=words)
    else:
        yield Check(name=name, holds=True, words=carries)
    yield from _clocks(found, registration_id, min(one.started_at for one in mine))


def _clocks(found: Found, registration_id: str, first: str) -> Iterator[Check]:
    """The order by the clocks: shown, never decisive."""
    seal = found.seals[registration_id]
    steps = (one.stamps for one in found.amendments if one.id == registration_id)
    stamps = [stamp for stamped in (seal.stamps, *steps) for stamp in stamped]
    times = [stamp.time for stamp in stamps if stamp.anchor == seal.anchor]
    if times:
        stamped = times[0][:19]
        order = "BEFORE" if first[:19] < stamped else "after"
        words = f"by the clocks, the first attempt began ({first}) {order} the time stamp ({times[0]})"
        if first[:19] == stamped:
            words = (
                f"by the clocks, the first attempt began in the very second of the time stamp ({times[0]}), "
                "which they cannot order; its anchor shows that the time stamp was there"
            )
        yield Check(
            name=f"clocks of {registration_id}", holds=None if order == "BEFORE" else True, words=words
        )


def _addendum(found: Found, registration_id: str, parent: str) -> Check:
    name = f"addendum {registration_id}"
    files, above = found.home.seals(registration_id), found.home.chain(parent)[0]
    if not files.is_sealed() or not above.is_sealed():
        return Check(name=name, holds=None, words=f"{registration_id} and {parent} are not both sealed")
    if files.read_about().parent != above.read_manifest().digest:
        return Check(name=name, holds=False, words=f"its seal names another seal of {parent} as its parent")
    return Check(name=name, holds=True, words=f"sealed after {parent}, whose seal it names")


def _earlier_data(one: Registered) -> Iterator[Check]:
    """Claims of an addendum that read suites of its parent: their data may have been there, and seen."""
    mine = set(one.content.suites)
    for claim_id, claim in one.content.claim.items():
        rows = claim.population or claim.cells
        others = [] if rows is None else sorted(set(rows.suites) - mine)
        if others:
            seen = "; ".join(one.content.data_seen) or "nothing"
            words = (
                f"it reads {', '.join(others)}, which {one.content.id} does not key: nothing shows that it "
                f"came before those data; the author's word on data seen: {seen}"
            )
            yield Check(name=f"claim {claim_id}", holds=None, words=words)


def _amended(found: Found) -> Iterator[Check]:
    """What says that it came before data has no attempts under the seal before it; `chain` sees the rest."""
    seals = {attempt.attempt.seal for attempt in found.attempts}
    for one in found.amendments:
        name, is_late = f"amendment {one.id}-{one.number}", one.stage == "after-data"
        if not is_late and one.replaces in seals:
            words = "it says that it came before data, and there are attempts"
            yield Check(name=name, holds=False, words=words)
            continue
        seen = f"after {one.attempts} attempts and {one.looks} recorded looks had been made"
        words = f"made {seen if is_late else 'before any attempt'}; it names the seal before it"
        yield Check(name=name, holds=True, words=words)


def _copies(found: Found) -> Iterator[Check]:
    """What was locked with the logs is what judges them; the folder of registrations may have moved on."""
    home = found.home
    for one in found.registered:
        beside = home.results / LOCKED
        if beside == home.folder or not (beside / one.path.name).is_file():
            continue
        lines = moved_on(home.folder, beside, one.content.id)
        if lines and f"seals/{one.content.id}.sha256" not in lines:  # of another seal the lock's check speaks
            words = (
                f"{home.prefix} is not what was locked with the logs ({', '.join(lines[:SHOWN])}): the copy "
                f"in results/{home.study}/{LOCKED} is what counts"
            )
            yield Check(name=f"copy of {one.content.id}", holds=None, words=words)
