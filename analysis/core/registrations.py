"""Which registrations judge a study: those locked with its logs before all others."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from analysis.core import decide
from kvexp.documents.forms import COPIED, LOCKED
from kvexp.documents.registration import Registered, load_files, load_folder
from kvexp.documents.seals import chain
from kvexp.errors import IntegrityError

MUST_BE_HERE = ("locks", "examples", COPIED)


@dataclass(frozen=True)
class Folders:
    """Where the parts of a study lie.

    Attributes:
        results: results/<study>.
        repository: whose code decides.
        chosen: stands in for the copy beside the results and the folder of the repository.
        is_anew: whether the code of the repository may differ from what seals list.
    """

    results: Path
    repository: Path
    chosen: Path | None = None
    is_anew: bool = False

    @property
    def homes(self) -> list[Path]:
        """Folders of registrations that are not the locked copy, the first before all others."""
        if self.chosen is not None:
            return [self.chosen]
        usual = self.repository / "preregistration" / self.results.resolve().name
        return [self.results / COPIED, usual]

    def called(self, home: Path) -> str:
        """A folder of registrations from the root of the repository: the same wherever that lies."""
        if home.is_relative_to(self.results):
            inside = home.relative_to(self.results)
            return f"results/{self.results.resolve().name}/{inside.as_posix()}"
        if home == self.chosen or not home.is_relative_to(self.repository):
            return "DIR"  # given with --registration
        return home.relative_to(self.repository).as_posix()

    def refuse_links(self, suites: list[str]) -> None:
        """Raises IntegrityError for a folder that lies elsewhere: what it holds could be exchanged unseen."""
        for name in sorted({*suites, *MUST_BE_HERE}):
            if (self.results / name).is_symlink():
                raise IntegrityError(f"{self.results / name} is a link: put the folder itself there")


def files(folders: Folders) -> list[Path]:
    """The file of every registration, sorted by id; of two with one id that of the first folder."""
    found: dict[str, Path] = {}
    every = [folders.results / LOCKED, *folders.homes]
    for folder in every:
        for path in _files(folder):
            found.setdefault(path.name, path)
    if not found:
        load_folder(every[-1], decide.CLAIMS)  # says what is wrong with the last one
    return [path for _, path in sorted(found.items())]


def load(paths: list[Path]) -> list[Registered]:
    """Every registration, checked on its own and beside the others."""
    return load_files(paths, decide.CLAIMS)


def home(folders: Folders, registration_id: str) -> Path | None:
    """Where a registration lies that was locked with the logs; None if it is nowhere else."""
    found = (folder for folder in folders.homes if (folder / f"{registration_id}.toml").is_file())
    return next(found, None)


def later_seals(folders: Folders, registration_id: str, seal: str) -> bool:
    """Whether the seal that judges was amended since, where the registration lies."""
    folder = home(folders, registration_id)
    if folder is None:
        return False
    try:
        links = [link.read_manifest().digest for link in chain(folder, registration_id)]
    except IntegrityError:
        return False
    return seal in links[:-1]


def _files(folder: Path) -> Iterator[Path]:
    if folder.is_dir():
        yield from folder.glob("*.toml")
