"""A small project of its own for a test: a copy of conf/ with a study of a tiny model, and the command."""

import copy
import os
import shutil
import subprocess
import sys
from pathlib import Path

import torch

from kvexp.study.compose import Selection, _Composer, select
from kvexp.study.grid import shards
from kvexp.study.shards import Shard

ROOT = Path(__file__).parent.parent
STUDY = """
defaults: [base_study, _self_]
name: mini
suites: [mini]
models: [tiny]
"""
SUITE = """
defaults: [base_suite, _self_]
name: mini
tasks: [words]
context_tokens: 256
n_examples: 4
example_seed: 3
shard_examples: 2
arms:
  - {arm: full}
  - {arm: h2o, conditions: [stream], budgets: [0.25]}
  - {arm: topk, conditions: [aware], budgets: [0.5]}
  - {arm: poisson, conditions: [aware, stream], budgets: [0.25], seeds: [0, 1]}
"""
ROWS = 2 * 7  # of a shard of the study above


def make(folder: Path, model: Path) -> Path:
    """A project folder with the study `mini`: 2 shards of 2 examples, 7 generations an example."""
    shutil.copytree(ROOT / "conf", folder / "conf")
    write(folder, "study/mini", STUDY)
    write(folder, "suite/mini", SUITE)
    write(folder, "model/tiny", f"defaults: [base_model, _self_]\nname: tiny\nsource: {model}\n")
    return folder


def write(root: Path, name: str, text: str) -> Path:
    path = root / "conf" / f"{name}.yaml"
    path.write_text(text)
    return path


def selected(root: Path, *overrides: str) -> Selection:
    return select(["study=mini", *overrides], root)


def made(root: Path, *overrides: str) -> list[Shard]:
    return shards(selected(root, *overrides))


def results(root: Path) -> Path:
    return root / "results" / "mini"


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "COLUMNS": "80"}


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "kvexp.cli", *arguments]


def kvexp(root: Path, *arguments: str, timeout: float = 600) -> subprocess.CompletedProcess[str]:
    """The real command in a process of its own."""
    return subprocess.run(
        command(*arguments), cwd=root, env=environment(), capture_output=True, text=True, timeout=timeout
    )


def one_sentence(text: str) -> str:
    """What a person reads on a mistake: one line from kvexp, and nothing of Python's."""
    lines = text.strip().splitlines()
    assert len(lines) == 1, text
    assert lines[0].startswith("kvexp: "), text
    assert "Traceback" not in text
    assert "internal error" not in text
    return lines[0]


torch.set_num_threads(1)


# Hydra needs 50 ms to compose one file, ten files make a study, and hundreds of tests select one: the
# same words in the same group are composed once. tests/study/test_schema.py uses the real
# thing where it asks for it.
real_one = _Composer.one
_made: dict[tuple[object, ...], tuple[object, set[str]]] = {}


def _one(self: _Composer, group: str, name: str, listed_by: str = "") -> object:
    changes = [c for c in self.changes[group] if c.item in (None, name)]
    words = tuple((p.name, p.read_bytes()) for p in sorted((self.folder / group).glob("*.yaml")))
    key = (group, name, tuple(c.text for c in changes), words)
    if key not in _made:
        before, self._used = self._used, set()
        _made[key] = real_one(self, group, name, listed_by), self._used
        self._used |= before
    made, used = _made[key]
    self._used |= used
    return copy.deepcopy(made)


_Composer.one = _one
