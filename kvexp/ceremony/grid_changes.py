"""How a grid differs from the one that was sealed or run: in shards, in their fields, in overrides."""

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kvexp.ceremony.home import Home
from kvexp.documents.forms import SealedShard
from kvexp.documents.seals import Seals
from kvexp.errors import ConfigError, first
from kvexp.run.log import read_attempts
from kvexp.run.prepare import written_ids
from kvexp.study.compose import Selection
from kvexp.study.grid import shards
from kvexp.study.results import GRID
from kvexp.study.words import grid_words

NOTHING = object()  # a field that one of them does not have


def field_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """Name, value before and value after of each field that differs, in the order of the tables."""
    there, here = dict(_leaves(before)), dict(_leaves(after))
    each = ((name, there.get(name, NOTHING), here.get(name, NOTHING)) for name in {**there, **here})
    return [(name, old, new) for name, old, new in each if old != new]


def _leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """By dotted name; lists and tuples of plain values are values."""
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _leaves(inner, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list | tuple) and any(isinstance(one, Mapping | list | tuple) for one in value):
        for number, inner in enumerate(value):
            yield from _leaves(inner, f"{name}.{number}")
    else:
        yield name, list(value) if isinstance(value, tuple) else value


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
    return first(found, FIELDS_SHOWN, "fields more")


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


# Do the words of a command that judges fit what it judges? What has no effect is refused.


def refuse_other_grid(home: Home, selection: Selection) -> None:
    """Raises ConfigError for words that make another grid than the one that was sealed, or else was run.

    Judging reads rows and seals, never the grid that words make: without this they would change nothing.
    """
    said = grid_words(home.words)
    folder = home.folder / "seals"
    # Beside the manifest of R lie R.json and the manifests of its code.
    ids = [path.stem for path in sorted(folder.glob("*.sha256")) if path.with_suffix(".json").is_file()]
    seals = [Seals(folder, name) for name in ids]
    sealed = [word for one in seals for word in one.read_about().overrides or []]
    if not said or set(said) <= set(sealed):
        return
    known = dict(_sealed(seals) if seals else _run(home))
    made = {shard.shard_id: shard for shard in shards(selection, "assume", written_ids(home.results / GRID))}
    how = "sealed" if seals else "run"
    for shard_id, config in known.items():
        if shard_id not in made:
            changes = [f"its shard {shard_id} is none of theirs"]
        else:
            found = config_changes(config, json.loads(json.dumps(made[shard_id].resolved())))
            changes = [f"{shard_id}: {'; '.join(found)}"] if found else []
        if changes:
            raise ConfigError(
                f"{shlex.join(said)} does not fit results/{home.study}, which was {how} otherwise "
                f"({changes[0]}): leave it out, or name the results that it made, study.name=NAME"
            )


def _sealed(seals: list[Seals]) -> Iterator[tuple[str, dict[str, Any]]]:
    return ((line.shard_id, line.config) for one in seals for line in one.read_shards())


def _run(home: Home) -> Iterator[tuple[str, dict[str, Any]]]:
    """By the newest attempt of each shard."""
    for folder in sorted({path.parent for path in home.results.glob("*/*/attempt-*.json")}):
        last = read_attempts(folder)[-1]
        yield last.shard_id, last.config
