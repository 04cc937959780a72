"""Which registrations judge a study: those locked with its logs before all others."""

from collections.abc import Iterator
from pathlib import Path

from analysis import claims
from kvexp.prereg.forms import COPIED, LOCKED
from kvexp.prereg.registration import Registered, load_files, load_folder


def files(results: Path, repository: Path, chosen: Path | None) -> list[Path]:
    """The file of every registration, sorted by id; of two with one id that of the first folder.

    `chosen` stands in for the copy beside the results and the folder of the repository.
    """
    default = [results / COPIED, repository / "preregistration" / results.resolve().name]
    folders = [results / LOCKED, *([chosen] if chosen is not None else default)]
    found: dict[str, Path] = {}
    for folder in folders:
        for path in _files(folder):
            found.setdefault(path.name, path)
    if not found:
        load_folder(folders[-1], claims.has_file)  # says what is wrong with the last one
    return [path for _, path in sorted(found.items())]


def load(paths: list[Path]) -> list[Registered]:
    """Every registration, checked on its own and beside the others."""
    return load_files(paths, claims.has_file)


def _files(folder: Path) -> Iterator[Path]:
    if folder.is_dir():
        yield from folder.glob("*.toml")
