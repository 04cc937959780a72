"""What kvexp makes of Slurm's words and of its own records; tests/slurm has the real thing."""

import hashlib
import io
import pickle
import shutil
import signal
import subprocess
import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from kvexp.ceremony.attempts import Started
from kvexp.errors import ConfigError, IncompleteError, IntegrityError
from kvexp.records import FOOTER, Footer, Segment, encode
from kvexp.run import launch
from kvexp.run.attempt import Under
from kvexp.slurm import arrays, jobs, reconcile, submissions
from kvexp.slurm import programs as slurm_programs
from kvexp.slurm.account import Ran, export, of_accounting, path_of
from kvexp.slurm.arrays import BLOCKED, analysis_options, pieces, shard_options
from kvexp.slurm.jobs import Jobs, gpu_hours
from kvexp.slurm.programs import SlurmError, run
from kvexp.slurm.reconcile import answered
from kvexp.slurm.status import ShardStatus, _with_slurm
from kvexp.slurm.submissions import Book, Refused, Submitted
from kvexp.slurm.task import ArrayTask
from kvexp.study.grid import protocols
from kvexp.study.schema import ClusterConf, SlurmConf, gpus_of
from kvexp.verbs.cancel import _ids, cancel
from kvexp.verbs.status import print_status
from tests import project
from tests.run.test_log import ATTEMPT

AT = "2026-11-30T09:00:00Z"
CLUSTER = ClusterConf(name="c", executor="slurm", slurm=SlurmConf(gres="gpu:h100:2", cpus=3, memory_gb=1.5))


# Configuration and arrays ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"minutes": 0}, "slurm.minutes is at least 1"),
        ({"memory_gb": 0.0}, "slurm.memory_gb is at least 0.1"),
        ({"gres": "h100:1"}, "written as gpu:1, gpu:h100:1, shard:1 or mps:25"),
        ({"gres": "gpu:h100:0"}, "written as"),
        ({"gres": "shard:1"}, "gpu_share is 1 where gres asks for whole GPUs"),
        ({"gres": "gpu:1", "gpu_share": 0.5}, "got 0.5 with gres gpu:1"),
        ({"gres": "mps:25", "gpu_share": 0.0}, "between 0 and 1; got 0"),
        ({"sbatch": {"job-name": "x"}}, "cannot set job-name"),
        ({"sbatch": {"job_name": "x"}}, "cannot set job-name"),
        ({"sbatch": {"time": 5}}, "cannot set time: slurm.minutes says it"),
        ({"partition": "a", "sbatch": {"partition": "b"}}, "cannot set partition: slurm.partition says it"),
        ({"sbatch": {"parsable": True}}, "cannot set parsable: kvexp reads"),
        ({"memory_gb": float("nan")}, "memory_gb is at least 0.1"),
        ({"minutes": 2, "signal_seconds": 120}, "must be less than slurm.minutes, 120 seconds"),
    ],
)
def test_settings_that_cannot_be(changes, said):
    with pytest.raises(ConfigError, match=said):
        SlurmConf(**changes)


def test_gpus_of_a_request():
    assert [gpus_of(g) for g in (None, "gpu", "gpu:2", "gpu:h100", "gpu:h100:4")] == [0, 1, 2, 1, 4]
    assert [gpus_of("shard:2", 0.25), gpus_of("mps:25", 0.01)] == [0.5, 0.25]


@pytest.mark.parametrize(
    ("n", "width", "largest"), [(1, 4, 10), (10, 3, 10), (11, 8, 4), (5000, 64, 1001), (9, 2, 2)]
)
def test_pieces_hold_every_shard_once_and_never_run_more_than_allowed(n, width, largest):
    shards = [f"s{i}" for i in range(n)]
    made = list(pieces({"a": shards}, width, largest))
    assert [s for piece in made for s in piece.shards] == shards
    assert all(0 < len(piece.shards) <= largest for piece in made)
    widest = {piece.lane: piece.width for piece in made}
    assert sum(widest.values()) == width
    assert all(piece.width == widest[piece.lane] > 0 for piece in made)


def test_options_of_shards_and_of_the_analysis():
    options = shard_options(CLUSTER, "name", 7)
    assert (options["gres"], options["mem"], options["array_parallelism"]) == ("gpu:h100:2", "1536M", 7)
    assert "dependency" not in options
    assert shard_options(CLUSTER, "name", 7, "12")["dependency"] == "afterany:12"
    assert "export OMP_NUM_THREADS=3 OMP_WAIT_POLICY=PASSIVE" in options["setup"]
    after = analysis_options(CLUSTER, "name", ["1", "2"])
    assert after["dependency"] == "afterany:1:2"
    assert "gres" not in after
    assert "dependency" not in analysis_options(CLUSTER, "name", [])


