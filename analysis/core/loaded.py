"""The code that decides must be the files that are sealed, not others of the same name."""

import sys
from collections.abc import Iterable
from pathlib import Path

from kvexp.documents.manifest import core_files
from kvexp.errors import IntegrityError

OWN = ("analysis", "kvexp", "tests")  # what may be imported from the root of the repository


def check_loaded(repository: Path, claims: Iterable[str]) -> None:
    """Raises IntegrityError if a module that is loaded comes from elsewhere than its sealed file.

    A package `analysis/core/decide/` or a library `analysis/core/decide.so` would hide `decide.py`, a file
    `numpy.py` in the repository the package of that name, an installed `kvexp` the one beside this analysis.
    """
    for path in core_files(repository, claims):
        if path.endswith(".py"):
            _check(_name(path), repository / path)
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if "." not in name and name not in OWN and file is not None:
            folder = Path(file).resolve().parent
            if folder in (repository, repository / name):
                raise IntegrityError(f"{file} hides the package {name}: remove or rename it")


def _check(name: str, expected: Path) -> None:
    module = sys.modules.get(name)
    file = getattr(module, "__file__", None)
    if module is not None and (file is None or Path(file).resolve() != expected):
        raise IntegrityError(
            f"module {name} was loaded from {file}, not from {expected}: run `python -m analysis` from the "
            "root of the repository, and remove what hides the file"
        )


def _name(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
