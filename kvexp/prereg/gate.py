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
from kvexp.prereg.registration import Registered
from kvexp.prereg.seal import core_files, differences
from kvexp.prereg.stamp import load_trust, read_token
from kvexp.resolved import Shard
from kvexp.shard import Under

SHOWN = 20


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


def anchor_of(home: Home, registration_id: str) -> str:
    """The anchor that keys a registration's draws: of its stamp, or of the seal under which data began."""
    standing = home.seals(registration_id)
    about = standing.read_about()
    chain = [standing] if about.data_seal is None else home.chain(registration_id)
    wanted = about.data_seal or standing.read_manifest().digest
    for seals in chain:
        if seals.read_manifest().digest == wanted:
            token = read_token(seals.manifest, load_trust(home.root, home.folder))
            return UNANCHORED if token is None else token.anchor
    raise IntegrityError(
        f"{standing.about} names the seal {wanted[:12]}, which is not among its amendments: restore them"
    )


def refuse_broken(home: Home, one: Registered) -> None:
    """Raises IntegrityError, with the list, if sealed files are not what they were."""
    seals = home.seals(one.content.id)
    sealed = seals.read_manifest()
    found = differences(home.root, sealed, core_files(home.root, one.content.claim))
    if found:
        raise broken(home, one.content.id, sealed.digest, found)


def broken(home: Home, registration_id: str, seal: str, found: list[str]) -> IntegrityError:
    """The error of sealed files that differ, with the list."""
    more = [f"and {len(found) - SHOWN} more"] if len(found) > SHOWN else []
    return IntegrityError(
        f"sealed files differ from seal {registration_id} ({seal[:12]}) of study {home.study}: restore them, "
        f"or register the change with `kvexp amend {home.study} {registration_id}`; nothing was done",
        [*found[:SHOWN], *more],
    )


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