def test_a_setup_command_that_fails_stops_the_script():
    conf = replace(
        CLUSTER, slurm=SlurmConf(setup=["true", "test -e /nowhere # it's gone", "echo not reached"])
    )
    lines = shard_options(conf, "n", 1)["setup"]
    done = subprocess.run(["bash", "-c", "\n".join(lines)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (slurm_programs.SETUP_FAILED, "")
    assert done.stderr == "kvexp: setup command failed: test -e /nowhere # it's gone\n"


# Slurm's words -----------------------------------------------------------------------------------


def test_a_program_that_is_not_there_fails_or_hangs_is_a_sentence():
    for command, said in (
        (["no-such-program"], "there is no no-such-program"),
        (["bash", "-c", "echo first >&2; echo 'last \x1b[31m' >&2; exit 1"], r"does not answer: last \\x1b"),
        (
            ["bash", "-c", "echo 'x: error: why' >&2; echo 'x: error: failed' >&2; exit 1"],
            "answer: x: error: why",
        ),
        (["sleep", "5"], "sleep has not answered for 0 s"),
    ):
        with pytest.raises(SlurmError, match=said):
            run(command, 0.2)


def test_the_queue_is_read_line_by_line(monkeypatch):
    text = "12_3|RUNNING|me|mini.a|None|.\n13|PENDING|me|mini|with|bars\nand lines|Dependency|.\n"
    monkeypatch.setattr(slurm_programs, "run", lambda command, seconds: text)
    first, second = slurm_programs.read_queue(["nobody-of-this-name"])
    assert (first.task, first.is_running, second.task, second.is_running) == (3, True, 0, False)
    assert (first.reason, second.name) == ("None", "mini")  # of others, whose names may hold what they like


def test_unknown_users_are_not_asked_about(monkeypatch):
    asked = []
    monkeypatch.setattr(slurm_programs, "run", lambda command, seconds: asked.append(command) or "")
    slurm_programs.read_queue(["no-such-user-here", slurm_programs.me()])
    assert asked[0][asked[0].index("-u") + 1] == slurm_programs.me()


def test_accounting_is_read_field_by_field(monkeypatch):
    lines = [
        "7_1|9|COMPLETED|0:0|1796027422|1796027522|100|billing=1,cpu=1,gres/gpu=2,gres/gpu:h100=2|dev1|n",
        "7_0|8|CANCELLED by 0|0:15|1796027400|Unknown|5|cpu=1|dev1|n",
        "7_2|10|PENDING|0:0|Unknown|Unknown|0||None assigned|n",
    ]
    monkeypatch.setattr(slurm_programs, "run", lambda command, seconds: "\n".join(lines))
    never, cancelled, completed = slurm_programs.read_accounting(["7", "7"])
    assert (completed.start, completed.end) == ("2026-11-30T08:30:22Z", "2026-11-30T08:32:02Z")
    assert (completed.seconds, completed.gpus, completed.task) == (100, 2, 1)
    assert (cancelled.state, cancelled.end, cancelled.gpus) == ("CANCELLED", None, None)
    assert (never.start, never.nodes) == (None, "")


BEGUN = "submitit INFO (2026-11-30 08:40:03,559) - Starting with JobEnvironment(job_id=1)\n"


@pytest.mark.parametrize(
    ("log", "state", "exit_code", "category"),
    [
        ("slurmstepd: error: Detected 1 oom-kill event(s)", "FAILED", "9:0", "out_of_memory"),
        ("error: Step 1.0 exceeded memory limit (2 > 1), being killed", None, "", "out_of_memory"),
        ("", "OUT_OF_MEMORY", "0:125", "out_of_memory"),
        ("slurmstepd: error: *** STEP 1.0 ON n CANCELLED AT x DUE TO TIME LIMIT ***", None, "", "timeout"),
        (
            "slurmstepd: error: *** JOB 1 ON n CANCELLED AT x DUE TO NODE FAILURE ***",
            None,
            "",
            "node_failure",
        ),
        ("slurmstepd: error: *** JOB 1 ON n CANCELLED AT x ***", None, "", "cancelled"),
        ("anything", "CANCELLED", "0:0", "cancelled"),
        (
            "RuntimeError: Waited for 60 seconds but could not find submitted jobs in path: x",
            "",
            "",
            "unsent",
        ),
        ("kvexp: shard x: 1 of 2 examples failed", "FAILED", "3:0", "stopped"),
        ("kvexp: setup command failed: module load x", "FAILED", "9:0", "setup"),
        ("Traceback (most recent call last):\n  ...\nValueError: no", "FAILED", "1:0", "exception"),
        ("srun: error: dev1: task 0: Killed", "FAILED", "9:0", "killed"),
        ("", "FAILED", "9:0", "killed"),
        ("", "FAILED", "0:12", "killed"),
        ("", "FAILED", "1:0", "exception"),
        ("", None, "", "unknown"),
        ("CANCELLED AT x DUE TO TIME LIMIT\n" + BEGUN + "fine so far", None, "", "unknown"),
    ],
)
def test_how_a_task_ended(tmp_path, log, state, exit_code, category):
    path = tmp_path / "log"
    path.write_text(BEGUN + log)
    known = None if state is None else RUN(state=state, exit_code=exit_code)
    found = jobs.end_of(path, known)
    assert found.category == category
    assert not any("JobEnvironment" in line for line in found.tail)


def RUN(**changes):  # noqa: N802
    plain = {"job_id": "7_0", "raw_id": "8", "name": "mini.n", "state": "COMPLETED", "exit_code": "0:0"}
    times = {"start": "2026-11-30T10:00:00Z", "end": "2026-11-30T11:00:00Z", "seconds": 3600}
    return slurm_programs.Run(**{**plain, **times, "gpus": 1, "nodes": "n", **changes})


def test_the_last_words_are_short_and_harm_no_terminal(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"x" * 100_000 + b"\n\x1b]0;title\x07\n" + b"\xff\n" * 50)
    tail = jobs.end_of(path, None).tail
    assert len(tail) == jobs.TAIL_LINES
    assert all(line.isprintable() for line in tail)
    assert jobs.end_of(tmp_path / "nothing", None).tail == []


# Records -----------------------------------------------------------------------------------------


@pytest.fixture
def book(tmp_path):
    (tmp_path / "results").mkdir()
    return Book(tmp_path, tmp_path / "results" / "mini")


def send(book, *shards, suite="s", job_id=None):
    sent = book.write_before(suite, shards, CLUSTER, lambda name: {"job_name": name, "gres": "gpu:2"}, None)
    return (
        sent
        if job_id is None
        else book.write_after(sent, Submitted(name=sent.before.name, job_id=job_id, at=AT))
    )


def entry(sent, task=0, state="RUNNING", job_id="7"):
    return slurm_programs.Entry(f"{job_id}_{task}", task, state, "None", "me", sent.before.name)


def test_records_are_read_as_they_were_written(book):
    first, second = send(book, "a", "b", job_id="7"), send(book, "c")
    refused = book.write_after(second, Refused(name=second.before.name, reason="no", at=AT))
    found = book.read()
    assert {one.before.name: one.after for one in found} == {
        first.before.name: first.after,
        second.before.name: refused.after,
    }
    assert [first.task_id(1), first.log(1).name, first.gpus] == ["7_1", "7_1_0_log.out", 2]
    assert send(book, "d", job_id="8").log(0).name == "8_0_log.out"
    assert str(book.root) not in first.path.read_text()


def test_a_spoilt_record_is_named(book):
    sent = send(book, "a")
    sent.path.write_text("{}")
    with pytest.raises(IntegrityError, match=r"before\.json is not a submission record"):
        book.read()


def test_tasks_that_no_submission_has_are_no_empty_queue(book):
    sent = send(book, "a", "b", job_id="7")
    name = sent.before.name
    for job_id in ("7_2", "7_[0-1%2]", "7+1", "abc", "7_99999999999"):
        odd = slurm_programs.Entry(job_id, slurm_programs.task_of(job_id), "PENDING", "None", "me", name)
        with pytest.raises(SlurmError, match=r"squeue names .* none of its 2 tasks"):
            reconcile.match_queue([sent], [odd])
    assert reconcile.match_queue([sent], [replace(odd, name="somebody.else")]) == []


@pytest.mark.parametrize(
    "line", ["slurm_load_jobs error: Socket timed out", "7_0|RUNNING|me|name|None", "7_0|RUNNING|me|.\n"]
)
def test_a_queue_that_speaks_otherwise_is_no_empty_queue(monkeypatch, line):
    monkeypatch.setattr(slurm_programs, "run", lambda command, seconds: line)
    with pytest.raises(SlurmError, match="squeue says what nobody asked"):
        slurm_programs.read_queue([])


@pytest.mark.parametrize(
    "line",
    [
        "7_0|x1|COMPLETED|0:0|1796027422|1796027522|100|cpu=1|n|a",
        "7_0|8|COMPLETED|0:0|99999999999999999|1796027522|100|cpu=1|n|a",
        "7_0|8|COMPLETED|0:0|2026-11-30T10:00:00|Unknown|100|cpu=1|n|a",
        "7_x|8|COMPLETED|0:0|1796027422|1796027522|100|cpu=1|n|a",
        "7_0|8|COMPLETED|0:0|1796027422|1796027522|1-02:00|cpu=1|n|a",
        "sacct: error: slurmdbd went away",
    ],
)
def test_accounting_that_speaks_otherwise_is_a_sentence(monkeypatch, line):
    monkeypatch.setattr(slurm_programs, "run", lambda command, seconds: line)
    with pytest.raises(SlurmError, match="sacct says what kvexp cannot read"):
        slurm_programs.read_accounting(["7"])


def test_tasks_that_wait_together_never_ran_and_parts_of_a_job_are_not_ours(monkeypatch):
    lines = [
        "7_[2-5%2]|7|PENDING|0:0|Unknown|Unknown|0||None assigned|a",
        "7+1|8|COMPLETED|0:0|1796027422|1796027522|100|cpu=1|n|a",
    ]
    monkeypatch.setattr(slurm_programs, "run", lambda command, seconds: "\n".join(lines))
    assert slurm_programs.read_accounting(["7"]) == []


def test_a_lost_answer_is_found_in_accounting(book, monkeypatch):
    """The submit was killed, or the disk was full, and the job has left the queue since."""
    lost, kept = send(book, "a", "b"), send(book, "c", job_id="9")
    asked = []
    line = f"7_1|8|COMPLETED|0:0|1796027422|1796027522|100|cpu=1|n|{lost.before.name}"
    monkeypatch.setattr(slurm_programs, "run", lambda command, seconds: asked.append(command) or line)
    found = {one.before.name: one.after for one in answered(book, book.read())}
    assert (found[lost.before.name].job_id, found[lost.before.name].found_in_queue) == ("7", True)
    assert found[kept.before.name] == kept.after
    assert f"--name={lost.before.name}" in asked[0]
    assert kept.before.name not in " ".join(asked[0])
    assert {one.job_id for one in book.read()} == {"7", "9"}
    answered(book, book.read())
    assert len(asked) == 1


def test_what_never_reached_slurm_is_asked_about_for_a_day(book, monkeypatch):
    sent = send(book, "a")
    monkeypatch.setattr(slurm_programs, "run", lambda command, seconds: "")
    assert answered(book, book.read())[0].after is None
    old = msgspec.structs.replace(sent.before, at="2026-01-01T00:00:00Z")
    sent.path.write_bytes(msgspec.json.encode(old))
    (found,) = answered(book, book.read())
    assert isinstance(found.after, Refused)
    monkeypatch.setattr(slurm_programs, "run", lambda command, seconds: pytest.fail("asked again"))
    assert answered(book, book.read()) == [found]


def test_settings_that_leave_something_out_reach_no_program(monkeypatch):
    monkeypatch.setenv("SQUEUE_STATES", "RUNNING")
    monkeypatch.setenv("SLURM_CLUSTERS", "mine")
    assert run(["sh", "-c", 'echo "$SQUEUE_STATES-$SLURM_CLUSTERS"']) == "-mine\n"


def test_only_jobs_of_our_names_are_ours(book):
    sent = send(book, "a", "b", job_id="7")
    stranger = replace(entry(sent), name="mini.other")
    found = reconcile.match_queue([sent], [stranger, entry(sent, 1)])
    assert [(f.shard_id, f.entry.job_id) for f in found] == [("b", "7_1")]


def test_an_unanswered_record_of_another_machine_is_waited_for(book, monkeypatch):
    monkeypatch.setattr(reconcile, "read_queue", lambda users, seconds: [])
    sent = send(book, "a")
    assert reconcile.reconcile(book)[1] == []  # of this machine: its writer is gone, since we hold the lock
    there = msgspec.structs.replace(sent.before, host="login2")
    sent.path.write_bytes(msgspec.json.encode(there))
    with pytest.raises(IncompleteError, match=r"another submit of study mini is at work, on login2 since"):
        reconcile.reconcile(book)
    monkeypatch.setattr(submissions, "FRESH_SECONDS", -1.0)
    assert reconcile.reconcile(book)[1] == []


def test_whole_arrays_are_cancelled_by_their_number_and_parts_task_by_task(book):
    one, two = send(book, "a", "b", job_id="7"), send(book, "c", "d", job_id="8")
    found = reconcile.match_queue(
        [one, two], [entry(one, 0), entry(one, 1), entry(two, 0, job_id="8"), entry(two, 1, job_id="8")]
    )
    assert _ids(found, [f for f in found if f.shard_id != "d"]) == ["7", "8_0"]
    assert _ids(found, found) == ["7", "8"]


def test_a_queue_that_does_not_answer_loses_no_shard(book):
    sent = send(book, "a", "b", job_id="7")
    here = Jobs(book.root, [sent], knows_queue=False)
    assert here.ended("a") is None
    known = Jobs(book.root, [sent], {"b": reconcile.QueuedTask(sent, entry(sent, 1), "b")}, [], True)
    assert known.ended("a").job_id == "7_0"
    assert known.ended("b") is None
    assert known.ended("never submitted") is None


# What a task carries -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def root(tmp_path_factory, tiny_folder):
    return project.make(tmp_path_factory.mktemp("slurm") / "project", tiny_folder)


@pytest.fixture
def task(root, tmp_path):
    job = launch.jobs(root, tmp_path / "results", project.made(root)[:1], CLUSTER, defaultdict(Under))[0]
    return ArrayTask(job, root, protocols(project.selected(root))["generations"].files)


def test_a_task_is_small_and_opened_without_torch(task, tmp_path):
    """Until it is opened, a signal of Slurm would end the process for good."""
    body = pickle.dumps(task)
    assert len(body) < 20_000
    (tmp_path / "task.pkl").write_bytes(body)
    code = "import pickle, sys; print(pickle.load(open(sys.argv[1], 'rb')).shard_id, 'torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "task.pkl"],
        cwd=project.ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["mini.tiny.words.000", "False"]


def test_a_signal_that_comes_while_python_starts_is_answered_later():
    code = (
        "import signal, sys; from kvexp.slurm.task import let_signals_in; got = []; print('up', flush=True); "
        "sys.stdin.readline(); signal.signal(signal.SIGUSR2, lambda *_: got.append('stop')); print(got); "
        "let_signals_in(); print(got)"
    )
    command = [sys.executable, "-IS", "-c", BLOCKED, "-u", "-c", code]
    with subprocess.Popen(
        command, cwd=project.ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "up\n"
        process.send_signal(signal.SIGUSR2)  # nobody handles it yet
        said, _ = process.communicate("go on\n", timeout=60)
    assert (process.returncode, said) == (0, "[]\n['stop']\n")


def test_a_task_whose_code_has_changed_does_not_run(task, monkeypatch, capsys):
    def change(self):
        raise AssertionError("it ran")

    monkeypatch.setattr(launch.ShardJob, "__call__", change)
    task._code = task._code[1:]
    with pytest.raises(SystemExit) as ended:
        task()
    assert ended.value.code == 4
    assert "the code that makes data has changed since it was submitted" in project.one_sentence(
        capsys.readouterr().err
    )


def test_a_task_whose_shard_is_complete_has_nothing_to_do(task, tmp_path):
    assert task() == "complete"
    assert task() == "complete"
    (folder,) = tmp_path.glob("results/*/*.000")
    assert len(list(folder.glob("attempt-*.json"))) == 1


def test_a_task_that_another_kvexp_wrote_is_a_sentence(task, capsys):
    task._job = task._job.replace(b"ShardJob", b"ShardJab")
    with pytest.raises(SystemExit) as ended:
        task()
    assert ended.value.code == 4
    assert "kvexp has changed since it was submitted" in project.one_sentence(capsys.readouterr().err)


def test_a_shard_that_does_not_complete_is_a_failed_job(task, monkeypatch, capsys):
    said = launch.Outcome("x", 3, "2 of 2 examples failed")
    monkeypatch.setattr(launch.ShardJob, "__call__", lambda self: said)
    with pytest.raises(SystemExit) as ended:
        task()
    assert (ended.value.code, capsys.readouterr().err) == (3, "kvexp: 2 of 2 examples failed\n")
    monkeypatch.setattr(launch.ShardJob, "__call__", lambda self: replace(said, exit_code=0, error=None))
    assert task() == "complete"
    again = task.checkpoint()
    assert (again.function, again.args) == (task, ())


# Attempts against accounting ---------------------------------------------------------------------


def attempt(tmp_path, job="8", at="2026-11-30T10:00:05Z", number=1, shard="mini.x"):
    made = msgspec.structs.replace(
        ATTEMPT, shard_id=shard, number=number, slurm={"SLURM_JOB_ID": job} if job else {}, started_at=at
    )
    return Started("s", tmp_path / "results/mini/s" / shard, made, 0, False, "")


def exported(tmp_path, *changes):
    path = path_of(tmp_path, tmp_path / "results/mini")
    path.parent.mkdir(parents=True, exist_ok=True)
    plain = {"job_id": "7_0", "raw_id": "8", "name": "mini.n", "suite": "s", "shard_id": "mini.x"}
    plain |= {"state": "COMPLETED", "exit_code": "0:0", "seconds": 3600, "gpus": 1, "nodes": "n"}
    times = {"start": "2026-11-30T10:00:00Z", "end": "2026-11-30T11:00:00Z"}
    lines = [msgspec.json.encode(Ran(**{**plain, **times, **change})) + b"\n" for change in changes]
    path.write_bytes(b"".join(lines))


def closed(tmp_path, at):
    """A footer, with a segment of job 8."""
    folder = tmp_path / "results/mini/s/mini.x"
    folder.mkdir(parents=True, exist_ok=True)
    made = Footer(
        shard_id="mini.x",
        shard_digest="0" * 64,
        rows=0,
        sha256="0" * 64,
        segments=[Segment(attempt=1, job_id="8", rows=0)],
        model_seconds=None,
        ended_at=at,
    )
    (folder / FOOTER).write_bytes(encode(made))


def judged(tmp_path, *attempts):
    return {
        c.name: (c.holds, c.words)
        for c in of_accounting(tmp_path, tmp_path / "results/mini", {"s"}, attempts)
    }


def test_a_study_that_no_slurm_has_seen_has_no_such_check(tmp_path):
    assert judged(tmp_path, attempt(tmp_path, job="")) == {}


def test_without_an_export_it_cannot_be_told(tmp_path):
    holds, words = judged(tmp_path, attempt(tmp_path))["accounting"]
    assert holds is None
    assert "0 tasks were submitted to Slurm and 1 attempts name jobs" in words


def test_attempts_and_jobs_that_bear_each_other_out(tmp_path):
    later = {"start": "2026-11-30T12:00:00Z", "end": "2026-11-30T12:10:00Z"}
    exported(tmp_path, {"state": "REQUEUED"}, later)
    ones = [attempt(tmp_path), attempt(tmp_path, at="2026-11-30T12:00:01Z", number=2)]
    found = judged(tmp_path, *ones)
    assert [holds for holds, _ in found.values()] == [True, True, True]
    digest = hashlib.sha256(path_of(tmp_path, tmp_path / "results/mini").read_bytes()).hexdigest()
    assert found["accounting"][1] == f"2 runs of jobs, as in slurm/accounting/mini.jsonl (sha256 {digest})"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"job": "99"}, "names job 99, which accounting does not know"),
        ({"at": "2026-11-30T15:00:00Z"}, "began at 2026-11-30T15:00:00Z, when job 8 did not run"),
        ({"shard": "mini.y"}, "names job 8, which was submitted for mini.x"),
    ],
)
def test_an_attempt_that_accounting_does_not_bear_out(tmp_path, change, said):
    exported(tmp_path, {})
    holds, words = judged(tmp_path, attempt(tmp_path, **change))["attempts in accounting"]
    assert holds is False
    assert said in words


