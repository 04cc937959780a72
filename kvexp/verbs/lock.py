"""`kvexp lock`: close suites, whose logs are complete, or locked as they are for a reason."""

import argparse

from rich.console import Console

from kvexp.ceremony.grid_changes import refuse_other_grid
from kvexp.ceremony.lock import lock
from kvexp.documents.seals import LockFiles
from kvexp.errors import ConfigError
from kvexp.verbs.opened import registered, take, tell

WORDS = "STUDY [SUITE ...] [OVERRIDE ...]"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Which suites, whole or not."""
    take(parser, names="suites by their names, by default all")
    add = parser.add_argument
    add("--incomplete", metavar="REASON", help="lock although rows are missing or do not count")
    add("--again", action="store_true", help="lock again, after an amendment")


def run(parsed: argparse.Namespace, console: Console) -> int:
    """Lock the suites that are named, by default all of the study."""
    study = registered(parsed, ["suite"])
    home, chosen = study.home, study.selection.chosen["suite"]
    if study.names and chosen != study.selection.study.suites:
        raise ConfigError(
            f"suite={','.join(chosen)} and {' '.join(study.names)} both say which suites are locked: say one"
        )
    refuse_other_grid(home, study.selection)
    suites = study.names or chosen
    owners = home.owners()
    for name in suites:
        if name not in owners:
            known = ", ".join(sorted(owners)) or "none"
            raise ConfigError(
                f"no registration in {home.prefix} lists the suite {name!r} (they list {known}), so nothing "
                "would judge its logs"
            )
    for name in suites:
        files = LockFiles(home.results, name)
        if files.is_locked and not parsed.again:
            tell(console, f"{name}: locked already, {files.read_manifest().digest[:12]}")
            continue
        made = lock(home, owners[name], name, parsed.incomplete)
        digest = files.read_manifest().digest[:12]
        tell(console, f"{name}: locked {made.rows:,} of {made.expected:,} rows as {digest}")
    tell(console, f"next: {home.command('stamp')}, then {home.command('verify')}")
    return 0
