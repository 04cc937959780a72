"""Evidence: what it takes away and adds, and that it counts only for the files that it was judged from."""

import json
import shutil

import pytest

from analysis.core.folders import Folders
from analysis.core.open import opened
from kvexp.documents.forms import PUBLIC, Check, Evidence, LockEvidence, Regenerated, SealEvidence, Stamp
from kvexp.documents.judged_from import Judged
from kvexp.documents.manifest import read_manifest
from kvexp.records import encode
from tests import planted
from tests.analysis import sealing
from tests.analysis.sealing import flat, verdicts
from tests.planted import LONG, SHORT

CLAIMS = ("R1", "R2", "R3", "R4", "S1", "S2", "S3")
pytestmark = pytest.mark.usefixtures("undescribed")


def stamp(grade):
    return Stamp(
        trust="digicert",
        witness="CN=A public authority",
        root_sha256=PUBLIC["digicert"],
        kind="public" if grade == 2 else "self-run",
        time="2026-11-01T10:00:00Z",
        serial="c0de",
        anchor=sealing.ANCHOR,
    )


def evidence(study, grade=2, checks=(), **changes):
    """Evidence about the seals and locks that are there, judged from the files that are there."""
    home = study.parent / "home"
    for name in "RS" if grade else "":
        (home / "seals" / f"{name}.tsr").write_bytes(b"a reply")
    judged = Judged(sealing.ROOT, "embedded", study, home, "preregistration/embedded")
    read = judged.digests(dict(zip("RS", ([SHORT], [LONG]), strict=True)), CLAIMS)
    folder = study / "locks" / "registration" / "seals"
    seals = [
        SealEvidence(
            id=name,
            title=f"title of {name}",
            seal=read_manifest(folder / f"{name}.sha256").digest,
            existing_data="before-creation",
            parent=None,
            commit=None,
            differences=[],
            stamps=[stamp(grade)] if grade else [],
            grade=grade,
            anchor=sealing.ANCHOR,
        )
        for name in "RS"
    ]
    locks = [
        LockEvidence(
            suite=suite,
            manifest=read_manifest(study / "locks" / f"{suite}.sha256").digest,
            incomplete=None,
            differences=[],
            stamps=[],
            grade=0,
        )
        for suite in (SHORT, LONG)
    ]
    fields = {
        "study": "embedded",
        "home": "preregistration/embedded",
        "read": {**read, **judged.authorities({"digicert"} if grade else ())},
        "grade": grade,
        "seals": seals,
        "amendments": [],
        "attempts": [],
        "locks": locks,
        "looks": [],
        "replay": None,
        "checks": [Check(name="order", holds=True, words="every attempt carries the anchor"), *checks],
        "cannot": ["another registration that was thrown away"],
    }
    (study / "evidence.json").write_bytes(encode(Evidence(**{**fields, **changes})) + b"\n")


def test_evidence_of_a_public_witness_takes_the_mark_away(described, run, locked):
    evidence(locked)
    code, out, err = run(locked)
    assert (code, err) == (0, "")
    assert out.startswith("study embedded: ")
    section = out[out.index("\nEVIDENCE ") + 1 :].split("\n\n")[0].splitlines()
    assert len(section) <= 12
    assert "no time stamp was checked again: run kvexp verify embedded yourself" in flat(out)
    assert "2026-11-01T10:00:00Z; a public authority" in out
    full = flat((locked / "evidence.md").read_text())
    assert "holds: every attempt carries the anchor" in full
    assert "cannot be excluded: another registration that was thrown away" in full
    assert "stamped 2026-11-01T10:00:00Z by CN=A public authority (digicert, serial c0de)" in full
    assert verdicts(locked)["evidence"]["grade"] == 2
    assert verdicts(locked)["witnessed"] is True


def test_threat_2_the_authors_own_authority_is_no_witness(run, locked):
    evidence(locked, grade=1)
    assert run(locked)[1].startswith("study embedded, UNWITNESSED: ")


