"""One array per suite, a task per shard: options, batch script, and the call of sbatch through submitit."""

import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import submitit

from kvexp import files
from kvexp.errors import ConfigError, IncompleteError, KvexpError, printable
from kvexp.slurm.programs import SETUP_FAILED, SlurmError, run, said
from kvexp.slurm.submissions import MOST_SAID, Book, Refused, Sent, Submitted
from kvexp.study import provenance
from kvexp.study.schema import ClusterConf

T = TypeVar("T")
# Until submitit handles USR2, which means stop and be requeued, it would end the process for good: it waits
# at the door while Python starts, and kvexp.slurm.task lets it in.
BLOCKED = (
    "import os, signal, sys; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2]); "
    "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
)
# The controller may have taken the job all the same.
_UNSURE = re.compile(r"timed out|unable to contact|communication|connection (refused|reset)", re.IGNORECASE)
BESIDE = "sbatch.err"  # in the folder of the logs
MOST_LINES = 10  # of what sbatch says, below the sentence
DEFAULT_ARRAY = 1001  # MaxArraySize of a Slurm that does not say


class SbatchError(ConfigError):
    """What sbatch refuses."""


@dataclass(frozen=True)
class Piece:
    """As many shards of one suite as one array holds."""

    suite: str
    shards: list[str]
    width: int  # how many of them may run at a time
    lane: int  # pieces in the same lane run one after the other, where there are more pieces than may run


def max_array_size() -> int:
    """Tasks that one array may have."""
    try:
        found = re.search(r"^MaxArraySize\s*=\s*([0-9]+)", run(["scontrol", "show", "config"]), re.MULTILINE)
    except SlurmError:
        return DEFAULT_ARRAY  # sbatch will say what is wrong
    return max(1, int(found[1])) if found else DEFAULT_ARRAY


