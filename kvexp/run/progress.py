"""How far a run is and when it ends, from its logs and from the rates of the cluster."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvexp.errors import IntegrityError
from kvexp.records import CELLS, FOOTER, Failed, World, seconds_of
from kvexp.run import log
from kvexp.study.grid import Counts, counts_of, total
from kvexp.study.rates import Rate, estimated
from kvexp.study.schema import ClusterConf, gpus_of
from kvexp.study.shards import AttentionShard, GenerationShard, Shard

# What a study will cost, from its grid and the rates of a cluster: seconds of work, shard by shard.
#
# Contexts are taken at their nominal length. What is not in it, LEFT_OUT says.


AROUND = 64  # prompt tokens beside the context: template, instruction, question
AFTER = 32  # of these, after the context, without the last; every stream arm is fed them
PAPER_GPU_HOURS = 70  # section 1: "roughly 70 GPU-hours" on single H100s or H200s
LEFT_OUT = "loading models, waiting in queues, examples that are tried again"
ESTIMATED = "estimated, not measured"
NO_CELLS = "attention cells, which these rates have no time for"
NOT_ESTIMATED = "what the roofline has no term for: score rows, keep plans, certificates, attention cells"


@dataclass(frozen=True)
class Projection:
    """The hours of some shards."""

    unit: str  # GPU-hours or CPU-hours
    by_suite: Mapping[str, float | None]  # hours by suite; None: a model of it has no rate
    bases: tuple[str, ...]  # one sentence for each place that rates come from
    lacking: tuple[str, ...]  # models without a rate
    without_cells: bool = False  # whether a rate has no time for cells that are to be made

    @property
    def total(self) -> float | None:
        """Of all suites; None if one is not known."""
        known = [hours for hours in self.by_suite.values() if hours is not None]
        return sum(known) if len(known) == len(self.by_suite) else None

    @property
    def is_estimated(self) -> bool:
        """Whether a rate is that of a data sheet."""
        return any(basis.startswith(ESTIMATED) for basis in self.bases)

    @property
    def is_floor(self) -> bool:
        """Whether something is not in it, or a rate is that of a data sheet, which no run beats."""
        return self.without_cells or self.is_estimated

    @property
    def left_out(self) -> str:
        """What the hours do not hold."""
        if self.is_estimated:
            return f"{LEFT_OUT}; {NOT_ESTIMATED}"
        return f"{LEFT_OUT}; {NO_CELLS}" if self.without_cells else LEFT_OUT

    def plain(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "unit": self.unit,
            "by_suite": {n: None if h is None else round(h, 4) for n, h in self.by_suite.items()},
            "total": None if self.total is None else round(self.total, 4),
            "is_floor": self.is_floor,
            "bases": list(self.bases),
            "lacking": list(self.lacking),
            "left_out": self.left_out,
        }


def project(made: Iterable[Shard], cluster: ClusterConf) -> Projection:
    """Hours of one device, or of one core, that some shards take on a cluster."""
    made = list(made)
    is_gpu = cluster.device.startswith("cuda")
    devices = _devices(cluster) if is_gpu else 1.0
    found: dict[str, float | None] = {}
    for shard in made:
        before, seconds = found.get(shard.suite, 0.0), expected_seconds(shard, cluster)
        found[shard.suite] = None if before is None or seconds is None else before + devices * seconds / 3600
    names = dict.fromkeys(shard.model.name for shard in made)
    lacking = tuple(name for name in names if rate_of(name, cluster) is None)
    bases = dict.fromkeys(_basis(name, cluster) for name in names if name not in lacking)
    cells = {shard.model.name for shard in made if isinstance(shard, AttentionShard)}
    rates = [rate for name in cells if (rate := rate_of(name, cluster)) is not None]
    without_cells = any(not (rate.cell_s and rate.world_s) for rate in rates)
    return Projection("GPU-hours" if is_gpu else "CPU-hours", found, tuple(bases), lacking, without_cells)


def _devices(cluster: ClusterConf) -> float:
    """GPUs of a shard while it runs; as fast as alone, where several share one."""
    if cluster.executor == "slurm":
        return gpus_of(cluster.slurm.gres, cluster.slurm.gpu_share) if cluster.slurm.gres else 1.0
    return 1 / cluster.workers if cluster.executor == "local" else 1.0


def rate_of(model: str, cluster: ClusterConf) -> Rate | None:
    """Measured before estimated; None: neither."""
    if model in cluster.rates:
        return cluster.rates[model]
    if cluster.roofline is None or model not in cluster.shapes or not cluster.device.startswith("cuda"):
        return None
    return estimated(cluster.shapes[model], cluster.roofline)


def _basis(model: str, cluster: ClusterConf) -> str:
    rate = rate_of(model, cluster)
    assert rate is not None
    on = f"{rate.device}, {rate.dtype}, {rate.date}"
    if model in cluster.rates:
        return f"measured on {on}: {rate.command}"
    return f"{ESTIMATED}: {on}: {rate.command}"


def expected_seconds(shard: Shard, cluster: ClusterConf) -> float | None:
    """Seconds that a worker needs for a shard; None without a rate."""
    rate = rate_of(shard.model.name, cluster)
    if rate is None:
        return None
    if isinstance(shard, GenerationShard):
        return len(shard.example_ids) * generation_seconds(shard, rate)
    seconds = len(shard.example_ids) * prefill_seconds(shard.context_tokens, rate)
    if isinstance(shard, AttentionShard):
        seconds += shard.n_cells * rate.cell_s + shard.n_worlds * rate.world_s
    return seconds


def generation_seconds(shard: GenerationShard, rate: Rate) -> float:
    """One example: a prefill, a plan for every arm, and one batch of all arms."""
    prompt = (0 if shard.no_context else shard.context_tokens) + AROUND
    arms = shard.places()
    seconds = prefill_seconds(prompt, rate) + len(arms) * prompt * rate.plan_token_s
    seconds += sum(arm.condition == "stream" for arm in arms) * AFTER * rate.prefill_token_s
    cached = [prompt * (1.0 if arm.budget is None else arm.budget) for arm in arms]
    longest = shard.task.max_new_tokens
    return seconds + decode_seconds(longest * rate.answer_share, longest * rate.arm_share, cached, rate)


def prefill_seconds(tokens: int, rate: Rate) -> float:
    """A prompt of so many tokens."""
    return tokens * rate.prefill_token_s + tokens**2 * rate.prefill_square_s


def decode_seconds(steps: float, arm_steps: float, cached: Iterable[float], rate: Rate) -> float:
    """A batch of so many steps, in which each arm takes `arm_steps` over its `cached` tokens."""
    return steps * rate.step_s + sum(arm_steps * (rate.arm_s + tokens * rate.cached_s) for tokens in cached)


def expected_minutes(shard: Shard, cluster: ClusterConf) -> float | None:
    """A shard's part of the time that all workers together take; None without a rate."""
    seconds = expected_seconds(shard, cluster)
    return None if seconds is None else seconds / 60 / cluster.workers


def minutes_of(made: Sequence[Shard], cluster: ClusterConf) -> float | None:
    """Minutes that all workers together take, at least those of the longest shard; None without a rate."""
    seconds = [expected_seconds(shard, cluster) for shard in made]
    known = [one for one in seconds if one is not None]
    if len(known) < len(seconds):
        return None
    return round(max([sum(known) / cluster.workers, *known]) / 60, 1) if known else 0.0


# How far a run is: rows that are there, and the share of the expected time that they stand for.


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
