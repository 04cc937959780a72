"""Seals and locks: `sha256sum -c` manifests of files that must not change.

A seal covers what decides a verdict: the registration, what must exist, and the core of the analysis. It
does not cover descriptive tables and figures, post hoc code, other claims or clusters, so that adding to
these breaks no seal.
"""

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from kvexp.errors import IntegrityError
from kvexp.files import ABSENT, MAX_BYTES, digest, read

# Files and folders whose Python files decide. A file that appears in one of the folders is a change.
CORE = (
    "analysis/__init__.py",
    "analysis/__main__.py",
    "analysis/claims/__init__.py",
    "analysis/core",
    "analysis/requirements.txt",
    "kvexp/__init__.py",
    "kvexp/documents",
    "kvexp/errors.py",
    "kvexp/files.py",
    "kvexp/records.py",
)
_LINE = re.compile(r"([0-9a-f]{64})  ([!-\[\]-~][ -\[\]-~]*)")  # printable ASCII; \ would start an escape


class SealError(IntegrityError):
    """A manifest that cannot be read, or files that are not what it says."""


@dataclass(frozen=True)
class Manifest:
    """The lines of a manifest, path -> sha256, and the digest of its bytes."""

    files: Mapping[str, str]
    digest: str

    @property
    def body(self) -> bytes:
        """The file, as sha256sum reads it."""
        return "".join(f"{one}  {path}\n" for path, one in sorted(self.files.items())).encode()


def manifest(root: Path, paths: Iterable[str]) -> Manifest:
    """The manifest of files below `root`. Raises SealError for links, special files and odd names."""
    files = {path: digest(root / path) for path in sorted(set(paths))}
    if absent := [path for path, one in files.items() if one == ABSENT]:
        raise SealError(f"{absent[0]} is not there, and it must be sealed: restore the file")
    for path in files:
        _check_path(path, path)
    made = Manifest(files, "")
    return Manifest(files, hashlib.sha256(made.body).hexdigest())


def read_manifest(path: Path) -> Manifest:
    """A manifest from its file. Raises SealError for anything that sha256sum could read otherwise."""
    body = read_bytes(path)
    files: dict[str, str] = {}
    try:
        text = body.decode("ascii")
    except UnicodeDecodeError:
        raise SealError(f"{path} is not a manifest: it holds other than ASCII characters") from None
    for number, line in enumerate(text.split("\n")[:-1], start=1):
        found = _LINE.fullmatch(line)
        if found is None:
            raise SealError(f"{path}:{number} is no line of a manifest (digest, two spaces, path)")
        _check_path(found[2], f"{path}:{number}")
        if found[2] in files:
            raise SealError(f"{path}:{number} lists {found[2]} a second time")
        files[found[2]] = found[1]
    made = Manifest(files, hashlib.sha256(body).hexdigest())
    if not files or made.body != body:
        raise SealError(f"{path} is not as kvexp writes a manifest: whole lines, sorted by path")
    return made


def differences(
    root: Path, sealed: Manifest, now: Iterable[str] = (), moved: Mapping[str, Path] | None = None
) -> list[str]:
    """How files differ from a manifest: `changed  PATH`, `missing  PATH` and `added  PATH`, sorted.

    Args:
        root: what the paths are relative to.
        sealed: the manifest.
        now: paths that the manifest would list if it were made now; those that it lacks are added.
        moved: folders whose files lie elsewhere, as `preregistration/x` -> where its copy is.
    """
    found = []
    for path, wanted in sealed.files.items():
        there = digest(_place(root, path, moved or {}))
        if there == ABSENT:
            found.append(f"missing  {path}")
        elif there != wanted:
            found.append(f"changed  {path}")
    found += [f"added  {path}" for path in set(now) - sealed.files.keys()]
    return sorted(found)


def core_files(root: Path, claims: Iterable[str]) -> list[str]:
    """Paths of the analysis core and of the files of the named claims, relative to `root`."""
    found = [path for name in CORE for path in _python_files(root, name)]
    return sorted({*found, *(f"analysis/claims/{claim.lower()}.py" for claim in claims)})


def _python_files(root: Path, name: str) -> Iterator[str]:
    if not (root / name).is_dir():
        yield name
        return
    for folder, folders, files in os.walk(root / name):
        folders[:] = [one for one in folders if one != "__pycache__"]
        for file in files:
            if not file.endswith((".pyc", ".tmp")):
                yield (Path(folder) / file).relative_to(root).as_posix()


def _place(root: Path, path: str, moved: Mapping[str, Path]) -> Path:
    for prefix, folder in moved.items():
        if path.startswith(f"{prefix}/"):
            return folder / path[len(prefix) + 1 :]
    return root / path


def read_bytes(path: Path, most: int = MAX_BYTES) -> bytes:
    """A regular file of a sane size. Raises SealError for everything else: a seal covers no link."""
    try:
        return read(path, most, follow=False)
    except OSError as error:
        raise SealError(f"{path} cannot be read: {error.strerror}") from None


def _check_path(path: str, where: str) -> None:
    """Relative, normal and inside: two readers must mean the same file."""
    parts = PurePosixPath(path).parts
    if not _LINE.fullmatch(f"{'0' * 64}  {path}") or path.startswith("/") or ".." in parts:
        raise SealError(
            f"{where}: {path!r} is no path that can be sealed (printable ASCII, inside the folder)"
        )
    if PurePosixPath(path).as_posix() != path or path == ".":
        raise SealError(f"{where}: {path!r} has a shorter spelling, use it")


def home_prefix(sealed: Manifest, registration_id: str) -> str:
    """The folder that held the registration when it was sealed; a copy of it may lie elsewhere now."""
    found = [path for path in sealed.files if path.endswith(f"/{registration_id}.toml")]
    if not found:
        raise SealError(f"the manifest of seal {registration_id} lists no {registration_id}.toml")
    return min(found, key=len).rpartition("/")[0]
