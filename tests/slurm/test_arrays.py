"""Arrays on a real Slurm: they run, are refused a second time, are cancelled, and are found in accounting."""

import json
import subprocess
import threading

import pytest

from kvexp.slurm import arrays
from tests import project
from tests.slurm.conftest import answers, gone, in_queue, log, queue, rows, until, worker

pytestmark = pytest.mark.slurm
LONG = ["suite.n_examples=400", "suite.shard_examples=200"]  # a minute or more of work


def test_an_array_runs_every_shard_and_the_analysis_follows(kvexp, root, undisturbed):
    said = kvexp("submit", "--dry-run")
    assert "#SBATCH --array=0-1%2" in said
    assert "# task 1: mini.tiny.words.001" in said
    assert not (root / "results").exists()
    assert not (root / "slurm").exists()
    said = kvexp("submit", "--then-analyze")
    ids = [line.split()[1].rstrip(":") for line in said.splitlines() if line.startswith("job ")]
    assert len(ids) == 2
    gone(*ids)
    assert answers(root) == undisturbed()
    assert {row["state"] for row in kvexp.status().values()} == {"complete"}
    (words,) = root.glob("slurm/logs/mini/*analysis/*.out")
    assert "kvexp report ended with" in words.read_text()
    footer = json.loads((log(root).parent / "footer.json").read_text())
    assert [segment["rows"] for segment in footer["segments"]] == [project.ROWS]
    assert footer["segments"][0]["job_id"].isdigit()
    assert "2 of 2 shards are complete, 0 to run" in kvexp("submit")


