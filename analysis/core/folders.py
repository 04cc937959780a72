"""Where the parts of a study lie: results, registrations locked with them, and other registrations."""

from dataclasses import dataclass
from pathlib import Path

from kvexp.documents.forms import COPIED
from kvexp.documents.seals import chain
from kvexp.errors import IntegrityError

MUST_BE_HERE = ("locks", "examples", COPIED)


@dataclass(frozen=True)
class Folders:
    """Where the parts of a study lie."""

    results: Path  # results/<study>
    repository: Path  # whose code decides
    chosen: Path | None = None  # stands in for the copy beside the results and the folder of the repository
    is_anew: bool = False  # whether the code of the repository may differ from what seals list

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
