"""The committed reference run: its logs give the committed verdicts, and the README says what they say."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results" / "embedded"


@pytest.fixture(scope="module")
def again(tmp_path_factory):
    """A fresh analysis of the committed logs."""
    out = tmp_path_factory.mktemp("again")
    command = [sys.executable, "-m", "analysis", str(RESULTS), "--out", str(out)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (0, "")
    return out


def written(folder):
    """What the analysis writes, by path."""
    patterns = ("verdicts.*", "details.*", "report.html", "tables/*", "figures/*")
    found = [path for pattern in patterns for path in folder.glob(pattern)]
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def test_the_logs_give_the_committed_verdicts_pages_tables_and_figures_byte_for_byte(again):
    now, then = written(again), written(RESULTS)
    assert now.keys() == then.keys()
    assert {"verdicts.json", "report.html", "tables/table1.csv", "figures/figure4.svg"} <= now.keys()
    assert [name for name in now if now[name] != then[name]] == []


def test_its_claims_were_sealed_and_its_logs_locked():
    """No word is a preview, and what must not change has not, as `sha256sum` sees it."""
    verdicts = json.loads((RESULTS / "verdicts.json").read_bytes())
    assert (verdicts["preview"], {claim["state"] for claim in verdicts["claims"]}) == (
        False,
        {"SURVIVED", "NOT_MET", "KILLED"},
    )
    seals, locks = (ROOT / "preregistration" / "embedded" / "seals"), RESULTS / "locks"
    for folder, files in ((ROOT, seals.glob("?.sha256")), (RESULTS, locks.glob("*.sha256"))):
        for path in sorted(files):
            command = ["sha256sum", "--check", "--quiet", str(path)]
            assert subprocess.run(command, cwd=folder).returncode == 0


def test_the_readme_shows_them():
    command = [sys.executable, "scripts/readme_verdicts.py", "--check"]
    assert subprocess.run(command, cwd=ROOT).returncode == 0


def test_every_shard_is_complete_and_came_from_committed_code():
    attempts = [json.loads(path.read_bytes()) for path in sorted(RESULTS.glob("*/*/attempt-*.json"))]
    assert len(attempts) == len(list(RESULTS.glob("*/*/footer.json"))) == 33
    assert {attempt["git_dirty"] for attempt in attempts} == {False}
    # One protocol for the generations and one for the cells.
    by_kind = {("attention" in attempt["config"], attempt["protocol_digest"]) for attempt in attempts}
    assert sorted(is_attention for is_attention, _ in by_kind) == [False, True]


def test_the_numerical_floor_answers_as_the_full_cache_does():
    """A budget of 1.0 through the compressed path: the text may differ only where logits all but tie."""
    rows = [json.loads(line) for path in RESULTS.glob("*/*/generations.jsonl") for line in path.open()]
    full = {(r["suite"], r["task"], r["example_id"]): r for r in rows if r["arm"] == "full"}
    floor = [r for r in rows if r["arm"] == "floor"]
    assert len(floor) == len(full) == 360
    assert {r["certificate"] for r in floor} == {0.0}
    for row in floor:
        other = full[row["suite"], row["task"], row["example_id"]]
        assert row["text"] == other["text"] or min(row["min_logit_gap"], other["min_logit_gap"]) < 1e-3