def test_a_completed_job_without_an_attempt_is_a_discarded_run(tmp_path):
    second = {"job_id": "17", "raw_id": "17", "start": "2026-11-30T12:00:00Z", "end": "2026-11-30T12:10:00Z"}
    exported(tmp_path, {}, second)
    mine = attempt(tmp_path, job="17", at="2026-11-30T12:00:01Z")
    closed(tmp_path, "2026-11-30T12:09:00Z")
    assert judged(tmp_path, mine)["jobs in attempts"] == (
        False,
        "job 7_0 completed mini.x in 3600 s and left no attempt",
    )
    before = {"job_id": "5", "raw_id": "5", "start": "2026-11-30T08:00:00Z", "end": "2026-11-30T09:00:04Z"}
    exported(tmp_path, {}, before)
    closed(tmp_path, "2026-11-30T09:00:00Z")  # the first job found the shard complete
    earlier = attempt(tmp_path, job="5", at="2026-11-30T08:00:01Z")
    assert judged(tmp_path, earlier)["jobs in attempts"][0] is True
    exported(tmp_path, {"state": "CANCELLED", "seconds": 40}, second)
    closed(tmp_path, "2026-11-30T12:09:00Z")
    found = judged(tmp_path, mine)
    assert found["jobs in attempts"][0] is True
    assert found["jobs that ended early"] == (
        None,
        "1 runs ended before their attempt began: 7_0 CANCELLED after 40 s",
    )


