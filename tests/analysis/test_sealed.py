"""A sealed study: what breaks a seal, which rows count, what locks, looks and evidence change."""

import json
import os
import re
import shutil

import pytest

from analysis import __main__ as cli
from kvexp.records import encode
from tests import planted
from tests.analysis import sealing
from tests.analysis.sealing import flat, verdicts
from tests.planted import LONG, SHORT

pytestmark = pytest.mark.usefixtures("undescribed")


def previews(folder):
    return {claim["id"]: claim["preview"] for claim in verdicts(folder)["claims"]}


# Seals -------------------------------------------------------------------------------------------


def test_a_sealed_and_locked_study_gives_verdicts_without_preview(described, run, locked):
    code, out, err = run(locked)
    assert (code, err) == (0, "")
    assert "PREVIEW" not in out
    assert verdicts(locked)["preview"] is False
    assert set(previews(locked).values()) == {False}
    assert out.startswith("study embedded, UNWITNESSED: ")
    assert re.search(r"^R1    (KILLED|SURVIVED|NOT_MET) ", out, re.M)
    assert not (locked / "looks.jsonl").exists()


def test_the_locked_copy_judges_whatever_the_folder_of_registrations_says(run, locked, tmp_path):
    before = run(locked)[1]
    other = tmp_path / "other"
    other.mkdir()
    for name in "RS":
        text = (locked / "locks" / "registration" / f"{name}.toml").read_text()
        (other / f"{name}.toml").write_text(text.replace("auc_pooled < 0.60", "auc_pooled < 0.99"))
    out = run(locked, registration=other)[1]
    note = "note: the folder given with --registration differs from what was locked with the logs (R.toml,"
    assert note in out
    assert flat(out).count("the copy in results/embedded/locks/registration is what counts") == 2
    lines = before.splitlines()
    assert [line for line in out.splitlines() if line in lines] == lines


def test_without_a_lock_there_is_a_preview_of_the_claims_that_read_the_suite(run, study, home):
    sealing.lock(study, home, "R", SHORT)
    code, out, _ = run(study)
    assert code == 0
    assert previews(study) == {claim: claim[0] == "S" for claim in previews(study)}
    assert f"PREVIEW, not evidence yet: suite {LONG} is not locked" in out


def test_a_registration_without_a_seal_stays_a_preview(run, study, home):
    sealing.lock(study, home, "R", SHORT)
    sealing.lock(study, home, "S", LONG)
    for path in [*home.glob("seals/S.*"), *study.glob("locks/registration/seals/S.*")]:
        path.unlink()
    _, out, _ = run(study)
    assert "registration S is not sealed" in flat(out)
    assert previews(study) == {claim: claim[0] == "S" for claim in previews(study)}


CHANGES = {
    "changed  R.toml": lambda home: (home / "R.toml").write_text(
        (home / "R.toml").read_text().replace("auc_pooled < 0.60", "auc_pooled < 0.59")
    ),
    "changed  seals/S.shards.jsonl": lambda home: (home / "seals" / "S.shards.jsonl").write_bytes(
        (home / "seals" / "S.shards.jsonl").read_bytes()[:-1] + b" \n"
    ),
    "missing  seals/R.json": lambda home: (home / "seals" / "R.json").unlink(),
    "added  amendments/R-1/note": lambda home: (
        (home / "amendments" / "R-1").mkdir(parents=True),
        (home / "amendments" / "R-1" / "note").write_text("x"),
    ),
}


@pytest.mark.parametrize("line", CHANGES)
def test_threat_13_a_changed_sealed_file_stops_everything(run, study, home, line):
    CHANGES[line](home)
    code, out, err = run(study)
    assert (code, out) == (4, "")
    kind, name = line.split("  ")
    assert f"{kind}  {home}/{name}" in err  # where the file lies, not where it lay when it was sealed
    assert "no verdict was computed" in err
    assert not (study / "verdicts.json").exists()
    assert not (study / "looks.jsonl").exists()


def test_all_differences_of_all_seals_stand_in_one_list(run, study, home):
    for name in "RS":
        path = home / f"{name}.toml"
        path.write_text(path.read_text() + "\n# more\n")
    code, _, err = run(study)
    assert code == 4
    assert re.search(r"sealed files differ from R \([0-9a-f]{12}\), S \([0-9a-f]{12}\)", err)
    assert err.count(f"changed  {home}/") == 2
    assert f"python -m analysis {study} --as-sealed" in err
    assert f"python -m analysis {study} --anew --out DIR" in err
    assert "kvexp amend" in err


