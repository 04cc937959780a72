"""Time stamps of manifests, as files beside them: asked for, kept once they verify, and read."""

import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from kvexp.ceremony import authorities
from kvexp.ceremony.authorities import MAX_REPLY, CannotStamp, StampError, Trust, load_trust, post
from kvexp.ceremony.home import Home
from kvexp.ceremony.tokens import Token, asked_nonce, check, query
from kvexp.documents.manifest import read_bytes
from kvexp.documents.seals import UNANCHORED, keying
from kvexp.errors import printable
from kvexp.files import write_whole

MANIFEST = ".sha256"
Answer = Callable[[bytes], bytes]  # from a query to the authority's reply
OWN_FOLDER = "own-tsa"  # below results/<study>; holds a private key, which git must not see


class StampPaths(NamedTuple):
    """Query and reply beside a manifest."""

    query: Path
    reply: Path


def stamp_paths(manifest: Path, witness: str | None = None) -> StampPaths:
    """Of a manifest's first token (None), or of the one by a further witness, named like its authority."""
    stem = manifest.name.removesuffix(MANIFEST)
    beside = stem if witness is None else f"{stem}.{witness}"
    return StampPaths(manifest.with_name(f"{beside}.tsq"), manifest.with_name(f"{beside}.tsr"))


def write_query(manifest: Path, witness: str | None = None) -> Path:
    """Write a query, or leave one that is about these bytes: it may be on its way to the authority."""
    message, paths = read_bytes(manifest), stamp_paths(manifest, witness)
    if os.path.lexists(paths.query) and _is_about(paths.query, message):
        return paths.query
    if os.path.lexists(paths.reply):
        raise CannotStamp(
            f"{paths.reply} answers a query that is not {paths.query.name}: restore that one, "
            "or move the reply away"
        )
    write_whole(paths.query, query(message))
    return paths.query


def _is_about(path: Path, message: bytes) -> bool:
    try:
        asked_nonce(read_bytes(path, MAX_REPLY), hashlib.sha256(message).digest())
    except StampError:
        return False
    return True


def store(
    manifest: Path,
    tsr: bytes,
    trusts: Mapping[str, Trust],
    witness: str | None = None,
) -> Token:
    """Keep the reply to the query that `write_query` wrote, once it verifies.

    A token that verifies is never replaced: raises CannotStamp. Nothing is written for a bad reply.
    """
    paths = stamp_paths(manifest, witness)
    if not paths.query.exists():
        raise CannotStamp(f"{paths.query} is missing: write a query with --query and post that one")
    allowed = _allowed(trusts, witness)
    token = check(read_bytes(manifest), read_bytes(paths.query, MAX_REPLY), tsr, allowed)
    try:
        there = _read(manifest, trusts, witness)
    except StampError:
        there = None  # damaged: it proves nothing, the new one does
    if there is not None and there != token:
        raise CannotStamp(f"{paths.reply} is there already, from {there.time} by {there.witness}: keep it")
    if there is None:
        write_whole(paths.reply, tsr)
    return token


def read_token(manifest: Path, trusts: Mapping[str, Trust]) -> Token | None:
    """The verified token of a manifest, whose anchor counts; None if there is no reply.

    Raises StampError for one that does not verify.
    """
    return _read(manifest, trusts, None)


def read_tokens(manifest: Path, trusts: Mapping[str, Trust]) -> list[Token]:
    """Every verified token of a manifest: the first one, then further witnesses sorted by name."""
    first = read_token(manifest, trusts)
    further = [_read(manifest, trusts, witness) for witness in _witnesses(manifest)]
    return [token for token in (first, *further) if token is not None]


def _read(manifest: Path, trusts: Mapping[str, Trust], witness: str | None) -> Token | None:
    paths = stamp_paths(manifest, witness)
    if not os.path.lexists(paths.reply):
        return None
    if not paths.query.exists():
        raise StampError(f"{paths.reply} has no query {paths.query.name} beside it: restore it")
    bodies = (read_bytes(manifest), read_bytes(paths.query, MAX_REPLY), read_bytes(paths.reply, MAX_REPLY))
    try:
        return check(*bodies, _allowed(trusts, witness))
    except StampError as error:
        raise type(error)(f"{paths.reply}: {error}") from None