def test_evidence_that_fails_is_an_integrity_error(described, run, locked):
    evidence(locked, checks=[Check(name="chain", holds=False, words="attempt 2 is \x1b[2J gone")])
    code, out, err = run(locked)
    assert code == 4
    assert out.startswith("study embedded, EVIDENCE FAILS: ")
    assert "attempt 2 is" in out
    assert "\x1b" not in out + err + (locked / "evidence.md").read_text()
    assert err.startswith("error: integrity: the evidence fails: attempt 2 is")


def test_answers_made_again_that_differ_are_an_integrity_error_whatever_the_checks_say(run, locked):
    counts = {"of": 9, "failed": 0, "missing": 0, "seed": 1, "rows": 17, "equal": 16, "keep_sets_equal": 17}
    counts |= {"examples": 1, "texts_equal": 16, "near_ties": 0}
    evidence(
        locked,
        regenerated=Regenerated(
            **counts, largest={}, same_stack=True, holds=False, disagreements=["its text is forged"]
        ),
    )
    code, out, err = run(locked)
    assert code == 4
    assert out.startswith("study embedded, EVIDENCE FAILS: ")
    assert err.startswith("error: integrity: the evidence fails: the answers made again")
    assert "disagrees: its text is forged" in flat((locked / "evidence.md").read_text())


def test_what_cannot_be_told_is_no_failure(run, locked):
    evidence(locked, checks=[Check(name="clock", holds=None, words="the clocks agree")])
    code, _, _ = run(locked)
    assert code == 0
    assert "open: the clocks agree" in flat((locked / "evidence.md").read_text())


@pytest.mark.parametrize("stale", ["seal", "lock"])
def test_evidence_about_other_seals_or_locks_is_absent(run, locked, stale):
    evidence(locked)
    path, key = locked / "evidence.json", {"seal": "seals", "lock": "locks"}[stale]
    body = json.loads(path.read_bytes())
    body[key][0]["seal" if stale == "seal" else "manifest"] = "f" * 64
    path.write_bytes(planted.compact(body))
    code, out, _ = run(locked)
    assert code == 0
    assert "UNWITNESSED" in out
    words = "it is about other seals or locks than those that judge here; run kvexp verify embedded"
    assert f"evidence.json does not count: {words}" in flat(out)
    assert verdicts(locked)["evidence"] is None


# Stale or forged ---------------------------------------------------------------------------------


def restate(study, change):
    """Change evidence.json by hand."""
    path = study / "evidence.json"
    body = json.loads(path.read_bytes())
    change(body)
    path.write_bytes(planted.compact(body))


def read(study, home):
    """What the analysis makes of the evidence, without deciding anything."""
    return opened(Folders(study, sealing.ROOT, home)).bound.shown


def unbelieved(study, home, *words):
    shown = read(study, home)
    assert (shown.evidence, shown.is_witnessed, shown.is_broken, shown.failed) == (None, False, False, [])
    assert shown.note.startswith("evidence.json does not count: ")
    for each in words:
        assert each in shown.note
    return shown.note


FORGERIES = {
    "its grades are not those of its time stamps": lambda body: body.update(grade=3),
    "it calls an authority public that kvexp does not ship": lambda body: body["seals"][0]["stamps"][
        0
    ].update(root_sha256="1" * 64),
    "R.tsr was changed after it was written": lambda body: body["read"].update(
        {"preregistration/embedded/seals/R.tsr": "0" * 64}
    ),
    "preregistration/trust/digicert.pem was added": lambda body: body["read"].pop(
        "preregistration/trust/digicert.pem"
    ),
}


@pytest.mark.parametrize("words", FORGERIES)
def test_a_forged_evidence_is_not_believed(locked, home, words):
    evidence(locked)
    assert read(locked, home).is_witnessed
    restate(locked, FORGERIES[words])
    assert "run kvexp verify embedded" in unbelieved(locked, home, words)


def test_a_forged_grade_without_any_reply_on_disk_is_not_believed(locked, home):
    evidence(locked, grade=0)

    def forge(body):
        body["grade"] = 2
        for one in body["seals"]:
            one |= {"grade": 2, "stamps": [json.loads(encode_stamp(2))]}

    restate(locked, forge)
    unbelieved(locked, home, "it shows time stamps of R that are not among the files")


