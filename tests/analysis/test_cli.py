"""`python -m analysis`: what it prints, writes and returns."""

import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from analysis import __main__ as cli
from kvexp.documents.manifest import core_files
from tests import planted
from tests.analysis.sealing import flat
from tests.planted import LONG, SHORT, World

ROOT = Path(__file__).resolve().parents[2]
CLAIMS = ["R1", "R2", "R3", "R4", "S1", "S2", "S3"]
DRAWS = ("draws = 500", "draws = 20")
pytestmark = pytest.mark.usefixtures("undescribed")


@pytest.fixture
def run(quick, capsys):
    """A function that runs the command and returns exit code, output and errors."""

    def call(*arguments, registration=quick):
        code = cli.main([*map(str, arguments), "--registration", str(registration)])
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return code, out, err

    return call


def verdicts(folder):
    return json.loads((folder / "verdicts.json").read_bytes())


def test_a_whole_study_is_decided(described, run, whole):
    code, out, err = run(whole)
    assert (code, err) == (0, "")
    found = verdicts(whole)
    assert found["preview"] is True
    assert found["rows"] == {"expected": 1512, "present": 1512}
    states = {claim["id"]: claim["state"] for claim in found["claims"]}
    assert list(states) == CLAIMS
    assert "cells" not in found  # the study has none
    assert set(states.values()) <= {"KILLED", "SURVIVED", "NOT_MET"}
    for claim_id, state in states.items():
        assert f"\n{claim_id:6}PREVIEW {state}" in out
    assert max(map(len, out.splitlines())) <= 100
    # The file holds what was printed, and more arms.
    table = out[out.index("\nclaim ") : out.index("\nDescriptive numbers beside ")]
    assert textwrap.indent(table, "    ").rstrip() in (whole / "verdicts.md").read_text()
    assert "a pilot on seed 9000" in flat((whole / "evidence.md").read_text())
    for claim in found["claims"]:
        for group in (claim["readings"], claim["sensitivity"]):
            assert all("state" not in answer for answer in group.values())


@pytest.mark.slow
def test_json_is_the_same_bytes_in_another_process(run, whole, quick, monkeypatch):
    monkeypatch.setattr("analysis.core.decide.SEEDS", 20)  # as that process has it, whatever tests do
    _, out, _ = run(whole, "--json")
    assert out.encode() == (whole / "verdicts.json").read_bytes()
    assert out == json.dumps(json.loads(out), indent=1, sort_keys=True) + "\n"
    numbers = json.loads(out)["claims"][0]["quantities"]["auc_pooled"]
    assert numbers["lo"] < numbers["value"] < numbers["hi"]
    assert all(number == float(f"{number:.6g}") for number in (numbers["lo"], numbers["hi"]))
    command = [sys.executable, "-m", "analysis", str(whole), "--registration", str(quick), "--json"]
    again = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    assert (again.returncode, again.stdout, again.stderr) == (0, out.encode(), b"")


@pytest.mark.slow
def test_neither_the_order_of_lines_nor_of_files_changes_a_byte(described, run, tmp_path, shuffled):
    grid, world = planted.plan(examples=12), World(blame={"certificate": 1.0})
    usual = planted.write(tmp_path / "a" / "embedded", grid, world)
    other = planted.write(tmp_path / "b" / "embedded", grid, world, order=shuffled)
    logs = [sorted(folder.glob("*/*/generations.jsonl"))[0].read_bytes() for folder in (usual, other)]
    assert logs[0] != logs[1]
    assert run(usual)[1] == run(other)[1]
    for name in ("verdicts.json", "verdicts.md", "details.json", "details.md"):
        assert (usual / name).read_bytes() == (other / name).read_bytes()


