"""What a reader must know of where things lie: another name of the folder, registrations that moved on."""

from collections.abc import Iterator, Mapping

from analysis.sealed.registrations import Folders, home, later_seals
from analysis.sealed.seals import Seal
from kvexp.prereg.chain import moved_on
from kvexp.prereg.forms import LOCKED

SHOWN = 3


def notes(folders: Folders, seals: Mapping[str, Seal]) -> Iterator[str]:
    """One sentence each."""
    name = folders.results.resolve().name
    studies = sorted({seal.study for seal in seals.values()} - {name})
    if studies:
        yield f"this folder is called {name}, and its seals were made for the study {', '.join(studies)}"
    for registration_id, seal in sorted(seals.items()):
        if seal.home == folders.results / LOCKED:
            yield from _moved(folders, registration_id, seal, name)


def _moved(folders: Folders, registration_id: str, seal: Seal, name: str) -> Iterator[str]:
    folder = home(folders, registration_id)
    lines = [] if folder is None else moved_on(folder, seal.home, registration_id)
    if folder is None or not lines:
        return
    called = folders.called(folder)
    where = "the folder given with --registration" if called == "DIR" else called
    more = f" and {len(lines) - SHOWN} more" if len(lines) > SHOWN else ""
    if later_seals(folders, registration_id, seal.id):
        yield (
            f"registration {registration_id} was amended in {where} after the lock, and the copy in "
            f"results/{name}/{LOCKED} judges until kvexp lock {seal.study} SUITE --again"
        )
    else:
        yield (
            f"{where} differs from what was locked with the logs ({', '.join(lines[:SHOWN])}{more}): the "
            f"copy in results/{name}/{LOCKED} is what counts"
        )