def _witnesses(manifest: Path) -> list[str]:
    """Names in `<stem>.<name>.tsr`, but not where `<stem>.<name>` is a manifest of its own."""
    stem = manifest.name.removesuffix(MANIFEST)
    names = {
        path.name[len(stem) + 1 : -len(".tsr")]
        for path in manifest.parent.iterdir()
        if path.name.startswith(f"{stem}.") and path.name.endswith(".tsr") and path.name != f"{stem}.tsr"
    }
    return sorted(n for n in names if not manifest.with_name(f"{stem}.{n}{MANIFEST}").exists())


def _allowed(trusts: Mapping[str, Trust], witness: str | None) -> Mapping[str, Trust]:
    """A further witness must be the one whose name its files carry."""
    if witness is None:
        return trusts
    if witness not in trusts:
        raise CannotStamp(
            f"no authority '{printable(witness)}' is pinned: add it to preregistration/trust, or take one "
            f"of: {', '.join(sorted(trusts)) or 'none'}"
        )
    return {witness: trusts[witness]}


def keying_anchor(home: Home, registration_id: str) -> str:
    """The anchor that keys a registration's draws: of its stamp, or of the seal under which data began."""
    token = read_token(keying(home.folder, registration_id).manifest, load_trust(home.root, home.folder))
    return UNANCHORED if token is None else token.anchor


def own_answer(home: Home) -> Answer:
    """The author's own authority, made at its first use. Its word is the author's."""
    folder = home.results / OWN_FOLDER
    if not (folder / authorities.KEY).is_file():
        authorities.create(folder, home.folder)
    return lambda tsq: authorities.answer(folder, tsq)


def network_answer(trusts: Mapping[str, Trust], name: str | None) -> Answer:
    """The named authority, or the first public one that has an address."""
    with_url = {trust.name: trust.url for trust in trusts.values() if trust.url and not trust.is_self_run}
    if name is not None and trusts.get(name) is None:
        raise CannotStamp(f"no authority {name!r} is pinned (known: {', '.join(sorted(trusts)) or 'none'})")
    chosen = name or min(with_url, default=None)
    url = None if chosen is None else trusts[chosen].url
    if chosen is None or url is None:
        raise CannotStamp(f"the authority {chosen or ''} has no address: use --query and --reply")
    return lambda tsq: post(url, tsq)


def stamp(manifest: Path, home: Home, answer: Answer, witness: str | None = None) -> Token:
    """Ask and keep the reply, once it verifies. Raises StampError; nothing is written for a bad reply."""
    path = write_query(manifest, witness)
    return store(manifest, answer(read_bytes(path, MAX_REPLY)), load_trust(home.root, home.folder), witness)


def take_reply(manifest: Path, home: Home, reply: Path, name: str, witness: str | None = None) -> Token:
    """Keep a reply that was fetched elsewhere. `name`: of the seal or lock, for the sentences.

    Raises StampError for a file that is not the answer to the query that is there; nothing is written then.
    """
    asked = stamp_paths(manifest, witness).query
    if not asked.exists():
        command = f"{home.command('stamp', name)}{'' if witness is None else f' --witness {witness}'} --query"
        raise CannotStamp(f"{name} has no query yet, which a reply could answer: `{command}` writes it")
    body, where = read_bytes(reply, MAX_REPLY), asked.relative_to(home.root)
    if body == read_bytes(asked, MAX_REPLY):
        raise CannotStamp(f"{reply} is the query itself: post it to an authority and give what that answers")
    try:
        return store(manifest, body, load_trust(home.root, home.folder), witness)
    except CannotStamp:
        raise
    except StampError as error:
        raise StampError(
            f"{reply} is not taken for {name}: {error}; nothing was written, give the answer to {where}"
        ) from None
