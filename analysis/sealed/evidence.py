"""The evidence that `kvexp verify` wrote, if it is about the seals and locks that are there."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvexp.prereg.forms import WITNESSED, Evidence
from kvexp.prereg.seal import SealError, read_bytes
from kvexp.records import Reader, RecordError

FILE = "evidence.json"
MAX_BYTES = 8 * 1024 * 1024
_evidence: Reader[Evidence] = Reader(Evidence)


@dataclass(frozen=True)
class Shown:
    """What is known of the evidence.

    Attributes:
        evidence: None if there is none that counts.
        note: why there is none, if that needs saying.
        is_broken: the file is there and cannot be read.
    """

    evidence: Evidence | None = None
    note: str = ""
    is_broken: bool = False

    @property
    def is_witnessed(self) -> bool:
        """Whether somebody else than the author vouches for the time of the registrations."""
        return self.evidence is not None and self.evidence.grade >= WITNESSED

    @property
    def failed(self) -> list[str]:
        """What does not hold."""
        found = self.evidence
        checks = [] if found is None else [one.words for one in found.checks if one.holds is False]
        return [*checks, *(["the replay of keep sets"] if _replay_fails(found) else [])]


def read_evidence(results: Path, name: str, seals: Mapping[str, str], locks: Mapping[str, str]) -> Shown:
    """Read evidence.json.

    Args:
        results: results/<study>.
        name: of the study.
        seals: registration id -> seal id, of those that are sealed.
        locks: suite -> digest of the lock's manifest, of those that are locked.
    """
    path = results / FILE
    if not path.is_symlink() and not path.exists():
        return Shown()
    try:
        found = _read(path)
    except SealError as error:
        return Shown(note=str(error).replace(f"{results}/", f"{name}/"), is_broken=True)
    about = {one.id: one.seal for one in found.seals if one.seal is not None}
    locked = {one.suite: one.manifest for one in found.locks if one.manifest is not None}
    if (about, locked) != (dict(seals), dict(locks)):
        return Shown(note=f"evidence.json is about other seals or locks: run kvexp verify study={name}")
    return Shown(found)


def _read(path: Path) -> Evidence:
    body = read_bytes(path, MAX_BYTES)
    hint = "run kvexp verify again"
    try:
        found = _evidence(body)
        json.loads(body, object_pairs_hook=_once)
    except (RecordError, ValueError, RecursionError) as error:
        raise SealError(f"{path} cannot be read ({error}): {hint}") from None
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object whose keys two readers take for the same values."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands twice")
    return found


def _replay_fails(evidence: Evidence | None) -> bool:
    return evidence is not None and evidence.replay is not None and not evidence.replay.holds
