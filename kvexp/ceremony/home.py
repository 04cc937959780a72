"""Where the registrations of a study lie, and their seals, amendments and stamps beside them."""

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kvexp.ceremony import lint
from kvexp.documents.forms import COPIED, LOCKED
from kvexp.documents.manifest import Manifest, core_files, differences, read_manifest
from kvexp.documents.registration import Registered
from kvexp.documents.seals import Seals, amendments, chain
from kvexp.errors import ConfigError, IntegrityError, first
from kvexp.study import provenance
from kvexp.study.compose import Selection
from kvexp.study.results import results_of
from kvexp.study.words import study_words

KINDS = ("generations", "cells")
SHOWN = 20  # lines below a sentence


@dataclass(frozen=True)
class Home:
    """The folder of a study's registrations."""

    root: Path  # of the repository
    folder: Path
    study: str  # name of its results
    registered: str = ""  # name of its file in conf/study; empty: that of its results
    words: tuple[str, ...] = ()  # overrides of the command that runs, which the next one needs too

    @property
    def prefix(self) -> str:
        """The folder as manifests name it."""
        return self.folder.relative_to(self.root).as_posix()

    @property
    def results(self) -> Path:
        return self.root / "results" / self.study

    @property
    def trust(self) -> Path:
        """Authorities that the author runs."""
        return self.folder / "trust"

    @property
    def is_renamed(self) -> bool:
        """Whether the results bear another name than the registrations that they borrow."""
        is_said = any(word.lstrip("+").startswith("study.name=") for word in self.words)
        is_usual = self.folder.parent == self.root / "preregistration"
        return is_said and is_usual and self.study != self.registered

    def command(self, verb: str, *rest: str) -> str:
        """A command about this study, under the overrides of the one that runs."""
        return shlex.join(["kvexp", verb, self.registered or self.study, *rest, *self.words])

    def seal_command(self, *ids: str) -> str:
        """What seals this study, or some of its registrations."""
        return f"{self.command('seal', *ids)}{' --copy' if self.is_renamed else ''}"

    def amend_command(self, registration_id: str) -> str:
        """What amends a registration; the capitals are for the author to fill in."""
        return self.command("amend", registration_id, "--why", "WHY", "--data-seen", "WHAT")

    def seals(self, registration_id: str) -> Seals:
        return Seals(self.folder / "seals", registration_id)

    def amendments(self, registration_id: str) -> list[Path]:
        """The folders of a registration's amendments, in order."""
        return amendments(self.folder, registration_id)

    def chain(self, registration_id: str) -> list[Seals]:
        """Its seals, from the first one to the one that stands."""
        return chain(self.folder, registration_id)

    def attempts(self, suites: Iterable[str]) -> list[Path]:
        """The files of every process start of the suites."""
        return [path for suite in suites for path in self.results.glob(f"{suite}/*/attempt-*.json")]

    def registrations(self) -> list[Registered]:
        """Every registration, fit to be sealed."""
        return lint.registrations(self.folder, self.root / "analysis" / "claims")

    def owners(self) -> dict[str, Registered]:
        """By suite, the registration that lists it."""
        return {suite: one for one in self.registrations() for suite in one.content.suites}

    def named(self, path: Path) -> str:
        """A file as it is named from the repository's root."""
        return path.relative_to(self.root).as_posix()


def ordered(found: list[Registered]) -> list[Registered]:
    """Parents before their addenda."""
    by_id = {one.content.id: one for one in found}
    done: dict[str, Registered] = {}

    def add(one: Registered) -> None:
        parent = one.content.parent
        if parent is not None and parent not in done:
            add(by_id[parent])
        done[one.content.id] = one

    for one in found:
        add(one)
    return list(done.values())


def named(home: Home, ids: list[str]) -> list[Registered]:
    """Registrations by id, all of them by default, parents first."""
    found = ordered(home.registrations())
    known = [one.content.id for one in found]
    for name in ids:
        if name not in known:
            raise ConfigError(f"{home.prefix} has no registration {name!r} (known: {', '.join(known)})")
    return [one for one in found if not ids or one.content.id in ids]


def protocols_of(seals: Seals) -> dict[str, Manifest]:
    """By kind of row, the manifest of the files that make it, as far as they were sealed."""
    return {kind: read_manifest(path) for kind in KINDS if (path := seals.protocol(kind)).exists()}


def refuse_borrowed(home: Home) -> None:
    """Raises ConfigError where a renamed study would use the seals of the one that it borrows from."""
    if home.is_renamed:
        raise ConfigError(
            f"{home.prefix} holds the registrations of study {home.registered}, and study.name={home.study} "
            f"is another study, which cannot share its seals: seal a copy beside its results with "
            f"`{home.seal_command()}`, or give it registrations of its own with "
            f"`kvexp new-study {home.study} --from {home.registered}`"
        )


def refuse_broken(home: Home, one: Registered) -> None:
    """Raises IntegrityError, with the list, if sealed files are not what they were."""
    name = one.content.id
    sealed = home.seals(name).read_manifest()
    if found := differences(home.root, sealed, core_files(home.root, one.content.claim)):
        raise IntegrityError(
            f"sealed files differ from seal {name} ({sealed.digest[:12]}) of study {home.study}: restore "
            f"them, or register the change with `{home.amend_command(name)}`; nothing was done",
            first(found, SHOWN),
        )


def refuse_foreign_code(root: Path) -> None:
    """Raises IntegrityError if the kvexp that runs is not the one that the repository's seals cover."""
    if provenance.PACKAGE.resolve().parent != root.resolve():
        raise IntegrityError(
            f"the kvexp that runs lies in {provenance.PACKAGE}, not in {root}, whose files a seal covers: "
            "install this repository (make install), or run its own kvexp"
        )


def home_of(selection: Selection, root: Path, overrides: Sequence[str] = ()) -> Home:
    """The copy beside the results if the study was sealed as one, else the repository's folder.

    If that is gone, what was locked beside the logs.
    """
    study, registered = selection.study.name, selection.chosen["study"][0]
    results, usual = results_of(study, root, is_registered=True), root / "preregistration" / registered
    beside = [results / COPIED, usual, results / LOCKED]
    folder = next((folder for folder in beside if folder.is_dir()), usual)
    return Home(root, folder, study, registered, study_words(overrides))
