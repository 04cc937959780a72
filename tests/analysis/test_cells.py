"""Claims about attention cells: their numbers, intervals, verdicts, and how they are printed."""

import json
import math
import shutil

import numpy as np
import pytest
from scipy.stats import spearmanr

from analysis import __main__ as cli
from analysis.core import decide as claims
from analysis.core.data import CellData
from analysis.core.decide import answer, decide
from analysis.core.estimates import uniform_indices
from analysis.core.study import load
from kvexp.documents.condition import State
from kvexp.documents.registration import load_folder
from kvexp.documents.source import RegistrationError
from tests import planted
from tests.planted import ATTENTION, SHORT, Heads, World

CLAIMS = ("A1", "A2", "A3")
BUDGETS = (0.125, 0.25, 0.5)
NAMES = {"A1": "coverage", "A2": "rho", "A3": "difference"}


def coverage(rows):
    return np.mean([row["covered"] for row in rows])


def rho(rows):
    return spearmanr([row["certificate"] for row in rows], [row["hajek"] for row in rows]).statistic


def difference(rows):
    return np.median([row["hajek"] for row in rows]) - np.median([row["topk"] for row in rows])


SLOW = {"A1": (coverage, min), "A2": (rho, min), "A3": (difference, max)}


@pytest.fixture
def plant(tmp_path, owners):
    def write(heads, grid=None, name="embedded"):
        grid = planted.prompts() if grid is None else grid
        return load(planted.write(tmp_path / name, grid, World(), heads=heads), owners)

    return write


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """A suite where budgets differ in everything, and what it was planted with, by budget and prompt."""
    knobs = Heads(coverage=lambda budget: 0.7 + budget / 2, tax=lambda budget: budget / 100 - 0.02, seed=3)
    other = Heads(seed=4)

    def heads(key):
        return {**knobs(key), "topk": other(key)["topk"] * (1 - key.budget / 5)}

    grid = planted.prompts(examples=14, offsets=(3, 16))
    told = {budget: {} for budget in BUDGETS}
    for prompt in grid:
        for key in prompt.cell_keys():
            told[key.budget].setdefault(key.example_id, []).append(heads(key))
    folder = planted.write(tmp_path_factory.mktemp("cells") / "embedded", grid, World(), heads=heads)
    return load(folder, {}), told


def rows_of(told, budget, prompts):
    return [row for prompt in prompts for row in told[budget][prompt]]


@pytest.mark.parametrize("claim_id", CLAIMS)
def test_a_claim_is_its_number_at_the_worst_budget(study, of_cells, claim_id):
    loaded, told = study
    slow, worst = SLOW[claim_id]
    by_budget = {budget: slow(rows_of(told, budget, told[budget])) for budget in BUDGETS}
    assert len({round(value, 6) for value in by_budget.values()}) == 3
    found = answer(loaded, of_cells.question(claim_id)).quantities[NAMES[claim_id]]
    assert found.value == pytest.approx(worst(by_budget.values()), abs=1e-12)
    assert (found.n, found.clusters, found.undefined) == (3 * 14 * 12, 14, "")
    assert found.note == ", ".join(f"{budget:g}: {value:.3f}" for budget, value in by_budget.items())
    readings = of_cells.content.claim[claim_id].readings
    for budget, reading in zip(BUDGETS, readings.values(), strict=True):
        alone = answer(loaded, of_cells.question(claim_id, reading)).quantities[NAMES[claim_id]]
        assert alone.value == pytest.approx(by_budget[budget], abs=1e-12)
        assert alone.n == 14 * 12


@pytest.mark.parametrize("claim_id", CLAIMS)
def test_the_interval_equals_resamples_of_prompts_written_out(study, of_cells, claim_id):
    loaded, told = study
    slow, worst = SLOW[claim_id]
    question, prompts = of_cells.question(claim_id), sorted(told[0.25])
    chosen = uniform_indices(np.random.PCG64(question.seed), question.statistics.draws, len(prompts))
    values = []
    for indices in chosen:
        drawn = [prompts[at] for at in indices]
        values.append(worst([slow(rows_of(told, budget, drawn)) for budget in BUDGETS]))
    found = answer(loaded, question).quantities[NAMES[claim_id]]
    assert found.lo == pytest.approx(np.quantile(values, 0.025), abs=1e-12)
    assert found.hi == pytest.approx(np.quantile(values, 0.975), abs=1e-12)
    assert found.lo < found.value < found.hi


