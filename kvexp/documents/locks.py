"""The lock of a suite: its manifest over all logs, and what stands beside it (leaf: stdlib + msgspec)."""

from dataclasses import dataclass
from pathlib import Path

from kvexp.documents.forms import LOCKS, Lock
from kvexp.documents.manifest import Manifest, read_bytes, read_manifest
from kvexp.documents.seals import decoded
from kvexp.records import Reader

MAX_BYTES = 1024 * 1024
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
        return self.manifest.is_file()

    def read_manifest(self) -> Manifest:
        return read_manifest(self.manifest)

    def read_about(self) -> Lock:
        return decoded(_lock, self.about, read_bytes(self.about, MAX_BYTES))
