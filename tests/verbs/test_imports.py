"""Who only asks waits for no library that computes: what is loaded after each command, and what it says."""

import json
import subprocess
import sys

import pytest

from tests import project

HEAVY = ("torch", "transformers", "hydra", "omegaconf")
CODE = f"""
import contextlib, io, json, sys
from kvexp.cli import main
def one(words):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(words)
        except SystemExit as end:
            code = end.code
    heavy = [name for name in {HEAVY!r} if name in sys.modules]
    return code, heavy, out.getvalue(), err.getvalue().splitlines()
print(json.dumps([one(words) for words in json.loads(sys.argv[1])]))
"""


def run(root, *commands):
    """Of each command, one after the other in one process: exit code, what is loaded, what it says."""
    done = subprocess.run(
        [sys.executable, "-c", CODE, json.dumps(commands)],
        cwd=root,
        env=project.environment(),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def root(tmp_path_factory, tiny_folder):
    root = project.make(tmp_path_factory.mktemp("imports") / "project", tiny_folder)
    (root / "text.txt").write_text("The harbour opens at nine.")
    run = project.kvexp(root, "submit", "study=mini", "cluster=debug", "cluster.threads=1")
    assert run.returncode == 0, run.stderr
    return root


def test_importing_kvexp_loads_nothing(root):
    code = "import sys; before = set(sys.modules); import kvexp; print(*(set(sys.modules) - before))"
    done = subprocess.run(
        [sys.executable, "-c", code], env=project.environment(), capture_output=True, text=True
    )
    assert done.stdout.split() == ["kvexp"]


PAPERS = ("lock", "stamp", "verify", "verdicts")


def test_what_only_tells_loads_nothing_heavy(root):
    for code, heavy, out, said in run(root, ["--help"], ["status", "--help"], ["status", "mini"]):
        assert (code, heavy, said) == (0, [], [])
        assert out


def test_what_reads_logs_and_papers_computes_with_no_tensor(root):
    for verb, (_, heavy, _, said) in zip(
        PAPERS, run(root, *([verb, "mini"] for verb in PAPERS)), strict=True
    ):
        assert not {"torch", "transformers"} & {*heavy}, (verb, said)


TRY = ("try", "study=mini", "--question", "When?")
MISTAKES = [
    ([], "VERB"),
    (["plna"], "there is no verb 'plna'; did you mean 'plan'?"),
    (["submit", "mini", "--dry-runn"], "submit has no option --dry-runn; did you mean '--dry-run'?"),
    (["try", "--file"], "--file: expected one argument (see `kvexp try --help`)"),
    (["try"], "the following arguments are required: --file, --question"),
    (["verify", "mini", "--replay", "x"], "--replay: invalid int value: 'x'"),
    (["status", "minni"], "there is no study 'minni' (no conf/study/minni.yaml); did you mean 'mini'?"),
    (["submit", "minni"], "did you mean 'mini'?"),
    (["plan", "mini", "bogus=1"], "there is no group 'bogus'"),
    (["plan", "mini", "suite.n_exmples=1"], "did you mean 'n_examples'?"),
    (["plan", "mini", "cluster=nowhere"], "there is no cluster 'nowhere'"),
    (["seal"], "say which study: kvexp seal STUDY"),
    ([*TRY, "--file", "gone.txt"], "cannot read gone.txt as UTF-8 text"),
    ([*TRY, "--file", "text.txt", "--arms", "poison"], "did you mean 'poisson'?"),
    ([*TRY, "--file", "text.txt", "--budgets", "half"], "--budgets takes numbers with commas between them"),
]


def test_a_mistake_is_told_in_one_sentence_before_anything_is_loaded(root):
    found = run(root, *(words for words, _ in MISTAKES))
    for (words, sentence), (code, heavy, out, said) in zip(MISTAKES, found, strict=True):
        assert (code, out, len(said)) == (2, "", 1), (words, said)
        assert sentence in said[0]
        assert heavy == [], words


def test_a_study_that_never_ran_is_told_without_them(root):
    assert run(root, ["status", "study=demo"]) == [
        [3, [], "", ["kvexp: nothing has been run: kvexp submit study=demo"]]
    ]