def at_a_quarter(bad, good):
    """A knob that is bad at one budget only."""
    return lambda budget: bad if budget == 0.25 else good


HEADS = {
    ("A1", State.KILLED): Heads(coverage=at_a_quarter(0.7, 0.97)),
    ("A1", State.SURVIVED): Heads(),
    ("A2", State.KILLED): Heads(blind=at_a_quarter(True, False)),
    ("A2", State.SURVIVED): Heads(),
    ("A3", State.KILLED): Heads(tax=at_a_quarter(0.001, -0.01)),
    ("A3", State.SURVIVED): Heads(tax=lambda budget: 0.0),
}


@pytest.mark.parametrize(("claim_id", "state"), HEADS, ids=lambda part: str(part))
def test_planted_cells_reach_the_verdict(plant, of_cells, claim_id, state):
    found = answer(plant(HEADS[claim_id, state]), of_cells.question(claim_id))
    assert found.state is state, dict(found.quantities)
    assert found.support is None


def test_few_prompts_have_a_value_and_no_interval(plant, of_cells):
    found = answer(plant(Heads(), planted.prompts(examples=9)), of_cells.question("A1"))
    number = found.quantities["coverage"]
    assert (found.state, number.lo, number.clusters) == (State.SURVIVED, None, 9)
    assert number.undefined == "no interval under 10 clusters, here 9"


def test_a_correlation_without_spread_leaves_the_claim_incomplete(plant, of_cells):
    heads, one = Heads(), next(planted.prompts()[0].cell_keys())
    study = plant(lambda key: heads(one if key.budget == 0.25 else key))
    found = answer(study, of_cells.question("A2"))
    assert found.state is State.INCOMPLETE
    assert found.quantities["rho"].undefined == "nothing to rank: all 72 rows have one value"


@pytest.mark.parametrize("footer", [True, False])
def test_missing_cells_leave_their_claims_incomplete(measured, of_cells, owners, footer):
    shard = measured / ATTENTION / "attention.smollm2-135m.prose.001"
    if footer:
        log = shard / "cells.jsonl"
        lines = log.read_bytes().splitlines(keepends=True)
        log.write_bytes(b"".join(line for line in lines if b'"budget":0.25' not in line))
        planted.close(shard)
    else:
        (shard / "footer.json").unlink()
    study = load(measured, owners)
    assert study.problems == ()
    for claim_id in CLAIMS:
        found = answer(study, of_cells.question(claim_id))
        assert (found.state, found.quantities) == (State.INCOMPLETE, {})
        (missing,) = found.missing
        assert (missing.suite, missing.shard_id, missing.nouns) == (ATTENTION, shard.name, "cells")
        reason = "absent from a closed log" if footer else "not complete (no footer)"
        assert (missing.rows, missing.of, missing.reason) == (36 if footer else 108, 108, reason)
        other = of_cells.question(claim_id, of_cells.content.claim[claim_id].readings["at 50 %"])
        assert answer(study, other).is_decided is footer


def test_a_changed_log_invalidates_its_claims_and_no_others(tmp_path, registrations, of_cells, owners):
    grid = [*planted.plan(examples=12), *planted.prompts()]
    folder = planted.write(tmp_path / "embedded", grid, World())
    log = next(folder.glob("attention/*/cells.jsonl"))
    log.write_bytes(log.read_bytes().replace(b'"covered":true', b'"covered":false', 1))
    study = load(folder, owners)
    for verdict in decide(study, of_cells):
        assert (verdict.answer.state, dict(verdict.answer.quantities)) == (State.INVALID, {})
    for verdict in decide(study, registrations[0]):
        assert verdict.answer.is_decided

    log.write_bytes(log.read_bytes().replace(b'"covered":false', b'"covered":true', 1))
    words = next(folder.glob(f"{SHORT}/*words*/generations.jsonl"))
    words.write_bytes(words.read_bytes() + b"{}\n")
    study = load(folder, owners)
    assert all(verdict.answer.is_decided for verdict in decide(study, of_cells))
    assert {verdict.answer.state for verdict in decide(study, registrations[0])} == {State.INVALID}


