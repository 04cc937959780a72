"""What a cluster does to running shards: rows come out as in an undisturbed run, and nothing is silent."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from kvexp.shard_log import FOOTER
from tests import project
from tests.slurm.conftest import UP, answers, gone, in_queue, log, rows, until, worker
from tests.test_shard_log import small_disk

pytestmark = pytest.mark.slurm
ONE = ["suite.n_examples=60", "suite.shard_examples=60"]  # one shard, a quarter of a minute and more
LONG = ["suite.n_examples=250", "suite.shard_examples=250"]  # minutes
FIRST = "mini.tiny.words.000"


def started(kvexp, root, *words):
    """One shard in the middle of its work; its job."""
    (job,) = kvexp.submit(*ONE, *words)
    until(lambda: rows(log(root)) > 20, "the first rows")
    return job


def finished(root):
    until(lambda: (log(root).parent / FOOTER).exists(), "the shard is closed")
    footer = json.loads((log(root).parent / FOOTER).read_text())
    return [segment["job_id"] for segment in footer["segments"] if segment["rows"]]


def test_a_killed_worker_is_reported_with_its_last_words_and_the_next_submit_goes_on(
    kvexp, root, undisturbed
):
    job = started(kvexp, root)
    os.kill(worker(job), signal.SIGKILL)
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
    job = started(kvexp, root)
    before = rows(log(root))
    if how == "scontrol requeue":
        subprocess.run(["scontrol", "requeue", job], check=True)
    elif how == "USR2":
        subprocess.run(["timeout", "20", "scancel", "-s", "USR2", job], check=False)
    else:
        urgent = subprocess.run(
            ["sbatch", "--parsable", "-p", "urgent", "--gres=gpu:2", "-o", "/dev/null", "--wrap=sleep 3"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        gone(urgent)
    assert in_queue(job) or (log(root).parent / FOOTER).exists()  # never lost
    assert finished(root) == [job, job]
    gone(job)
    assert len(list(log(root).parent.glob("attempt-*.json"))) == 2
    assert rows(log(root)) > before
    assert answers(root) == undisturbed(*ONE)


def test_a_time_limit_is_no_end(kvexp, root, undisturbed):
    # Told to stop within the first minute, and two minutes to do it in: a busy machine starts slowly.
    limit = ["cluster.slurm.minutes=3", "cluster.slurm.signal_seconds=130", "cluster.slurm.max_timeouts=99"]
    job = started(kvexp, root, *LONG, *limit)
    assert set(finished(root)) == {job}
    assert len(list(log(root).parent.glob("attempt-*.json"))) > 1
    gone(job)
    assert answers(root) == undisturbed(*LONG)


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
    job = started(kvexp, root)
    state = os.path.dirname(os.environ["SLURM_CONF"])
    stop_daemon(state, "slurmctld")
    said = kvexp("status", *ONE)
    assert "squeue" in said
    assert "so it is not known which shards are queued" in said
    assert f"{FIRST}" in said
    assert "dead" not in said
    assert "squeue" in project.one_sentence(kvexp("submit", *ONE, code=3).splitlines()[-1])
    subprocess.run([UP], check=True, capture_output=True)
    assert finished(root) == [job]
    gone(job)
    assert answers(root) == undisturbed(*ONE)


def test_accounting_may_be_down(kvexp, root):
    job = started(kvexp, root)
    state = os.path.dirname(os.environ["SLURM_CONF"])
    stop_daemon(state, "slurmdbd")
    try:
        begin = time.monotonic()
        said = kvexp("status", *ONE)
        assert time.monotonic() - begin < 30
        assert "sacct" in said
        assert "running" in said
        assert "told by attempts alone" in said
        assert "sacct" in project.one_sentence(kvexp("account", *ONE, code=3))
        kvexp("cancel", *ONE)
        gone(job)
        row = kvexp.status(*ONE)[FIRST]
        assert (row["state"], row["category"]) == ("dead", "cancelled")  # by the log alone
    finally:
        subprocess.run([UP], check=True, capture_output=True)


def test_a_results_folder_that_fills_up_stops_the_shard_with_a_sentence(kvexp, root, undisturbed):
    folder = project.results(root) / "mini"
    folder.mkdir(parents=True)
    with small_disk(folder, 256):
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


def stop_daemon(state: str, name: str) -> None:
    pid = int(Path(state, f"{name}.pid").read_text())
    os.kill(pid, signal.SIGTERM)
    stat = Path(f"/proc/{pid}/stat")
    until(lambda: not stat.exists() or ") Z " in stat.read_text(), f"{name} ends")
