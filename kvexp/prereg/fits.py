"""Do the words of a command that judges fit what it judges? What has no effect is refused."""

import json
import shlex
from collections.abc import Iterator
from typing import Any

from kvexp.compose import Selection
from kvexp.errors import ConfigError
from kvexp.grid import shards
from kvexp.overrides import grid_words
from kvexp.prepare import written_ids
from kvexp.prereg.chain import Seals
from kvexp.prereg.grid_change import config_changes
from kvexp.prereg.home import Home
from kvexp.shard_log import read_attempts
from kvexp.started import GRID


def refuse_other_grid(home: Home, selection: Selection) -> None:
    """Raises ConfigError for words that make another grid than the one that was sealed, or else was run.

    Judging reads rows and seals, never the grid that words make: without this they would change nothing.
    """
    said = grid_words(home.words)
    folder = home.folder / "seals"
    # Beside the manifest of R lie R.json and the manifests of its code.
    ids = [path.stem for path in sorted(folder.glob("*.sha256")) if path.with_suffix(".json").is_file()]
    seals = [Seals(folder, name) for name in ids]
    sealed = [word for one in seals for word in one.read_about().overrides or []]
    if not said or set(said) <= set(sealed):
        return
    known = dict(_sealed(seals) if seals else _run(home))
    made = {shard.shard_id: shard for shard in shards(selection, "assume", written_ids(home.results / GRID))}
    how = "sealed" if seals else "run"
    for shard_id, config in known.items():
        if shard_id not in made:
            changes = [f"its shard {shard_id} is none of theirs"]
        else:
            found = config_changes(config, json.loads(json.dumps(made[shard_id].resolved())))
            changes = [f"{shard_id}: {'; '.join(found)}"] if found else []
        if changes:
            raise ConfigError(
                f"{shlex.join(said)} does not fit results/{home.study}, which was {how} otherwise "
                f"({changes[0]}): leave it out, or name the results that it made, study.name=NAME"
            )


def _sealed(seals: list[Seals]) -> Iterator[tuple[str, dict[str, Any]]]:
    return ((line.shard_id, line.config) for one in seals for line in one.read_shards())


def _run(home: Home) -> Iterator[tuple[str, dict[str, Any]]]:
    """By the newest attempt of each shard."""
    for folder in sorted({path.parent for path in home.results.glob("*/*/attempt-*.json")}):
        last = read_attempts(folder)[-1]
        yield last.shard_id, last.config
