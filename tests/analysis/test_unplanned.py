"""Suites that the grid does not have yet leave claims INCOMPLETE; what a planned suite lacks is a mistake."""

import json
import shutil

import pytest

from analysis import __main__ as cli
from tests import planted
from tests.analysis import sealing
from tests.planted import ATTENTION, CONTROL, INSTRUCT, LONG, SHORT, SIX, SIXTEEN, World

CELLS, ANSWERS = ("A1", "A2", "A3"), ("R1", "R2", "R3", "R4", "S1", "S2", "S3")
NOT_YET = {"rows": None, "of": None, "shard_id": None}
pytestmark = pytest.mark.usefixtures("undescribed")


@pytest.fixture
def run(capsys):
    def analyse(folder, registration=None):
        options = [] if registration is None else ["--registration", str(registration)]
        code = cli.main([str(folder), *options])
        said = capsys.readouterr()
        return code, said.out, said.err

    return analyse


def attention():
    return planted.prompts(models=("qwen2.5-1.5b",))


def plant(folder, grid):
    return planted.write(folder / "paper", grid, planted.forgetful)


def claims_of(folder):
    return {claim["id"]: claim for claim in json.loads((folder / "verdicts.json").read_bytes())["claims"]}


def not_yet(suite):
    return {"suite": suite, "reason": f"suite {suite} is not in the grid yet", **NOT_YET}


def test_the_attention_suite_alone_is_decided_and_the_rest_is_incomplete(described, run, tmp_path):
    folder = plant(tmp_path, attention())
    code, out, err = run(folder)
    assert (code, err) == (3, "")
    found = claims_of(folder)
    assert {found[claim]["state"] for claim in CELLS} == {"SURVIVED"}
    assert {found[claim]["state"] for claim in ANSWERS} == {"INCOMPLETE"}
    for claim in ANSWERS:
        suites = {"S1": [SIXTEEN, SIX]}.get(claim, [SIX if claim[0] == "R" else SIXTEEN])
        assert found[claim]["missing"] == [not_yet(suite) for suite in suites]
        assert found[claim]["commands"] == [f"kvexp submit study=paper suite={suite}" for suite in suites]
        assert found[claim]["quantities"] == {}
        assert (found[claim]["kill"], found[claim]["support"]) == (None, None)
    assert found["R3"]["readings"]["16k"]["missing"] == [not_yet(SIXTEEN)]
    assert found["A1"]["missing"] == []
    text = (folder / "verdicts.md").read_text()
    for page in (out, text):
        assert "      suite 6k is not in the grid yet\n" in page
        assert "      run: kvexp submit study=paper suite=16k\n" in page
        assert "  not in the grid yet: 16k, 6k, needle, no-context, ruler\n" in page
        assert "AUC on " not in page
        assert "accuracy, " not in page


@pytest.mark.slow
def test_generations_alone_leave_the_claims_about_cells_incomplete(run, tmp_path):
    folder = plant(tmp_path, planted.paper(examples=3))
    code, out, err = run(folder)
    assert (code, err) == (3, "")
    found = claims_of(folder)
    for claim in CELLS:
        assert found[claim]["state"] == "INCOMPLETE"
        assert found[claim]["missing"] == [not_yet(ATTENTION)]
    assert {found[claim]["state"] for claim in ANSWERS} <= {"KILLED", "SURVIVED", "NOT_MET"}
    assert "      run: kvexp submit study=paper suite=attention\n" in out
    assert "  not in the grid yet: attention, needle, ruler\n" in out


def test_a_claim_over_two_suites_waits_for_the_other_and_lists_the_rows_of_the_one(described, run, tmp_path):
    folder = plant(tmp_path, [*planted.paper([SIX, CONTROL], examples=3), *attention()])
    shard = f"{SIX}.{INSTRUCT[0]}.hotpotqa.000"
    (folder / SIX / shard / "footer.json").unlink()
    code, out, err = run(folder)
    assert (code, err) == (3, "")
    found = claims_of(folder)
    first, second = found["S1"]["missing"]
    assert first == not_yet(SIXTEEN)
    assert (second["shard_id"], second["reason"]) == (shard, "not complete (no footer)")
    assert second["rows"] == second["of"] > 0
    assert [claim for claim in ANSWERS if found[claim]["missing"][0] == not_yet(SIXTEEN)] == [
        "S1",
        "S2",
        "S3",
    ]
    assert f"{SIX}/{shard}: " in out


