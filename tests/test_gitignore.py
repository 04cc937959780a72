"""What git keeps of a study: its logs, locks and verdicts, and not what the analysis makes again."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EVIDENCE = (
    "grid.jsonl",
    "examples/s.t.jsonl",
    "s/s.m.t.000/attempt-001.json",
    "s/s.m.t.000/footer.json",
    "locks/s.sha256",
    "looks.jsonl",
    "evidence.json",
    "verdicts.json",
    "verdicts.md",
)
LOGS = ("s/s.m.t.000/generations.jsonl", "s/s.m.t.000/cells.jsonl")
MADE = (
    "tables/a.csv",
    "figures/a.svg",
    "report.html",
    "details.json",
    "details.md",
    "evidence.md",
    "described.sha256",
)
PAGE = ("generations.html",)


def ignored(study, names):
    paths = [f"results/{study}/{name}" for name in names]
    command = ["git", "check-ignore", "--no-index", *paths]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if found.returncode == 128:
        pytest.skip("not a git repository")
    return {path.removeprefix(f"results/{study}/") for path in found.stdout.splitlines()}


@pytest.mark.parametrize(
    ("study", "hidden"),
    [
        ("mine", {*MADE, *PAGE}),
        ("embedded", {*PAGE}),
        ("paper", {*MADE, *PAGE, *LOGS}),
        ("trial", {*EVIDENCE, *LOGS, *MADE, *PAGE}),
        ("demo", {*EVIDENCE, *LOGS, *MADE, *PAGE}),
    ],
)
def test_what_git_leaves_out(study, hidden):
    assert ignored(study, (*EVIDENCE, *LOGS, *MADE, *PAGE)) == hidden
