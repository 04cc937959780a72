"""Start what is missing and wait for it: shards without a footer, through submitit or in this process.

The files are the truth: what is missing, how far a shard is and whether it is whole is read from its
folder, never from a job's state or result.
"""

import contextlib
import os
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import submitit

from kvexp import files
from kvexp.errors import IncompleteError, KvexpError
from kvexp.models.folder import content_digest, model_source
from kvexp.models.load import load_model
from kvexp.records import FOOTER
from kvexp.run import log
from kvexp.run.attempt import Place, Under
from kvexp.run.log import folder_of
from kvexp.study import provenance
from kvexp.study.schema import ClusterConf
from kvexp.study.shards import Shard

POLL_SECONDS = 0.5
STOP_SECONDS = 1.5


@dataclass(frozen=True)
class Outcome:
    """How a shard's process ended; `error` is None if the shard is whole."""

    shard_id: str
    exit_code: int
    error: str | None


class ShardJob:
    """What a worker runs. Progress lives on disk, so a checkpoint only asks to be started again."""

    def __init__(self, shard: Shard, place: Place, threads: int) -> None:
        self.shard, self.place, self.threads = shard, place, threads

    def __call__(self) -> Outcome:
        import torch

        from kvexp.run.shard import run_shard  # brings the harness, which only workers need

        torch.set_num_threads(self.threads)
        model, place = self.shard.model, self.place
        try:
            if (place.folder / FOOTER).exists():  # another task was faster: there is nothing to do
                log.check_closed(place.folder, self.shard.digest, self.shard.log)
                return Outcome(self.shard.shard_id, 0, None)
            run_shard(
                self.shard,
                replace(place, model_digest=content_digest(model)),
                lambda: load_model(model_source(model), model.dtype, place.device, model.revision),
            )
        except KvexpError as error:
            return Outcome(self.shard.shard_id, error.exit_code, str(error))
        return Outcome(self.shard.shard_id, 0, None)

    def checkpoint(self, *args: Any, **kwargs: Any) -> submitit.helpers.DelayedSubmission:
        """Requeue the same call."""
        return submitit.helpers.DelayedSubmission(self, *args, **kwargs)


def jobs(
    root: Path, results: Path, made: list[Shard], cluster: ClusterConf, under: Mapping[str, Under]
) -> list[ShardJob]:
    """One job for every shard; `under`: by suite, what it is registered under."""
    git = provenance.git_state(root)
    threads = threads_of(cluster)
    return [
        ShardJob(shard, Place(folder_of(results, shard), under[shard.suite], git, cluster.device), threads)
        for shard in made
    ]


def threads_of(cluster: ClusterConf) -> int:
    """Torch threads of a worker: as said, or its share of the cores that it is given."""
    if cluster.executor == "slurm":
        return cluster.slurm_threads
    return cluster.threads or max(1, len(os.sched_getaffinity(0)) // cluster.workers)


def run_here(todo: list[ShardJob]) -> Iterator[Outcome]:
    """`cluster=debug`: one shard after the other in this process."""
    for job in todo:
        yield job()


def run_local(todo: list[ShardJob], logs: Path, cluster: ClusterConf) -> Iterator[Outcome | None]:
    """`cluster=local`: worker processes, `cluster.workers` at a time; None at every poll.

    Closing the iterator, or an interrupt, stops the workers; what they wrote stays.
    """
    # A folder of its own: submitit names files by process id, and ids come round again.
    folder = logs / f"{provenance.now().replace(':', '')}-{os.getpid()}"
    with files.on_disk(logs):
        folder.mkdir(parents=True)
    executor = submitit.AutoExecutor(folder=folder, cluster="local")
    executor.update_parameters(timeout_min=60 * 24 * 7, name="kvexp", **_devices(cluster.device))
    waiting, running = list(todo), dict[str, tuple[ShardJob, Any]]()
    try:
        while waiting or running:
            while waiting and len(running) < cluster.workers:
                job = waiting.pop(0)
                with _environment(_worker_environment(job)), _output_to(folder / "controllers.log"):
                    running[job.shard.shard_id] = (job, executor.submit(job))
            yield None
            time.sleep(POLL_SECONDS)
            for shard_id, (job, handle) in list(running.items()):
                if handle.done():
                    del running[shard_id]
                    yield _outcome(job, handle)
    finally:
        _stop([handle for _, handle in running.values()])


def _worker_environment(job: ShardJob) -> dict[str, str]:
    return {
        # Oversubscribed OpenMP threads spin and cost ten times what they do.
        "OMP_WAIT_POLICY": "PASSIVE",
        "OMP_NUM_THREADS": str(job.threads),
        "TQDM_DISABLE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }


def _devices(device: str) -> dict[str, Any]:
    """submitit hides every GPU from a local job that does not ask for one."""
    if device == "cpu":
        return {}
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")
    return {"gpus_per_node": len(visible), "visible_gpus": tuple(int(n) for n in visible if n.isdigit())}


def _stop(handles: list[Any]) -> None:
    """Stop workers, and return when they are gone."""
    # Ctrl-C in a terminal reached them too; a second signal would break off their own clean-up.
    for patience, signals in ((STOP_SECONDS, False), (5 * STOP_SECONDS, True)):
        for handle in handles:
            if signals and not handle.done():
                handle.cancel(check=False)
        end = time.monotonic() + patience
        while time.monotonic() < end and not all(handle.done() for handle in handles):
            time.sleep(0.05)


def _outcome(job: ShardJob, handle: Any) -> Outcome:
    shard_id = job.shard.shard_id
    if (job.place.folder / FOOTER).exists():
        return Outcome(shard_id, 0, None)
    if handle.paths.result_pickle.exists():
        with contextlib.suppress(Exception):
            result = handle.result()
            if isinstance(result, Outcome) and result.error is not None:
                return result
    return Outcome(
        shard_id,
        IncompleteError.exit_code,
        f"shard {shard_id}: its process ended early ({_last_line(handle.paths.stderr)}); the rows so far are "
        f"kept, submit again to continue; its output is in {handle.paths.stderr}",
    )


def _last_line(path: Path) -> str:
    """The last line of another program's output, from its last bytes."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 4096))
            lines = file.read().decode(errors="replace").strip().splitlines()
    except OSError:
        return "no output"
    return lines[-1][:300] if lines else "no output"


@contextlib.contextmanager
def _output_to(path: Path) -> Iterator[None]:
    """Let processes started inside write to a file: they outlive a killed parent and its terminal."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(1), os.dup(2)]
    try:
        with path.open("ab") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        yield
    finally:
        for number, descriptor in enumerate(kept, start=1):
            os.dup2(descriptor, number)
            os.close(descriptor)


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
