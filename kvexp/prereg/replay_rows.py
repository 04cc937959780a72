"""Which rows of a study's logs are replayed, and whether they are rows that it can have."""

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kvexp.errors import ConfigError, IntegrityError
from kvexp.prereg.grid_change import config_changes
from kvexp.records import Attempt, Generation
from kvexp.replay.arm import Arm
from kvexp.resolved import GenerationShard
from kvexp.shard_log import GENERATIONS, read_state


@dataclass(frozen=True)
class Logged:
    """A row, and what it was made with."""

    shard: GenerationShard
    attempt: Attempt
    arm: Arm
    row: Generation

    @property
    def place(self) -> str:
        row = self.row
        where = f"{row.suite} {row.model} {row.task} {row.example_id}"
        axes = (row.condition, None if row.budget is None else f"{row.budget:g}")
        said = [row.arm, *(axis for axis in axes if axis is not None)]
        return " ".join([where, *said, *([] if row.seed is None else [f"seed {row.seed}"])])


def ticket(purpose: str, seed: int, *key: object) -> bytes:
    """What has the smallest tickets is chosen: at random, and in no order of files."""
    return hashlib.sha256(json.dumps([purpose, seed, *key]).encode()).digest()


def random_seed(given: int | None) -> int:
    """The seed that chooses what is replayed: a given one, or one from the operating system."""
    if given is not None and given < 0:
        raise ConfigError(f"the seed of a replay is at least 0, got {given}")
    return int.from_bytes(os.urandom(6), "big") if given is None else given


def refuse_unknown_shards(results: Path, made: list[GenerationShard], words: str) -> None:
    """Raises IntegrityError for a log of no shard; `words`: what the command lacks, or nothing."""
    known = {(shard.suite, shard.shard_id) for shard in made}
    for suite in sorted({shard.suite for shard in made}):
        for log in sorted((results / suite).glob(f"*/{GENERATIONS}")):
            if (suite, log.parent.name) not in known:
                raise IntegrityError(
                    f"{log} belongs to no shard of the study: replay under the overrides that it was run "
                    f"with{words}, or move its folder away"
                )


def random_rows(results: Path, shard: GenerationShard, words: str) -> Iterator[Logged]:
    """The rows of a shard whose keep sets depend on the anchor. Raises IntegrityError as `logged` does."""
    return (one for one in logged(results, shard, words)[0] if _is_drawn(one.arm))


def logged(results: Path, shard: GenerationShard, words: str) -> tuple[list[Logged], set[str]]:
    """All rows of a shard, and the ids of examples whose last try failed.

    Raises IntegrityError for a row that the shard does not expect, and for an attempt that was configured
    otherwise; `words`: what the command lacks, or nothing.
    """
    folder = results / shard.suite / shard.shard_id
    state = read_state(folder, shard.log)
    attempts = {attempt.number: attempt for attempt in state.attempts}
    for attempt in attempts.values():
        # Code may have been amended since; what a row was asked to be may not.
        if changes := config_changes(attempt.config, json.loads(json.dumps(shard.resolved()))):
            raise IntegrityError(
                f"attempt {attempt.number} of {folder} was made under another configuration than the study "
                f"has now ({'; '.join(changes)}): replay under the overrides that it was run with{words}"
            )
    expected = set(shard.keys())
    arms = {(a.name, a.condition, a.budget, a.seed): a for a in shard.places()}
    found = []
    for key, row in state.rows.items():
        if not isinstance(row, Generation) or key not in expected:
            raise IntegrityError(
                f"{folder / shard.log} holds a row that its shard does not expect "
                f"({' '.join(map(str, key))}): restore the log"
            )
        arm = arms[row.arm, row.condition, row.budget, row.seed]
        found.append(Logged(shard, attempts[row.attempt], arm, row))
    return found, {one.example_id for one in state.failed}


def _is_drawn(arm: Arm) -> bool:
    """Whether its keep sets depend on the anchor; where the whole cache is the budget none does."""
    return arm.design.is_random and arm.budget is not None and arm.budget < 1
