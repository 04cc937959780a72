"""Seals, amendments and locks on disk: manifests and what stands beside them."""

import itertools
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import msgspec

from kvexp.documents.anchor import DerError, stated
from kvexp.documents.forms import LOCKS, STAMPS, Amendment, Lock, Sealed, SealedShard
from kvexp.documents.manifest import (
    Manifest,
    SealError,
    core_files,
    differences,
    home_prefix,
    read_bytes,
    read_manifest,
)
from kvexp.files import digest
from kvexp.records import Attempt, Reader, Record, RecordError

# The seals of one registration, from the first to the one that stands, and which attempts count under them.
#
# Leaf: stdlib + msgspec. A folder of registrations holds `seals/<ID>.*` and, for every amendment, the seal
# before it in `amendments/<ID>-N/`.


UNANCHORED = "unanchored"  # keys the draws without a time stamp
UNREGISTERED = "unregistered"  # and those of runs that no analysis reads
# Why rows do not count that came before what should have come first.
UNSEALED = "made without the seal"
UNSTAMPED = "made before the seal was stamped"
REPLACED = "made under a seal that does not stand"
STATEMENT = "amendment.toml"
MAX_STATEMENT = 256 * 1024
MAX_DOTS = 100  # a dotted key of thousands of parts keeps the TOML parser busy for minutes
T = TypeVar("T", bound=Record)
Lines = Mapping[str, SealedShard]  # by shard id
_sealed: Reader[Sealed] = Reader(Sealed)
_shard: Reader[SealedShard] = Reader(SealedShard)


@dataclass(frozen=True)
class Seals:
    """The files of one registration's seal, whether they are there or not."""

    folder: Path  # seals/, or where an amendment keeps those before it
    id: str

    @property
    def manifest(self) -> Path:
        return self.folder / f"{self.id}.sha256"

    @property
    def about(self) -> Path:
        return self.folder / f"{self.id}.json"

    @property
    def text(self) -> Path:
        """The registration as it was sealed; after an amendment the one beside it is another."""
        return self.folder / f"{self.id}.toml"

    @property
    def shards(self) -> Path:
        return self.folder / f"{self.id}.shards.jsonl"

    def protocol(self, kind: str) -> Path:
        return self.folder / f"{self.id}.{kind}.sha256"

    @property
    def files(self) -> list[Path]:
        """All that is there, time stamps included."""
        return sorted(self.folder.glob(f"{self.id}.*"))

    def is_sealed(self) -> bool:
        """The manifest is written last: with it, the seal is whole."""
        return self.manifest.is_file()

    def read_manifest(self) -> Manifest:
        return read_manifest(self.manifest)

    def read_about(self) -> Sealed:
        return decoded(_sealed, self.about, read_bytes(self.about))

    def read_shards(self) -> list[SealedShard]:
        lines = read_bytes(self.shards).split(b"\n")[:-1]
        return [decoded(_shard, self.shards, line) for line in lines]


def amendments(home: Path, registration_id: str) -> list[Path]:
    """The folders of a registration's amendments, in order."""
    numbered = {
        int(found[1]): path
        for path in home.glob("amendments/*")
        if (found := re.fullmatch(rf"{re.escape(registration_id)}-([1-9][0-9]{{0,5}})", path.name))
    }
    return [path for _, path in sorted(numbered.items())]


def chain(home: Path, registration_id: str) -> list[Seals]:
    """The seals of a registration, from the first one to the one that stands."""
    before = [Seals(folder, registration_id) for folder in amendments(home, registration_id)]
    return [*before, Seals(home / "seals", registration_id)]


def read_amendment(folder: Path) -> Amendment:
    """What the author states of an amendment."""
    path = folder / STATEMENT
    body = read_bytes(path, MAX_STATEMENT)
    if any(line.partition(b"=")[0].count(b".") > MAX_DOTS for line in body.split(b"\n")):
        raise SealError(f"{path} has a key of more than {MAX_DOTS} parts: restore it")
    try:
        table = tomllib.loads(body.decode())
        return msgspec.convert(table, Amendment)
    except (ValueError, RecursionError, msgspec.ValidationError) as error:
        raise SealError(f"{path} cannot be read ({error}): restore it") from None