def test_a_run_that_was_thrown_away_and_made_again_at_once_is_noticed(tmp_path):
    """However short shards are: what was complete before a run had nothing to do, and nothing else."""
    redone = {"job_id": "9", "raw_id": "9", "start": "2026-11-30T10:00:25Z", "end": "2026-11-30T10:00:45Z"}
    exported(tmp_path, {"end": "2026-11-30T10:00:20Z", "seconds": 20}, redone)
    mine = attempt(tmp_path, job="9", at="2026-11-30T10:00:26Z")
    closed(tmp_path, "2026-11-30T10:00:44Z")
    holds, words = judged(tmp_path, mine)["jobs in attempts"]
    assert (holds, words) == (False, "job 7_0 completed mini.x in 20 s and left no attempt")
    here = attempt(tmp_path, job="", at="2026-11-30T10:00:26Z")  # made again on this machine
    assert judged(tmp_path, here)["jobs in attempts"][0] is False
    closed(tmp_path, "2026-11-30T09:59:00Z")
    assert judged(tmp_path, here)["jobs in attempts"][0] is True


def test_a_job_that_is_requeued_after_it_completed_hides_no_run(tmp_path):
    """One attempt belongs to one run, and accounting calls the run before REQUEUED afterwards."""
    first = {"end": "2026-11-30T10:00:29Z", "seconds": 29}
    again = {"start": "2026-11-30T10:00:53Z", "end": "2026-11-30T10:01:13Z", "seconds": 20}
    mine = attempt(tmp_path, at="2026-11-30T10:00:54Z")
    closed(tmp_path, "2026-11-30T10:01:12Z")
    exported(tmp_path, first, again)
    holds, words = judged(tmp_path, mine)["jobs in attempts"]
    assert (holds, words) == (False, "job 7_0 completed mini.x in 29 s and left no attempt")
    exported(tmp_path, {**first, "state": "REQUEUED"}, again)
    assert "7_0 REQUEUED after 29 s" in judged(tmp_path, mine)["jobs that ended early"][1]


