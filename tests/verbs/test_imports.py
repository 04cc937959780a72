"""Who only asks waits for no library that computes: what is loaded after each command, and what it says."""

import json
import subprocess
import sys

import pytest

from tests import project

HEAVY = ("torch", "transformers", "submitit", "hydra", "omegaconf")
CODE = f"""
import json, sys
from kvexp.cli import main
try:
    code = main(sys.argv[1:])
except SystemExit as end:
    code = end.code
print(json.dumps([code, [name for name in {HEAVY!r} if name in sys.modules]]), file=sys.__stderr__)
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory, tiny_folder):
    root = project.make(tmp_path_factory.mktemp("imports") / "project", tiny_folder)
    (root / "text.txt").write_text("The harbour opens at nine.")
    run = project.kvexp(root, "submit", "study=mini", "cluster=debug", "cluster.threads=1")
    assert run.returncode == 0, run.stderr
    return root


def run(root, *arguments):
    """Exit code, heavy libraries that were loaded, and what was said."""
    done = subprocess.run(
        [sys.executable, "-c", CODE, *arguments],
        cwd=root,
        env=project.environment(),
        capture_output=True,
        text=True,
    )
    *said, told = done.stderr.splitlines()
    return *json.loads(told), done.stdout, said


def test_importing_kvexp_loads_nothing(root):
    code = "import sys; before = set(sys.modules); import kvexp; print(*(set(sys.modules) - before))"
    done = subprocess.run(
        [sys.executable, "-c", code], env=project.environment(), capture_output=True, text=True
    )
    assert done.stdout.split() == ["kvexp"]


@pytest.mark.parametrize("arguments", [["--help"], ["status", "mini"], ["status", "--help"]])
def test_what_only_tells_loads_nothing_heavy(root, arguments):
    code, heavy, out, said = run(root, *arguments)
    assert (code, heavy, said) == (0, [], [])
    assert out


@pytest.mark.parametrize(
    "arguments", [["plan", "mini"], ["lock", "mini"], ["verify", "mini"], ["seal", "mini"]]
)
def test_what_reads_logs_and_papers_computes_with_no_tensor(root, arguments):
    _, heavy, _, said = run(root, *arguments)
    assert not {"torch", "transformers", "submitit"} & {*heavy}, said


TRY = ("try", "study=mini", "--question", "When?")
MISTAKES = [
    ([], "VERB"),
    (["plna"], "there is no verb 'plna'; did you mean 'plan'?"),
    (["submit", "mini", "--dry-runn"], "submit has no option --dry-runn; did you mean '--dry-run'?"),
    (["try", "--file"], "--file: expected one argument (see `kvexp try --help`)"),
    (["try"], "the following arguments are required: --file, --question"),
    (["verify", "mini", "--replay", "x"], "--replay: invalid int value: 'x'"),
    (["status", "nimi"], "there is no study 'nimi' (no conf/study/nimi.yaml); did you mean 'mini'?"),
    (["submit", "nimi"], "did you mean 'mini'?"),
    (["plan", "mini", "bogus=1"], "there is no group 'bogus'"),
    (["plan", "mini", "suite.n_exmples=1"], "did you mean 'n_examples'?"),
    (["plan", "mini", "cluster=nowhere"], "there is no cluster 'nowhere'"),
    (["seal"], "say which study: kvexp seal STUDY"),
    ([*TRY, "--file", "gone.txt"], "cannot read gone.txt as UTF-8 text"),
    ([*TRY, "--file", "text.txt", "--arms", "poison"], "did you mean 'poisson'?"),
    ([*TRY, "--file", "text.txt", "--budgets", "half"], "--budgets takes numbers with commas between them"),
]


@pytest.mark.parametrize(("arguments", "sentence"), MISTAKES, ids=[" ".join(words) for words, _ in MISTAKES])
def test_a_mistake_is_told_in_one_sentence_before_anything_is_loaded(root, arguments, sentence):
    code, heavy, out, said = run(root, *arguments)
    assert (code, out, len(said)) == (2, "", 1), said
    assert sentence in said[0]
    assert heavy == []


def test_a_study_that_never_ran_is_told_without_them(root):
    code, heavy, _, said = run(root, "status", "study=demo")
    assert (code, heavy) == (3, [])
    assert said == ["kvexp: nothing has been run: kvexp submit study=demo"]
