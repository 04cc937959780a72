"""The seals of a study's registrations, and whether the sealed files are still what they were."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from analysis.core.amendments import AmendmentStep, steps
from analysis.core.folders import Folders
from kvexp.documents.manifest import SealError
from kvexp.documents.registration import Registered
from kvexp.documents.seals import (
    Lines,
    Seals,
    accepted,
    chain,
    is_stamped,
    seal_differences,
    seed_basis,
    unanchored,
    why_not,
)
from kvexp.errors import IntegrityError
from kvexp.records import Attempt

SHORT = 12  # characters of a seal id that people are shown
SHOWN = 20


class SealBroken(IntegrityError):
    """Sealed files are not what they were, so nothing may be computed from them."""


@dataclass(frozen=True)
class Seal:
    """The seal that stands of one registration.

    Attributes:
        id: sha256 of the manifest.
        name: id of the registration.
        parent: id of the one that it is an addendum to.
        home: folder of the registration.
        where: how that is called from the root of the repository.
        study: whose results it was made for.
        overrides: the words that shape its grid, beyond the study's file.
        steps: what came before it, in order.
        accepted: by seal id, the shards whose rows count.
        stamped: whether attempts must carry the anchor of a time stamp.
    """

    id: str
    name: str
    parent: str | None
    home: Path
    where: str
    study: str
    overrides: tuple[str, ...]
    steps: tuple[AmendmentStep, ...]
    accepted: Mapping[str, Lines]
    stamped: bool

    @property
    def is_amended_after_data(self) -> bool:
        """Whether what stands was changed when there were attempts."""
        return any(one.is_after_data for one in self.steps)

    def amended(self, claim_id: str) -> str:
        """How what decides a claim was changed after the seal was first made; empty: it was not."""
        found = [one.is_after_data for one in self.steps if one.touches(claim_id)]
        return "" if not found else "amended after data" if any(found) else "amended before data"

    def shards(self, suite: str) -> Lines:
        """What the grid of a suite must be, by shard id."""
        return {name: one for name, one in self.accepted[self.id].items() if one.suite == suite}

    def why_not(self, attempt: Attempt) -> str:
        """Why the rows of an attempt do not count; empty: they do."""
        return why_not(attempt, self.accepted, self.stamped)


def read_seals(registrations: Iterable[Registered], folders: Folders) -> dict[str, Seal]:
    """By registration id the seals there are. Raises SealBroken with all differences of all of them."""
    found = {one.content.id: one for one in registrations}
    sealed = {name: one for name, one in found.items() if _seals(one.path).is_sealed()}
    check({one.path: list(one.content.claim) for one in sealed.values()}, folders)
    seals = {name: _read(one, folders) for name, one in sealed.items()}
    problems = [words for name, one in sealed.items() for words in _strangers(one, seals[name], seals)]
    if problems:
        raise SealBroken(f"seals contradict themselves or each other: restore them; {NOTHING}", problems)
    return seals


def seeded(one: Registered, seals: Mapping[str, Seal], study: str) -> Registered:
    """The registration with what its seeds are made from: in the second format not its bytes."""
    if one.is_first_format:
        return one
    name = one.content.id
    basis = seed_basis(seals[name].home, name) if name in seals else unanchored(study, name)
    return replace(one, basis=basis)


NOTHING = "no verdict was computed"


def check(claims: Mapping[Path, list[str]], folders: Folders) -> None:
    """Raises SealBroken if what seals cover has changed.

    Args:
        claims: by registration file, the ids of its claims; a file without a seal is passed over.
        folders: the paths of seals are relative to its repository; if it judges anew, code is passed over.
    """
    lines, names = list[str](), list[str]()
    for path, ids in sorted(claims.items()):
        if not _seals(path).is_sealed():
            continue
        found = seal_differences(folders.repository, path.parent, path.stem, None if folders.is_anew else ids)
        if found:
            names.append(f"{path.stem} ({_seals(path).read_manifest().digest[:SHORT]})")
            lines += [line for line in found[:SHOWN] if line not in lines]
            lines += [f"and {len(found) - SHOWN} more"] if len(found) > SHOWN else []
            lines += _ways_out(path, folders.results)
    if lines:
        raise SealBroken(f"sealed files differ from {', '.join(names)}; {NOTHING}", lines)


def _seals(registration: Path) -> Seals:
    return Seals(registration.parent / "seals", registration.stem)


def _ways_out(path: Path, results: Path) -> Iterator[str]:
    try:
        study = _seals(path).read_about().study
    except SealError:
        study = "STUDY"
    command = f"kvexp amend {study} {path.stem} --why '...' --data-seen '...'"
    yield f"restore the files, or register the change: {command}"
    yield f"if code has changed, judge by the sealed code: python -m analysis {results} --as-sealed"
    yield f"or judge anew, by the code that is here: python -m analysis {results} --anew --out DIR"


def _read(one: Registered, folders: Folders) -> Seal:
    home, name = one.path.parent, one.content.id
    about = _seals(one.path).read_about()
    return Seal(
        id=_seals(one.path).read_manifest().digest,
        name=name,
        parent=one.content.parent,
        home=home,
        where=folders.called(home),
        study=about.study,
        overrides=tuple(about.overrides or ()),
        accepted=accepted(home, name),
        steps=tuple(steps(home, name)),
        stamped=is_stamped(home, name),
    )


def _strangers(one: Registered, seal: Seal, seals: Mapping[str, Seal]) -> Iterator[str]:
    """How a seal is about something else than its registration, or follows from no seal of its parent."""
    content, name = one.content, one.content.id
    about = _seals(one.path).read_about()
    if about.id != name or sorted(about.suites) != sorted(content.suites):
        yield f"seal {name} is about the suites {', '.join(about.suites)} of {about.id}"
    suites = {line.suite for line in seal.accepted[seal.id].values()}
    if stray := suites - set(content.suites):
        yield f"seal {name} lists shards of {min(stray)}, a suite that the registration does not have"
    if content.parent is not None:
        parent = seals.get(content.parent)
        if parent is None:
            yield f"seal {name} is an addendum to {content.parent}, whose seal is not there"
        elif about.parent not in _ids(parent, content.parent):
            yield f"seal {name} is an addendum to another seal of {content.parent}"


def _ids(seal: Seal, registration_id: str) -> set[str]:
    return {link.read_manifest().digest for link in chain(seal.home, registration_id)}
