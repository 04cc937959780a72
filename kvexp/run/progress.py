"""How far a run is: rows that are there, and the share of the expected time that they stand for."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from kvexp.errors import IntegrityError
from kvexp.records import CELLS, FOOTER, Failed, World, seconds_of
from kvexp.run import log
from kvexp.run.projection import expected_minutes
from kvexp.study.grid import Counts, counts_of, total
from kvexp.study.schema import ClusterConf
from kvexp.study.shards import Shard

FAILED, WORLD = (f'{{"kind":"{kind.__struct_config__.tag}"'.encode() for kind in (Failed, World))


class RowCount:
    """Rows in growing logs, without the lines of examples that failed; no row is read twice."""

    def __init__(self, logs: Sequence[Path]) -> None:
        self._seen = {path: (0, 0, 0) for path in logs}  # bytes read, rows in them, of these world rows

    def __call__(self) -> list[Counts]:
        """Rows that are there now, by log."""
        for path, (position, rows, worlds) in self._seen.items():
            if not path.is_file():
                continue
            with suppress(OSError), path.open("rb") as file:
                file.seek(position)
                for line in file:
                    if line.endswith(b"\n"):  # a torn one may become either
                        position, rows = position + len(line), rows + (not line.startswith(FAILED))
                        worlds += line.startswith(WORLD)
                self._seen[path] = (position, rows, worlds)
        return [_counts(path, rows, worlds) for path, (_, rows, worlds) in self._seen.items()]


def _counts(log: Path, rows: int, worlds: int) -> Counts:
    return Counts(cells=rows - worlds, worlds=worlds) if log.name == CELLS else Counts(generations=rows)


class Work:
    """What is to be done and how much of it is there.

    A row of an attention suite costs a hundredth of a generation, so time is not told by counting rows.

    Attributes:
        whole: rows of the complete shards.
        rows: rows that were there at the last update.
        share: of the expected time, from 0 to 1.
    """

    def __init__(self, shards: Sequence[Shard], logs: Sequence[Path], cluster: ClusterConf) -> None:
        self._count = RowCount(logs)
        self._sizes = [shard.n_rows for shard in shards]
        minutes = [expected_minutes(shard, cluster) for shard in shards]
        known = [m for m in minutes if m is not None]
        self._weights = known if len(known) == len(minutes) else [float(n) for n in self._sizes]
        self.whole = counts_of(shards)
        self.update()
        self._before = self.share

    def update(self) -> None:
        """Read what was added to the logs."""
        found = self._count()
        self.rows = total(found)
        counts = [min(rows.total, n) for rows, n in zip(found, self._sizes, strict=True)]
        done = (rows / n * w for rows, n, w in zip(counts, self._sizes, self._weights, strict=True))
        self.share = sum(done) / sum(self._weights)

    @property
    def told(self) -> str:
        """How many rows of each kind are there."""
        return self.rows.done_of(self.whole)

    def line(self, seconds: float) -> str:
        """One line for a log, `seconds` after the start."""
        done = self.share - self._before
        eta = f"{seconds * (1 - self.share) / done / 60:.1f} min" if done > 0 else "unknown"
        return f"{self.told}, ETA {eta}"


# When a study will be through: what its own logs say of its speed, else the measured rates of conf.


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
        footer = log.read_footer(one.folder)
        last = footer.segments[-1]
        attempt = log.read_attempt(one.folder / f"attempt-{last.attempt:03d}.json")
        seconds = max(0.0, seconds_of(footer.ended_at) - seconds_of(attempt.started_at))
    except (IntegrityError, OSError, IndexError, ValueError):
        return None
    return seconds / last.rows if last.rows else None
