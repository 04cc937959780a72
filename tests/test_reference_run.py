"""The committed reference run: its logs give the committed verdicts, and the README says what they say."""

import csv
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from kvexp.ceremony import sealed_tree
from kvexp.errors import IntegrityError

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results" / "embedded"


# Tables of the committed run whose name is another one today, as `committed name: name today`.
RENAMED_TABLES: dict[str, str] = {}
# And their columns, as `(committed table, committed column): column today`.
RENAMED_COLUMNS: dict[tuple[str, str], str] = {}
# Tables that the committed run does not have.
NEW_TABLES = {"signals"}
MARK = "RE-ANALYSED "
WORDS = ("holds ", "open  ", "FAILS ")


def analysed(out, way):
    """A fresh analysis of the committed logs, one of the two ways."""
    command = [sys.executable, "-m", "analysis", str(RESULTS), way, "--out", str(out)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if way == "--as-sealed" and not (ROOT / ".git").exists() and "CI" not in os.environ:
        pytest.skip(f"the sealed code is in the history of the repository: {run.stderr}")
    assert run.returncode == 0, run.stderr
    return out


@pytest.fixture(scope="module")
def as_sealed(tmp_path_factory):
    return analysed(tmp_path_factory.mktemp("as-sealed"), "--as-sealed")


@pytest.fixture(scope="module")
def anew(tmp_path_factory):
    return analysed(tmp_path_factory.mktemp("anew"), "--anew")


def written(folder):
    """What the analysis writes, by path."""
    patterns = ("verdicts.*", "details.*", "report.html", "tables/*", "figures/*")
    found = [path for pattern in patterns for path in folder.glob(pattern)]
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def cells(folder):
    """Every cell of every table, by table, row and column.

    A row is known by its number, one of the dictionary by what it explains.
    """
    return {
        (path.stem, (row["file"], row["field"]) if path.stem == "columns" else number, column): cell
        for path in folder.glob("tables/*.csv")
        for number, row in enumerate(csv.DictReader(path.open(newline="")))
        for column, cell in row.items()
    }


def read(path):
    return json.loads(path.read_bytes())


def test_the_sealed_code_gives_the_committed_files_byte_for_byte(as_sealed):
    now, then = written(as_sealed), written(RESULTS)
    assert now.keys() == then.keys()
    assert {"verdicts.json", "report.html", "tables/table1.csv", "figures/figure4.svg"} <= now.keys()
    assert [name for name in now if now[name] != then[name]] == []


def test_the_code_of_today_gives_the_committed_verdicts_but_for_the_mark(anew):
    now, then = read(anew / "verdicts.json"), read(RESULTS / "verdicts.json")
    marked = [{**claim, "state": MARK + claim["state"]} for claim in then["claims"]]
    assert len(marked) == 10
    assert now == {**then, "claims": marked}


def test_the_code_of_today_gives_every_committed_number_and_figure(anew):
    assert read(anew / "details.json") == read(RESULTS / "details.json")
    now, then = written(anew), written(RESULTS)
    figures = {name for name in then if name.startswith("figures/")}
    assert len(figures) == 12
    assert [name for name in sorted(figures) if now.get(name) != then[name]] == []


def test_the_code_of_today_gives_every_committed_cell_of_a_table(anew):
    now, then = cells(anew), cells(RESULTS)
    assert len(then) > 20_000
    for (table, row, column), cell in then.items():
        is_state = (table, column) == ("table1", "verdict")
        name = RENAMED_TABLES.get(table, table), row, RENAMED_COLUMNS.get((table, column), column)
        assert now.pop(name, None) == (MARK + cell if is_state else cell), name
    explained = {row[0].removesuffix(".csv") for table, row, _ in now if table == "columns"}
    assert explained | {table for table, _, _ in now} - {"columns"} == NEW_TABLES


def verified(*arguments):
    """How often each check of `kvexp verify embedded --as-sealed` comes out as holds, open or FAILS."""
    before = (RESULTS / "evidence.json").read_bytes()
    command = [sys.executable, "-m", "kvexp.cli", "verify", "embedded", "--as-sealed", *arguments]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert (RESULTS / "evidence.json").read_bytes() == before
    return Counter(line.split()[0] for line in run.stdout.splitlines() if line[:6] in WORDS)


def test_the_sealed_code_verifies_it():
    assert verified() == {"holds": 22, "open": 1}


@pytest.mark.slow
def test_the_sealed_code_draws_and_answers_again():
    assert verified("--replay", "40", "--decode", "6") == {"holds": 24, "open": 1}


def flip(path):
    """One bit of the byte in the middle of a file."""
    body = bytearray(path.read_bytes())
    body[len(body) // 2] ^= 1
    path.write_bytes(bytes(body))


@pytest.mark.slow
@pytest.mark.parametrize(
    "pattern",
    [
        "embedded-1k/*facts.000/generations.jsonl",
        "attention/*.000/cells.jsonl",
        "locks/registration/R.toml",
        "locks/registration/seals/R.shards.jsonl",
    ],
)
def test_the_sealed_code_finds_one_bit_that_is_another(tmp_path, pattern):
    results = shutil.copytree(RESULTS, tmp_path / "embedded")
    (path,) = results.glob(pattern)
    flip(path)
    command = [sys.executable, "-m", "analysis", str(results), "--as-sealed", "--out", str(tmp_path / "out")]
    assert subprocess.run(command, cwd=ROOT, capture_output=True).returncode == 4


@pytest.mark.slow
def test_the_sealed_code_finds_a_restored_file_that_is_another():
    homes = [RESULTS / "locks" / "registration"]
    with sealed_tree.restored(ROOT, RESULTS, homes) as tree:
        flip(tree / "analysis" / "decide.py")
        with pytest.raises(IntegrityError, match="not as sealed"):
            sealed_tree.check(tree, sealed_tree.sealed_code(homes))
        (tree / "analysis" / "decide.py").unlink()
        with pytest.raises(IntegrityError, match="not as sealed"):
            sealed_tree.check(tree, sealed_tree.sealed_code(homes))


def test_its_claims_were_sealed_and_its_logs_locked():
    """No word is a preview, and what must not change has not, as `sha256sum` sees it."""
    verdicts = json.loads((RESULTS / "verdicts.json").read_bytes())
    assert (verdicts["preview"], {claim["state"] for claim in verdicts["claims"]}) == (
        False,
        {"SURVIVED", "NOT_MET", "KILLED"},
    )
    home, locks = ROOT / "preregistration" / "embedded", RESULTS / "locks"
    with sealed_tree.restored(ROOT, RESULTS, [home]) as tree:
        for folder, files in ((tree, home.glob("seals/?.sha256")), (RESULTS, locks.glob("*.sha256"))):
            found = sorted(files)
            assert len(found) == 3
            for path in found:
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
