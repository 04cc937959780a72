"""Thirty faults at random moments over a sweep of twelve shards: nothing is lost, doubled or unexplained."""

import os
import random
import signal
import subprocess
import time
from collections import Counter
from contextlib import suppress

import pytest

from kvexp.prereg.attempts import broken_chains, started
from kvexp.shard_log import FOOTER
from kvexp.slurm.crosscheck import of_accounting
from tests import project
from tests.slurm.conftest import UP, answers, queue, told, until, worker_now
from tests.slurm.test_faults import stop_daemon

pytestmark = pytest.mark.slurm
SHARDS, FAULTS = 12, 30
SWEEP = ["suite.n_examples=240", "suite.shard_examples=20"]
WIDE = ["cluster.slurm.gres=null", "cluster.workers=4", "cluster.slurm.memory_gb=1"]


def run(*command: str) -> None:
    """Whatever Slurm thinks of it: a task may have ended meanwhile."""
    subprocess.run(["timeout", "20", *command], capture_output=True, check=False)


def kill(task: str) -> None:
    """The Python process of a task, if it has come so far."""
    pid = worker_now(task)
    if pid is not None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def node_fails(task: str) -> None:
    run("scontrol", "update", "NodeName=dev1", "State=DOWN", "Reason=test")
    time.sleep(2)
    run("scontrol", "update", "NodeName=dev1", "State=RESUME")


def controller_restarts(task: str) -> None:
    stop_daemon(os.path.dirname(os.environ["SLURM_CONF"]), "slurmctld")
    subprocess.run([UP], check=True, capture_output=True)


FAULT = {
    "kill -9": kill,
    "scancel": lambda task: run("scancel", task),
    "scontrol requeue": lambda task: run("scontrol", "requeue", task),
    "USR2": lambda task: run("scancel", "-s", "USR2", task),
    "node failure": node_fails,
    "controller restart": controller_restarts,
}
WEIGHTS = (8, 6, 6, 6, 2, 2)


def test_thirty_random_faults_leave_the_rows_of_an_undisturbed_run(kvexp, root, undisturbed, record_property):
    chance = random.Random(20261130)
    faults = [*FAULT, *chance.choices([*FAULT], WEIGHTS, k=FAULTS - len(FAULT))]
    chance.shuffle(faults)
    done: Counter[str] = Counter()
    results = project.results(root)
    footers = lambda: len(list(results.glob("mini/*/" + FOOTER)))  # noqa: E731
    for fault in faults:
        task = until(lambda: running(kvexp, chance), "a running task")
        if task == "complete":
            break
        FAULT[fault](task)
        done[fault] += 1
        print(f"{sum(done.values())}. {fault}: task {task}", flush=True)
        time.sleep(chance.uniform(0.5, 4))
    assert sum(done.values()) == FAULTS, f"the sweep was through after {done}"
    until(lambda: running(kvexp, chance) == "complete", "all shards are complete")
    assert footers() == SHARDS
    assert answers(root) == undisturbed(*SWEEP)
    attempts = list(started(results, ["mini"]))
    assert broken_chains(attempts) == []
    assert len(attempts) > SHARDS
    until(lambda: accounted(kvexp, root, attempts), "accounting knows every attempt", 60)
    record_property("faults", dict(done))
    print(dict(done), f"{len(attempts)} attempts", *of_accounting(root, results, attempts), sep="\n")


def mine() -> list[str]:
    return [job_id for job_id, _, name in queue() if name.startswith("mini.2")]


def running(kvexp, chance) -> str | None:
    """A running task; a submit whenever the queue has run dry, and what a person does about held tasks."""
    # A task that is requeued while its old process still dies is held, and its node drained, by Slurm.
    run("bash", "-c", "squeue -h -r -o '%i %r' | grep held | cut -d ' ' -f 1 | xargs -r scontrol release")
    if "drain" in told("sinfo", "-h", "-N", "-o", "%t"):
        run("scontrol", "update", "NodeName=dev1", "State=RESUME")
    if not mine():
        said = kvexp("submit", *SWEEP, *WIDE)
        if f"{SHARDS} of {SHARDS} shards are complete" in said:
            return "complete"
    tasks = [job_id for job_id, state, name in queue() if state == "RUNNING" and name.startswith("mini.2")]
    return chance.choice(tasks) if tasks else None


def accounted(kvexp, root, attempts) -> bool:
    kvexp("account", *SWEEP)
    checks = list(of_accounting(root, project.results(root), attempts))
    return bool(checks) and all(check.holds is not False for check in checks)
