"""One attack for each threat that files can betray: what an author could try, and what says so."""

import hashlib
import json
import os
import shutil
import subprocess
import sys

import pytest

from tests import project
from tests.ceremony import ceremony
from tests.ceremony.ceremony import analysis, kvexp

RUN = ("submit", "study=mini", "cluster=debug")


def edit(path, change):
    """Change the JSON objects of a file, one a line, keeping how kvexp spells them."""
    lines = [change(json.loads(line)) for line in path.read_text().splitlines()]
    path.write_text(
        "".join(json.dumps(line, separators=(",", ":"), ensure_ascii=False) + "\n" for line in lines)
    )


def close_again(shard):
    """A footer that fits the changed log."""
    digest = hashlib.sha256((shard / "generations.jsonl").read_bytes()).hexdigest()
    edit(shard / "footer.json", lambda footer: {**footer, "sha256": digest})


def flat(text):
    return " ".join(text.split())


def verified(root, *arguments, code=0):
    said = kvexp(root, "verify", "mini", *arguments, code=code)
    return said, ceremony.holds(root)


def test_what_is_honest_holds(locked):
    said, holds = verified(locked, "--replay", "6", "--seed", "1")
    assert not [name for name, held in holds.items() if held is False]
    assert holds["replay"] is True
    assert "UNWITNESSED" in said
    assert "PREVIEW" not in analysis(ceremony.describing(locked), code=0)
    assert (locked / "results/mini/report.html").exists()


def test_code_that_makes_data_and_is_another_now_is_told(locked):
    _, holds = verified(locked)
    assert holds["code of R"] is True
    with (locked / "kvexp" / "estimate.py").open("a") as file:
        file.write("# another\n")
    said, holds = verified(locked)
    assert holds["code of R"] is None
    assert "changed kvexp/estimate.py" in flat(said)


def test_1_clock_set_back(locked):
    """Clocks are shown and never decide: order is that of the anchors."""
    verified(locked)
    before = ceremony.evidence(locked)
    for path in locked.rglob("*"):
        os.utime(path, (0, 0), follow_symlinks=False)
    verified(locked)
    assert ceremony.evidence(locked) == before


def test_1_an_attempt_that_says_it_began_before_the_stamp_is_told(unlocked):
    edit(
        ceremony.shard(unlocked) / "attempt-001.json",
        lambda attempt: {**attempt, "started_at": "2020-01-01T00:00:00Z"},
    )
    _, holds = verified(unlocked)
    assert holds["clocks of R"] is None
    assert holds["R before its data"] is True


def test_2_the_author_runs_the_authority(locked):
    path = locked / "preregistration/mini/trust/own.toml"
    path.write_text(path.read_text().replace("self_run = true", "self_run = false"))
    said, _ = verified(locked)
    assert "UNWITNESSED" in said
    assert ceremony.evidence(locked)["grade"] == 1
    assert "the author runs" in said
    assert "UNWITNESSED" in analysis(locked, code=0)


def test_2_the_author_pins_a_root_of_his_own_as_public(locked):
    """Only what sealed code lists is a third party; another pinned root says what it is."""
    own, shipped = locked / "preregistration/mini/trust", locked / "preregistration/trust"
    for folder in (own, locked / "results/mini/locks/registration/trust"):
        for name in ("own.toml", "own.pem"):
            shutil.copyfile(folder / name, shipped / name)
            (folder / name).unlink()
    text = (shipped / "own.toml").read_text().replace("self_run = true", "self_run = false")
    (shipped / "own.toml").write_text(text)
    shutil.rmtree(locked / "results/mini/locks")
    kvexp(locked, "lock", "mini")
    said, holds = verified(locked)
    assert holds["stamps"] is True
    assert ceremony.evidence(locked)["grade"] == 1
    assert "UNWITNESSED" in said
    assert "a change of a sealed file, which a reviewer sees" in " ".join(said.split())
    said = " ".join(analysis(locked, code=0).split())
    assert said.startswith("study mini, UNWITNESSED:")
    assert "an authority pinned by this repository, not one that kvexp ships" in said


def test_4_results_computed_first_and_headers_wrapped_later(fresh):
    """Rows drawn without the anchor are given attempts that carry it."""
    kvexp(fresh, *RUN)
    kvexp(fresh, "seal", "mini")
    kvexp(fresh, "stamp", "mini", "--own")
    seal = hashlib.sha256((fresh / "preregistration/mini/seals/R.sha256").read_bytes()).hexdigest()
    verified(fresh)
    anchor = ceremony.evidence(fresh)["seals"][0]["anchor"]
    said = analysis(fresh, code=3)
    assert "not count" in said or "without the seal" in said
    for number in (0, 1):
        edit(
            ceremony.shard(fresh, number) / "attempt-001.json",
            lambda attempt: {**attempt, "seal": seal, "anchor": anchor},
        )
    _, holds = verified(fresh)
    assert holds["attempts"] is True  # headers can be forged
    said, holds = verified(fresh, "--replay", "6", "--seed", "1", code=4)
    assert holds["replay"] is False  # keep sets that the anchor did not draw cannot
    assert "replay" in said


