"""Where a study stands, from its files alone."""

import time
from dataclasses import dataclass
from pathlib import Path

from kvexp import shard_log
from kvexp.errors import IntegrityError
from kvexp.grid import Shard
from kvexp.launch import folder_of


@dataclass(frozen=True)
class ShardStatus:
    """One line of `kvexp status`.

    Attributes:
        state: complete, running, failed (some example failed), partial, waiting, or broken.
        done: generations that are there.
        expected: generations that a complete shard holds.
        idle_seconds: since the log last grew; None without a log.
        note: what is wrong, or empty.
    """

    shard_id: str
    state: str
    done: int
    expected: int
    idle_seconds: float | None
    note: str


def shard_status(results: Path, shard: Shard) -> ShardStatus:
    """Reads the folder of one shard; a broken log is a state, not an error."""
    folder, expected = folder_of(results, shard), sum(1 for _ in shard.expected())
    log = folder / shard_log.LOG
    idle = max(0.0, time.time() - log.stat().st_mtime) if log.exists() else None
    try:
        state = shard_log.read_state(folder)
    except IntegrityError as error:
        return ShardStatus(shard.shard_id, "broken", 0, expected, idle, str(error))
    word, note = "waiting", ""
    if state.footer is not None:
        word = "complete"
        if state.footer.shard_digest != shard.digest:
            note = "made under another configuration or protocol"
    elif shard_log.is_locked(folder):
        word = "running"
    elif state.failed:
        word = "failed"
        last = state.failed[-1]
        note = f"{len(state.failed)} examples failed, last {last.example_id}: {last.message}"
    elif state.rows or state.attempts:
        word = "partial"
    return ShardStatus(shard.shard_id, word, len(state.rows), expected, idle, note)
