"""`kvexp amend`: register a change of sealed files."""

import argparse

from rich.console import Console

from kvexp.ceremony.amend import Reason, amend
from kvexp.ceremony.home import SHOWN, named
from kvexp.errors import ConfigError, first
from kvexp.verbs.opened import registered, take, tell

WORDS = "STUDY ID --why TEXT [OVERRIDE ...]"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Which registration, why, and what may be others after it."""
    take(parser, names="one registration by its id")
    add = parser.add_argument
    add("--why", default="", help="what was wrong, and what is done about it")
    add("--data-seen", default="", help="what you have seen of the data")
    add("--accept-protocol", action="store_true", help="rows made by the earlier code keep counting")
    add(
        "--change-grid",
        action="store_true",
        help="allow the amendment to change shards and rows, which is refused otherwise",
    )


def run(parsed: argparse.Namespace, console: Console) -> int:
    """Amend one registration, and say which files and shards are others now."""
    study = registered(parsed, hint="registrations are named by their ids")
    home, names = study.home, study.names
    if len(names) != 1:
        known = [home.amend_command(one.content.id) for one in home.registrations()]
        raise ConfigError(f"say which registration is amended: {', or '.join(known)}")
    reason = Reason(parsed.why, parsed.data_seen, parsed.accept_protocol, parsed.change_grid)
    amended = amend(home, study.selection, named(home, names)[0], reason)
    made, grid = amended.statement, amended.grid
    of_grid = f"{_counted(len(grid), 'shard')} of the grid" if grid else "the same grid"
    tell(
        console,
        f"{made.registration}: amended {made.stage}, {_counted(len(made.files), 'file')}, "
        f"{of_grid}, "
        f"see {home.prefix}/amendments/{made.registration}-{made.number}",
    )
    for path, kind in made.files.items():
        tell(console, f"  {kind:8} {path}")
    for line in first([f"grid: {line}" for line in grid], SHOWN, "more shards"):
        tell(console, f"  {line}")
    tell(console, f"next: git add and commit, then {home.command('stamp', made.registration)}")
    return 0


def _counted(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"