def accepted(home: Path, registration_id: str) -> dict[str, Lines]:
    """By seal id, the shards whose rows count: of the seal that stands, and of those amended after data.

    Rows under a seal before an amendment count if the code that makes data is the same in both, or if the
    amendment accepts the code before.
    """
    links = chain(home, registration_id)
    _check_order(links)
    standing = _by_id(links[-1].read_shards())
    found: dict[str, Lines] = {links[-1].read_manifest().digest: standing}
    for before, after in zip(links[-2::-1], links[:0:-1], strict=True):
        if after.read_about().data_seal is None:
            break  # amended before there were data
        accepts = read_amendment(before.folder).accepts_protocol
        found[before.read_manifest().digest] = {
            name: line
            for name, line in _by_id(before.read_shards()).items()
            if accepts or _same_protocol(line, standing.get(name))
        }
    return found


def _check_order(links: list[Seals]) -> None:
    """Raises SealError unless each seal names the one before it, and each amendment says what they show."""
    if links[0].read_about().amends is not None:
        raise SealError(f"{links[0].manifest} amends a seal that is not there: restore its amendment")
    for number, (before, after) in enumerate(itertools.pairwise(links), start=1):
        stated, old, about = read_amendment(before.folder), before.read_manifest(), after.read_about()
        if about.amends != old.digest or (stated.replaces, stated.number) != (old.digest, number):
            raise SealError(
                f"{before.folder} was not finished, or is not the amendment that its seal names: run kvexp "
                "amend again, or restore the files"
            )
        _check_statement(before, after, stated)


def _check_statement(before: Seals, after: Seals, stated: Amendment) -> None:
    where, is_after = before.folder / STATEMENT, after.read_about().data_seal is not None
    if is_after != (stated.stage == "after-data") or is_after != (stated.attempts > 0):
        raise SealError(f"{where} says {stated.stage}, which is not what its seal says")
    if left := sorted(set(changed(before, after)) - stated.files.keys()):
        raise SealError(f"{where} does not list {left[0]}, which its seals have changed")


def changed(before: Seals, after: Seals) -> list[str]:
    """Sealed files that two seals have otherwise, sorted; those that every seal writes anew are left out."""
    old, new = before.read_manifest().files, after.read_manifest().files
    found = {path for path in old.keys() | new.keys() if old.get(path) != new.get(path)}
    return sorted(path for path in found if "/seals/" not in path and "/amendments/" not in path)


def _same_protocol(before: SealedShard, now: SealedShard | None) -> bool:
    return now is not None and before.protocol_digest == now.protocol_digest


def _by_id(shards: list[SealedShard]) -> Lines:
    return {shard.shard_id: shard for shard in shards}


def seal_differences(root: Path, home: Path, registration_id: str, claims: Iterable[str] | None) -> list[str]:
    """How sealed files differ from the seal that stands, as `changed  preregistration/x/R.toml`, sorted.

    Files of the registration are named by where their folder lies now.

    Args:
        root: of the repository.
        home: folder of the registration.
        registration_id: whose seal it is.
        claims: ids whose files decide; None: the registration's files alone, whatever became of the code.
    """
    sealed = Seals(home / "seals", registration_id).read_manifest()
    prefix = home_prefix(sealed, registration_id)
    history = (
        file.relative_to(home).as_posix()
        for folder in amendments(home, registration_id)
        for file in folder.iterdir()
        if file.suffix not in STAMPS
    )
    seal = f"seals/{registration_id}"
    own = (f"{registration_id}.toml", f"{seal}.json", f"{seal}.shards.jsonl", *history)
    now = [f"{prefix}/{file}" for file in own]
    if claims is None:
        papers = {path: digest for path, digest in sealed.files.items() if path.startswith(f"{prefix}/")}
        sealed = replace(sealed, files=papers)
    else:
        now += core_files(root, claims)
    where = home.relative_to(root) if home.is_relative_to(root) else home
    return [
        _placed(line, prefix, where.as_posix()) for line in differences(root, sealed, now, {prefix: home})
    ]


def _placed(line: str, prefix: str, where: str) -> str:
    kind, path = line.split("  ", 1)
    return f"{kind}  {where}{path[len(prefix) :]}" if path.startswith(f"{prefix}/") else line


def moved_on(home: Path, copy: Path, registration_id: str) -> list[str]:
    """Papers of a registration that differ between `home` and its copy, sorted; stamps may come later."""
    names = {name for folder in (home, copy) for name in _papers(folder, registration_id)}
    return sorted(name for name in names if digest(home / name) != digest(copy / name))


def _papers(home: Path, registration_id: str) -> Iterator[str]:
    yield f"{registration_id}.toml"
    files = [path for link in chain(home, registration_id) for path in link.files]
    files += [folder / STATEMENT for folder in amendments(home, registration_id)]
    yield from (path.relative_to(home).as_posix() for path in files if path.suffix not in STAMPS)


