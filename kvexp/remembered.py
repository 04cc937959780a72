"""What was found to hold before, in the user's cache: questions are not made anew to be compared again.

A note says that a file of some bytes holds what some settings make. It is about these alone:
without it, or with other bytes, everything is compared again.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from kvexp.assets import cache_folder
from kvexp.errors import InputError

FOLDER = "checked"


class Note:
    """That a file holds what these settings make; `settings`: all that decides about it, as plain data."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        body = json.dumps(settings, sort_keys=True, allow_nan=False)
        self._name = hashlib.sha256(body.encode()).hexdigest()

    def says_so(self, path: Path) -> bool:
        """Whether it was found before of the bytes that the file has now."""
        with suppress(OSError, InputError):
            return self._path().read_text() == _digest(path)
        return False

    def write(self, path: Path) -> None:
        """Remember it of a file. A cache that cannot be written remembers nothing."""
        with suppress(OSError, InputError):
            note = self._path()
            note.parent.mkdir(parents=True, exist_ok=True)
            beside = note.with_name(f"{note.name}.{os.getpid()}.tmp")
            beside.write_text(_digest(path))
            beside.replace(note)

    def _path(self) -> Path:
        return cache_folder() / FOLDER / self._name


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