def test_a_sealed_registration_that_no_longer_loads_is_a_broken_seal(run, study, home):
    (home / "R.toml").write_text("nonsense")
    code, _, err = run(study)
    assert code == 4
    assert f"changed  {home}/R.toml" in err


def test_threat_14_sealed_code_that_differs_stops_everything(run, study, home, monkeypatch, tmp_path):
    for name in ("analysis", "kvexp"):
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(sealing.ROOT / name, tmp_path / "tree" / name, ignore=ignore)
    shutil.copyfile(sealing.ROOT / "requirements.lock", tmp_path / "tree" / "requirements.lock")
    tree = tmp_path / "tree"
    monkeypatch.setattr("analysis.core.run.REPOSITORY", tree)
    monkeypatch.setattr("analysis.core.open.check_loaded", lambda *_: None)
    for added in ("claims/x9.py", "describe/x9.py", "describe/posthoc/x9.py", "render/x9.py", "x9.py"):
        (tree / "analysis" / added).parent.mkdir(exist_ok=True)
        (tree / "analysis" / added).write_text("")
    assert run(study)[0] == 0
    sealed = (
        "analysis/core/x9.py",
        "analysis/core/deep/x9.py",
        "analysis/core/x9.so",
        "kvexp/documents/x9.py",
    )
    for added in sealed:
        (tree / added).parent.mkdir(exist_ok=True)
        (tree / added).write_text("")
    path = tree / "analysis" / "claims" / "r1.py"
    path.write_text(path.read_text() + "\n")
    code, out, err = run(study)
    assert (code, out) == (4, "")
    for line in (*(f"added  {path}" for path in sealed), "changed  analysis/claims/r1.py"):
        assert line in err


def test_an_addendum_follows_a_seal_of_its_parent(run, study, home):
    (home / "R.toml").write_text((home / "R.toml").read_text() + "\n# another\n")
    sealing.put_under(study, [SHORT], sealing.seal(study, home, "R"))
    code, _, err = run(study)
    assert code == 4
    assert "seal S is an addendum to another seal of R" in err
    sealing.seal(study, home, "S")
    for path in home.glob("seals/R.*"):
        path.unlink()
    assert "seal S is an addendum to R, whose seal is not there" in run(study)[2]


# Rows --------------------------------------------------------------------------------------------


def test_threat_12_a_grid_that_is_not_the_sealed_one_is_an_integrity_problem(run, study):
    grid = study / "grid.jsonl"
    lines = grid.read_bytes().splitlines(keepends=True)
    gone = next(line for line in lines if f'"suite":"{LONG}"'.encode() in line and b'"words"' in line)
    grid.write_bytes(b"".join(line for line in lines if line is not gone))
    code, _, _ = run(study)
    assert code == 4
    words = f"suite {LONG} is not as seal S has it: it has other rows in the shard {LONG}."
    assert words in " ".join(verdicts(study)["problems"])
    states = {claim["id"]: claim["state"] for claim in verdicts(study)["claims"]}
    assert (states["S2"], states["R2"] == "INVALID") == ("INVALID", False)


def test_threat_12_a_shard_that_is_left_out_of_the_grid_is_an_integrity_problem(run, study):
    grid = study / "grid.jsonl"
    lines = grid.read_bytes().splitlines(keepends=True)
    grid.write_bytes(b"".join(line for line in lines if f"{LONG}.smollm2-135m.words".encode() not in line))
    shutil.rmtree(study / LONG / f"{LONG}.smollm2-135m.words.000")
    code, _, err = run(study)
    assert code == 4
    assert f"it lacks the shard {LONG}.smollm2-135m.words.000" in err


def test_a_sealed_suite_that_is_not_planned_yet_is_incomplete(run, study):
    grid = study / "grid.jsonl"
    lines = grid.read_bytes().splitlines(keepends=True)
    grid.write_bytes(b"".join(line for line in lines if f'"suite":"{LONG}"'.encode() not in line))
    shutil.rmtree(study / LONG)
    code, out, _ = run(study)
    assert code == 3
    assert f"suite {LONG} is not in the grid yet" in out