@pytest.fixture
def edited(tmp_path, shipped):
    """A function that changes the shipped A and loads it."""

    def edit(old, new):
        text = (shipped["A"] / "A.toml").read_text()
        assert old in text
        (tmp_path / "edited").mkdir(exist_ok=True)
        (tmp_path / "edited" / "A.toml").write_text(text.replace(old, new))
        return load_folder(tmp_path / "edited", claims.CLAIMS)[0]

    return edit


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('cells = { suites = ["attention"]', 'cells = { suites = ["embedded-1k"]', "claim A1 decides on"),
        (
            'models = ["smollm2-135m"]',
            'models = ["smollm3"]',
            "claim A1: the claim selects no cell of the grid: it asks for models smollm3, the grid has "
            "smollm2-135m. Judge the study by claims that fit it: `python -m analysis results/<study> "
            "--registration DIR`, where DIR may hold a copy of preregistration/ablations/X.toml (no claims) ",
        ),
        (
            "budgets = [0.125, 0.25, 0.5] }",
            "budgets = [0.1, 0.2] }",
            "it asks for budgets 0.1, 0.2, the grid has 0.125, 0.25, 0.5. Judge",
        ),
        (
            'models = ["smollm2-135m"]',
            'models = ["smollm2-135m", "smollm3"]',
            "claim A1: no selected cell of the grid has model 'smollm3'",
        ),
        ("0.25, 0.5] }", "0.25, 0.75] }", "no selected cell of the grid has budget '0.75'"),
        (
            "{ budgets = [0.25] }",
            "{ budgets = [0.25, 0.3] }",
            "claim A1, readings 'at 25 %': no selected cell of the grid has budget '0.3'",
        ),
        (
            'labels = { KILLED = "does',
            'parameters = { q = 1 }\nlabels = { KILLED = "does',
            "no use for ['q']",
        ),
        ("[claim.A1", "[claim.R1", "claim R1: its file computes from another kind of row"),
        ("[claim.A3", "[claim.A2X", "claim A2X has no file"),
        ("\ncoverage = { meaning", "\nshare = { meaning", "is used but not declared"),
    ],
)
def test_a_registration_must_fit_the_grid(measured, owners, edited, old, new, message):
    with pytest.raises(RegistrationError) as caught:
        decide(load(measured, owners), edited(old, new))
    assert message in str(caught.value)


def test_cells_come_by_budget(measured, owners, of_cells):
    data = CellData.of(load(measured, owners).cells, of_cells.question("A1"))
    assert list(data.by_budget()) == list(BUDGETS)
    assert [set(rows["budget"]) for rows in data.by_budget().values()] == [{budget} for budget in BUDGETS]
    assert sum(map(len, data.by_budget().values())) == len(data.rows) == 216


def test_descriptive_statistics_come_from_any_rows(study, of_cells):
    loaded, told = study
    rows = loaded.cells[loaded.cells["layer"] == 1]
    data = CellData(rows, of_cells.content.statistics, 5, None)
    worst = data.estimate(data.coverage(data.rows))
    flat = [row for budget in BUDGETS for row in rows_of(told, budget, told[budget])]
    assert len(data.rows) == len(flat) / 2 == worst.n
    assert worst.value == pytest.approx(rows["covered"].mean(), abs=1e-12)
    large = data.share(data.rows, data.rows["hajek"].to_numpy() > 0.2)
    assert data.point(large).value == pytest.approx((rows["hajek"] > 0.2).mean(), abs=1e-12)
    assert math.isfinite(data.point(data.median(data.rows, "uniform")).value)


# ------------------------------------------------------------------ the command


@pytest.fixture
def run(shipped, capsys):
    def call(folder, *arguments, registration=shipped["A"]):
        code = cli.main([str(folder), "--registration", str(registration), *map(str, arguments)])
        out, err = capsys.readouterr()
        return code, out, err

    return call


