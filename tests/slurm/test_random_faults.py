"""Thirty faults at random moments over a sweep of twelve shards: nothing is lost, doubled or unexplained."""

import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from kvexp.ceremony.attempts import broken_chains, started
from kvexp.documents.forms import Check
from kvexp.records import FOOTER
from kvexp.slurm.account import of_accounting
from tests.slurm.conftest import Command, answers, queue, rows, told, until, worker_now
from tests.slurm.test_faults import start_daemons, stop_daemon

pytestmark = pytest.mark.slurm
SHARDS, ROWS, FAULTS = 12, 192, 30
# The first suite of the embedded study, its three tasks on the real model, as small as its budgets allow.
SWEEP = [
    "suite=embedded-1k",
    "suite.embedded-1k.context_tokens=256",
    "suite.embedded-1k.n_examples=16",
    "suite.embedded-1k.shard_examples=4",
    "task.max_new_tokens=8",
    "suite.embedded-1k.arms=[{arm: full},{arm: topk,conditions: [aware],budgets: [0.25]},"
    "{arm: poisson,conditions: [aware,stream],budgets: [0.25],seeds: [0]}]",
]
WIDTH = 3
WIDE = ["cluster.slurm.gres=null", f"cluster.workers={WIDTH}"]


def run(*command: str) -> None:
    """Whatever Slurm thinks of it: a task may have ended meanwhile."""
    subprocess.run(["timeout", "60", *command], capture_output=True, check=False)


def kill(task: str) -> None:
    """The Python process of a task, if it has come so far."""
    pid = worker_now(task)
    if pid is not None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def node_fails(task: str) -> None:
    """And comes back once nothing runs there any more, as after a reboot."""
    tasks = [job_id for job_id, state, _ in queue() if state == "RUNNING"]
    workers = [pid for pid in map(worker_now, tasks) if pid is not None]
    run("scontrol", "update", "NodeName=dev1", "State=DOWN", "Reason=test")
    until(lambda: not any(Path(f"/proc/{pid}/exe").exists() for pid in workers), "the tasks end")
    run("scontrol", "update", "NodeName=dev1", "State=RESUME")


def controller_restarts(task: str) -> None:
    stop_daemon("slurmctld")
    start_daemons()


FAULT = {
    "kill -9": kill,
    "scancel": lambda task: run("scancel", task),
    "scontrol requeue": lambda task: run("scontrol", "requeue", task),
    "USR2": lambda task: run("scancel", "-s", "USR2", task),
    "node failure": node_fails,
    "controller restart": controller_restarts,
}
WEIGHTS = (8, 6, 6, 6, 2, 2)


class Sweep:
    """The twelve shards, and what a person does for them between two faults."""

    def __init__(self, root: Path, kvexp: Command) -> None:
        self.results, self._kvexp = root / "results" / "embedded", kvexp

    def logs(self) -> Iterator[Path]:
        return self.results.glob("embedded-1k/*/generations.jsonl")

    def done(self) -> float:
        """Share of the rows that are there."""
        return sum(map(rows, self.logs())) / ROWS

    def open(self) -> int:
        return SHARDS - len(list(self.results.glob("embedded-1k/*/" + FOOTER)))

    def queued(self) -> list[tuple[str, str]]:
        """Job id and state."""
        return [(job_id, state) for job_id, state, name in queue() if name.startswith("embedded.2")]

    def work_on(self, share: float, seconds: float) -> None:
        """For some seconds, fewer where it is beyond this share: it must last for all faults."""
        before = self.done()
        end = time.monotonic() + (seconds if before <= share else seconds / 5)
        until(lambda: self.done() > max(before, share) or time.monotonic() > end, "a moment", pause=0.1)

    def tend(self) -> None:
        """Release held tasks, let a drained node work again, and submit what has died."""
        run("bash", "-c", "squeue -h -r -o '%i %r' | grep held | cut -d ' ' -f 1 | xargs -r scontrol release")
        if "drain" in told("sinfo", "-h", "-N", "-o", "%t"):
            run("scontrol", "update", "NodeName=dev1", "State=RESUME")
        queued = self.queued()
        if len(queued) < self.open() and not any(state == "RUNNING" for _, state in queued):
            self._kvexp("submit", *SWEEP, *WIDE)

    def running(self) -> list[str]:
        assert self.open(), "the sweep ended before its faults: give it more work"
        self.tend()
        return [job_id for job_id, state in self.queued() if state == "RUNNING"]

    def is_through(self) -> bool:
        self.tend()
        return not self.open() and not self.queued()

    def checks(self, root: Path, attempts: list) -> list[Check]:
        """What verify would say of accounting now."""
        self._kvexp("account", *SWEEP)
        return list(of_accounting(root, self.results, {"embedded-1k"}, attempts))


def test_thirty_random_faults_leave_the_rows_of_an_undisturbed_run(root, capfd, undisturbed, record_property):
    chance = random.Random(20261130)
    faults = [*FAULT, *chance.choices([*FAULT], WEIGHTS, k=FAULTS - len(FAULT))]
    chance.shuffle(faults)
    sweep, done = Sweep(root, Command(capfd, "embedded")), Counter[str]()
    for i, fault in enumerate(faults):
        sweep.work_on(i / FAULTS, chance.uniform(0.5, 8))
        task = chance.choice(until(sweep.running, "a running task"))
        FAULT[fault](task)
        done[fault] += 1
        with capfd.disabled():
            print(f"{i + 1}. {fault}: task {task}, {sweep.done():.0%} of the rows", flush=True)
    assert sum(done.values()) == FAULTS
    until(sweep.is_through, "all shards are complete")
    assert answers(root, "embedded") == undisturbed(*SWEEP, study="embedded")
    attempts = list(started(sweep.results, ["embedded-1k"]))
    assert broken_chains(attempts) == []
    assert len(attempts) > SHARDS

    def is_accounted() -> bool:
        checks = sweep.checks(root, attempts)
        return bool(checks) and all(check.holds is not False for check in checks)

    until(is_accounted, "accounting knows every attempt", 120)
    record_property("faults", dict(done))
    print(dict(done), f"{len(attempts)} attempts", *sweep.checks(root, attempts), sep="\n")