def test_an_incomplete_study_says_what_to_run(described, run, whole):
    shutil.rmtree(whole / LONG / f"{LONG}.smollm2-135m.words.000")
    code, out, err = run(whole)
    assert (code, err) == (3, "")
    assert "S2    PREVIEW INCOMPLETE" in out
    assert f"{LONG}/{LONG}.smollm2-135m.words.000: 144 of 144 rows missing, not started" in out
    assert f"run: kvexp submit study=embedded suite={LONG}" in out
    states = {claim["id"]: claim for claim in verdicts(whole)["claims"]}
    assert states["R1"]["state"] == "KILLED"
    assert states["S1"]["commands"] == [f"kvexp submit study=embedded suite={LONG}"]
    assert states["S2"]["quantities"] == {}
    assert states["R3"]["readings"]["both suites"]["missing"][0]["shard_id"].endswith("words.000")


def test_a_broken_log_is_invalid_and_named(run, whole):
    log = whole / SHORT / f"{SHORT}.smollm2-135m.words.000" / "generations.jsonl"
    log.write_bytes(log.read_bytes() + b"{}\n")
    code, out, err = run(whole)
    assert code == 4
    assert "R1    PREVIEW INVALID" in out
    assert "S2    PREVIEW INVALID" not in out
    named = f"embedded/{log.relative_to(whole)}:205: not a log record"
    assert named in " ".join(verdicts(whole)["problems"])
    assert named in "".join(line.strip() + " " for line in out.splitlines())
    assert err.startswith("error: integrity: embedded/embedded-1k/")
    assert err.count("\n") == 1
    assert verdicts(whole)["claims"][0]["quantities"] == {}


def test_a_problem_that_touches_no_claim_is_still_one(run, whole):
    shard = whole / "scratch" / "s.000"
    shard.mkdir(parents=True)
    (shard / "footer.json").write_text("{}")
    code, out, err = run(whole)
    assert code == 4
    assert "INVALID" not in out
    assert "embedded/scratch/s.000/footer.json: not a record" in err


def test_a_broken_grid_makes_everything_invalid(run, whole):
    (whole / "grid.jsonl").write_text("hello\n")
    code, out, err = run(whole)
    assert code == 4
    assert out.count("PREVIEW INVALID") == 2 * 7  # in the table and in the closing summary
    assert "grid.jsonl:1: not a log record" in err


