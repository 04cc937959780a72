"""What an attempt says about its origin, and which files a protocol digest covers."""

import hashlib
import shutil
import subprocess

import pytest
import torch

from kvexp.study import provenance
from kvexp.study.provenance import PACKAGE, git_state, protocol_manifest

USED = {"scores/window", "design/topk", "tasks/words"}


@pytest.fixture
def package(tmp_path):
    shutil.copytree(PACKAGE, tmp_path / "kvexp", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path / "kvexp"


def test_a_copy_elsewhere_has_the_same_digest(package):
    here = protocol_manifest("generations", USED)
    assert protocol_manifest("generations", USED, package) == here


def test_adding_a_part_or_changing_one_that_is_not_used_changes_nothing(package):
    before = protocol_manifest("generations", USED, package).digest
    for folder in ("scores", "design", "tasks"):
        (package / folder / "mine.py").write_text("x = 1\n")
    (package / "scores/accumulated.py").write_text("x = 1\n")
    assert protocol_manifest("generations", USED, package).digest == before
    assert protocol_manifest("generations", {*USED, "scores/mine"}, package).digest != before


@pytest.mark.parametrize(
    "name",
    [
        "scores/window.py",
        "scores/base.py",
        "scores/__init__.py",
        "design/topk.py",
        "tasks/words.py",
        "tasks/_contexts.py",
        "replay/attention.py",
        "estimate.py",
        "scoring.py",
        "draws.py",
        "design/base.py",
        "run/answer.py",
        "study/arms.py",
    ],
)
def test_a_change_of_what_makes_the_data_changes_the_digest(package, name):
    before = protocol_manifest("generations", USED, package).digest
    with (package / name).open("a") as file:
        file.write("# a comment counts: what ran is what is named\n")
    assert protocol_manifest("generations", USED, package).digest != before


def test_a_new_helper_of_parts_counts(package):
    before = protocol_manifest("generations", USED, package).digest
    (package / "tasks/_new.py").write_text("")
    assert protocol_manifest("generations", USED, package).digest != before


def test_moving_code_between_files_counts(package):
    before = protocol_manifest("generations", USED, package).digest
    (package / "draws.py").rename(package / "replay" / "draws.py")
    (package / "draws.py").write_text("")
    assert protocol_manifest("generations", USED, package).digest != before


@pytest.mark.parametrize("name", ["cli.py", "launch.py", "status.py", "config.py", "terminal.py"])
def test_what_makes_no_data_does_not_count(package, name):
    before = protocol_manifest("generations", USED, package).digest
    (package / name).write_text("")
    assert protocol_manifest("generations", USED, package).digest == before


def test_git_state(tmp_path):
    assert git_state(tmp_path) == (None, None)

    def git(*arguments):
        subprocess.run(
            ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments],
            cwd=tmp_path,
            check=True,
            capture_output=True,
        )

    git("init")
    (tmp_path / "results").mkdir()
    for name in ("code", "results/log"):
        (tmp_path / name).write_text("1")
    git("add", ".")
    git("commit", "-m", "x")
    commit, dirty = git_state(tmp_path)
    assert len(commit) == 40
    assert dirty is False
    (tmp_path / "results/log").write_text("2")  # a log that grows is no change of the code
    (tmp_path / "untracked").write_text("2")
    assert git_state(tmp_path) == (commit, False)
    (tmp_path / "code").write_text("2")
    assert git_state(tmp_path) == (commit, True)


def test_slurm_ids_are_taken_from_the_job_and_only_those(monkeypatch):
    for name in ("SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID", "SLURMD_NODENAME"):
        monkeypatch.delenv(name, raising=False)
    assert provenance.slurm_job() == {}
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    monkeypatch.setenv("SLURM_JOB_USER", "me")
    assert provenance.slurm_job() == {"SLURM_JOB_ID": "17"}


def test_versions_name_what_computes():
    assert {"python", "torch", "transformers", "numpy"} <= provenance.versions().keys()


def test_versions_name_the_instruction_set_and_a_gpu_that_works(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert provenance.versions()["cpu"] == torch.backends.cpu.get_cpu_capability()
    assert "gpu" not in provenance.versions()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a card")
    assert provenance.versions()["gpu"] == "a card"

    def broken():
        raise RuntimeError("no driver")

    monkeypatch.setattr(torch.cuda, "get_device_name", broken)
    assert "gpu" not in provenance.versions()


def test_attempts_say_by_which_lock_file_the_environment_was_made(monkeypatch, tmp_path):
    body = (PACKAGE.parent / "requirements.lock").read_bytes()
    assert provenance.versions()["requirements.lock"] == hashlib.sha256(body).hexdigest()
    monkeypatch.setattr(provenance, "PACKAGE", tmp_path / "kvexp")
    assert "requirements.lock" not in provenance.versions()
