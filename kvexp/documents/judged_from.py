"""What evidence was judged from: a digest of every paper, lock and log that verify reads.

Files are named from the root of the repository. What lies in a shard's folder stands as one digest, which
`LC_ALL=C; cd FOLDER; sha256sum * | sha256sum` gives too. Looks are not here: they may be added to.
"""

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from kvexp.documents.manifest import core_files
from kvexp.files import digest


@dataclass(frozen=True)
class Judged:
    """Where the files of a study lie, and what they are called."""

    root: Path  # of the repository
    study: str  # whose results/<study> they are
    results: Path  # the folder that is called so
    home: Path  # folder of the registrations
    home_name: str  # what it is called

    def digests(self, suites: Mapping[str, Iterable[str]], claims: Iterable[str]) -> dict[str, str]:
        """By name, the digest of every file; `absent` for what is no regular file.

        Args:
            suites: by id of a registration, those that it lists.
            claims: ids of those that are sealed; empty: no code is sealed.
        """
        names = sorted(claims)
        return {
            **self._papers(suites),
            **self._logs({suite for listed in suites.values() for suite in listed}),
            **({path: digest(self.root / path) for path in core_files(self.root, names)} if names else {}),
        }

    def authorities(self, names: Iterable[str]) -> dict[str, str]:
        """Digests of the pinned authorities of these names, as far as preregistration/trust has them."""
        paths = (f"preregistration/trust/{name}.{end}" for name in names for end in ("pem", "toml"))
        return {path: digest(self.root / path) for path in paths if (self.root / path).exists()}

    def _papers(self, suites: Mapping[str, Iterable[str]]) -> dict[str, str]:
        folder, paths = self.home, list[Path]()
        for name in suites:
            paths += [folder / f"{name}.toml", *folder.glob(f"seals/{name}.*")]
            paths += folder.glob(f"amendments/{name}-*/*")
        paths += folder.glob("trust/*")
        return {f"{self.home_name}/{name}": digest for name, digest in _each(folder, paths)}

    def _logs(self, suites: Iterable[str]) -> dict[str, str]:
        folder, paths = self.results, list[Path]()
        paths += (path for path in folder.glob("locks/**/*") if path.is_symlink() or not path.is_dir())
        for suite in suites:
            paths += folder.glob(f"examples/{suite}.*")
            paths += folder.glob(f"{suite}/*")
        return {f"results/{self.study}/{name}": digest for name, digest in _each(folder, paths)}


def _each(folder: Path, paths: Iterable[Path]) -> Iterator[tuple[str, str]]:
    for path in sorted(set(paths)):
        name = path.relative_to(folder).as_posix()
        is_folder = path.is_dir() and not path.is_symlink()
        yield name, _tree(path) if is_folder else digest(folder / name)


def _tree(folder: Path) -> str:
    names = sorted(os.listdir(folder), key=os.fsencode)
    lines = b"".join(f"{digest(folder / name)}  ".encode() + os.fsencode(name) + b"\n" for name in names)
    return hashlib.sha256(lines).hexdigest()