def test_a_folder_that_cannot_be_written_is_no_error(run, whole, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    code, out, err = run(whole, "--out", blocked / "below")
    assert code == 0
    assert "R1    PREVIEW" in out
    assert err.count("\n") == 1
    assert err.startswith("nothing was written to ")
    assert not (whole / "verdicts.json").exists()


def test_out_is_made_and_results_stay_as_they_were(described, run, whole, tmp_path):
    before = sorted(whole.rglob("*"))
    code, _, _ = run(whole, "--out", tmp_path / "new" / "place")
    made = {path.name for path in (tmp_path / "new" / "place").iterdir()}
    assert code == 0
    assert made >= {
        "details.json",
        "details.md",
        "evidence.md",
        "report.html",
        "verdicts.json",
        "verdicts.md",
    }
    assert sorted(whole.rglob("*")) == before


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda folder: folder / "absent", "absent is not a folder: give results/<study>"),
        (lambda folder: folder.parent, "grid.jsonl is not there"),
    ],
)
def test_a_folder_without_results_is_a_usage_error(run, whole, make, message):
    code, out, err = run(make(whole))
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_a_study_without_registration_is_a_usage_error(capsys, whole):
    other = whole.rename(whole.parent / "unheard-of")
    assert cli.main([str(other)]) == 2
    assert "preregistration/unheard-of is not a folder of registrations" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            '"facts"], arms = ["poisson"]',
            '"riddles"], arms = ["poisson"]',
            "no selected row of the grid has task 'riddles'",
        ),
        ('arms = ["poisson"], label = "own', 'arms = ["poison"], label = "own', "selects no row of the grid"),
        ("budgets = [0.25, 0.5]", "budgets = [0.25, 0.75]", "has budget '0.75'"),
        ('signal = "certificate", chance', 'signal = "mood", chance', "no signal 'mood'"),
        (
            'signal = "certificate", chance = 0.5',
            'signal = "certificate"',
            "parameter 'chance' must be a number",
        ),
        ("chance = 0.5 }", "chance = 0.5, odds = 2 }", "its file has no use for ['odds']"),
        (
            "token_f1 = 0.5",
            "token_f2 = 0.5",
            "claim R1: success names the score 'token_f2', which no row has",
        ),
        (
            "{ token_f1 = 0.3 }",
            "{ tokenf1 = 0.3 }",
            "sensitivity 'f1 >= 0.3': success names the score 'tokenf1'",
        ),
        (
            '{ population = { tasks = ["words", "facts"] } }',
            "{ success = { retrieval = 0.1 } }",
            "readings 'main tasks only': success names the score 'retrieval'",
        ),
        ("chance = 0.5 }", "chance = 2 }", "claim R1: parameter 'chance' must lie between 0 and 1"),
        ("chance = 0.5 }", "chance = nan }", "nan is not a finite number"),
        ("visible_from = 0.6", "visible_from = -0.1", "claim R2: parameter 'visible_from' must lie between"),
        ("q = 0.25,", "q = 2,", "claim R4: parameter 'q' must lie between 0 and 1"),
        ("q = 0.25,", "q = -1,", "claim R4: parameter 'q' must lie between 0 and 1"),
        ("q = 0.25,", "q = 1,", "claim R4: q must move some rows but not all"),
        ("q = 0.25,", f"q = {'9' * 400},", "claim R4: parameter 'q' must lie between 0 and 1"),
        (
            "to_budget = 0.5",
            "to_budget = 0.25",
            "claim R4: q must move some rows but not all, and to a larger",
        ),
        ("from_budget = 0.25", "from_budget = 0.3", "claim R4: the population has no rows with budget '0.3'"),
        (
            'certificate_arm = "poisson"',
            'certificate_arm = "poison"',
            "claim R2: the population has no rows with arm",
        ),
        (
            '\nsnapkv = ["entropy", "evicted_mass", "margin"]',
            "\nsnapkv = []",
            "claim R2: parameter 'panel' must list signals",
        ),
        (
            'signals = ["certificate", ',
            'signals = ["nonsense", ',
            "[details] no signal 'nonsense'; there are certificate",
        ),
    ],
)
def test_a_registration_that_does_not_fit_is_a_usage_error(run, whole, quick, tmp_path, old, new, message):
    text = (quick / "R.toml").read_text()
    assert old in text
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "R.toml").write_text(text.replace(old, new))
    shutil.copy(quick / "S.toml", tmp_path / "other")
    code, out, err = run(whole, registration=tmp_path / "other")
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_a_number_outside_its_range_is_the_registrations_mistake(run, whole, quick, tmp_path):
    for name in ("R", "S"):
        text = (quick / f"{name}.toml").read_text()
        narrow = ', all rows pooled", range = [0, 0.61] }'
        changed = text.replace(', all rows pooled", range = [0, 1] }', narrow)
        assert changed != text
        (tmp_path / f"{name}.toml").write_text(changed)
    sharp = planted.write(
        tmp_path / "sharp" / "embedded",
        planted.plan(examples=12),
        World(difficulty={"certificate": 3.0}),
    )
    code, _, err = run(sharp, registration=tmp_path)
    assert code == 2
    assert "claim R1: auc_pooled = 0.9" in err
    assert "lies outside its range" in err


def test_the_demo_is_decided_by_its_own_registration(capsys, tmp_path):
    grid = planted.plan(("demo-512", "demo-1k"), tasks=("words", "facts"), examples=12)
    folder = planted.write(tmp_path / "demo", [*grid, *planted.prompts("demo-attention")], World())
    assert cli.main([str(folder)]) == 0
    assert (
        "study demo, UNWITNESSED: 1,008 of 1,008 generations, 216 of 216 cells\n" in capsys.readouterr().out
    )
    found = verdicts(folder)
    assert [claim["id"] for claim in found["claims"]] == ["A1", "A2", "A3", *CLAIMS]
    assert found["cells"] == {"expected": 216, "present": 216}
    assert found["rows"] == {"expected": 1008, "present": 1008}