def test_a_decided_claim_keeps_its_verdict_while_a_reading_waits(run, tmp_path):
    folder = plant(tmp_path, planted.paper([SIX, CONTROL], examples=3))
    run(folder)
    r3 = claims_of(folder)["R3"]
    assert r3["state"] in ("KILLED", "SURVIVED", "NOT_MET")
    assert r3["readings"]["16k"]["missing"] == [not_yet(SIXTEEN)]
    assert r3["readings"]["both suites"]["missing"] == [not_yet(SIXTEEN)]
    assert r3["readings"]["both suites"]["quantities"] == {}


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("task", "hotpotqa", "claim R1: no selected row of the grid has task 'hotpotqa'"),
        ("model", INSTRUCT[1], f"claim R1: no selected row of the grid has model '{INSTRUCT[1]}'"),
        ("arm", "snapkv", "claim R2: no selected row of the grid has arm 'snapkv'"),
        ("budget", 0.5, "claim R4: no selected row of the grid has budget '0.5'"),
    ],
)
def test_what_a_planned_suite_lacks_is_a_mistake(run, tmp_path, column, value, message):
    grid = [row for row in planted.paper([SIX, CONTROL], examples=2) if getattr(row, column) != value]
    code, out, err = run(plant(tmp_path, grid))
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_a_planned_attention_suite_without_the_model_is_a_mistake(run, tmp_path):
    code, _, err = run(plant(tmp_path, planted.prompts(models=("qwen2.5-7b",))))
    assert code == 2
    assert "claim A1: the claim selects no cell of the grid" in err


def test_a_suite_of_the_other_kind_is_planned(run, tmp_path):
    code, _, err = run(plant(tmp_path, planted.prompts(suite=SIX)))
    assert code == 2
    assert "claim R1: the population selects no row of the grid" in err


def test_a_grid_that_cannot_be_read_lacks_no_suite(described, run, tmp_path):
    folder = plant(tmp_path, attention())
    (folder / "grid.jsonl").write_text("no grid\n")
    code, out, _ = run(folder)
    assert code == 4
    assert {claim["state"] for claim in claims_of(folder).values()} == {"INVALID"}
    assert "not in the grid yet" not in out


def test_logs_of_a_suite_that_the_grid_does_not_have_are_invalid(run, tmp_path):
    folder = plant(tmp_path / "a", planted.paper([SIX, CONTROL], examples=3))
    other = plant(tmp_path / "b", planted.paper([SIXTEEN], examples=1))
    shutil.copytree(other / SIXTEEN, folder / SIXTEEN)
    code, _, err = run(folder)
    assert code == 4
    assert "integrity" in err
    states = {claim_id: claim["state"] for claim_id, claim in claims_of(folder).items()}
    assert [claim for claim in states if states[claim] == "INVALID"] == ["S1", "S2", "S3"]
    assert {states[claim] for claim in CELLS} == {"INCOMPLETE"}


def test_a_registration_without_claims_waits_for_its_suites_too(described, run, whole, tmp_path):
    text = (sealing.ROOT / "preregistration" / "embedded" / "A.toml").read_text()
    (tmp_path / "explore").mkdir()
    (tmp_path / "explore" / "A.toml").write_text(text[: text.index("\n[claim.A1]")] + "\n[claim]\n")
    code, out, err = run(whole, tmp_path / "explore")
    assert (code, err) == (3, "")
    assert "  not in the grid yet: attention\n" in out


@pytest.mark.slow
def test_a_study_with_all_its_suites_has_no_word_of_it(described, run, tmp_path):
    grid = [*planted.plan(examples=2), *planted.prompts()]
    folder, unsealed = planted.write(tmp_path / "embedded", grid, World()), tmp_path / "unsealed"
    unsealed.mkdir()
    for path in (sealing.ROOT / "preregistration" / "embedded").glob("*.toml"):
        shutil.copy(path, unsealed)
    code, out, _ = run(folder, unsealed)
    assert code in (0, 3)  # few examples leave conditions unknown
    assert {SHORT, LONG, ATTENTION} == {json.loads(line)["suite"] for line in (folder / "grid.jsonl").open()}
    assert "not in the grid yet" not in out + (folder / "verdicts.md").read_text()