def pieces(by_suite: dict[str, list[str]], width: int, largest: int) -> Iterator[Piece]:
    """Split suites into arrays of similar size; the arrays of a suite share its width."""
    for suite, shards in by_suite.items():
        n = -(-len(shards) // largest)
        lanes = min(n, width)
        for i in range(n):
            part = shards[len(shards) * i // n : len(shards) * (i + 1) // n]
            lane = i % lanes
            yield Piece(suite, part, width * (lane + 1) // lanes - width * lane // lanes, lane)


def shard_options(cluster: ClusterConf, name: str, width: int, after: str | None = None) -> dict[str, Any]:
    """For submitit's executor, an array of shards; `after`: the job whose end it waits for."""
    conf = cluster.slurm
    waits = {} if after is None else {"dependency": f"afterany:{after}"}
    return {
        **waits,
        **_shared(cluster, name, conf.partition, conf.minutes),
        "gres": conf.gres,
        "cpus_per_task": conf.cpus,
        "mem": _memory(conf.memory_gb),
        "signal_delay_s": conf.signal_seconds,
        "array_parallelism": width,
    }


def analysis_options(cluster: ClusterConf, name: str, after: Sequence[str]) -> dict[str, Any]:
    """For the job that runs once all arrays have ended, however they have."""
    conf = cluster.slurm
    options = _shared(cluster, name, conf.analysis_partition or conf.partition, conf.analysis_minutes)
    options |= {
        "cpus_per_task": 1,
        "mem": _memory(None if conf.memory_gb is None else min(8, conf.memory_gb)),
    }
    return options if not after else {**options, "dependency": f"afterany:{':'.join(after)}"}


def _shared(cluster: ClusterConf, name: str, partition: str | None, minutes: int) -> dict[str, Any]:
    conf = cluster.slurm
    return {
        "job_name": name,
        "partition": partition,
        "account": conf.account,
        "qos": conf.qos,
        "constraint": conf.constraint,
        "time": minutes,
        "stderr_to_stdout": True,  # one log a task, in the order in which things were said
        "setup": _setup(cluster),
        "additional_parameters": {"requeue": True, **conf.sbatch},
    }


def _memory(gigabytes: float | None) -> str | None:
    return None if gigabytes is None else f"{round(gigabytes * 1024)}M"


def _setup(cluster: ClusterConf) -> list[str]:
    lines = [
        f"export OMP_NUM_THREADS={cluster.slurm_threads} OMP_WAIT_POLICY=PASSIVE",
        # `kvexp fetch` brings models and data on a login node: nodes wait for no network.
        "export HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false TQDM_DISABLE=1",
        # srun does not take over sbatch's cores by itself.
        "export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK",
    ]
    for command in cluster.slurm.setup:
        failed = shlex.quote(f"kvexp: setup command failed: {command}")
        lines += [command, f"[ $? = 0 ] || {{ echo {failed} >&2; exit {SETUP_FAILED}; }}"]
    return lines


def _command(_: submitit.SlurmExecutor, submission_file_path: Path) -> list[str]:
    beside = str(Path(submission_file_path).parent / BESIDE)
    return ["sh", "-c", 'exec sbatch "$1" 2>"$2"', "sh", str(submission_file_path), beside]


@contextmanager
def _words_kept() -> Iterator[None]:
    """What sbatch says on its error stream is kept, which submitit throws away where the job was taken.

    It makes an executor of its own for an array, so it is the class that is changed, for the call alone.
    """
    usual = submitit.SlurmExecutor._make_submission_command
    submitit.SlurmExecutor._make_submission_command = _command  # type: ignore[assignment,method-assign]
    try:
        yield
    finally:
        submitit.SlurmExecutor._make_submission_command = usual  # type: ignore[method-assign]


def _executor(cluster: ClusterConf, logs: Path, options: dict[str, Any]) -> Any:
    python = f"{cluster.slurm.python or shlex.quote(sys.executable)} -IS -c {shlex.quote(BLOCKED)}"
    executor = submitit.SlurmExecutor(folder=logs, max_num_timeout=cluster.slurm.max_timeouts, python=python)
    executor.update_parameters(**{name: value for name, value in options.items() if value is not None})
    return executor


def script(cluster: ClusterConf, logs: Path, options: dict[str, Any], tasks: int) -> str:
    """The batch script, as it would be given to sbatch."""
    executor = _executor(cluster, logs, options)
    if tasks > 1:
        executor.parameters["map_count"] = tasks
    text: str = executor._make_submission_file_text(executor._submitit_command_str, "")
    return text


def send(book: Book, sent: Sent, cluster: ClusterConf, work: Sequence[Callable[[], T]]) -> Sent:
    """Call sbatch for a recorded submission, and record its answer. Raises SbatchError if it refuses."""
    logs = book.root / sent.before.logs
    with files.on_disk(logs):
        logs.mkdir(parents=True)
    about = sent.before.suite or "the analysis"
    try:
        executor = _executor(cluster, logs, sent.before.options)
        with _words_kept(), executor.batch():
            jobs = [executor.submit(one) for one in work]
    except submitit.core.utils.FailedSubmissionError:  # it took the job, and its answer has no id in it
        raise SbatchError(_unsure(about, sent.before.name, "sbatch's answer has no job id")) from None
    except submitit.core.utils.FailedJobError as error:
        words = _words(logs) or str(error)
        reason = said(words)
        if _UNSURE.search(words):
            raise SbatchError(_unsure(about, sent.before.name, f"sbatch gave up ({reason})")) from None
        book.write_after(sent, Refused(name=sent.before.name, reason=reason, at=provenance.now()))
        shutil.rmtree(logs, ignore_errors=True)  # with what submitit had written for the tasks
        lines = [line.strip() for line in words.splitlines() if line.strip()]
        raise SbatchError(
            f"sbatch refuses {about}: {reason}: change what conf/cluster/{cluster.name}.yaml asks for below "
            f"`slurm:`, or give it here (cluster.slurm.partition=...), and submit again; `--dry-run` prints "
            "the batch script",
            lines[:MOST_LINES] if len(lines) > 1 else [],
        ) from None
    job_id = jobs[0].job_id.partition("_")[0]
    beside = "\n".join(map(printable, _words(logs).splitlines()))[:MOST_SAID]
    try:
        return book.write_after(
            sent, Submitted(name=sent.before.name, job_id=job_id, at=provenance.now(), said=beside)
        )
    except KvexpError as error:
        raise IncompleteError(
            f"job {job_id} is in the queue, and that could not be written down: {error}"
        ) from None


def _unsure(about: str, name: str, why: str) -> str:
    return (
        f"{about}: {why}, so tasks may be queued: look with `squeue --name {name}`, end them with "
        f"`scancel --name {name}`, and submit again"
    )


def _words(logs: Path) -> str:
    """What sbatch has said beside its answer."""
    path = logs / BESIDE
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
