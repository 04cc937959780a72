"""A new score, task and claim are new files and nothing else: shown on a copy of the tree, to a verdict."""

import hashlib
import json
import shutil
import subprocess
import sys

import pytest

from tests import project
from tests.project import ROOT

SCORE = '''
"""Keys of tokens whose values are long (a stand-in for a new method)."""

from dataclasses import dataclass

import torch

from kvexp.scores.base import Layer, Score, Spans


@dataclass(frozen=True)
class Norm(Score):
    """Attention of the last `rows_back` positions, times the norm of the value."""

    rows_back: int = 8

    def rows(self, spans: Spans) -> range:
        return range(max(0, spans.n_evictable - self.rows_back), spans.n_evictable)

    def finish(self, layer: Layer) -> torch.Tensor:
        return layer.mass_KN * layer.values_KND.float().norm(dim=-1)
'''
TASK = '''
"""Repeats a letter; scored by the number of characters, so that a tiny random model passes and fails."""

from dataclasses import dataclass

from kvexp.tasks.base import PromptText, Question, Task


@dataclass(frozen=True)
class Letters(Task):
    """A context of one line per word."""

    lines: int = 12

    score_name = "even_length"

    def load(self, n_examples, seed, context_tokens, count=None) -> list[Question]:
        return [
            Question(
                example_id=f"{seed}-{index:03d}",
                context="\\n".join(f"line {i} of {index}" for i in range(self.lines)),
                question=f"Which is line {index}?",
                references=("any",),
            )
            for index in range(n_examples)
        ]

    def prompt(self, question: Question) -> PromptText:
        return PromptText(
            before="Read.\\n",
            context=question.context,
            after=f"\\n{question.question}",
            question=question.question,
        )

    def score(self, text: str, question: Question) -> float:
        return float(sum(text.encode()) % 2)
'''
CLAIM = '''
"""N1: is the new certificate better than nothing?"""

from analysis.core.data import Data
from analysis.core.estimates import Estimate

QUANTITIES = {"auc_pooled": (0, 1)}


def quantities(data: Data) -> dict[str, Estimate]:
    """`auc_pooled` over all rows."""
    return {"auc_pooled": data.estimate(data.auc(data.counted, data.parameters.signal("signal")))}
'''
CONF = {
    "arm/norm_poisson": """
defaults: [base_arm, _self_]
name: norm_poisson
score: norm
score_params: {rows_back: 4}
design: poisson
estimator: hajek
""",
    "task/letters": """
defaults: [base_task, _self_]
name: letters
family: letters
max_new_tokens: 5
params: {lines: 20}
""",
    "suite/mine": """
defaults: [base_suite, _self_]
name: mine
tasks: [letters]
context_tokens: 256
n_examples: 14
example_seed: 0
shard_examples: 7
arms:
  - {arm: full}
  - {arm: norm_poisson, conditions: [aware, stream], budgets: [0.25, 0.5], seeds: [0, 1]}
""",
    "study/mine": """
defaults: [base_study, _self_]
name: mine
suites: [mine]
models: [tiny]
""",
}
NEW_CLAIM = """

[claim.N1]
statement = "The certificate of the norm score predicts its own failure."
kill_prose = "Killed if the pooled AUC is below 0.6."
kill = "auc_pooled < 0.60"
population = { suites = ["mine"], tasks = ["letters"], arms = ["norm_poisson"], label = "own_failure" }
parameters = { signal = "certificate" }
labels = { KILLED = "killed", SURVIVED = "survived" }

[claim.N1.quantities]
auc_pooled = { meaning = "AUC of the certificate for own failure" }

[claim.N1.witness]
kill = { auc_pooled = 0.5 }
spare = { auc_pooled = 0.7 }
"""
CODE = ("kvexp", "conf", "analysis", "preregistration")


@pytest.fixture(scope="module")
def tree(tmp_path_factory, tiny_folder):
    root = tmp_path_factory.mktemp("extend") / "tree"
    for name in CODE:
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    project.write(root, "study/mini", project.STUDY)
    project.write(root, "suite/mini", project.SUITE)
    project.write(root, "model/tiny", f"defaults: [base_model, _self_]\nname: tiny\nsource: {tiny_folder}\n")
    return root


def run(root, *arguments):
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=root,
        env={**project.environment(), "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        timeout=300,
    )


def files(root):
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for name in CODE
        for path in (root / name).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def registration(root):
    """The demo's first registration with its claims exchanged for the new one."""
    head = (root / "preregistration/demo/R.toml").read_text().split("\n[claim.")[0]
    head = head.replace('"demo-512"', '"mine"').replace('["words", "facts"]', '["letters"]')
    head = head.replace('arm = "poisson"', 'arm = "norm_poisson"')
    return head.replace("token_f1 = 0.5\n", "") + NEW_CLAIM  # a score that the new task does not have


@pytest.mark.slow
def test_new_files_alone_reach_a_verdict(tree):
    before_digests = json.loads(run(tree, "kvexp.cli", "plan", "study=mini", "--json").stdout)
    run_mini = run(tree, "kvexp.cli", "submit", "study=mini", "cluster=debug")
    assert (run_mini.returncode, run_mini.stderr) == (0, "")
    before = files(tree)

    (tree / "kvexp/scores/norm.py").write_text(SCORE)
    (tree / "kvexp/tasks/letters.py").write_text(TASK)
    (tree / "analysis/claims/n1.py").write_text(CLAIM)
    for name, text in CONF.items():
        project.write(tree, name, text)
    (tree / "preregistration/mine").mkdir()
    (tree / "preregistration/mine/R.toml").write_text(registration(tree))

    submitted = run(tree, "kvexp.cli", "submit", "study=mine", "cluster=local")
    assert (submitted.returncode, submitted.stderr) == (0, "")
    assert "2 of 2 shards completed" in submitted.stdout
    rows = [
        json.loads(line)
        for log in (tree / "results/mine").glob("*/*/generations.jsonl")
        for line in log.read_text().splitlines()
    ]
    assert len(rows) == 14 * 9
    assert {row["task"] for row in rows} == {"letters"}
    assert {row["score_name"] for row in rows} == {"even_length"}
    assert {row["certificate"] is not None for row in rows if row["arm"] == "norm_poisson"} == {True}

    judged = run(tree, "analysis", "results/mine")
    assert judged.returncode == 0, judged.stdout + judged.stderr
    assert "N1" in judged.stdout
    assert "PREVIEW" in judged.stdout
    verdicts = json.loads((tree / "results/mine/verdicts.json").read_text())
    assert "N1" in json.dumps(verdicts)

    after = files(tree)
    assert {name: digest for name, digest in after.items() if name in before} == before  # nothing was edited
    # ... and what was complete before stays complete: a part that a study does not use is not its code.
    again = run(tree, "kvexp.cli", "submit", "study=mini", "cluster=debug")
    assert (again.returncode, again.stderr) == (0, "")
    assert "2 of 2 shards are complete, 0 to run" in again.stdout
    assert json.loads(run(tree, "kvexp.cli", "plan", "study=mini", "--json").stdout) == before_digests