def test_a_second_submit_finds_the_queue_full_and_cancel_empties_it(kvexp, root):
    other = subprocess.run(
        ["sbatch", "--parsable", "--hold", "--job-name=mini.somebody", "--wrap=sleep 1", "-o", "/dev/null"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    try:
        (job,) = kvexp.submit(*LONG, "cluster.workers=1")
        assert in_queue(job) == [f"{job}_0", f"{job}_1"] or in_queue(job) == [f"{job}_1", f"{job}_0"]
        said = kvexp("submit", *LONG)
        assert f"2 shards are queued or running already (job {job}): not submitted again" in said
        assert kvexp("cancel", *LONG, "suite=mini").startswith("cancelled 2 of 2 tasks that study mini has")
        gone(job)
        assert in_queue(other)  # a job with such a name, but none of ours
        assert "has nothing of it in the queue" in kvexp("cancel", *LONG)
        found = kvexp.status(*LONG)
        assert {row["state"] for row in found.values()} <= {"dead", "partial"}
    finally:
        subprocess.run(["scancel", other], check=True)


def test_two_submits_at_the_same_moment_submit_once(kvexp, root):
    command = project.command("submit", "study=mini", "cluster=slurm_dev", *LONG)
    said = []

    def submit():
        done = subprocess.run(
            command, cwd=root, env=project.environment(), capture_output=True, text=True, check=False
        )
        said.append((done.returncode, done.stdout + done.stderr))

    both = [threading.Thread(target=submit) for _ in range(2)]
    for one in both:
        one.start()
    for one in both:
        one.join()
    assert [code for code, _ in said] == [0, 0], said
    assert sum("not submitted again" in text for _, text in said) == 1, said
    names = {name for _, _, name in queue() if name.startswith("mini.2")}
    assert len(names) == 1
    kvexp("cancel", *LONG)


def test_an_answer_of_sbatch_that_was_lost_is_found_in_the_queue(kvexp, root):
    (job,) = kvexp.submit(*LONG)
    (answer,) = root.glob("slurm/submissions/mini/*.after.json")
    answer.unlink()
    assert "2 shards are queued or running already" in kvexp("submit", *LONG)
    found = json.loads(answer.read_text())
    assert (found["job_id"], found["found_in_queue"]) == (job, True)
    kvexp("cancel", *LONG)


def test_what_sbatch_refuses_is_a_sentence_and_leaves_nothing_behind(kvexp, root):
    said = kvexp("submit", "cluster.slurm.partition=nowhere", code=2)
    sentence, *lines = said[said.index("kvexp: ") :].strip().splitlines()
    assert sentence.startswith("kvexp: sbatch refuses mini: sbatch: error: invalid partition")
    assert "conf/cluster/slurm_dev.yaml" in sentence
    assert all(line.startswith("  sbatch: ") for line in lines)
    assert not list(root.glob("slurm/logs/mini/*"))
    (answer,) = root.glob("slurm/submissions/mini/*.after.json")
    assert json.loads(answer.read_text())["kind"] == "refused/1"
    assert kvexp.status()["mini.tiny.words.000"]["state"] == "waiting"


def test_more_shards_than_an_array_may_have_become_several(kvexp, root, monkeypatch):
    monkeypatch.setattr(arrays, "max_array_size", lambda: 2)
    ids = kvexp.submit("suite.n_examples=5", "suite.shard_examples=1", "cluster.workers=5")
    assert len(ids) == 3
    gone(*ids)
    found = kvexp.status("suite.n_examples=5", "suite.shard_examples=1")
    assert [row["state"] for row in found.values()] == ["complete"] * 5


def test_a_setup_command_that_fails_ends_the_task_with_its_name(kvexp, root):
    (job,) = kvexp.submit("cluster.slurm.setup=['module load no-such-thing # really']")
    gone(job)
    row = kvexp.status()["mini.tiny.words.000"]
    assert (row["state"], row["category"]) == ("dead", "setup")
    assert any("kvexp: setup command failed: module load no-such-thing" in line for line in row["tail"])


def test_accounting_and_attempts_know_the_same_jobs(kvexp, root):
    (job,) = kvexp.submit()
    gone(job)
    said = until(lambda: "2 COMPLETED" in kvexp("account") and kvexp("account"), "accounting has both")
    assert "GPU-hours" in said
    lines = [json.loads(line) for line in (root / "slurm/accounting/mini.jsonl").read_text().splitlines()]
    assert {line["shard_id"] for line in lines} == {"mini.tiny.words.000", "mini.tiny.words.001"}
    assert all(line["gpus"] == 1 for line in lines)
    attempt = json.loads((log(root).parent / "attempt-001.json").read_text())
    assert attempt["slurm"]["SLURM_JOB_ID"] in {line["raw_id"] for line in lines}
    before = (root / "slurm/accounting/mini.jsonl").read_bytes()
    kvexp("account")
    assert (root / "slurm/accounting/mini.jsonl").read_bytes() == before


def test_shards_that_share_a_gpu_count_their_part_of_it(kvexp, root):
    words = ["cluster.slurm.gres=shard:1", "cluster.slurm.gpu_share=0.25"]
    (job,) = kvexp.submit(*words)
    gone(job)
    assert {row["state"] for row in kvexp.status().values()} == {"complete"}
    until(lambda: "2 COMPLETED" in kvexp("account"), "accounting has both")
    lines = [json.loads(line) for line in (root / "slurm/accounting/mini.jsonl").read_text().splitlines()]
    assert [line["gpus"] for line in lines] == [0.25, 0.25]
    hours = json.loads(kvexp("status", "--json"))["gpu_hours"]
    assert hours == pytest.approx(sum(line["seconds"] for line in lines) * 0.25 / 3600, abs=1e-3)


def test_a_worker_is_seen_running(kvexp, root):
    (job,) = kvexp.submit(*LONG, "cluster.workers=1")
    worker(f"{job}_0")
    until(lambda: rows(log(root)) > 10, "rows of the first shard")
    found = kvexp.status(*LONG, "cluster.workers=1")
    assert found["mini.tiny.words.000"]["state"] == "running"
    assert found["mini.tiny.words.001"]["state"] == "queued"
    kvexp("cancel", *LONG)