REASONS = {
    "made without the seal": {"seal": None},
    "made under a seal that does not stand": {"seal": "b" * 64},
    "made by other code than the sealed protocol": {"protocol_digest": "c" * 64},
    "made unregistered": {"anchor": "unregistered"},
}


@pytest.mark.parametrize("reason", REASONS)
def test_threat_4_rows_that_were_not_made_under_the_seal_are_missing(run, study, reason):
    shard = study / SHORT / f"{SHORT}.smollm2-135m.words.000"
    planted.restate(shard / "attempt-001.json", **REASONS[reason])
    code, out, err = run(study)
    assert (code, err) == (3, "")
    states = {claim["id"]: claim["state"] for claim in verdicts(study)["claims"]}
    assert {name for name, state in states.items() if state == "INCOMPLETE"} == {"R1", "R2", "R3", "R4", "S1"}
    (missing,) = verdicts(study)["claims"][0]["missing"]
    assert missing["rows"] == missing["of"] > 0
    assert missing["reason"].endswith(f"204 rows of attempt 1 do not count: {reason}")
    assert reason in flat(out)


def test_another_anchor_in_one_registration_is_an_integrity_problem(run, study):
    planted.restate(study / SHORT / f"{SHORT}.smollm2-135m.words.000" / "attempt-001.json", anchor="d" * 64)
    code, _, err = run(study)
    assert code == 4
    assert "attempts of one registration carry different anchors" in err


def test_an_attempt_that_wrote_nothing_does_no_harm(run, study):
    shard = study / SHORT / f"{SHORT}.smollm2-135m.words.000"
    other = planted.attempt(shard.name, 2, seal=None, anchor="unanchored", config={})
    (shard / "attempt-002.json").write_bytes(encode(other))
    assert run(study)[0] == 0


def test_scratch_runs_are_not_read(run, study, tmp_path):
    scratch = tmp_path / "results" / "scratch"
    scratch.mkdir(parents=True)
    moved = study.rename(scratch / "embedded")
    code, _, err = run(moved)
    assert code == 2
    assert "holds runs made with --unregistered" in err


def test_an_unregistered_attempt_of_an_unsealed_study_is_a_problem(run, whole):
    planted.restate(
        whole / SHORT / f"{SHORT}.smollm2-135m.words.000" / "attempt-001.json", anchor="unregistered"
    )
    code, _, _ = run(whole)
    assert code == 4
    assert "attempt-001.json: it was made with --unregistered" in " ".join(verdicts(whole)["problems"])


# Amendments --------------------------------------------------------------------------------------


def test_rows_under_the_seal_before_an_amendment_after_data_count(run, study, home):
    sealing.amend(study, home, "R")
    code, out, _ = run(study)
    assert code == 0
    assert "amended after data" in flat(out)
    labels = {claim["id"]: claim["history"] for claim in verdicts(study)["claims"]}
    assert labels["R1"] == ["amended after data"]
    assert labels["S1"] == ["addendum to R"]
    amendments = {one["id"]: one["amendments"] for one in verdicts(study)["registrations"]}
    assert amendments["R"][0]["why"] == "a wrong constant"


@pytest.mark.parametrize(("accepts", "code"), [(True, 0), (False, 3)])
def test_rows_of_another_protocol_need_an_amendment_that_accepts_them(run, study, home, accepts, code):
    listed = list(sealing.shards(study, [SHORT], protocol_digest="e" * 64))
    sealing.amend(study, home, "R", accepts_protocol=accepts, listed=listed)
    assert run(study)[0] == code


def test_rows_under_a_seal_that_was_amended_before_data_do_not_count(run, study, home):
    new = sealing.amend(study, home, "R", stage="before-data")
    code, out, _ = run(study)
    assert code == 3
    assert "made under a seal that does not stand" in flat(out)
    sealing.put_under(study, [SHORT], new)
    code, out, _ = run(study)
    assert code == 0
    assert verdicts(study)["claims"][0]["history"] == ["amended before data"]


def test_a_history_with_a_gap_is_refused(run, study, home):
    sealing.amend(study, home, "R")
    sealing.amend(study, home, "R")
    shutil.rmtree(home / "amendments" / "R-1")
    code, _, err = run(study)
    assert code == 4
    assert f"missing  {home}/amendments/R-1/R.json" in err