def test_an_internal_error_is_one_line_too(run, whole, monkeypatch):
    def burst(*_, **__):
        raise ZeroDivisionError("planted")

    monkeypatch.setattr("analysis.core.run.analyse", burst)
    code, out, err = run(whole)
    assert (code, out) == (1, "")
    assert err.startswith("internal error: ZeroDivisionError: planted")
    assert err.count("\n") == 1


@pytest.mark.slow
def test_extra_arms_and_tasks_in_the_grid_change_no_verdict(run, tmp_path):
    grid, world = planted.plan(examples=12), World()
    floor = [
        planted.Expected(**{name: getattr(row, name) for name in row.__struct_fields__} | change)
        for row in grid
        if row.arm == "h2o" and row.budget == 0.25
        for change in ({"arm": "floor", "budget": 1.0}, {"arm": "uniform", "seed": 0})
    ]
    plain = planted.write(tmp_path / "a" / "embedded", grid, world)
    more = planted.write(tmp_path / "b" / "embedded", grid + floor, world)
    assert run(plain)[0] == run(more)[0] == 0
    assert verdicts(plain)["claims"] == verdicts(more)["claims"]


def test_importing_the_analysis_brings_no_torch_and_only_what_is_sealed():
    code = (
        "import sys, analysis.__main__; "
        "own = [m for n, m in sys.modules.items() if n.split('.')[0] in ('kvexp', 'analysis')]; "
        "print('torch' in sys.modules, *sorted(m.__file__ for m in own))"
    )
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True)
    torch, *files = found.stdout.decode().split()
    assert torch == "False"
    assert len(files) > 30
    assert {str(Path(file).relative_to(ROOT)) for file in files} <= set(core_files(ROOT, []))


def test_requirements_pin_what_the_environment_has():
    from importlib.metadata import version

    pins = [
        line.partition("#")[0].strip().split("==")
        for line in (ROOT / "analysis" / "requirements.txt").read_text().splitlines()
        if line and not line.startswith("#")
    ]
    assert {name: version(name) for name, _ in pins} == dict(pins)
    assert {name for name, _ in pins} == {
        *("Jinja2", "MarkupSafe", "matplotlib", "msgspec", "numpy", "pandas", "python-dateutil")
    }


NEW_CLAIM = '''
"""X1: a claim that came later."""

from analysis.core.data import Data
from analysis.core.estimates import Estimate


def quantities(data: Data) -> dict[str, Estimate]:
    """`rate` of induced failures."""
    return {"rate": data.estimate(data.rate(data.counted))}
'''

NEW_TABLE = """

[claim.X1]
statement = "Streaming breaks at least one answerable example in ten."
kill_prose = "Killed if the rate is below 10 %."
kill = "rate < 0.1"
population = { suites = ["embedded-1k"], tasks = ["words"], arms = ["h2o"], label = "induced_failure" }

[claim.X1.quantities]
rate = { meaning = "induced failures of h2o", range = [0, 1] }
"""


