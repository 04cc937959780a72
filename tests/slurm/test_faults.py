"""What a cluster does to running shards: rows come out as in an undisturbed run, and nothing is silent."""

import json
import os
import signal
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from kvexp.records import FOOTER
from tests import project
from tests.run.test_log import small_disk
from tests.slurm.conftest import (
    UP,
    answers,
    dies,
    gone,
    in_queue,
    is_told_to_stop,
    log,
    rows,
    stopped,
    until,
    worker,
)

pytestmark = pytest.mark.slurm
ONE = ["suite.n_examples=30", "suite.shard_examples=30"]  # one shard, some seconds
FIRST = "mini.tiny.words.000"


@contextmanager
def halfway(kvexp, root, *words):
    """One shard in the middle of its work, where it stays inside the block; its job and process."""
    (job,) = kvexp.submit(*ONE, *words)
    until(lambda: rows(log(root)) > 20, "the first rows", pause=0.05)
    with stopped(pid := worker(job)):
        assert not (log(root).parent / FOOTER).exists()
        yield job, pid


def finished(root):
    until(lambda: (log(root).parent / FOOTER).exists(), "the shard is closed")
    footer = json.loads((log(root).parent / FOOTER).read_text())
    return [segment["job_id"] for segment in footer["segments"] if segment["rows"]]


def test_a_killed_worker_is_reported_with_its_last_words_and_the_next_submit_goes_on(
    kvexp, root, undisturbed
):
    with halfway(kvexp, root) as (job, pid):
        os.kill(pid, signal.SIGKILL)
        gone(job)
    kept = rows(log(root))
    assert kept > 20
    row = kvexp.status(*ONE)[FIRST]
    assert (row["state"], row["category"], row["job_id"]) == ("dead", "killed", job)
    assert row["done"] == kept
    assert (root / row["log"]).is_file()
    assert f"{FIRST}: killed, job {job}: tail -n 50 slurm/logs/mini/" in kvexp("status", *ONE)
    (again,) = kvexp.submit(*ONE)
    gone(again)
    assert finished(root) == [job, again]
    assert answers(root) == undisturbed(*ONE)


@pytest.mark.parametrize("how", ["scontrol requeue", "USR2", "preempted"])
def test_a_task_that_is_requeued_goes_on_where_it_was(kvexp, root, undisturbed, how):
    with halfway(kvexp, root) as (job, pid):
        before = rows(log(root))
        if how == "scontrol requeue":
            subprocess.run(["scontrol", "requeue", job], check=True)
            dies(pid)
        elif how == "USR2":
            subprocess.run(["timeout", "20", "scancel", "-s", "USR2", job], check=False)
        else:
            preempt()
        until(lambda: is_told_to_stop(pid), "the signal")
    assert in_queue(job) or (log(root).parent / FOOTER).exists()  # never lost
    assert finished(root) == [job, job]
    gone(job)
    assert len(list(log(root).parent.glob("attempt-*.json"))) == 2
    assert rows(log(root)) > before
    assert answers(root) == undisturbed(*ONE)


def preempt() -> None:
    command = ["sbatch", "--parsable", "-p", "urgent", "--gres=gpu:2", "-o", "/dev/null", "--wrap=sleep 1"]
    subprocess.run(command, capture_output=True, check=True)


def test_a_time_limit_is_no_end(kvexp, root, undisturbed):
    # Told to stop 30 to 60 s after its start, and a minute to do it in: a busy machine starts slowly.
    limit = ["cluster.slurm.minutes=2", "cluster.slurm.signal_seconds=60", "cluster.slurm.max_timeouts=99"]
    with halfway(kvexp, root, *limit) as (job, pid):
        until(lambda: is_told_to_stop(pid), "the signal")
    assert set(finished(root)) == {job}
    assert len(list(log(root).parent.glob("attempt-*.json"))) > 1
    gone(job)
    assert answers(root) == undisturbed(*ONE)


def test_too_little_memory_is_named_and_another_request_completes_the_shard(kvexp, root):
    (job,) = kvexp.submit(*ONE, "cluster.slurm.memory_gb=0.1")
    gone(job)
    row = kvexp.status(*ONE)[FIRST]
    assert (row["state"], row["category"]) == ("dead", "out_of_memory")


def test_an_example_that_fails_fails_its_task_and_shows_why(kvexp, root):
    project.write(root, "suite/mini", project.SUITE.replace("budgets: [0.25]", "budgets: [0.01]"))
    (job,) = kvexp.submit()
    gone(job)
    row = kvexp.status()[FIRST]
    assert (row["state"], row["category"]) == ("failed", "too_short")
    assert "2 examples failed" in row["note"]
    assert any(line.startswith(f"kvexp: shard {FIRST}: 2 of 2 examples failed") for line in row["tail"])
    until(lambda: "2 FAILED" in kvexp("account"), "Slurm counts them as failed")


def test_the_controller_may_restart_in_the_middle(kvexp, root, undisturbed):
    with halfway(kvexp, root) as (job, _):
        stop_daemon("slurmctld")
        said = kvexp("status", *ONE)
        assert "squeue" in said
        assert "so it is not known which shards are queued" in said
        assert f"{FIRST}" in said
        assert "dead" not in said
        assert "squeue" in project.one_sentence(kvexp("submit", *ONE, code=3).splitlines()[-1])
        start_daemons()
    assert finished(root) == [job]
    gone(job)
    assert answers(root) == undisturbed(*ONE)


def test_accounting_may_be_down(kvexp, root):
    with halfway(kvexp, root) as (job, pid):
        stop_daemon("slurmdbd")
        try:
            begin = time.monotonic()
            said = kvexp("status", *ONE)
            assert time.monotonic() - begin < 60
            assert "sacct" in said
            assert "running" in said
            assert "told by attempts alone" in said
            assert "sacct" in project.one_sentence(kvexp("account", *ONE, code=3))
            kvexp("cancel", *ONE)
            dies(pid)
            gone(job)
            row = kvexp.status(*ONE)[FIRST]
            assert (row["state"], row["category"]) == ("dead", "cancelled")  # by the log alone
        finally:
            start_daemons()


def test_a_results_folder_that_fills_up_stops_the_shard_with_a_sentence(kvexp, root, undisturbed):
    folder = project.results(root) / "mini"
    folder.mkdir(parents=True)
    with small_disk(folder, 96):
        (job,) = kvexp.submit(*ONE)
        gone(job)
        row = kvexp.status(*ONE)[FIRST]
        assert (row["state"], row["category"]) == ("dead", "stopped")
        assert any("No space left on device" in line and line.startswith("kvexp: ") for line in row["tail"])
        assert 0 < row["done"] < row["expected"]
        subprocess.run(["mount", "-o", "remount,size=64m", str(folder)], check=True)
        (again,) = kvexp.submit(*ONE)
        gone(again)
        assert answers(root) == undisturbed(*ONE)


def stop_daemon(name: str) -> None:
    pid = int(Path(os.environ["SLURM_CONF"]).with_name(f"{name}.pid").read_text())
    os.kill(pid, signal.SIGTERM)
    stat = Path(f"/proc/{pid}/stat")
    until(lambda: not stat.exists() or ") Z " in stat.read_text(), f"{name} ends")


def start_daemons() -> None:
    """Those of the cluster that do not run."""
    done = subprocess.run([UP], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