def keying(home: Path, registration_id: str) -> Seals:
    """The seal whose time stamp keys the draws: the one that stands, or the one under which data began."""
    links = chain(home, registration_id)
    wanted = links[-1].read_about().data_seal or links[-1].read_manifest().digest
    for one in links[::-1]:
        if one.read_manifest().digest == wanted:
            return one
    raise SealError(
        f"{links[-1].about} names the seal {wanted[:12]}, which is not among its amendments: restore them"
    )


def is_stamped(home: Path, registration_id: str) -> bool:
    """Whether the seal that keys the draws has a time stamp, whatever that is worth."""
    return keying(home, registration_id).manifest.with_suffix(".tsr").exists()


def seed_basis(home: Path, registration_id: str) -> str:
    """What the bootstrap's seeds of the second format are made from, whatever was amended since.

    It is the anchor that the time stamp of the first seal states, else the names of study and registration.
    """
    first = chain(home, registration_id)[0]
    reply = first.manifest.with_suffix(".tsr")
    if not reply.exists():
        return unanchored(first.read_about().study, registration_id)
    try:
        said = stated(read_bytes(reply))
    except DerError as error:
        raise SealError(f"{reply} is no time stamp ({error}): restore it") from None
    if said.imprint != first.read_manifest().digest:
        raise SealError(f"{reply} is about another file than {first.manifest.name}: restore it")
    return said.anchor


def unanchored(study: str, registration_id: str) -> str:
    """What seeds are made from without a time stamp."""
    return f"{UNANCHORED} {study} {registration_id}"


def why_not(attempt: Attempt, seals: Mapping[str, Lines], stamped: bool) -> str:
    """Why an attempt's rows do not count under these seals; empty: they do.

    `stamped`: see `is_stamped`. That the anchor is the one of the stamp is for `kvexp verify` to say.
    """
    if attempt.anchor == UNREGISTERED:
        return "made unregistered"
    if stamped and attempt.seal is not None and attempt.anchor == UNANCHORED:
        return UNSTAMPED
    if attempt.seal is None:
        return UNSEALED
    if attempt.seal not in seals:
        return REPLACED
    line = seals[attempt.seal].get(attempt.shard_id)
    if line is None:
        return "not among the shards of the seal, or by code that it does not accept"
    if attempt.protocol_digest != line.protocol_digest:
        return "made by other code than the sealed protocol"
    if attempt.shard_digest != line.shard_digest:
        return "configured otherwise than sealed"
    if line.model_digest is not None and attempt.model_digest != line.model_digest:
        return "made with other weights than sealed"
    return ""


def decoded(reader: Reader[T], path: Path, body: bytes) -> T:
    """A record from a file. Raises SealError, which names the file."""
    try:
        return reader(body)
    except RecordError as error:
        raise SealError(f"{path} cannot be read ({error}): restore it") from None


# A suite's lock on disk: its manifest, what stands beside it, and files that differ from it.


MAX_ABOUT = 1024 * 1024
_lock: Reader[Lock] = Reader(Lock)


@dataclass(frozen=True)
class LockFiles:
    """The files of a suite's lock, whether they are there or not."""

    results: Path
    suite: str

    @property
    def folder(self) -> Path:
        return self.results / LOCKS

    @property
    def manifest(self) -> Path:
        return self.folder / f"{self.suite}.sha256"

    @property
    def about(self) -> Path:
        return self.folder / f"{self.suite}.json"

    @property
    def is_locked(self) -> bool:
        """Whether anything stands in the manifest's place, be it a link."""
        return self.manifest.is_symlink() or self.manifest.exists()

    def read_manifest(self) -> Manifest:
        return read_manifest(self.manifest)

    def read_about(self) -> Lock:
        return decoded(_lock, self.about, read_bytes(self.about, MAX_ABOUT))

    def differences(self, sealed: Manifest) -> list[str]:
        """How the logs, and everything else that lies among them, differ from the manifest."""
        return differences(self.results, sealed, self._inside())

    def _inside(self) -> Iterator[str]:
        """Everything in the folder of the suite that is not a folder itself, links included."""
        for folder, folders, files in os.walk(self.results / self.suite):
            links = [one for one in folders if (Path(folder) / one).is_symlink()]
            for file in [*files, *links]:
                yield (Path(folder) / file).relative_to(self.results).as_posix()