# Locks -------------------------------------------------------------------------------------------


def test_threat_11_a_log_that_changed_after_the_lock_makes_its_claims_invalid(run, locked):
    log = locked / SHORT / f"{SHORT}.smollm2-135m.passcodes.000" / "generations.jsonl"
    log.write_bytes(log.read_bytes().replace(b'"text":"planted"', b'"text":"changed"', 1))
    planted.close(log.parent)
    code, _, err = run(locked)
    assert code == 4
    assert f"since the lock of suite {SHORT}: changed  {SHORT}/" in err
    states = {claim["id"]: claim["state"] for claim in verdicts(locked)["claims"]}
    assert {name for name, state in states.items() if state == "INVALID"} == {"R1", "R2", "R3", "R4", "S1"}


def test_threat_9_a_deleted_attempt_shows_after_the_lock(run, study, home):
    shard = study / SHORT / f"{SHORT}.smollm2-135m.words.000"
    (shard / "attempt-002.json").write_bytes(encode(planted.attempt(shard.name, 2, config={})))
    sealing.lock(study, home, "R", SHORT)
    (shard / "attempt-002.json").unlink()
    code, _, err = run(study)
    assert code == 4
    assert f"missing  {SHORT}/{shard.name}/attempt-002.json" in err


@pytest.mark.parametrize("make", [lambda p: p.write_text("x"), lambda p: p.symlink_to("/dev/null")])
def test_a_stranger_in_a_locked_suite_is_a_problem(run, locked, make):
    make(locked / SHORT / "stranger")
    code, _, err = run(locked)
    assert code == 4
    assert f"since the lock of suite {SHORT}: added  {SHORT}/stranger" in err


def test_a_suite_that_is_locked_incomplete_says_why(run, study, home):
    shutil.rmtree(study / LONG / f"{LONG}.smollm2-135m.words.000")
    sealing.lock(study, home, "S", LONG, incomplete="the cluster was shut down")
    code, out, _ = run(study)
    assert code == 3
    claim = next(one for one in verdicts(study)["claims"] if one["id"] == "S2")
    assert claim["state"] == "INCOMPLETE"
    reason = "not started; locked without them: the cluster was shut down"
    assert claim["missing"][0]["reason"] == reason
    assert claim["commands"] == []
    assert reason in flat(out)


def test_a_lock_of_another_seal_is_a_problem(run, study, home):
    sealing.lock(study, home, "S", LONG)
    about = study / "locks" / f"{LONG}.json"
    about.write_bytes(planted.compact({**json.loads(about.read_bytes()), "seal": "0" * 64}) + b"\n")
    code, _, _ = run(study)
    assert code == 4
    problems = " ".join(verdicts(study)["problems"])
    assert f"changed  locks/{LONG}.json" in problems
    assert f"embedded/locks/{LONG}.json is about another suite or seal" in problems


# Looks -------------------------------------------------------------------------------------------


def test_threat_17_a_look_before_the_lock_is_recorded_and_changes_no_byte(described, run, study):
    code, first, err = run(study)
    assert (code, err) == (0, "")
    (look,) = map(json.loads, (study / "looks.jsonl").read_bytes().splitlines())
    assert (look["suites"], look["claims"], look["rows"]) == ([SHORT, LONG], sorted(previews(study)), 1512)
    files = {path: path.read_bytes() for path in study.glob("*.*") if path.name != "looks.jsonl"}
    assert run(study)[1] == first
    assert {path: path.read_bytes() for path in files} == files
    assert (study / "looks.jsonl").read_bytes().count(b"\n") == 2


def test_a_look_is_recorded_beside_the_logs_wherever_the_verdicts_go(run, study, tmp_path):
    run(study, "--out", tmp_path / "out")
    assert (study / "looks.jsonl").exists()
    assert not (tmp_path / "out" / "looks.jsonl").exists()


def test_an_unsealed_study_records_no_look(run, whole):
    run(whole)
    assert not (whole / "looks.jsonl").exists()


