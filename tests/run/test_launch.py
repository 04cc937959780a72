"""What a worker is given, and how its end is read: files first, words of others never trusted."""

import os
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest

from kvexp.errors import InputError, IntegrityError
from kvexp.models.folder import model_source
from kvexp.records import FOOTER, GENERATIONS
from kvexp.run import launch
from kvexp.run.attempt import Under
from kvexp.run.launch import Outcome, ShardJob
from kvexp.study.schema import ClusterConf, ModelConf
from tests import project

UNDER = defaultdict(Under)
LOCAL = ClusterConf(name="local", executor="local")


@pytest.fixture(scope="module")
def root(tmp_path_factory, tiny_folder):
    return project.make(tmp_path_factory.mktemp("launch") / "project", tiny_folder)


@pytest.fixture
def job(root, tmp_path):
    made = project.made(root)[:1]
    return launch.jobs(root, tmp_path / "results", made, replace(LOCAL, threads=1), UNDER)[0]


class Handle:
    """The part of a submitit job that an outcome is read from."""

    def __init__(self, folder, result=None, stderr=""):
        self.paths = self
        self.result_pickle = folder / "result.pkl"
        self.stderr = folder / "log.err"
        self.stderr.write_text(stderr)
        self._result = result
        if result is not None:
            self.result_pickle.write_bytes(b"")

    def result(self):
        if isinstance(self._result, Exception):
            raise self._result
        return self._result


def outcome(job, handle):
    return launch._outcome(job, handle)


def test_a_footer_is_the_truth_whatever_the_process_says(job, tmp_path):
    job.place.folder.mkdir(parents=True)
    (job.place.folder / FOOTER).write_bytes(b"{}")
    for result in (None, RuntimeError("exploded at exit"), Outcome("x", 3, "it said")):
        assert outcome(job, Handle(tmp_path, result)).error is None


def test_success_without_a_footer_is_no_success(job, tmp_path):
    found = outcome(job, Handle(tmp_path, Outcome(job.shard.shard_id, 0, None)))
    assert found.exit_code == 3
    assert "ended early" in found.error


def test_a_sentence_of_the_worker_is_passed_on(job, tmp_path):
    said = Outcome(job.shard.shard_id, 4, "foreign rows")
    assert outcome(job, Handle(tmp_path, said)) == said


@pytest.mark.parametrize(
    ("stderr", "shown"),
    [("", "no output"), ("a\nKilled\n\n", "Killed"), ("x" * 100_000, "x" * 300), ("last \udcff", "last")],
)
def test_an_early_end_shows_the_last_words_and_where_the_rest_is(job, tmp_path, stderr, shown):
    handle = Handle(tmp_path)
    handle.stderr.write_bytes(stderr.encode("utf-8", "surrogateescape"))
    found = outcome(job, handle)
    assert shown in found.error
    assert str(handle.stderr) in found.error
    assert len(found.error) < 1000


def test_a_mistake_becomes_an_outcome_with_its_exit_code(job, monkeypatch):
    monkeypatch.setattr(launch, "load_model", lambda *_: (_ for _ in ()).throw(InputError("no model")))
    assert job() == Outcome(job.shard.shard_id, 2, "no model")
    job.place.folder.joinpath(GENERATIONS).unlink()
    job.place.folder.joinpath(GENERATIONS).mkdir()
    assert job().exit_code == IntegrityError.exit_code


def test_a_requeued_job_is_the_same_call(job):
    again = job.checkpoint()
    assert (again.function, again.args, again.kwargs) == (job, (), {})


def test_workers_share_the_cores(root, tmp_path):
    cores = len(os.sched_getaffinity(0))

    def threads(**changes):
        made = project.made(root)[:1]
        return launch.jobs(root, tmp_path, made, replace(LOCAL, **changes), UNDER)[0].threads

    assert threads() == cores
    assert threads(workers=10_000) == 1
    assert threads(threads=3) == 3


def test_the_environment_of_workers_is_not_left_behind(job, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "17")
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    with launch._environment(launch._worker_environment(job)):
        assert os.environ["OMP_NUM_THREADS"] == "1"
        assert os.environ["OMP_WAIT_POLICY"] == "PASSIVE"
    assert os.environ["OMP_NUM_THREADS"] == "17"
    assert "OMP_WAIT_POLICY" not in os.environ


def test_output_of_children_goes_to_a_file_and_ours_comes_back(tmp_path, capfd):
    with launch._output_to(tmp_path / "log"):
        os.system("echo child; echo moan >&2")
    os.system("echo after")
    assert capfd.readouterr().out == "after\n"
    assert (tmp_path / "log").read_text() == "child\nmoan\n"


@pytest.mark.parametrize(
    ("device", "visible", "asked"),
    [
        ("cpu", "0,1", {}),
        ("cuda", None, {"gpus_per_node": 1, "visible_gpus": (0,)}),
        ("cuda", "2,3", {"gpus_per_node": 2, "visible_gpus": (2, 3)}),
    ],
)
def test_a_local_worker_sees_the_devices_that_the_command_sees(monkeypatch, device, visible, asked):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert launch._devices(device) == asked


def test_where_a_model_comes_from(tmp_path, monkeypatch):
    def source(text):
        return model_source(ModelConf(name="m", source=text))

    (tmp_path / "config.json").write_text("{}")
    assert source(str(tmp_path)) == str(tmp_path)
    with pytest.raises(InputError, match=r"'org/model' at main is not on this machine .*kvexp fetch"):
        source("org/model")
    monkeypatch.setenv("HOME", str(tmp_path.parent))
    assert source(f"~/{tmp_path.name}") == str(tmp_path)
    for missing in (str(tmp_path / "no"), "./no", "../no", "~/no"):
        with pytest.raises(
            InputError, match=r"model 'm' is not there: .*no config.json \(set model\.m\.source\)"
        ):
            source(missing)
    with pytest.raises(InputError, match=r"model m: ~no-such-user/x: .*set model\.m\.source"):
        source("~no-such-user/x")


def test_a_job_can_travel_to_a_worker(job, tmp_path):
    import cloudpickle

    there = cloudpickle.loads(cloudpickle.dumps(job))
    assert isinstance(there, ShardJob)
    assert there.shard.digest == job.shard.digest
    assert there.place == job.place
    assert isinstance(there.place.folder, Path)
