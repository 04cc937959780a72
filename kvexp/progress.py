"""How far a run is: rows that are there, and the share of the expected time that they stand for."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from kvexp.config import ClusterConf
from kvexp.counts import Counts, counts_of, total
from kvexp.projection import expected_minutes
from kvexp.records import Failed, World
from kvexp.resolved import Shard
from kvexp.shard_log import CELLS

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
