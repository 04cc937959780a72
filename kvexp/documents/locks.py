"""A suite's lock on disk: its manifest, what stands beside it, and files that differ from it."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kvexp.documents.forms import LOCKS, Lock
from kvexp.documents.manifest import Manifest, differences, read_bytes, read_manifest
from kvexp.documents.seals import decoded
from kvexp.records import Reader

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
