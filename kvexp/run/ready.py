"""What stops a submit: what is not here, and complete shards that are not what is asked for."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from kvexp.errors import InputError, IntegrityError, NotFetched
from kvexp.models.folder import content_digest
from kvexp.models.missing import Lacks, lines, missing, summary
from kvexp.run.attempt import Under, refuse_other_seals
from kvexp.run.log import check_closed, folder_of, is_complete, read_attempts
from kvexp.study.compose import Selection
from kvexp.study.grid import chosen, shards
from kvexp.study.schema import is_folder
from kvexp.study.shards import Shard
from kvexp.study.words import fetch_command


def refuse_missing(selection: Selection, results: Path, overrides: Sequence[str]) -> None:
    """Raises NotFetched or InputError that names everything at once; complete shards need no model."""
    made = chosen(shards(selection, "assume", {}), selection)
    models = {f"model {shard.model.name}" for shard in made if not is_complete(results, shard)}
    lacks = Lacks(selection)
    found = [
        one
        for one in missing(selection, made, lacks)
        if not one.name.startswith("model ") or one.name in models
    ]
    command = fetch_command(selection, overrides)
    if len(found) == 1 and not found[0].by_hand:
        raise NotFetched(f"{found[0].reason}; here that is `{command}`")
    if not found:
        return
    if len(found) == 1:
        raise InputError(": ".join([found[0].reason, *lacks.way_out()]))
    by_hand = [one.reason for one in found if one.by_hand]
    get = "" if len(by_hand) == len(found) else f"; to fetch, where there is a network: `{command}`"
    raise InputError(f"missing here: {summary(found)}{get}", [*lines(found), *by_hand, *lacks.way_out()])


def refuse_others(results: Path, complete: list[Shard], under: Mapping[str, Under]) -> None:
    """Raises IntegrityError if a complete shard is not what is asked for: other rows, weights or seals."""
    digests = {s.model.name: content_digest(s.model) for s in complete if is_folder(s.model.source)}
    for shard in complete:
        folder = folder_of(results, shard)
        check_closed(folder, shard.digest, shard.log)
        attempts = read_attempts(folder)
        refuse_other_seals(folder, attempts, under[shard.suite])
        made_with = {attempt.model_digest for attempt in attempts}
        if shard.model.name in digests and digests[shard.model.name] not in made_with:
            raise IntegrityError(
                f"{folder} is complete, but was made with other files of model {shard.model.name} than those "
                f"in {shard.model.source}: run under another name with study.name=NAME"
            )