def test_a_study_of_cells_alone_is_decided_and_printed(run, measured):
    code, out, err = run(measured)
    assert (code, err) == (0, "")
    assert out.startswith("study embedded, UNWITNESSED: 216 of 216 cells\n")
    assert "generations" not in out
    assert "AUC" not in out
    for claim_id, name in NAMES.items():
        assert f"\n{claim_id:6}PREVIEW SURVIVED    kill: {name} " in out
        assert f"\n{claim_id:6}PREVIEW SURVIVED    The " in out
    assert "  reading: at 12.5 %          false    " in out
    assert max(map(len, out.splitlines())) <= 100
    found = json.loads((measured / "verdicts.json").read_bytes())
    assert found["cells"] == {"expected": 216, "present": 216}
    assert found["rows"] == {"expected": 0, "present": 0}
    details = json.loads((measured / "details.json").read_bytes())["details"]
    assert details == {"panel": [], "accuracy": [], "induced": [], "rescued": []}
    coverage = found["claims"][0]["quantities"]["coverage"]
    assert coverage["lo"] < coverage["value"] < coverage["hi"]
    assert coverage["note"].startswith("0.125: 0.")
    assert list(found["claims"][0]["readings"]) == ["at 12.5 %", "at 25 %", "at 50 %"]


def test_missing_cells_are_called_cells(run, measured):
    shutil.rmtree(measured / ATTENTION / "attention.smollm2-135m.prose.001")
    code, out, _ = run(measured)
    assert code == 3
    assert out.startswith("study embedded, UNWITNESSED: 108 of 216 cells\n")
    assert "attention/attention.smollm2-135m.prose.001: 108 of 108 cells missing, not started" in out
    assert "run: kvexp submit study=embedded suite=attention" in out


def test_missing_worlds_leave_the_study_incomplete_and_the_claims_decided(run, measured):
    shard = measured / ATTENTION / "attention.smollm2-135m.prose.000"
    log = shard / "cells.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(line for line in lines if b'"rotation","world":2' not in line))
    planted.close(shard)
    code, out, err = run(measured)
    assert (code, err) == (3, "")
    assert "A1    PREVIEW SURVIVED" in out
    assert "No numbers: 12 of 288 cells and worlds are missing" in " ".join(out.split())


def test_a_contradiction_is_an_integrity_error(run, measured):
    shard = measured / ATTENTION / "attention.smollm2-135m.prose.000"
    log = shard / "cells.jsonl"
    log.write_bytes(log.read_bytes().replace(b'"kept":128,"tail_kept":62', b'"kept":128,"tail_kept":0', 1))
    planted.close(shard)
    code, out, err = run(measured)
    assert code == 4
    assert "INTEGRITY: 1 problem in the logs" in out
    assert " exceeds 0 terms of which the largest is " in err


def test_both_kinds_are_counted_in_the_head(run, tmp_path, shipped):
    grid = [*planted.plan(examples=1, tasks=("words",)), *planted.prompts()]
    folder = planted.write(tmp_path / "embedded", grid, World())
    code, out, _ = run(folder)
    assert code == 0
    assert out.startswith("study embedded, UNWITNESSED: 42 of 42 generations, 216 of 216 cells\n")


def test_a_registration_without_claims_explores(run, measured, shipped, tmp_path):
    text = (shipped["A"] / "A.toml").read_text()
    (tmp_path / "explore").mkdir()
    (tmp_path / "explore" / "A.toml").write_text(text[: text.index("\n[claim.A1]")] + "\n[claim]\n")
    code, out, err = run(measured, registration=tmp_path / "explore")
    assert (code, err) == (0, "")
    assert "No claim is registered: whatever follows is exploratory.\n" in out
    assert "claim verdict" not in out
    assert json.loads((measured / "verdicts.json").read_bytes())["claims"] == []


@pytest.mark.slow
def test_neither_the_order_of_lines_nor_of_files_changes_a_byte(run, measured, tmp_path, shuffled):
    grid = planted.prompts()
    other = planted.write(tmp_path / "b" / "embedded", grid, World(), order=shuffled)
    logs = [next(folder.glob("*/*.000/cells.jsonl")).read_bytes() for folder in (measured, other)]
    assert logs[0] != logs[1]
    assert run(measured)[1] == run(other)[1]
    for name in ("verdicts.json", "verdicts.md", "details.json", "details.md"):
        assert (measured / name).read_bytes() == (other / name).read_bytes()