def test_a_suite_that_was_thrown_away_whole_is_noticed(tmp_path):
    exported(tmp_path, {}, {"suite": "other", "raw_id": "9", "job_id": "9"})
    assert judged(tmp_path)["jobs in attempts"] == (
        False,
        "job 7_0 completed mini.x in 3600 s and left no attempt",
    )


def test_a_task_that_starts_slowly_may_find_its_shard_complete(tmp_path):
    exported(tmp_path, {"end": "2026-11-30T10:02:57Z", "seconds": 177})
    here = attempt(tmp_path, job="", at="2026-11-30T09:50:00Z")
    closed(tmp_path, "2026-11-30T10:02:01Z")
    assert judged(tmp_path, here)["jobs in attempts"][0] is True


def test_what_an_export_knew_to_be_complete_stays_so(book, tmp_path, monkeypatch):
    sent = send(book, "mini.x", "mini.y", job_id="7")
    exported(tmp_path, {"name": sent.before.name})
    line = "7_0|8|REQUEUED|0:0|1796032800|1796036400|3600|cpu=1|n|" + sent.before.name
    monkeypatch.setattr(slurm_programs, "run", lambda command, seconds: line)
    (found,) = export(book, tmp_path / "results/mini", Console(file=io.StringIO()))
    assert (found.state, found.start) == ("COMPLETED", "2026-11-30T10:00:00Z")


