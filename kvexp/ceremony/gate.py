"""What stands between a registration and its data: which seal and anchor a suite runs under, or why not."""

import json
from collections.abc import Iterable
from pathlib import Path

from kvexp.ceremony.attempts import uncounted
from kvexp.ceremony.grid_changes import config_changes, other_words
from kvexp.ceremony.home import SHOWN, Home, refuse_broken, refuse_foreign_code
from kvexp.ceremony.stamp import keying_anchor
from kvexp.documents.forms import SealedShard
from kvexp.documents.registration import Registered
from kvexp.documents.seals import UNANCHORED, accepted
from kvexp.errors import IntegrityError, KvexpError, first
from kvexp.models.folder import content_digest
from kvexp.run.attempt import Under
from kvexp.run.log import folder_of
from kvexp.study import provenance
from kvexp.study.shards import Shard


def gate(home: Home, wanted: Iterable[Shard], allow_dirty: bool) -> dict[str, Under]:
    """By suite, what it runs under. A study that only borrows the sealed folder of another is not sealed.

    Raises IntegrityError if a suite is sealed and the sealed files, the grid, the code that makes data or
    the weights are others than the seal says, if tracked files have changes that are not committed, or if
    shards are there whose rows cannot count.
    """
    by_suite: dict[str, list[Shard]] = {}
    for shard in wanted:
        by_suite.setdefault(shard.suite, []).append(shard)
    if home.is_renamed or not any((home.folder / "seals").glob("*.sha256")):
        return dict.fromkeys(by_suite, Under(note=_unsealed(home)))
    refuse_foreign_code(home.root)
    owners = home.owners()
    under = {suite: _under(home, suite, owners.get(suite), made) for suite, made in by_suite.items()}
    if any(one.seal for one in under.values()) and not allow_dirty:
        _refuse_dirty(home.root)
    return under


def _unsealed(home: Home) -> str:
    if not any(home.folder.glob("*.toml")):
        return f"study {home.study} has no registration in {home.prefix}: nothing will judge its logs"
    try:
        home.registrations()
    except KvexpError as error:  # a draft may run, and must not look like one that is judged
        return f"study {home.study} is not sealed, and as it stands nothing will judge its logs: {error}"
    return (
        f"study {home.study} is not sealed: its verdicts will be PREVIEW; to have them count, "
        f"{home.seal_command()} first"
    )


def _under(home: Home, suite: str, one: Registered | None, made: list[Shard]) -> Under:
    if one is None:
        return Under(note=f"no registration in {home.prefix} lists suite {suite}: nothing seals it")
    name = one.content.id
    if not home.seals(name).is_sealed():
        return Under(
            note=f"registration {name} of study {home.study} is not sealed: its verdicts will be PREVIEW; to "
            f"have them count, {home.seal_command(name)} first"
        )
    refuse_broken(home, one)
    _refuse_others(home, name, made)
    folders = [folder_of(home.results, shard) for shard in made]
    if found := uncounted(home, name, folders):
        raise IntegrityError(
            f"rows of {len(found)} shards cannot count under seal {name} of study {home.study}: move these "
            "folders away and submit again, which makes them anew",
            first(found, SHOWN),
        )
    anchor, note = keying_anchor(home, name), ""
    if anchor == UNANCHORED:
        note = (
            f"registration {name} is sealed but not stamped, so nothing will show that it came before the "
            f"data: {home.command('stamp', name)} first"
        )
    seal = home.seals(name).read_manifest().digest
    return Under(seal, anchor, frozenset(accepted(home.folder, name)), note)


def _refuse_others(home: Home, registration_id: str, made: list[Shard]) -> None:
    """The shards that this configuration and code make are those that the seal lists."""
    sealed = {line.shard_id: line for line in home.seals(registration_id).read_shards()}
    where = f"seal {registration_id} of study {home.study}"
    hint = (
        f"go back to it{other_words(home, [registration_id])}, use another name with study.name=NAME, or see "
        f"{home.amend_command(registration_id)}"
    )
    for shard in made:
        line = sealed.get(shard.shard_id)
        if line is None:
            raise IntegrityError(f"{where} lists no shard {shard.shard_id}: {hint}")
        if line.protocol_digest != shard.protocol_digest:
            raise IntegrityError(
                f"the code that makes data is not that of {where} (see {home.prefix}/seals): {hint}"
            )
        if line.shard_digest != shard.digest:
            what = config_changes(line.config, json.loads(json.dumps(shard.resolved())))
            raise IntegrityError(
                f"shard {shard.shard_id} is configured otherwise than in {where} ({'; '.join(what)}): {hint}"
            )
    _refuse_weights(where, sealed, made)


def _refuse_weights(where: str, sealed: dict[str, SealedShard], made: list[Shard]) -> None:
    for shard in {shard.model.name: shard for shard in made}.values():
        expected = sealed[shard.shard_id].model_digest
        if expected is not None and expected != content_digest(shard.model):
            raise IntegrityError(
                f"the files of model {shard.model.name} are not those of {where}: restore them, or run under "
                "another name with study.name=NAME"
            )


def _refuse_dirty(root: Path) -> None:
    commit, is_dirty = provenance.git_state(root)
    if is_dirty:
        raise IntegrityError(
            f"tracked files differ from commit {str(commit)[:7]}, so nobody could tell what made the data of "
            "a sealed suite: commit the changes, or say --allow-dirty, which the evidence will tell"
        )
