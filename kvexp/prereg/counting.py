"""Which shards of a sealed suite hold rows that cannot count: to be known before the analysis says so."""

from collections.abc import Iterable
from pathlib import Path

from kvexp.prereg.attempts import why_uncounted
from kvexp.prereg.chain import accepted
from kvexp.prereg.home import Home
from kvexp.prereg.intact import anchor_of
from kvexp.shard_log import read_attempts


def uncounted(home: Home, registration_id: str, folders: Iterable[Path]) -> dict[Path, str]:
    """By folder of a shard, why an attempt in it does not count; only shards that have such an attempt."""
    seals = accepted(home.folder, registration_id)
    anchor = anchor_of(home, registration_id)
    found = {}
    for folder in folders:
        for attempt in read_attempts(folder):
            if reason := why_uncounted(attempt, seals, anchor):
                found[folder] = f"attempt {attempt.number} was {reason}" if _is_past(reason) else reason
    return found


def _is_past(reason: str) -> bool:
    return reason.startswith(("made ", "configured "))


def lines(home: Home, found: dict[Path, str]) -> list[str]:
    """One line for each folder."""
    return [f"{folder.relative_to(home.root)}: {reason}" for folder, reason in found.items()]
