"""`kvexp stamp`: time stamps for seals and locks, by an authority's answer or by query and reply as files."""

import argparse
from pathlib import Path

from rich.console import Console

from kvexp.ceremony.authorities import load_trust
from kvexp.ceremony.home import Home
from kvexp.ceremony.stamp import network_answer, own_answer, read_token, stamp, take_reply, write_query
from kvexp.documents.forms import KINDS
from kvexp.documents.seals import UNANCHORED, LockFiles
from kvexp.errors import ConfigError
from kvexp.run.log import read_attempt
from kvexp.verbs.opened import registered, take, tell

WORDS = "STUDY [ID or SUITE ...] [OVERRIDE ...]"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Which seals and locks, and who vouches for the time."""
    take(parser, names="registrations by their ids, or locked suites by their names, by default all")
    add = parser.add_argument
    add("--tsa", metavar="NAME", help="authority, a file of preregistration/trust (default: the first)")
    add("--query", action="store_true", help="only write the query, to send it from another machine")
    add("--reply", type=Path, metavar="FILE", help="the authority's reply to that query")
    add("--witness", metavar="NAME", help="add a stamp by this authority beside the first one")
    add("--own", action="store_true", help="use an authority of your own, which convinces nobody else")


def run(parsed: argparse.Namespace, console: Console) -> int:
    """Stamp the seals and locks that are named, by default all that there are."""
    study = registered(parsed, hint="seals and locks are named by their ids and suites")
    todo = _todo(study.home, study.names)
    if not todo:
        raise ConfigError(
            f"study {study.home.study} has no seal and no lock yet: {study.home.seal_command()}"
        )
    if (parsed.reply or parsed.witness) and len(todo) > 1:
        option = "--reply" if parsed.reply else "--witness"
        raise ConfigError(
            f"{option} is about one seal or lock, say which one: "
            f"{study.home.command('stamp', todo[0][0])} {option} ... (there are "
            f"{', '.join(name for name, _ in todo)})"
        )
    for name, manifest in todo:
        _stamp(parsed, study.home, name, manifest, console)
    return 0


def _todo(home: Home, names: list[str]) -> list[tuple[str, Path]]:
    """Seals and locks by name; by default all that there are."""
    registered = home.registrations()
    there = {one.content.id: home.seals(one.content.id).manifest for one in registered}
    suites = {suite for one in registered for suite in one.content.suites}
    there |= {suite: LockFiles(home.results, suite).manifest for suite in sorted(suites)}
    for name in names:
        if name not in there or not there[name].is_file():
            known = ", ".join(name for name, path in there.items() if path.is_file()) or "none"
            raise ConfigError(f"study {home.study} has no seal or lock {name!r} (there are: {known})")
    return [(name, path) for name, path in there.items() if path.is_file() and (not names or name in names)]


def _stamp(parsed: argparse.Namespace, home: Home, name: str, manifest: Path, console: Console) -> None:
    trusts = load_trust(home.root, home.folder)
    token = read_token(manifest, trusts)
    if token is not None and not parsed.witness:
        tell(console, f"{name}: stamped already, {token.time} by {token.witness}")
        return
    witness = parsed.witness if token is not None else None
    if parsed.query:
        path = write_query(manifest, witness)
        tell(
            console,
            f"{name}: post {home.named(path)} to an authority (content type "
            f"application/timestamp-query), then {home.command('stamp', name)} --reply FILE",
        )
        return
    if parsed.reply:
        token = take_reply(manifest, home, parsed.reply, name, witness)
    elif parsed.own:
        token = stamp(manifest, home, own_answer(home), witness)
    else:
        wanted = parsed.witness or parsed.tsa
        token = stamp(manifest, home, network_answer(trusts, wanted), witness)
    mine = [suite for one in home.registrations() if one.content.id == name for suite in one.content.suites]
    if any(read_attempt(path).anchor == UNANCHORED for path in home.attempts(mine)):
        tell(console, f"{name}: there are attempts from before the stamp; they will not count")
    tell(
        console,
        f"{name}: stamped {token.time} by {token.witness}: {KINDS[token.kind]}; anchor {token.anchor[:12]}",
    )
