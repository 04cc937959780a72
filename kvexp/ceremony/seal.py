"""Making a seal: what a registration decides on, as files and their digests, before anything runs."""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from kvexp.ceremony import lint_grid
from kvexp.ceremony.home import Home, refuse_borrowed, refuse_foreign_code
from kvexp.documents.forms import COPIED, STAMPS, Sealed, SealedShard
from kvexp.documents.manifest import Manifest, core_files, differences, manifest
from kvexp.documents.registration import Registered
from kvexp.documents.schema import FIRST, SECOND
from kvexp.documents.seals import Seals
from kvexp.documents.source import read
from kvexp.errors import ConfigError, IntegrityError
from kvexp.files import write_whole
from kvexp.models.folder import content_digest
from kvexp.models.load import tokenizers
from kvexp.records import encode
from kvexp.run.prepare import grid_bytes, questions_digests
from kvexp.study import provenance
from kvexp.study.compose import Selection
from kvexp.study.grid import protocols, shards
from kvexp.study.shards import AttentionShard, Shard
from kvexp.study.words import grid_words


@dataclass(frozen=True)
class Commit:
    """What git says of some files."""

    name: str | None  # of the commit; None outside of git
    is_dirty: bool  # tracked files differ from it
    lacking: tuple[str, ...] = ()  # files that git does not know

    @property
    def holds_all(self) -> str | None:
        """The commit, if every file can be found in it as it is now."""
        return None if self.is_dirty or self.lacking else self.name


def commit_of(root: Path, paths: Iterable[str]) -> Commit:
    """The commit that is checked out, and which of the paths, relative to `root`, it cannot have."""
    name, is_dirty = provenance.git_state(root)
    if name is None:
        return Commit(None, is_dirty=False)
    wanted = sorted(set(paths))
    listed = provenance.git(root, "--literal-pathspecs", "ls-files", "-z", "--", *wanted)
    if listed is None:
        return Commit(name, is_dirty=True)
    known = set(listed.decode(errors="replace").split("\0"))
    return Commit(name, is_dirty is not False, tuple(path for path in wanted if path not in known))


@dataclass(frozen=True)
class Draft:
    """A seal that is not written yet: files by name, without the manifest that lists them."""

    seals: Seals
    claims: tuple[str, ...]
    files: dict[str, bytes]
    about: Sealed
    protocols: dict[str, Mapping[str, str]]  # by kind of row, the files that make it
    shards: tuple[SealedShard, ...]
    commit: Commit

    def paths(self, home: Home) -> list[str]:
        """Everything that the manifest will list, relative to the repository."""
        own = [home.folder / f"{self.seals.id}.toml", *(self.seals.folder / name for name in self.files)]
        history = [
            path
            for folder in home.amendments(self.seals.id)
            for path in sorted(folder.iterdir())
            if path.suffix not in STAMPS
        ]
        beside = [path.relative_to(home.root).as_posix() for path in [*own, *history]]
        return [*core_files(home.root, self.claims), *beside]

    def write(self, home: Home) -> Manifest:
        """Write the files, and the manifest last."""
        self.seals.folder.mkdir(parents=True, exist_ok=True)
        for name, body in self.files.items():
            write_whole(self.seals.folder / name, body)
        made = manifest(home.root, self.paths(home))
        write_whole(self.seals.manifest, made.body)
        return made


def draft(
    home: Home,
    selection: Selection,
    one: Registered,
    amends: str | None = None,
    data_seal: str | None = None,
    commit: Commit | None = None,
) -> Draft:
    """What a seal of this registration would hold now. `commit`: found before other seals were written.

    Raises RegistrationError if it and the grid do not fit, NotFetched if what its suites ask is not on this
    machine, IntegrityError if its parent is not sealed.
    """
    refuse_foreign_code(home.root)
    refuse_borrowed(home)
    _refuse_first_format(home, one)
    # What a claim asks of suites whose data are not here can be checked too: it depends on no example's id.
    lint_grid.check([one], shards(selection, "assume"), [suite.name for suite in selection.suites])
    made = shards_of(selection, one)
    kinds = {"cells" if isinstance(shard, AttentionShard) else "generations" for shard in made}
    made_by = {kind: one for kind, one in protocols(selection).items() if kind in kinds}
    commit = commit or commit_of(home.root, _committed(home, one, made_by.values()))
    lines = tuple(_sealed_shards(selection, made))
    about = Sealed(
        study=home.study,
        id=one.content.id,
        suites=one.content.suites,
        parent=_parent(home, one),
        amends=amends,
        data_seal=data_seal,
        git_commit=commit.holds_all,
        overrides=grid_words(home.words),
    )
    seals = home.seals(one.content.id)
    files = {
        seals.about.name: encode(about) + b"\n",
        seals.text.name: one.path.read_bytes(),
        seals.shards.name: b"".join(encode(line) + b"\n" for line in lines),
    }
    files |= {seals.protocol(kind).name: manifest.body for kind, manifest in made_by.items()}
    by_kind = {kind: manifest.files for kind, manifest in made_by.items()}
    return Draft(seals, tuple(one.content.claim), files, about, by_kind, lines, commit)


