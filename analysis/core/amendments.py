"""What the amendments of a registration changed: which claims each touches, and by which lines."""

import difflib
import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvexp import files
from kvexp.documents.forms import Amendment
from kvexp.documents.manifest import home_prefix
from kvexp.documents.seals import Seals, chain, changed, read_amendment
from kvexp.documents.source import RegistrationError, Source, read

CLAIMS = "analysis/claims/"
# Keys of a registration that no verdict is computed from.
PROSE = (
    *("id", "title", "authors", "registered_at", "registrations_made", "existing_data"),
    *("existing_data_note", "data_seen", "stopping", "exclusions", "missing", "details"),
)
GRID = "the grid or the code that makes data"


@dataclass(frozen=True)
class AmendmentStep:
    """One amendment.

    Attributes:
        stated: by the author.
        before: the seal that it replaced.
        commit: where that seal's files can be found again, as the author says.
        shared: what changed that every claim of the registration depends on.
        claims: by claim id, what of its own changed.
        lines: of the registration, `- old` and `+ new`.
    """

    stated: Amendment
    before: Seals
    commit: str | None
    shared: tuple[str, ...]
    claims: Mapping[str, tuple[str, ...]]
    lines: tuple[str, ...]

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
