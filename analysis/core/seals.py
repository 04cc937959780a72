"""The seals of a study, checked against the files here, and what amendments changed."""

import difflib
import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from analysis.core.folders import Folders
from kvexp import files
from kvexp.documents.forms import Amendment
from kvexp.documents.manifest import SealError, home_prefix
from kvexp.documents.registration import Registered
from kvexp.documents.seals import (
    Lines,
    Seals,
    accepted,
    chain,
    changed,
    is_stamped,
    read_amendment,
    seal_differences,
    seed_basis,
    unanchored,
    why_not,
)
from kvexp.documents.source import RegistrationError, Source, read
from kvexp.errors import IntegrityError
from kvexp.records import Attempt

# What the amendments of a registration changed: which claims each touches, and by which lines.


CLAIMS = "analysis/claims/"
# Keys of a registration that no verdict is computed from.
PROSE = (
    *("id", "title", "authors", "registered_at", "registrations_made", "existing_data"),
    *("existing_data_note", "data_seen", "stopping", "exclusions", "missing", "details"),
)
GRID = "the grid or the code that makes data"


@dataclass(frozen=True)
class AmendmentStep:
    """One amendment."""

    stated: Amendment  # by the author
    before: Seals  # the seal that it replaced
    commit: str | None  # where that seal's files can be found again, as the author says
    shared: tuple[str, ...]  # what changed that every claim of the registration depends on
    claims: Mapping[str, tuple[str, ...]]  # by claim id, what of its own changed
    lines: tuple[str, ...]  # of the registration, `- old` and `+ new`

    @property
    def name(self) -> str:
        """As its folder is called."""
        return f"{self.stated.registration}-{self.stated.number}"

    @property
    def is_after_data(self) -> bool:
        """Whether the suites had attempts by then."""
        return self.stated.stage == "after-data"

    def touches(self, claim_id: str) -> bool:
        """Whether a claim is decided otherwise than before."""
        return bool(self.shared or claim_id in self.claims)


def steps(home: Path, registration_id: str) -> Iterator[AmendmentStep]:
    """Every amendment of a registration, in order."""
    links = chain(home, registration_id)
    for before, after in itertools.pairwise(links):
        stated = read_amendment(before.folder)
        now = home / f"{registration_id}.toml" if after is links[-1] else after.text
        old, new = _text(before, before.text), _text(after, now)
        paths = {*stated.files, *changed(before, after)}
        shared = _shared(before, after, paths, old, new)
        yield AmendmentStep(
            stated=stated,
            before=before,
            commit=before.read_about().git_commit,
            shared=tuple(shared),
            claims=_own(paths, old, new),
            lines=tuple(_lines(old, new)),
        )


def _shared(
    before: Seals, after: Seals, paths: Iterable[str], old: Source | None, new: Source | None
) -> list[str]:
    """What changed that every claim depends on. A text that is not at hand may have changed anything."""
    is_known = old is not None and new is not None
    text = f"/{before.id}.toml"
    found = sorted(p for p in paths if not _is_claim(p) and not (is_known and p.endswith(text)))
    if old is not None and new is not None:
        found += [f"[{key}]" for key in _differing(old.table, new.table) if key not in (*PROSE, "claim")]
    same_shards = files.digest(before.shards) == files.digest(after.shards)
    return found or ([] if same_shards else [GRID])


def _own(paths: Iterable[str], old: Source | None, new: Source | None) -> dict[str, tuple[str, ...]]:
    """By claim id, what of its own table and file changed."""
    before, after = (one.table.get("claim", {}) if one is not None else {} for one in (old, new))
    ids = {name.lower(): name for name in (*before, *after)}
    found: dict[str, list[str]] = {name: [_how(name, before, after)] for name in _differing(before, after)}
    for path in sorted(filter(_is_claim, paths)):
        stem = Path(path).stem
        found.setdefault(ids.get(stem, stem.upper()), []).append(path)
    return {name: tuple(what) for name, what in sorted(found.items())}


def _is_claim(path: str) -> bool:
    return path.startswith(CLAIMS) and path.count("/") == 2 and not path.endswith("/__init__.py")


def _text(seals: Seals, path: Path) -> Source | None:
    """A registration as it was sealed; None if it is not at hand."""
    sealed = seals.read_manifest()
    digest = sealed.files[f"{home_prefix(sealed, seals.id)}/{seals.id}.toml"]
    if files.digest(path) != digest:
        return None
    try:
        return read(path)
    except RegistrationError:
        return None


def _differing(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    return sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))


def _how(claim_id: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Which keys of a claim's table changed."""
    if claim_id not in before or claim_id not in after:
        return "left out" if claim_id in before else "added"
    return ", ".join(_differing(before[claim_id], after[claim_id]))


def _lines(old: Source | None, new: Source | None) -> Iterator[str]:
    if old is not None and new is not None:
        found = difflib.unified_diff(old.text.splitlines(), new.text.splitlines(), n=0, lineterm="")
        yield from (
            f"{line[0]} {line[1:]}" for line in list(found)[2:] if line[0] in "+-" and line[1:].strip()
        )


# The seals of a study's registrations, and whether the sealed files are still what they were.


SHORT = 12  # characters of a seal id that people are shown
SHOWN = 20


class SealBroken(IntegrityError):
    """Sealed files are not what they were, so nothing may be computed from them."""


@dataclass(frozen=True)
class Seal:
    """The seal that stands of one registration."""

    id: str  # sha256 of the manifest
    name: str  # id of the registration
    parent: str | None  # id of the one that it is an addendum to
    home: Path  # folder of the registration
    where: str  # how that is called from the root of the repository
    study: str  # whose results it was made for
    overrides: tuple[str, ...]  # the words that shape its grid, beyond the study's file
    steps: tuple[AmendmentStep, ...]  # what came before it, in order
    accepted: Mapping[str, Lines]  # by seal id, the shards whose rows count
    stamped: bool  # whether attempts must carry the anchor of a time stamp

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