def encode_stamp(grade):
    one = stamp(grade)
    return json.dumps({name: getattr(one, name) for name in one.__struct_fields__})


def shard_of(study):
    return study / SHORT / f"{SHORT}.smollm2-135m.words.000"


LATER = {
    "home/seals/R.tsr was changed": lambda study, home: (home / "seals/R.tsr").write_bytes(b"another"),
    "home/seals/S.tsr was removed": lambda study, home: (home / "seals/S.tsr").unlink(),
    "home/R.toml was changed": lambda study, home: (home / "R.toml").write_text("edited"),
    "results/embedded/locks/note was added": lambda study, home: (study / "locks/note").write_text("x"),
    f"results/embedded/{SHORT}/{SHORT}.smollm2-135m.words.000 was changed": lambda study, home: (
        shard_of(study) / "footer.json"
    ).write_bytes(b"{}"),
    f"results/embedded/{LONG}/note was added": lambda study, home: (study / LONG / "note").write_text("x"),
}


@pytest.mark.parametrize("words", LATER)
def test_evidence_is_stale_once_a_file_is_another(locked, home, words):
    evidence(locked)
    LATER[words](locked, home)
    unbelieved(locked, home, words.replace("home/", "preregistration/embedded/"))


def test_evidence_that_saw_an_edit_which_was_undone_does_not_fail(run, locked, home):
    """`kvexp verify` ran while a file was edited, and the file is what it was again."""
    text = (home / "R.toml").read_text()
    (home / "R.toml").write_text(text + "# edited\n")
    evidence(locked, checks=[Check(name="seal R", holds=False, words="changed  R.toml since the seal")])
    assert run(locked)[0] == 4
    (home / "R.toml").write_text(text)
    code, out, _ = run(locked)
    assert code == 0
    assert "UNWITNESSED" in out.splitlines()[0]
    assert "EVIDENCE: evidence.json does not count: preregistration/embedded/R.toml was changed" in flat(out)
    assert "FAILS" not in out
    assert verdicts(locked)["evidence"] is None


def test_looks_may_be_added_and_not_taken_away(run, study, home):
    run(study)
    (look,) = (study / "looks.jsonl").read_bytes().splitlines()
    for name, suite in (("R", SHORT), ("S", LONG)):
        sealing.lock(study, home, name, suite)
    evidence(study, looks=[json.loads(look)])
    with (study / "looks.jsonl").open("ab") as file:
        file.write(look + b"\n")
    assert read(study, home).is_witnessed
    (study / "looks.jsonl").unlink()
    unbelieved(study, home, "looks.jsonl lacks looks that it lists")


def test_a_results_folder_alone_keeps_its_evidence(locked, home):
    """Without the folder of registrations, the copy beside the logs stands in for it."""
    evidence(locked, grade=0)
    shutil.rmtree(home)
    restate(locked, lambda body: body.update(home="preregistration/nowhere", read=moved(body["read"])))
    assert read(locked, home).evidence is not None
    note = locked / "locks/registration/seals/R.note"
    note.write_text("x")
    unbelieved(locked, home, "R.note was added")


def moved(read):
    return {name.replace("preregistration/embedded", "preregistration/nowhere"): read[name] for name in read}


def test_after_an_amendment_the_lock_is_made_again_first(run, locked, home):
    evidence(locked)
    sealing.amend(locked, home, "R")
    out = flat(run(locked)[1])
    assert f"run kvexp lock embedded {SHORT} --again, then kvexp verify embedded" in out
    assert "registration R was amended in the folder given with --registration after the lock" in out


def test_a_folder_under_another_name_says_whose_it_is(run, locked, tmp_path):
    other = locked.rename(tmp_path / "copied")
    _, out, _ = run(other)
    assert "note: this folder is called copied, and its seals were made for the study embedded" in flat(out)


def test_a_suite_that_is_a_link_is_refused(run, locked, tmp_path):
    (locked / LONG).rename(tmp_path / "elsewhere")
    (locked / LONG).symlink_to(tmp_path / "elsewhere")
    code, out, err = run(locked)
    assert (code, out) == (4, "")
    assert f"{LONG} is a link: put the folder itself there" in err