def test_7_rerun_until_lucky_draws_the_same(unlocked):
    def kept():
        rows = (ceremony.shard(unlocked) / "generations.jsonl").read_text().splitlines()
        return [json.loads(row)["keep_digest"] for row in rows]

    before = kept()
    shutil.rmtree(ceremony.shard(unlocked))
    kvexp(unlocked, *RUN)
    assert kept() == before


def test_8_a_run_that_is_killed_stays_on_show(unlocked):
    shard = ceremony.shard(unlocked)
    (shard / "footer.json").unlink()
    lines = (shard / "generations.jsonl").read_text().splitlines(keepends=True)
    (shard / "generations.jsonl").write_text("".join(lines[:6]))
    kvexp(unlocked, *RUN)
    verified(unlocked)
    mine = [a for a in ceremony.evidence(unlocked)["attempts"] if a["shard_id"] == shard.name]
    assert [(a["number"], a["rows"]) for a in mine] == [(1, 6), (2, 6)]


@pytest.mark.parametrize("number", [1, 2])
def test_9_an_attempt_is_deleted(unlocked, number):
    shard = ceremony.shard(unlocked)
    for _ in range(2):
        (shard / "footer.json").unlink()
        (shard / "generations.jsonl").write_text("")
        kvexp(unlocked, *RUN)
    assert ceremony.shard(unlocked).joinpath("attempt-003.json").exists()
    assert verified(unlocked)[1]["chain"] is True
    (shard / f"attempt-{number:03d}.json").unlink()
    if number == 1:  # and the others are renumbered
        for old in (2, 3):
            path = shard / f"attempt-{old:03d}.json"
            edit(path, lambda attempt, old=old: {**attempt, "number": old - 1})
            path.rename(shard / f"attempt-{old - 1:03d}.json")
        edit(shard / "generations.jsonl", lambda row: {**row, "attempt": row["attempt"] - 1})
    assert verified(unlocked, code=4)[1]["chain"] is False


def test_10_a_log_is_edited_before_the_lock(unlocked):
    shard = ceremony.shard(unlocked)
    edit(shard / "generations.jsonl", lambda row: {**row, "score_value": 1.0})
    assert "INVALID" in analysis(unlocked, code=4)
    close_again(shard)
    analysis(unlocked, code=0)  # consistent forgery of text and scores
    _, holds = verified(unlocked, "--replay", "16", "--seed", "1", code=4)
    assert holds["replay"] is False


def test_11_a_log_is_edited_after_the_lock(locked):
    verified(locked)
    shard = ceremony.shard(locked)
    edit(shard / "generations.jsonl", lambda row: {**row, "score_value": 1.0})
    close_again(shard)
    said = analysis(locked, code=4)
    assert f"does not count: results/mini/mini/{shard.name} was changed after it was written" in flat(said)
    assert " hold, " not in said
    assert f"{shard.parent.name}/{shard.name}/generations.jsonl" in said
    assert verified(locked, code=4)[1]["lock mini"] is False


def test_11_a_file_joins_a_locked_suite(locked):
    (ceremony.shard(locked) / "attempt-002.json").write_text("{}")
    analysis(locked, code=4)
    kvexp(locked, "verify", "mini", code=4)


def test_12_shards_are_picked(unlocked):
    """Rows that the grid no longer expects are missed all the same."""
    kept = ceremony.shard(unlocked).name
    path = unlocked / "results/mini/grid.jsonl"
    lines = [line for line in path.read_text().splitlines(keepends=True) if kept in line]
    path.write_text("".join(lines))
    shutil.rmtree(ceremony.shard(unlocked, 1))
    said = analysis(unlocked, code=4)
    assert "mini" in said
    assert "SURVIVED" not in said


def test_12_a_shard_is_left_away(unlocked):
    shutil.rmtree(ceremony.shard(unlocked, 1))
    said = analysis(unlocked, code=3)
    assert "INCOMPLETE" in said
    assert "lacks 1 of 2 shards" in kvexp(unlocked, "lock", "mini", code=3)
    kvexp(unlocked, "lock", "mini", "--incomplete", "the machine burnt down")
    assert "the machine burnt down" in kvexp(unlocked, "verify", "mini")
    assert "INCOMPLETE" in analysis(unlocked, code=3)