def _refuse_first_format(home: Home, one: Registered) -> None:
    """Raises ConfigError for a seal of the first format, unless an earlier one is sealed again or amended."""
    seals = home.seals(one.content.id)
    if one.is_first_format and not (seals.text.is_file() and read(seals.text).table.get("format") == FIRST):
        raise ConfigError(
            f"{one.path} has the format {FIRST}, in which only a study that was sealed in it goes on: write "
            f'format = "{SECOND}", leave range and count away, and give each claim [claim.ID.witness] with '
            "kill = { NAME = NUMBER } and spare = { NAME = NUMBER }"
        )


def commit_for(home: Home, selection: Selection, one: Registered) -> Commit:
    """The commit that a seal of this registration could name, as long as nothing is written."""
    return commit_of(home.root, _committed(home, one, protocols(selection).values()))


def _committed(home: Home, one: Registered, protocol: Iterable[Manifest]) -> list[str]:
    """Files that a commit can hold before the seal is made; a copy of the registration never is in one."""
    own = [] if home.folder.name == COPIED else [one.path.relative_to(home.root).as_posix()]
    made_by = [path for manifest in protocol for path in manifest.files]
    return [*core_files(home.root, one.content.claim), *made_by, *own]


def shards_of(selection: Selection, one: Registered) -> list[Shard]:
    """The shards of a registration's suites. Raises NotFetched if what they ask is not on this machine."""
    # Only its own suites must be here: those of an addendum may be fetched later.
    chosen = replace(selection, chosen={**selection.chosen, "suite": one.content.suites})
    return [shard for shard in shards(chosen, "leave_out") if shard.suite in one.content.suites]


def _sealed_shards(selection: Selection, made: list[Shard]) -> Iterator[SealedShard]:
    asked = questions_digests(made, tokenizers(selection))
    digests: dict[str, str | None] = {}
    for shard, questions in zip(made, asked, strict=True):
        if shard.model.name not in digests:
            digests[shard.model.name] = content_digest(shard.model)
        yield SealedShard(
            suite=shard.suite,
            shard_id=shard.shard_id,
            shard_digest=shard.digest,
            protocol_digest=shard.protocol_digest,
            rows=shard.n_rows,
            grid_sha256=hashlib.sha256(grid_bytes([shard])).hexdigest(),
            questions_sha256=questions,
            model_digest=digests[shard.model.name],
            config=shard.resolved(),
        )


def _parent(home: Home, one: Registered) -> str | None:
    parent = one.content.parent
    if parent is None:
        return None
    if not home.seals(parent).is_sealed():
        raise IntegrityError(
            f"{one.path} is an addendum to {parent}, which is not sealed: seal {parent} first"
        )
    # The first of its seals: an amendment of the parent is no reason to seal the addendum again.
    return home.chain(parent)[0].read_manifest().digest


def same(home: Home, made: Draft, *, whatever_parent: bool = False) -> bool:
    """Whether what is sealed is what would be sealed now; commit and overrides may be others."""
    there = home.seals(made.about.id)
    sealed = there.read_about()
    if sealed.study != made.about.study or sealed.suites != made.about.suites:
        return False
    if sealed.parent != made.about.parent and not whatever_parent:
        return False
    is_same = all(
        (there.folder / name).is_file() and (there.folder / name).read_bytes() == body
        for name, body in made.files.items()
        if name != there.about.name
    )
    return is_same and not differences(home.root, there.read_manifest(), core_files(home.root, made.claims))


def is_unused(home: Home, registration_id: str) -> bool:
    """Whether nothing relies on a seal that names no commit: no stamp, no attempt and no amendment."""
    seals = home.seals(registration_id)
    about = seals.read_about()
    is_bare = about.git_commit is None and about.amends is None
    has_stamp = any(path.suffix in STAMPS for path in seals.files)
    return is_bare and not has_stamp and not home.attempts(about.suites)


def is_to_be_made_again(home: Home, one: Registered, made: Draft, chosen: Collection[str]) -> bool:
    """Whether an unused seal can name its commit now, or must name a seal of its parent made again.

    Its addenda name it, so they must be unused too and among the chosen, which are sealed after it.
    """
    if not is_unused(home, one.content.id):
        return False
    if home.seals(one.content.id).read_about().parent != made.about.parent:
        return True
    addenda = [
        other.content.id
        for other in home.registrations()
        if other.content.parent == one.content.id and home.seals(other.content.id).is_sealed()
    ]
    follow = all(name in chosen and is_unused(home, name) for name in addenda)
    return made.commit.holds_all is not None and follow