# GPU-hours ---------------------------------------------------------------------------------------


def test_gpu_hours_are_accountings_and_else_those_of_attempts(book, tmp_path):
    sent = send(book, "mini.x", "mini.y", job_id="7")
    folder = tmp_path / "results/mini/s/mini.x"
    folder.mkdir(parents=True)
    slurm = {"SLURM_JOB_ID": "8", "SLURM_ARRAY_JOB_ID": "7"}
    for number, at in ((1, "2026-11-30T10:00:00Z"), (2, "2026-11-30T10:30:00Z")):
        made = msgspec.structs.replace(ATTEMPT, shard_id="mini.x", number=number, started_at=at, slurm=slurm)
        (folder / f"attempt-00{number}.json").write_bytes(msgspec.json.encode(made))
    closed(tmp_path, "2026-11-30T11:00:00Z")
    places = [(folder, "generations.jsonl"), (Path(folder.parent, "mini.y"), "generations.jsonl")]
    alone = gpu_hours(places, Jobs(tmp_path, [sent]))
    assert (alone.accounted, alone.estimated) == (0, 2.0)  # one hour with two GPUs
    runs = [RUN(name=sent.before.name, seconds=1800, gpus=2), RUN(name="of another study", seconds=10**6)]
    known = gpu_hours(places, Jobs(tmp_path, [sent], runs=runs))
    assert (known.accounted, known.estimated) == (1.0, 0)
    uncounted = gpu_hours(places, Jobs(tmp_path, [sent], runs=[replace(runs[0], gpus=None)]))
    assert uncounted.accounted == 1.0


