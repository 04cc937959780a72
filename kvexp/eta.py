"""When a study will be through: what its own logs say of its speed, else the measured rates of conf."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kvexp import shard_log
from kvexp.config import ClusterConf
from kvexp.errors import IntegrityError
from kvexp.moments import seconds_of
from kvexp.projection import expected_minutes
from kvexp.resolved import Shard
from kvexp.shard_log import FOOTER

MEASURED = 8  # closed shards of a kind that are looked at


@dataclass(frozen=True)
class Progress:
    """How far one shard is."""

    shard: Shard
    folder: Path
    missing: int  # rows
    is_complete: bool
    is_running: bool


def eta_minutes(made: Sequence[Progress], cluster: ClusterConf) -> float | None:
    """Minutes of work that are left, shared by the shards that run now; None: unknown, or nothing runs.

    Rows of a suite on a model cost alike, so closed shards of the same kind tell what is left. The wait for
    free nodes is not in it.
    """
    running = sum(one.is_running for one in made)
    if not running:
        return None
    kinds: dict[tuple[str, str], list[Progress]] = {}
    for one in made:
        kinds.setdefault((one.shard.suite, one.shard.model.name), []).append(one)
    seconds = 0.0
    for same in kinds.values():
        missing = sum(one.missing for one in same)
        per_row = _seconds_per_row(same, cluster) if missing else 0.0
        if per_row is None:
            return None
        seconds += missing * per_row
    open_shards = sum(not one.is_complete for one in made)
    return seconds / min(max(running, 1), open_shards or 1) / 60


def _seconds_per_row(same: Sequence[Progress], cluster: ClusterConf) -> float | None:
    closed = [one for one in same if one.is_complete][-MEASURED:]
    measured = sorted(s for s in (_measured(one) for one in closed) if s is not None)
    if measured:
        return measured[len(measured) // 2]
    minutes = expected_minutes(same[0].shard, cluster)
    if minutes is None:
        return None
    return minutes * cluster.workers * 60 / same[0].shard.n_rows


def _measured(one: Progress) -> float | None:
    """Seconds a row in the last attempt of a closed shard, loading included."""
    try:
        if not (one.folder / FOOTER).exists():
            return None
        footer = shard_log.read_footer(one.folder)
        last = footer.segments[-1]
        attempt = shard_log.read_attempt(one.folder / f"attempt-{last.attempt:03d}.json")
        seconds = max(0.0, seconds_of(footer.ended_at) - seconds_of(attempt.started_at))
    except (IntegrityError, OSError, IndexError, ValueError):
        return None
    return seconds / last.rows if last.rows else None
