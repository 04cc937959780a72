"""What stands between a registration and its data: which seal and anchor a suite runs under, or why not."""

from collections.abc import Iterable
from pathlib import Path

from kvexp import provenance
from kvexp.compose import Selection
from kvexp.errors import IntegrityError
from kvexp.launch import content_digest
from kvexp.prereg.chain import UNANCHORED, accepted
from kvexp.prereg.forms import SealedShard
from kvexp.prereg.home import Home, home_of, refuse_foreign_code
from kvexp.prereg.intact import anchor_of, refuse_broken
from kvexp.prereg.registration import Registered
from kvexp.resolved import Shard
from kvexp.shard import Under


def gate(selection: Selection, root: Path, wanted: Iterable[Shard], allow_dirty: bool) -> dict[str, Under]:
    """By suite, what it runs under.

    Raises IntegrityError if a suite is sealed and the sealed files, the grid, the code that makes data or
    the weights are others than the seal says, or if tracked files have changes that are not committed.
    """
    home = home_of(selection, root)
    if not any((home.folder / "seals").glob("*.sha256")):
        return {shard.suite: Under() for shard in wanted}
    refuse_foreign_code(root)
    owners = {suite: one for one in home.registrations() for suite in one.content.suites}
    under: dict[str, Under] = {}
    by_suite: dict[str, list[Shard]] = {}
    for shard in wanted:
        by_suite.setdefault(shard.suite, []).append(shard)
    for suite, made in by_suite.items():
        owner = owners.get(suite)
        if owner is None or not home.seals(owner.content.id).is_sealed():
            under[suite] = Under(note=f"suite {suite} is not sealed: its verdicts will be PREVIEW")
            continue
        refuse_broken(home, owner)
        _refuse_others(home, owner, made)
        under[suite] = _under(home, owner.content.id)
    if any(one.seal for one in under.values()) and not allow_dirty:
        _refuse_dirty(root)
    return under


def _under(home: Home, registration_id: str) -> Under:
    seal = home.seals(registration_id).read_manifest().digest
    anchor = anchor_of(home, registration_id)
    note = ""
    if anchor == UNANCHORED:
        note = (
            f"registration {registration_id} is sealed but not stamped, so nothing will show that it came "
            f"before the data: kvexp stamp {home.study}"
        )
    return Under(seal, anchor, frozenset(accepted(home.folder, registration_id)), note)


def _refuse_others(home: Home, one: Registered, made: list[Shard]) -> None:
    """The shards that this configuration and code make are those that the seal lists."""
    registration_id = one.content.id
    sealed = {line.shard_id: line for line in home.seals(registration_id).read_shards()}
    where = f"seal {registration_id} of study {home.study}"
    hint = f"go back to it, use another name with study.name=NAME, or see kvexp amend {home.study}"
    for shard in made:
        line = sealed.get(shard.shard_id)
        if line is None:
            raise IntegrityError(f"{where} lists no shard {shard.shard_id}: {hint}")
        if line.protocol_digest != shard.protocol_digest:
            raise IntegrityError(
                f"the code that makes data is not that of {where} (see {home.prefix}/seals): {hint}"
            )
        if line.shard_digest != shard.digest:
            raise IntegrityError(f"shard {shard.shard_id} is configured otherwise than in {where}: {hint}")
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
