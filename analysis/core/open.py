"""A study, opened: its registrations, and the seals, locks and evidence that bind them, all checked."""

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from analysis.core.decide import CLAIMS
from analysis.core.evidence import KnownEvidence, notes_of, read_evidence
from analysis.core.folders import Folders
from analysis.core.locks import Locked, read_locks
from analysis.core.seals import Seal, check, read_seals, seeded
from analysis.core.study import Study, check_folder, load
from kvexp.documents.forms import LOCKED
from kvexp.documents.manifest import core_files
from kvexp.documents.registration import Registered, load_files, load_folder
from kvexp.documents.source import RegistrationError
from kvexp.errors import IntegrityError
from kvexp.records import Generation

# The code that decides must be the files that are sealed, not others of the same name.


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


@dataclass(frozen=True)
class Bound:
    """What binds the claims of a study to a time."""

    seals: Mapping[str, Seal] = field(default_factory=dict)  # by registration id
    locks: Mapping[str, Locked] = field(default_factory=dict)  # by suite
    shown: KnownEvidence = field(default_factory=KnownEvidence)  # the evidence
    notes: tuple[str, ...] = ()  # where things do not lie as their names say, one sentence each
    has_file: bool = True  # whether the study's name is that of a file in conf/study, which commands can name

    def is_locked(self, suite: str) -> bool:
        """Whether the logs of a suite are closed, and are those that were closed."""
        return suite in self.locks and self.locks[suite].holds

    def open_suites(self, registrations: list[Registered]) -> list[str]:
        """Suites that are sealed and not locked, sorted."""
        sealed = [one.content for one in registrations if one.content.id in self.seals]
        suites = {suite for content in sealed for suite in content.suites}
        return sorted(suite for suite in suites if not self.is_locked(suite))


@dataclass(frozen=True)
class BoundStudy:
    """A study whose papers are checked, and whose logs are not read yet."""

    folders: Folders  # where it lies
    registrations: list[Registered]  # all of them, by id
    owners: Mapping[str, Registered]  # by suite, the registration that lists it
    bound: Bound  # what binds them

    def check_loaded(self) -> None:
        """Raises IntegrityError if code that decides was loaded from other files than those checked."""
        claims = [claim for one in self.registrations for claim in one.content.claim]
        check_loaded(self.folders.repository, claims)

    def load(self, keep: Callable[[int, Generation], None] | None = None) -> Study:
        """The logs, with what their locks object to. `keep` is given each generation that counts."""
        ids = {suite: one.content.id for suite, one in self.owners.items()}
        sealed = {suite: self.bound.seals[id_] for suite, id_ in ids.items() if id_ in self.bound.seals}
        study = load(self.folders.results, ids, sealed, keep)
        locks = self.bound.locks
        problems = [*study.problems, *(problem for one in locks.values() for problem in one.problems)]
        remarks = {
            suite: f"locked without them: {one.about.incomplete}"
            for suite, one in locks.items()
            if one.about is not None and one.about.incomplete is not None
        }
        return replace(study, problems=tuple(sorted(problems)), remarks=remarks)


def opened(folders: Folders) -> BoundStudy:
    """Find the registrations of a study, and check all that binds them, before any log is read.

    Raises KvexpError for what is no results folder, or is not as it was sealed.
    """
    check_folder(folders.results)  # before the registration that its name asks for
    check_loaded(folders.repository, [])  # before any of this code is relied on
    found = _registrations(folders)
    folders.refuse_links([suite for one in found for suite in one.content.suites])
    seals = read_seals(found, folders)
    name = folders.results.resolve().name
    found = [seeded(one, seals, name) for one in found]
    owners = {suite: one for one in found for suite in one.content.suites}
    accepted = {
        suite: seals[one.content.id].accepted for suite, one in owners.items() if one.content.id in seals
    }
    locks = read_locks(folders.results, sorted(owners), accepted)
    study = folders.repository / "conf" / "study" / f"{name}.yaml"
    bound = Bound(
        seals=seals,
        locks=locks,
        shown=read_evidence(folders, found, seals, locks),
        notes=tuple(notes_of(folders, seals)),
        has_file=study.is_file(),
    )
    made = BoundStudy(folders, found, owners, bound)
    made.check_loaded()
    return made


def _registrations(folders: Folders) -> list[Registered]:
    """Every registration, sorted by id, those locked with the logs before all others."""
    files: dict[str, Path] = {}
    every = [folders.results / LOCKED, *folders.homes]
    for folder in every:
        for path in folder.glob("*.toml") if folder.is_dir() else ():
            files.setdefault(path.name, path)
    if not files:
        load_folder(every[-1], CLAIMS)  # says what is wrong with the last one
    paths = [path for _, path in sorted(files.items())]
    try:
        return load_files(paths, CLAIMS)
    except RegistrationError:
        check({path: [] for path in paths}, folders)  # a sealed file that was changed says so
        raise