# Words and tables --------------------------------------------------------------------------------


def test_any_option_of_sbatch_can_be_given_on_the_command_line(root):
    words = ["cluster=slurm_dev", "cluster.slurm.sbatch.reservation=x", "cluster.slurm.minutes=7"]
    conf = project.selected(root, *words).cluster.slurm
    assert (conf.sbatch, conf.minutes) == ({"reservation": "x"}, 7)
    with pytest.raises(ConfigError, match="sbatc"):
        project.selected(root, "cluster=slurm_dev", "cluster.slurm.sbatc.reservation=x")


def test_thousands_of_shards_are_told_by_task():
    rows = [
        ShardStatus(f"s.m.t.{i:04d}", "queued" if i % 4 else "complete", 5, 5, None, "") for i in range(200)
    ]
    console = Console(width=80, file=io.StringIO())
    print_status("mini", rows, console)
    lines = [line.split() for line in console.file.getvalue().splitlines() if line.startswith(" s.m.t.")]
    assert lines == [["s.m.t.*", "queued", "150", "750/750"], ["s.m.t.*", "complete", "50", "250/250"]]


@pytest.mark.parametrize(
    ("tasks", "word"),
    [([4], "7_4"), ([0, 1, 2, 9, 5, 4], "7_[0-2,4-5,9]"), ([3, 1], "7_[1,3]"), ([0, 1], "7_[0-1]")],
)
def test_tasks_in_one_word(tasks, word):
    assert slurm_programs.task_list("7", tasks) == word