@pytest.mark.parametrize("kind", ["folder", "link", "pipe"])
def test_looks_that_cannot_be_recorded_are_one_line(run, study, kind, tmp_path):
    path, precious = study / "looks.jsonl", tmp_path / "precious"
    precious.write_text("untouched")
    {"folder": path.mkdir, "link": lambda: path.symlink_to(precious), "pipe": lambda: os.mkfifo(path)}[kind]()
    code, _, err = run(study)
    assert code == 0
    assert err.startswith("this look is not recorded in ")
    assert err.count("\n") == 1
    assert precious.read_text() == "untouched"


# Blind -------------------------------------------------------------------------------------------


def test_a_blind_run_says_no_verdict_and_gives_chance(described, run, home, tmp_path, monkeypatch):
    perfect = planted.World(difficulty={"certificate": 30.0})
    folder = planted.write(tmp_path / "x" / "embedded", planted.plan(), perfect)
    code, out, err = run(folder, "--blind", "--out", tmp_path / "out")
    assert (code, err) == (0, "")
    said = out + "".join(path.read_text() for path in (tmp_path / "out").glob("*.*"))
    for word in ("KILLED", "SURVIVED", "NOT_MET", "PREVIEW", "deployable", "no tax"):
        assert word not in said.replace('"preview"', "")
    assert out.startswith("study embedded, BLIND, ")
    assert "\nR1    BLIND " in out
    found = {claim["id"]: claim for claim in verdicts(tmp_path / "out")["claims"]}
    assert found["R1"]["state"] == "BLIND"
    assert abs(found["R1"]["quantities"]["auc_pooled"]["value"] - 0.5) < 0.08
    assert not (folder / "verdicts.json").exists()
    monkeypatch.setattr("analysis.render.files.write_description", lambda *_: "")
    run(folder, "--out", tmp_path / "open")
    real = {claim["id"]: claim for claim in verdicts(tmp_path / "open")["claims"]}
    assert real["R1"]["quantities"]["auc_pooled"]["value"] > 0.99


def test_a_blind_run_of_cells_gives_chance_at_every_budget(described, measured, shipped, capsys, tmp_path):
    arguments = [
        str(measured),
        "--registration",
        str(shipped["A"]),
        "--blind",
        "--out",
        str(tmp_path / "out"),
    ]
    assert cli.main(arguments) == 0
    said = capsys.readouterr().out
    assert not any(word in said for word in ("KILLED", "SURVIVED", "NOT_MET"))
    a1, a2, _ = verdicts(tmp_path / "out")["claims"]
    (suite,) = json.loads((tmp_path / "out" / "details.json").read_bytes())["attention"]
    assert all(abs(row["spearman"]["value"]) < 0.4 for row in suite["budgets"])
    assert abs(a2["quantities"]["rho"]["value"]) < 0.4
    assert a1["quantities"]["coverage"]["value"] < 0.9  # really .97
    for row in suite["budgets"]:
        medians = [row[name]["value"] for name in ("hajek", "topk", "no_offset", "uniform")]
        assert max(medians) < 2 * min(medians)  # really 3.0; each rests on 72 cells


def test_a_blind_run_writes_nothing_by_default_and_is_no_look(described, run, study, monkeypatch):
    before = sorted(study.rglob("*"))
    code, out, err = run(study, "--blind")
    assert (code, err) == (0, "")
    assert sorted(study.rglob("*")) == before
    monkeypatch.setattr("analysis.render.files.write_description", lambda *_: "")
    again = run(study, "--blind")[1]
    assert set(again.splitlines()) <= set(out.splitlines())
    assert run(study, "--blind")[1] == again


def test_a_blind_run_never_takes_the_place_of_verdicts(run, study):
    code, out, err = run(study, "--blind", "--out", study)
    assert (code, out) == (2, "")
    assert "--blind writes no verdicts into" in err


def test_a_blind_run_of_an_incomplete_study_is_incomplete(run, study):
    shutil.rmtree(study / LONG / f"{LONG}.smollm2-135m.words.000")
    code, out, _ = run(study, "--blind")
    assert code == 3
    assert "\nS2    BLIND " in out


# The code that decides ---------------------------------------------------------------------------


def test_a_module_from_elsewhere_is_refused(run, study, monkeypatch):
    monkeypatch.setattr("analysis.core.decide.__file__", "/elsewhere/analysis/core/decide.py")
    code, _, err = run(study)
    assert code == 4
    assert "module analysis.core.decide was loaded from /elsewhere/analysis/core/decide.py" in err
