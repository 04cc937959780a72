"""What a shard is run under: its place, its registration and what its attempts state about both."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from kvexp.documents.seals import UNANCHORED
from kvexp.errors import IntegrityError
from kvexp.models.folder import content_digest
from kvexp.records import Attempt
from kvexp.run.log import read_attempts
from kvexp.study.schema import ModelConf, is_folder
from kvexp.study.shards import Shard


@dataclass(frozen=True)
class Under:
    """What the attempts of a suite state about its registration."""

    seal: str | None = None  # seal id; None: the suite is not sealed
    anchor: str = UNANCHORED  # of the registration's time stamp; keys the Poisson draws
    accepted: frozenset[str | None] = frozenset({None})  # seals under which attempts that are there may go on
    note: str = ""  # what a person should know before it runs; empty: nothing


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


# One name, one model: shards of a study that name the same model are made with the same weights.


def refuse_other_weights(results: Path, made: Iterable[Shard], todo: Iterable[Shard]) -> None:
    """Raises IntegrityError if what is to run would bear the name of other weights that have run already.

    The analysis would call all of it INVALID, and not know which rows are right.

    Args:
        results: of the study.
        made: all its shards.
        todo: those that are to run.
    """
    models = {shard.model.name: shard.model for shard in todo}
    digests: dict[str, str | None] = {}
    for shard in made:
        if (model := models.get(shard.model.name)) is None:
            continue
        folder = results / shard.suite / shard.shard_id
        for attempt in _attempts(folder):
            if attempt.model_digest is not None and model.name not in digests:
                digests[model.name] = content_digest(model)
            if (what := _differs(attempt, model, digests.get(model.name))) is not None:
                raise IntegrityError(
                    f"{folder} was begun under another model by the name {model.name} ({what}): go back to "
                    "it, or give these results a name of their own with study.name=NAME"
                )


def _attempts(folder: Path) -> list[Attempt]:
    """None where a file is spoilt: whoever runs or reads that shard says so."""
    with suppress(IntegrityError):
        return read_attempts(folder)
    return []


def _differs(attempt: Attempt, model: ModelConf, digest: str | None) -> str | None:
    """What tells an attempt's model from one of the same name."""
    there = attempt.config.get("model", {})
    source = "folder" if is_folder(model.source) else model.source
    for what, before, now in (
        ("source", there.get("source"), source),
        ("revision", there.get("revision"), model.revision),
        ("dtype", attempt.dtype, model.dtype),
    ):
        if before != now:
            return f"its {what} {before}, now {now}"
    if None not in (attempt.model_digest, digest) and attempt.model_digest != digest:
        return f"its files {str(attempt.model_digest)[:12]}, now {str(digest)[:12]}"
    return None
