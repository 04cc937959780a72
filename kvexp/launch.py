"""Start what is missing and wait for it: shards without a footer, through submitit or in this process.

The files are the truth: what is missing, how far a shard is and whether it is whole is read from its
folder, never from a job's state or result.
"""

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import submitit

from kvexp import hub, provenance, shard_log
from kvexp.assets import embedded_model, model_digest
from kvexp.compose import Selection
from kvexp.config import ClusterConf, ModelConf
from kvexp.errors import IncompleteError, InputError, KvexpError
from kvexp.folders import own_folder
from kvexp.model_files import config_of, tokenizer_of
from kvexp.resolved import AttentionShard, Shard
from kvexp.shard_places import folder_of
from kvexp.under import Place, Under

POLL_SECONDS = 0.5
STOP_SECONDS = 1.5


@dataclass(frozen=True)
class Outcome:
    """How a shard's process ended; `error` is None if the shard is whole."""

    shard_id: str
    exit_code: int
    error: str | None


def model_source(model: ModelConf) -> str:
    """The folder that transformers loads: the embedded model's, the configured one or the hub cache's.

    Raises NotFetched for a hub model that is not on this machine: nothing here waits for a network.
    """
    if model.source == "embedded":
        return str(embedded_model())
    if hub.is_hub(model):
        return str(hub.model_folder(model))
    folder = own_folder(model)
    if not (folder / "config.json").is_file():
        raise InputError(
            f"model {model.name!r} is not there: {folder} has no config.json (set model.{model.name}.source)"
        )
    return str(folder)


def tokenizers(selection: Selection) -> Callable[[str], Any]:
    """Loads the tokenizer of a model of the study by name, once."""
    models = {model.name: model for model in selection.models}

    @cache
    def load(name: str) -> Any:
        model = models[name]
        return tokenizer_of(model, model_source(model))

    return load


def check_heads(todo: list[Shard]) -> None:
    """Raises ConfigError, before anything is begun, if conf and a model's config count other heads."""
    for shard in {s.model.name: s for s in todo if isinstance(s, AttentionShard)}.values():
        config = config_of(shard.model, model_source(shard.model))
        shard.check_heads(config.num_hidden_layers, config.num_attention_heads)


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

        from kvexp.shard import run_shard  # brings the harness, which only workers need

        torch.set_num_threads(self.threads)
        model, place = self.shard.model, self.place
        try:
            if (place.folder / shard_log.FOOTER).exists():  # another task was faster: there is nothing to do
                shard_log.check_closed(place.folder, self.shard.digest, self.shard.log)
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


def content_digest(model: ModelConf) -> str | None:
    """Of a model's files; a commit of the hub pins them without reading fifteen gigabytes."""
    if hub.is_pinned(model):
        return None
    source = Path(model_source(model))
    # A folder without weights has none; loading it will say so better.
    with contextlib.suppress(InputError):
        return model_digest(source)
    return None


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
    with shard_log.on_disk(logs):
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
    if (job.place.folder / shard_log.FOOTER).exists():
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
