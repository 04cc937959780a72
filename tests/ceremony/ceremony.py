"""A project of its own, code included, in which a study is sealed, stamped, run, locked and verified."""

import contextlib
import io
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kvexp import cli
from kvexp.study import provenance
from tests import project

ROOT = Path(__file__).parent.parent.parent
REGISTRATION = """
format = "kvexp-registration/2"
id = "R"
title = "A tiny study"
authors = ["a test"]
existing_data = "before-creation"
existing_data_note = "nothing was run"
suites = ["mini"]
stopping = "when the grid is complete; no interim analysis decides anything"
exclusions = "none"
missing = "any missing row in a claim's population makes that claim INCOMPLETE"

[statistics]
auc = "mann-whitney, ties half"
interval = "cluster-bootstrap-percentile"
cluster = ["task", "example_id"]
resampled_within = ["task"]
level = 0.95
draws = 50
min_clusters = 2
undefined_resamples_max = 0.01
undefined_rows_max = 0.01

[success]
otherwise = 1.0

[details]
tasks = ["words"]
arm = "poisson"
signals = ["certificate", "output_logprob"]

[claim.S3]
statement = "Randomising costs accuracy."
kill_prose = "Killed if the tax is below 3 points."
kill = "tax < 0.03"
parameters = { deterministic = "topk", randomised = "poisson" }

[claim.S3.population]
suites = ["mini"]
tasks = ["words"]
arms = ["topk", "poisson"]
conditions = ["aware"]
label = "success"

[claim.S3.quantities]
tax = { meaning = "success of topk minus success of poisson" }

[claim.S3.witness]
kill = { tax = -0.95 }
spare = { tax = 0.5 }
"""
SUITE = """
defaults: [base_suite, _self_]
name: {name}
tasks: [words]
context_tokens: 256
n_examples: 4
example_seed: 3
shard_examples: 2
arms:
  - {{arm: full}}
  - {{arm: topk, conditions: [aware], budgets: [0.5]}}
  - {{arm: poisson, conditions: [aware, stream], budgets: [0.5], seeds: [0, 1]}}
"""


# In place of what no seal covers and no verdict reads, and what takes most of a run of the analysis.
DESCRIPTION = "analysis/render/files.py"
UNDESCRIBED = """
from analysis.core import verdict_text
from analysis.render.evidence import evidence_text

def write_description(report, out):
    if out is not None:
        (out / "evidence.md").write_text(verdict_text.block("Evidence", evidence_text(report)))
    return ""
"""


def make(folder: Path, model: Path) -> Path:
    """A project with its own copy of the code, the study `mini` and its registration R.

    Its analysis gives verdicts and describes nothing, until `describing`.
    """
    project.make(folder, model)
    for name in ("kvexp", "analysis"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / DESCRIPTION).write_text(UNDESCRIBED)
    shutil.copytree(ROOT / "preregistration/trust", folder / "preregistration/trust")
    shutil.copyfile(ROOT / "requirements.lock", folder / "requirements.lock")
    project.write(folder, "suite/mini", SUITE.format(name="mini"))
    register(folder, "R", REGISTRATION)
    return folder


def describing(root: Path) -> Path:
    """The project with the whole analysis."""
    shutil.copyfile(ROOT / DESCRIPTION, root / DESCRIPTION)
    return root


def register(root: Path, name: str, text: str) -> Path:
    path = root / "preregistration/mini" / f"{name}.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def kvexp(root: Path, *arguments: str, code: int = 0) -> str:
    """The command as if it were the project's own; what it says, if it ends as expected."""
    said = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(provenance, "PACKAGE", root / "kvexp")
        patch.chdir(root)
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            ended = cli.main(arguments)
    assert ended == code, f"kvexp {' '.join(arguments)}: {ended}\n{said.getvalue()}"
    return said.getvalue()


def analysis(root: Path, *arguments: str, code: int) -> str:
    """The project's own analysis, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "analysis", *(arguments or ("results/mini",))],
        cwd=root,
        env={**project.environment(), "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == code, f"{done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def perform(root: Path) -> Path:
    """Seal, stamp, run, lock, stamp."""
    kvexp(root, "seal", "mini")
    kvexp(root, "stamp", "mini", "--own")
    kvexp(root, "submit", "study=mini", "cluster=debug")
    kvexp(root, "lock", "mini")
    kvexp(root, "stamp", "mini", "--own")
    return root


def copy(root: Path, folder: Path) -> Path:
    """The project as it is, to be attacked."""
    return Path(shutil.copytree(root, folder, ignore=shutil.ignore_patterns("__pycache__")))


def shard(root: Path, number: int = 0) -> Path:
    """The folder of a shard's logs."""
    return root / f"results/mini/mini/mini.tiny.words.{number:03d}"


def evidence(root: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((root / "results/mini/evidence.json").read_text())
    return found


def holds(root: Path) -> dict[str, bool | None]:
    """By name, whether each check of the evidence holds."""
    return {check["name"]: check["holds"] for check in evidence(root)["checks"]}
