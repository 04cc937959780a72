"""What a shard is run under: its place, its registration and what its attempts state about both."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kvexp.errors import IntegrityError
from kvexp.prereg.chain import UNANCHORED
from kvexp.records import Attempt


@dataclass(frozen=True)
class Under:
    """What the attempts of a suite state about its registration.

    Attributes:
        seal: seal id; None: the suite is not sealed.
        anchor: of the registration's time stamp; keys the Poisson draws.
        accepted: seals under which attempts that are there may go on.
        note: what a person should know before it runs; empty: nothing.
    """

    seal: str | None = None
    anchor: str = UNANCHORED
    accepted: frozenset[str | None] = frozenset({None})
    note: str = ""


@dataclass(frozen=True)
class Place:
    """Where a shard's logs lie and what every attempt states about its origin."""

    folder: Path
    under: Under
    git: tuple[str | None, bool | None]
    device: str
    model_digest: str | None = None


def refuse_other_seals(folder: Path, attempts: Sequence[Attempt], under: Under) -> None:
    """Raises IntegrityError for attempts under a seal whose rows do not count for the one that stands."""
    for attempt in attempts:
        if attempt.seal not in under.accepted:
            there, now = (seal[:12] if seal else "none" for seal in (attempt.seal, under.seal))
            raise IntegrityError(
                f"{folder} was begun under another seal ({there}, now {now}), so its rows cannot count: move "
                "the folder away to start the shard anew"
            )
