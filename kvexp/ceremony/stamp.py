"""Getting a time stamp for a manifest: from an authority over the network, by file, or from one's own."""

from collections.abc import Callable, Mapping
from pathlib import Path

from kvexp.ceremony import authorities
from kvexp.ceremony.authorities import MAX_REPLY, CannotStamp, StampError, Trust, load_trust, post
from kvexp.ceremony.home import Home
from kvexp.ceremony.tokens import Token, stamp_paths, store, write_query
from kvexp.documents.manifest import read_bytes

Answer = Callable[[bytes], bytes]  # from a query to the authority's reply
OWN_FOLDER = "own-tsa"  # below results/<study>; holds a private key, which git must not see


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
