"""Whether sealed files are what they were, and the anchor that a seal's time stamp gives."""

from kvexp.ceremony.authorities import load_trust
from kvexp.ceremony.home import Home
from kvexp.ceremony.tokens import read_token
from kvexp.documents.manifest import core_files, differences
from kvexp.documents.registration import Registered
from kvexp.documents.seals import UNANCHORED, keying
from kvexp.errors import IntegrityError

SHOWN = 20


def anchor_of(home: Home, registration_id: str) -> str:
    """The anchor that keys a registration's draws: of its stamp, or of the seal under which data began."""
    token = read_token(keying(home.folder, registration_id).manifest, load_trust(home.root, home.folder))
    return UNANCHORED if token is None else token.anchor


def refuse_broken(home: Home, one: Registered) -> None:
    """Raises IntegrityError, with the list, if sealed files are not what they were."""
    seals = home.seals(one.content.id)
    sealed = seals.read_manifest()
    found = differences(home.root, sealed, core_files(home.root, one.content.claim))
    if found:
        raise broken(home, one.content.id, sealed.digest, found)


def broken(home: Home, registration_id: str, seal: str, found: list[str]) -> IntegrityError:
    """The error of sealed files that differ, with the list."""
    more = [f"and {len(found) - SHOWN} more"] if len(found) > SHOWN else []
    return IntegrityError(
        f"sealed files differ from seal {registration_id} ({seal[:12]}) of study {home.study}: restore them, "
        f"or register the change with `{home.amend_command(registration_id)}`; nothing was done",
        [*found[:SHOWN], *more],
    )