def test_held_tasks_of_an_array_are_told_with_one_command(book):
    sent = send(book, "mini.x", "mini.y", "mini.z", job_id="7")
    held = [replace(entry(sent, task, "PENDING"), reason="JobHeldAdmin") for task in (0, 2)]
    flying = {f.shard_id: f for f in reconcile.match_queue([sent], [*held, entry(sent, 1)])}
    here = Jobs(book.root, [sent], flying, [], True)
    first, second = (
        _with_slurm(ShardStatus(s, "partial", 1, 5, 1.0, ""), here) for s in ("mini.x", "mini.z")
    )
    assert first.note == second.note
    assert "`scontrol release '7_[0,2]'`" in first.note


def test_a_held_task_comes_with_the_way_to_release_it(book):
    sent = send(book, "mini.x", "mini.y", job_id="7")
    held = replace(entry(sent, 0, "PENDING"), reason="launch failed requeued held")
    waits = replace(entry(sent, 1, "PENDING"), reason="QOSMaxJobsPerUserLimit")
    flying = {f.shard_id: f for f in reconcile.match_queue([sent], [held, waits])}
    here = Jobs(book.root, [sent], flying, [], True)
    first, second = (
        _with_slurm(ShardStatus(s, "partial", 1, 5, 1.0, ""), here) for s in ("mini.x", "mini.y")
    )
    assert (first.state, second.state) == ("queued", "queued")
    assert first.note.startswith(
        "Slurm holds it (launch failed requeued held): `scontrol release 7_0` lets it"
    )
    assert "`scancel 7_0` ends it" in first.note
    assert second.note == "queued, and waits: QOSMaxJobsPerUserLimit"


def nothing():
    """What a task would do."""


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """Stand-ins for Slurm's programs, each a line of shell."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder), prepend=":")

    def write(name, line):
        (folder / name).write_text(f"#!/bin/sh\n{line}\n")
        (folder / name).chmod(0o755)

    write("srun", "exit 0")
    return write


def test_an_answer_without_a_job_id_is_no_refusal(book, programs):
    """Slurm may have taken the job: nothing is thrown away, and its name is looked for in the queue."""
    programs("sbatch", "echo 56048415")
    sent = send(book, "a", "b")
    name = sent.before.name
    with pytest.raises(arrays.SbatchError, match=f"has no job id, .*squeue --name {name}`"):
        arrays.send(book, sent, ClusterConf(name="c", executor="slurm"), [nothing, nothing])
    (found,) = book.read()
    assert found.after is None
    assert list((book.root / sent.before.logs).iterdir())
    programs("sbatch", "echo 'sbatch: error: no such partition' >&2; echo later >&2; exit 1")
    other = send(book, "c")
    with pytest.raises(arrays.SbatchError, match=r"sbatch refuses s: .*partition: change what conf"):
        arrays.send(book, other, ClusterConf(name="c", executor="slurm"), [nothing])
    assert not (book.root / other.before.logs).exists()


def test_what_sbatch_says_beside_its_answer_is_kept_and_shown(book, programs):
    """A site's warning, for instance that it changed the partition."""
    programs("sbatch", "echo 'sbatch: lua: moved to \x1b[1mgpu_low' >&2; echo Submitted batch job 7")
    for shards in (["a"], ["b", "c"]):
        sent = arrays.send(book, send(book, *shards), CLUSTER, [nothing] * len(shards))
        assert sent.said == ["sbatch: lua: moved to \\x1b[1mgpu_low"]
        assert [one.said for one in book.read()] == [sent.said]
        shutil.rmtree(book.folder)


def test_a_controller_that_does_not_answer_in_time_may_have_taken_the_job(book, programs):
    programs(
        "sbatch", "echo 'sbatch: error: Batch job submission failed: Socket timed out on send' >&2; exit 1"
    )
    sent = send(book, "a")
    with pytest.raises(arrays.SbatchError, match=r"sbatch gave up .*timed out.* so tasks may be queued"):
        arrays.send(book, sent, CLUSTER, [nothing])
    assert book.read()[0].after is None
    assert (book.root / sent.before.logs).is_dir()


def test_an_answer_that_cannot_be_written_down_names_the_job(book, programs, monkeypatch):
    programs("sbatch", "echo Submitted batch job 7")
    sent = send(book, "a")

    def full(*_):
        raise IncompleteError("no room")

    monkeypatch.setattr(Book, "write_after", full)
    with pytest.raises(
        IncompleteError, match=r"job 7 is in the queue, and that could not be written .* no room"
    ):
        arrays.send(book, sent, CLUSTER, [nothing])


def test_cancel_waits_for_a_submit_and_says_so(book, monkeypatch):
    monkeypatch.setattr(submissions, "TOLD_SECONDS", 0.0)
    monkeypatch.setattr(submissions, "LOCK_SECONDS", 0.3)
    console = Console(file=io.StringIO(), width=200)
    send(book, "a", job_id="7")
    with (
        book.locked(console),
        pytest.raises(IncompleteError, match="another command works on the submissions"),
    ):
        cancel(book, None, console)
    assert console.file.getvalue().count("waiting") == 1