@pytest.mark.slow
def test_a_new_claim_is_one_new_file_and_its_table(tmp_path, whole):
    for name in ("analysis", "kvexp", "preregistration"):
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, tmp_path / "tree" / name, ignore=ignore)
    registration = tmp_path / "tree" / "preregistration" / "embedded" / "R.toml"
    registration.with_name("A.toml").unlink()  # the planted study has no attention suite
    shutil.rmtree(registration.with_name("seals"))  # and was not run under the reference run's seals
    registration.write_text(registration.read_text().replace(*DRAWS) + NEW_TABLE)
    command = [sys.executable, "-m", "analysis", str(whole)]
    refused = subprocess.run(command, cwd=tmp_path / "tree", capture_output=True, check=False)
    assert refused.returncode == 2
    assert b"claim X1 has no file analysis/claims/x1.py" in refused.stderr

    (tmp_path / "tree" / "analysis" / "claims" / "x1.py").write_text(NEW_CLAIM)
    done = subprocess.run(command, cwd=tmp_path / "tree", capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"\nX1    PREVIEW SURVIVED" in done.stdout


def test_a_score_nobody_has_seen_yet_is_not_called_unknown(run, whole):
    shutil.rmtree(whole / SHORT / f"{SHORT}.smollm2-135m.facts.000")
    shutil.rmtree(whole / LONG / f"{LONG}.smollm2-135m.facts.000")
    assert run(whole)[0] == 3


def test_links_in_the_place_of_results_are_never_followed(described, run, whole, tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("untouched")
    out = tmp_path / "out"
    out.mkdir()
    for name in ("verdicts.md", "verdicts.json", ".verdicts.md.tmp", ".verdicts.json.tmp"):
        (out / name).symlink_to(precious)
    code, _, err = run(whole, "--out", out)
    assert (code, err) == (0, "")
    assert precious.read_text() == "untouched"
    assert not (out / "verdicts.md").is_symlink()
    assert (out / "verdicts.md").stat().st_mode == precious.stat().st_mode
    made = {path.name for path in out.iterdir() if not path.is_symlink()}
    assert made >= {
        "details.json",
        "details.md",
        "evidence.md",
        "report.html",
        "verdicts.json",
        "verdicts.md",
    }


def test_a_result_that_cannot_take_its_place_leaves_nothing_behind(run, whole, tmp_path):
    (tmp_path / "out" / "verdicts.json").mkdir(parents=True)
    code, _, err = run(whole, "--out", tmp_path / "out")
    assert code == 0
    assert err.startswith("nothing was written to ")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["verdicts.json"]


def test_no_text_of_a_log_reaches_the_terminal_or_leaves_the_block(described, run, whole):
    log = whole / SHORT / f"{SHORT}.smollm2-135m.words.000" / "generations.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    lines[4] = lines[4].replace(b'"generation/1"', rb'"\n```\n<script>\u001b[2J"')
    log.write_bytes(b"".join(lines))
    code, out, err = run(whole)
    text = (whole / "verdicts.md").read_text()
    assert code == 4
    assert "\x1b" not in out + err + text + (whole / "verdicts.json").read_text()
    _, _, *body = text.splitlines()
    assert all(line.startswith("    ") or not line for line in body)


def test_names_that_are_no_text_are_named_all_the_same(described, run, whole):
    bad = os.fsdecode(b"bad\xff\x1b[2J")
    (whole / bad / bad).mkdir(parents=True)
    (whole / bad / bad / "footer.json").write_text("{}")
    other = whole.rename(whole.parent / bad)
    code, out, err = run(other)
    assert code == 4
    assert r"bad\udcff\x1b[2J" in out.replace("\n", "")
    assert r"bad\udcff\x1b[2J" in err
    assert "\x1b" not in out + err
    assert verdicts(other)["study"] == r"bad\udcff\x1b[2J"


def test_a_study_without_a_name_to_print_is_a_usage_error(capsys, whole):
    other = whole.rename(whole.parent / os.fsdecode(b"bad\xff\x1b"))
    assert cli.main([str(other)]) == 2
    assert r"preregistration/bad\udcff\x1b is not a folder" in capsys.readouterr().err


@pytest.mark.parametrize("change", [{"budget": None}, {"condition": None}])
def test_a_grid_row_without_its_place_is_an_integrity_problem(run, whole, change):
    grid = whole / "grid.jsonl"
    lines = grid.read_bytes().splitlines()
    at = next(at for at, line in enumerate(lines) if b'"arm":"h2o"' in line)
    lines[at] = json.dumps({**json.loads(lines[at]), **change}, separators=(",", ":")).encode()
    grid.write_bytes(b"\n".join(lines) + b"\n")
    code, _, err = run(whole)
    assert code == 4
    assert f"grid.jsonl:{at + 1}: arm h2o needs a condition and a budget" in err
