"""Start what is missing and wait for it: shards without a footer, through submitit or in this process.

The files are the truth: what is missing, how far a shard is and whether it is whole is read from its
folder, never from a job's state or result.
"""

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import submitit

from kvexp import provenance, shard_log
from kvexp.assets import embedded_model
from kvexp.config import ClusterConf, ModelConf
from kvexp.errors import IncompleteError, KvexpError
from kvexp.grid import Shard
from kvexp.shard import Place, run_shard

ANCHOR = "unanchored"
POLL_SECONDS = 0.5


@dataclass(frozen=True)
class Outcome:
    """How a shard's process ended; `error` is None if the shard is whole."""

    shard_id: str
    exit_code: int
    error: str | None


def model_source(model: ModelConf) -> str:
    """What transformers loads: the embedded model's folder, or the configured source."""
    return str(embedded_model()) if model.source == "embedded" else model.source


@lru_cache(maxsize=1)
def load_model(source: str, dtype: str, device: str, revision: str | None) -> Any:
    """A loaded model, kept for the next shard of the same process."""
    from kvexp.replay.model import load

    return load(source, dtype, device, revision)


class ShardJob:
    """What a worker runs. Progress lives on disk, so a checkpoint only asks to be started again."""

    def __init__(self, shard: Shard, place: Place, threads: int) -> None:
        self.shard, self.place, self.threads = shard, place, threads

    def __call__(self) -> Outcome:
        import torch

        torch.set_num_threads(self.threads)
        model = self.shard.model
        try:
            run_shard(
                self.shard,
                self.place,
                lambda: load_model(model_source(model), model.dtype, self.place.device, model.revision),
            )
        except KvexpError as error:
            return Outcome(self.shard.shard_id, error.exit_code, str(error))
        return Outcome(self.shard.shard_id, 0, None)

    def checkpoint(self, *args: Any, **kwargs: Any) -> submitit.helpers.DelayedSubmission:
        """Requeue the same call."""
        return submitit.helpers.DelayedSubmission(self, *args, **kwargs)


def folder_of(results: Path, shard: Shard) -> Path:
    """results/<study>/<suite>/<shard_id>."""
    return results / shard.suite / shard.shard_id


def is_complete(results: Path, shard: Shard) -> bool:
    """A footer closes a shard."""
    return (folder_of(results, shard) / shard_log.FOOTER).exists()


def jobs(root: Path, results: Path, made: list[Shard], cluster: ClusterConf) -> list[ShardJob]:
    """One job for every shard."""
    git = provenance.git_state(root)
    threads = cluster.threads or max(1, len(os.sched_getaffinity(0)) // cluster.workers)
    return [
        ShardJob(shard, Place(folder_of(results, shard), ANCHOR, git, cluster.device), threads)
        for shard in made
    ]


def run_here(todo: list[ShardJob]) -> Iterator[Outcome]:
    """`cluster=debug`: one shard after the other in this process."""
    for job in todo:
        yield job()


def run_local(todo: list[ShardJob], logs: Path, cluster: ClusterConf) -> Iterator[Outcome | None]:
    """`cluster=local`: worker processes, `cluster.workers` at a time; None at every poll.

    Closing the iterator, or an interrupt, stops the workers; what they wrote stays.
    """
    with shard_log.on_disk(logs):
        logs.mkdir(parents=True, exist_ok=True)
    # Oversubscribed OpenMP threads spin and cost ten times what they do.
    environment = {
        "OMP_WAIT_POLICY": "PASSIVE",
        "OMP_NUM_THREADS": str(todo[0].threads) if todo else "1",
        "TQDM_DISABLE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    executor = submitit.AutoExecutor(folder=logs / "%j", cluster="local")
    executor.update_parameters(timeout_min=60 * 24 * 7, name="kvexp")
    waiting, running = list(todo), dict[str, tuple[ShardJob, Any]]()
    try:
        while waiting or running:
            while waiting and len(running) < cluster.workers:
                job = waiting.pop(0)
                with _environment(environment):
                    running[job.shard.shard_id] = (job, executor.submit(job))
            yield None
            time.sleep(POLL_SECONDS)
            for shard_id, (job, handle) in list(running.items()):
                if handle.done():
                    del running[shard_id]
                    yield _outcome(job, handle)
    finally:
        for _, handle in running.values():
            handle.cancel(check=False)


def _outcome(job: ShardJob, handle: Any) -> Outcome:
    shard_id = job.shard.shard_id
    if handle.paths.result_pickle.exists():
        with contextlib.suppress(Exception):
            result = handle.result()
            if isinstance(result, Outcome):
                return result
    if (job.place.folder / shard_log.FOOTER).exists():
        return Outcome(shard_id, 0, None)
    tail = _last_line(handle.paths.stderr)
    return Outcome(
        shard_id,
        IncompleteError.exit_code,
        f"shard {shard_id}: its process ended early ({tail}); the rows so far are kept, submit again "
        f"to continue; its output is in {handle.paths.stderr}",
    )


def _last_line(path: Path) -> str:
    try:
        lines = path.read_text(errors="replace").strip().splitlines()
    except OSError:
        return "no output"
    return lines[-1][:300] if lines else "no output"


@contextlib.contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def rows_done(results: Path, shard: Shard) -> int:
    """Rows in a shard's log, counted without reading them: failed ones included."""
    try:
        with (folder_of(results, shard) / shard_log.LOG).open("rb") as file:
            return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))
    except OSError:
        return 0
