"""A project whose shards run on the development cluster; without a Slurm that answers, these tests skip."""

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest

from kvexp.cli import main
from kvexp.models.load import load_model
from tests import project

PATIENCE = 900.0  # a task starts in seconds on an idle machine, and this one may be busy
UP = project.ROOT / "slurm" / "dev-cluster" / "up.sh"


@pytest.fixture(scope="session")
def cluster() -> None:
    """Skips where no cluster answers; takes what SLURM_CONF names, as `make test-slurm` sets it."""
    lacking = [name for name in ("sbatch", "squeue", "sacct", "scontrol") if shutil.which(name) is None]
    if lacking:
        pytest.skip(f"Slurm is not installed (no {lacking[0]}): slurm/README.md says how")
    if "kvexp-slurm" not in os.environ.get("SLURM_CONF", ""):
        pytest.skip("the development cluster is not up: `make test-slurm` starts it")
    if subprocess.run(["scontrol", "ping"], capture_output=True, timeout=60, check=False).returncode:
        pytest.skip("the development cluster does not answer: slurm/dev-cluster/up.sh")


@pytest.fixture
def root(cluster, tmp_path, tiny_folder, monkeypatch):
    """A project whose code is this checkout's; whatever it leaves in the queue is cancelled."""
    made = project.make(tmp_path / "project", tiny_folder)
    monkeypatch.chdir(made)
    monkeypatch.setenv("PYTHONPATH", str(project.ROOT))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    yield made
    left = {job_id.partition("_")[0] for job_id, _, name in queue() if made_here(made, name)}
    if left:
        subprocess.run(["timeout", "60", "scancel", *left], check=False)
        gone(*left)  # they hold the node until they are, and the next test may look at the whole queue


def made_here(root: Path, name: str) -> bool:
    return any(name in path.read_text() for path in root.glob("slurm/submissions/**/*.before.json"))


class Command:
    """The command in this process, on the development cluster."""

    def __init__(self, capfd: Any, study: str = "mini") -> None:
        self._capfd, self._study = capfd, study

    def __call__(self, verb: str, *words: str, code: int = 0) -> str:
        self._capfd.readouterr()
        load_model.cache_clear()
        got = main([verb, f"study={self._study}", "cluster=slurm_dev", *words])
        said = self._capfd.readouterr()
        assert got == code, said.out + said.err
        return said.out + said.err

    def submit(self, *words: str) -> list[str]:
        """Job ids."""
        return re.findall(r"^job ([0-9]+): [0-9]+ shards", self("submit", *words), re.MULTILINE)

    def status(self, *words: str) -> dict[str, dict[str, Any]]:
        shards = json.loads(self("status", "--json", *words))["shards"]
        return {shard["shard_id"]: shard for shard in shards}


@pytest.fixture
def kvexp(root, capfd) -> Command:
    return Command(capfd)


def until(condition: Callable[[], Any], what: str, seconds: float = PATIENCE, pause: float = 0.3) -> Any:
    """What the condition gives once it is true; it is asked again and again."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, f"not within {seconds:.0f} s: {what}"
        time.sleep(pause)
    return found


def told(*command: str) -> str:
    """What a program of Slurm prints."""
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stdout


def queue() -> list[tuple[str, str, str]]:
    """Job id, state and name of what is in the queue, as squeue says, not kvexp."""
    lines = [line.split("|", 2) for line in told("squeue", "-h", "-r", "-o", "%i|%T|%j").splitlines()]
    return [(job_id, state, name) for job_id, state, name in lines]


def in_queue(*job_ids: str) -> list[str]:
    return [job_id for job_id, _, _ in queue() if job_id.partition("_")[0] in job_ids]


def gone(*job_ids: str) -> None:
    """Waits until nothing of these jobs is in the queue."""
    until(lambda: not in_queue(*job_ids), f"jobs {job_ids} leave the queue")


def log(root: Path, chunk: int = 0) -> Path:
    return project.results(root) / "mini" / f"mini.tiny.words.{chunk:03d}" / "generations.jsonl"


def rows(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def worker(job_id: str) -> int:
    """Pid of the Python process of a task, once it is there."""
    found: int = until(lambda: worker_now(job_id), f"a process of job {job_id}")
    return found


def worker_now(job_id: str) -> int | None:
    """Pid of the Python process of a task, which has the task's number in its environment."""
    mark = f"SLURM_JOB_ID={raw_id(job_id)}".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            inside = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        is_task = b"submitit.core._submit" in words and Path(words[0].decode()).name.startswith("python")
        if is_task and mark in inside:
            return int(entry.name)
    return None


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """A process that does nothing meanwhile, so that no fault comes too late on whatever machine."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def dies(pid: int) -> None:
    """Waits until a process is gone, and keeps it stopped: Slurm lets it go on before it kills it."""

    def is_gone() -> bool:
        with suppress(OSError):
            os.kill(pid, signal.SIGSTOP)
            return ") Z " in Path(f"/proc/{pid}/stat").read_text()
        return True

    until(is_gone, f"process {pid} is killed", pause=0.05)


def is_told_to_stop(pid: int) -> bool:
    """Whether USR2 waits for a stopped process; true for one that is gone."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return True
    pending = [
        int(line.split()[1], 16) for line in text.splitlines() if line.startswith(("SigPnd", "ShdPnd"))
    ]
    return any(one >> (signal.SIGUSR2 - 1) & 1 for one in pending)


def raw_id(job_id: str) -> str:
    """The number that processes of a task see; `none` for a task that Slurm has forgotten."""
    words = told("scontrol", "show", "job", job_id).split()
    return next((word.partition("=")[2] for word in words if word.startswith("JobId=")), "none")


KEY = ("shard_id", "example_id", "arm", "condition", "budget", "seed")


def answers(root: Path, study: str = "mini") -> dict[tuple[Any, ...], dict[str, Any]]:
    """What the logs of a study say, without what differs from run to run."""
    found = {}
    for path in sorted(root.glob(f"results/{study}/*/*/generations.jsonl")):
        for line in path.read_bytes().splitlines():
            row = json.loads(line)
            if row["kind"].startswith("generation"):
                key = tuple(row[name] for name in KEY)
                assert key not in found
                found[key] = {k: v for k, v in row.items() if k not in ("attempt", "seconds")}
    return found


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory, tiny_folder):
    """The answers of a run without Slurm and without faults, by the words that change its grid."""
    made: dict[tuple[str, ...], Any] = {}

    def run(*words: str, study: str = "mini") -> dict[tuple[Any, ...], dict[str, Any]]:
        if (study, *words) not in made:
            root = project.make(tmp_path_factory.mktemp("undisturbed") / "project", tiny_folder)
            before = os.getcwd()
            os.chdir(root)
            try:
                assert main(["submit", f"study={study}", "cluster=debug", "cluster.threads=1", *words]) == 0
            finally:
                os.chdir(before)
            made[study, *words] = answers(root, study)
        return made[study, *words]

    return run
