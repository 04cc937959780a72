"""How a grid differs from the one that was sealed or run: in shards, in their fields, in overrides."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kvexp.overrides import grid_words
from kvexp.prereg.field_changes import NOTHING, field_changes
from kvexp.prereg.forms import SealedShard
from kvexp.prereg.home import Home

FIELDS_SHOWN = 4
LONGEST = 40  # characters of a value in a message


def grid_changes(before: Iterable[SealedShard], after: Iterable[SealedShard]) -> list[str]:
    """One line for each shard that is removed, added or changed; the code that makes data is not compared."""
    there, here = ({shard.shard_id: shard for shard in made} for made in (before, after))
    found = [f"removed  {name} ({there[name].rows:,} rows)" for name in there if name not in here]
    found += [f"added  {name} ({here[name].rows:,} rows)" for name in here if name not in there]
    for name in [name for name in there if name in here]:
        if what := list(_changed(there[name], here[name])):
            found.append(f"changed  {name}: {'; '.join(what)}")
    return found


def _changed(before: SealedShard, after: SealedShard) -> Iterator[str]:
    if before.rows != after.rows:
        yield f"{before.rows:,} rows, now {after.rows:,}"
    yield from config_changes(before.config, after.config)
    if before.questions_sha256 != after.questions_sha256 and before.config == after.config:
        yield "its questions or references are others"
    if before.model_digest != after.model_digest:
        yield "the files of its model are others"


def config_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """The fields of a resolved shard that differ, as `n_examples 4, now 16`; the protocol's digest apart."""
    found = [
        f"{name} {_shown(old)}, now {_shown(new)}"
        for name, old, new in field_changes(before, after)
        if name != "protocol_digest"
    ]
    more = [f"and {len(found) - FIELDS_SHOWN} fields more"] if len(found) > FIELDS_SHOWN else []
    return [*found[:FIELDS_SHOWN], *more]


def _shown(value: Any) -> str:
    if value is NOTHING:
        return "absent"
    if isinstance(value, list) and len(value) > FIELDS_SHOWN:
        return f"{len(value)} values"
    text = str(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def other_words(home: Home, registration_ids: Iterable[str]) -> str:
    """In brackets, how the overrides of this command differ from those that were sealed; or nothing."""
    said = set(grid_words(home.words))
    lacking: dict[str, None] = {}
    further: dict[str, None] = {}
    for name in registration_ids:
        seals = home.seals(name)
        sealed = seals.read_about().overrides if seals.is_sealed() else None
        if sealed is not None:
            lacking |= dict.fromkeys(word for word in sealed if word not in said)
            further |= dict.fromkeys(sorted(said - set(sealed)))
    told = []
    if lacking:
        told.append(f"it was sealed with {' '.join(lacking)}, which this command lacks")
    if further:
        told.append(f"it was sealed without {' '.join(further)}")
    return f" ({'; '.join(told)})" if told else ""