def test_13_a_threshold_is_moved(locked):
    path = locked / "preregistration/mini/R.toml"
    text = path.read_text()
    path.write_text(text.replace("tax < 0.03", "tax < -0.9"))
    said, holds = verified(locked, code=4)
    assert holds["copy of R"] is None
    assert "preregistration/mini is not what was locked with the logs (R.toml)" in flat(said)
    said = flat(analysis(locked, code=4))
    assert "preregistration/mini differs from what was locked with the logs (R.toml)" in said
    path.write_text(text)
    said = flat(analysis(locked, code=0))  # what was found during the edit is no longer so
    assert "preregistration/mini/R.toml was changed after it was written; run kvexp verify mini" in said
    beside = locked / "results/mini/locks/registration/R.toml"
    beside.write_text(text.replace("tax < 0.03", "tax < -0.9"))
    said = analysis(locked, code=4)
    assert "changed  results/mini/locks/registration/R.toml" in said  # and not where it is as it was
    assert "preregistration/mini/R.toml" not in said


def test_14_a_module_is_shadowed(locked, tmp_path):
    shutil.copytree(locked / "analysis", tmp_path / "elsewhere/analysis")
    (tmp_path / "elsewhere/analysis/core/decide.py").write_text("raise SystemExit('mine')\n")
    env = {**os.environ, "PYTHONPATH": str(locked)}
    done = subprocess.run(
        [sys.executable, "-m", "analysis", str(locked / "results/mini")],
        cwd=tmp_path / "elsewhere",
        env=env,
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0
    assert "SURVIVED" not in done.stdout


def test_15_dependencies_drift(locked):
    path = locked / "analysis/requirements.txt"
    assert "numpy==" in path.read_text()
    path.write_text(path.read_text().replace("numpy==", "numpy==9"))
    assert "changed  analysis/requirements.txt" in analysis(locked, code=4)


def test_16_the_model_is_swapped(unlocked, tmp_path):
    model = json.loads((ceremony.shard(unlocked) / "attempt-001.json").read_text())
    assert model["model_digest"]
    conf = unlocked / "conf/model/tiny.yaml"
    source = next(line.split()[1] for line in conf.read_text().splitlines() if line.startswith("source"))
    other = tmp_path / "other"
    shutil.copytree(source, other)
    with (other / "generation_config.json").open("a") as file:
        file.write("\n")
    conf.write_text(conf.read_text().replace(source, str(other)))
    (ceremony.shard(unlocked) / "footer.json").unlink()
    assert "files of model tiny are not those" in kvexp(unlocked, *RUN, code=4)
    edit(ceremony.shard(unlocked, 1) / "attempt-001.json", lambda a: {**a, "model_digest": "0" * 64})
    verified(unlocked)
    mine = [a for a in ceremony.evidence(unlocked)["attempts"] if a["shard_id"].endswith("001")]
    assert [a["reason"] for a in mine] == ["made with other weights than sealed"]


def test_17_a_look_is_recorded_and_cannot_be_forgotten(unlocked):
    first = analysis(unlocked, code=0)
    assert "PREVIEW" in first
    assert analysis(unlocked, code=0) == first  # a look changes no bytes
    verified(unlocked)
    assert len(ceremony.evidence(unlocked)["looks"]) == 2
    kvexp(unlocked, "lock", "mini")
    verified(unlocked)
    assert ceremony.holds(unlocked)["looks"] is None
    looks = unlocked / "results/mini/looks.jsonl"
    looks.write_text("".join(looks.read_text().splitlines(keepends=True)[:1]))
    assert verified(unlocked, code=4)[1]["looks"] is False
    looks.unlink()
    assert verified(unlocked, code=4)[1]["looks"] is False


def test_17_after_the_lock_nothing_is_a_look(locked):
    analysis(locked, code=0)
    assert not (locked / "results/mini/looks.jsonl").exists()


def test_20_two_readers_of_one_manifest(unlocked):
    """sha256sum skips lines that it cannot read, and takes the last of two."""
    path = unlocked / "preregistration/mini/seals/R.sha256"
    body = path.read_bytes()
    line = body.splitlines(keepends=True)[0]
    for hostile in (
        body + line,
        body + b"# a remark\n",
        body.replace(b"\n", b"\r\n"),
        body[:-1],
        line + body,
    ):
        path.write_bytes(hostile)
        assert "Traceback" not in analysis(unlocked, code=4)
        kvexp(unlocked, "verify", "mini", code=4)


def test_what_stands_in_the_evidence_is_true_of_other_seals_only(locked):
    """A forged or old evidence.json vouches for nothing else than what it names."""
    verified(locked)
    path = locked / "results/mini/evidence.json"
    forged = json.loads(path.read_text())
    forged["grade"] = 2
    forged["seals"][0]["seal"] = "0" * 64
    path.write_text(json.dumps(forged))
    assert "UNWITNESSED" in analysis(locked, code=0)


def test_attempts_from_before_the_stamp_do_not_count(fresh):
    """Sealed, run, and stamped afterwards: nothing shows that the registration came first."""
    kvexp(fresh, "seal", "mini")
    kvexp(fresh, *RUN)
    kvexp(fresh, "lock", "mini")
    assert "they will not count" in kvexp(fresh, "stamp", "mini", "R", "--own")
    said, holds = verified(fresh)
    assert holds["R before its data"] is None
    assert holds["existing data of R"] is None
    assert (
        "before-creation (there were none yet), but 2 attempts of its suites were made before the seal"
        in flat(said)
    )
    assert "PREVIEW KILLED" in analysis(fresh, code=0)
    verified(fresh, "--replay", "6", "--seed", "1", code=4)


def test_data_first_then_a_seal_that_the_headers_are_made_to_name(fresh):
    kvexp(fresh, *RUN)
    kvexp(fresh, "seal", "mini")
    kvexp(fresh, "stamp", "mini", "--own")
    seal = hashlib.sha256((fresh / "preregistration/mini/seals/R.sha256").read_bytes()).hexdigest()
    for anchor, code in (("unanchored", 0), ("f" * 64, 4)):
        for number in (0, 1):
            path = ceremony.shard(fresh, number) / "attempt-001.json"
            edit(path, lambda one, anchor=anchor: {**one, "seal": seal, "anchor": anchor})
        verified(fresh, code=code)
    assert "EVIDENCE FAILS" in analysis(fresh, code=4)


def test_10_scores_of_arms_that_draw_nothing_are_scored_again(unlocked):
    for number in (0, 1):
        shard = ceremony.shard(unlocked, number)
        edit(
            shard / "generations.jsonl",
            lambda row: {**row, "score_value": 1.0} if row["arm"] == "topk" else row,
        )
        close_again(shard)
    said, holds = verified(unlocked, "--replay", "1", "--seed", "1", code=4)
    assert holds["replay"] is False
    assert "topk" in said


def test_10_answers_that_were_forged_whole_are_found_where_their_example_is_drawn(unlocked):
    """Text, fitting score and log-probability beside the honest keep set: only decoding finds them."""
    said, holds = verified(unlocked, "--decode", "1", "--seed", "1")
    assert holds["answers"] is True
    assert "Of 4 examples 1 were answered again" in flat(said)
    example, answers = ceremony.evidence(unlocked)["regenerated"], {}
    assert (example["examples"], example["of"], example["equal"], example["same_stack"]) == (1, 4, 6, True)
    for path in (unlocked / "results/mini/examples").glob("*.jsonl"):
        for line in path.read_text().splitlines():
            answers[json.loads(line)["example_id"]] = json.loads(line)["references"][0]
    for number in (0, 1):
        shard = ceremony.shard(unlocked, number)
        edit(
            shard / "generations.jsonl",
            lambda row: (
                {**row, "text": answers[row["example_id"]], "score_value": 1.0, "output_logprob": -0.01}
                if row["arm"] == "topk"
                else row
            ),
        )
        close_again(shard)
    _, holds = verified(unlocked, "--replay", "2", "--seed", "1")
    assert holds["replay"] is True  # keep sets are honest, and the scores are those of the texts
    said, holds = verified(unlocked, "--decode", "1", "--seed", "1", code=4)
    assert holds["answers"] is False
    assert "topk aware 0.5: text is" in flat(said)
    shown = flat(analysis(unlocked, code=4))
    assert "EVIDENCE FAILS" in shown
    assert "5 of 6 rows are the logged ones in every digit" in shown


def test_17_a_claim_that_is_registered_after_its_data_is_told(locked):
    claim = ceremony.REGISTRATION[ceremony.REGISTRATION.index("[claim.S3]") :].replace("S3", "S2")
    head = ceremony.REGISTRATION[: ceremony.REGISTRATION.index("[claim.S3]")]
    head = head.replace('id = "R"', 'id = "S"\nparent = "R"').replace(
        'suites = ["mini"]', 'suites = ["later"]'
    )
    shutil.copyfile(locked / "analysis/claims/s3.py", locked / "analysis/claims/s2.py")
    ceremony.register(locked, "S", head + claim)
    project.write(locked, "suite/later", ceremony.SUITE.format(name="later"))
    project.write(locked, "study/mini", project.STUDY.replace("[mini]", "[mini, later]"))
    kvexp(locked, "seal", "mini", "S")
    said, holds = verified(locked)
    assert holds["claim S2"] is None
    assert "it reads mini" in said
