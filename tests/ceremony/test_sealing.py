"""Seals: what they cover and what they do not, checked with sha256sum and by the command."""

import hashlib
import json
import re
import shutil
import subprocess

import pytest

from kvexp.study.words import grid_words, study_words
from tests import project
from tests.ceremony import ceremony
from tests.ceremony.ceremony import analysis, kvexp

MANIFEST = "preregistration/mini/seals/R.sha256"


def sha256sum(root, manifest):
    return subprocess.run(["sha256sum", "-c", "--strict", manifest], cwd=root, capture_output=True, text=True)


def test_sha256sum_accepts_the_manifest_and_the_protocol(performed):
    for name in ("R.sha256", "R.generations.sha256"):
        done = sha256sum(performed, f"preregistration/mini/seals/{name}")
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.count(": OK") > 20


def test_the_seal_id_and_the_protocol_digest_are_digests_of_files(performed):
    seals = performed / "preregistration/mini/seals"
    digest = {
        name: hashlib.sha256((seals / name).read_bytes()).hexdigest()
        for name in ("R.sha256", "R.generations.sha256")
    }
    attempt = (ceremony.shard(performed) / "attempt-001.json").read_text()
    assert f'"seal":"{digest["R.sha256"]}"' in attempt
    assert f'"protocol_digest":"{digest["R.generations.sha256"]}"' in attempt


def test_sealing_again_changes_nothing(locked):
    before = (locked / MANIFEST).read_bytes()
    assert "sealed already" in kvexp(locked, "seal", "mini")
    assert (locked / MANIFEST).read_bytes() == before


ADDED = {
    "kvexp/scores/mine.py": "x = 1\n",
    "kvexp/design/mine.py": "x = 1\n",
    "kvexp/tasks/mine.py": "x = 1\n",
    "conf/cluster/mine.yaml": "defaults: [base_cluster, _self_]\nname: mine\n",
    "conf/task/mine.yaml": "defaults: [base_task, _self_]\nname: mine\nfamily: words\n",
    "analysis/claims/z9.py": "x = 1\n",
    "analysis/tables/mine.py": "x = 1\n",
    "analysis/figures/mine.py": "x = 1\n",
    "analysis/posthoc/mine.py": "x = 1\n",
}


def test_adding_a_method_a_task_a_cluster_or_a_claim_breaks_no_seal(locked):
    ceremony.describing(locked)
    for name, text in ADDED.items():
        (locked / name).parent.mkdir(exist_ok=True)
        (locked / name).write_text(text)
    assert "sealed already" in kvexp(locked, "seal", "mini")
    kvexp(locked, "submit", "study=mini", "cluster=debug")
    kvexp(locked, "verify", "mini")
    assert ceremony.holds(locked)["seal R"] is True
    analysis(locked, code=0)


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("preregistration/mini/R.toml", "changed"),
        ("preregistration/mini/seals/R.shards.jsonl", "changed"),
        ("analysis/core/decide.py", "changed"),
        ("analysis/claims/s3.py", "changed"),
        ("kvexp/records.py", "changed"),
        ("kvexp/documents/condition.py", "changed"),
        ("analysis/requirements.txt", "missing"),
        ("analysis/core/mine.py", "added"),
        ("kvexp/documents/mine.py", "added"),
    ],
)
def test_a_sealed_file_that_changes_vanishes_or_appears_stops_everything(unlocked, name, what):
    path = unlocked / name
    if what == "missing":
        path.unlink()
    else:
        with path.open("a") as file:
            file.write("# one more line\n")
    for shard in (0, 1):
        (ceremony.shard(unlocked, shard) / "footer.json").unlink()  # so that submit would have to run
    assert f"{what}  {name}" in " ".join(
        kvexp(unlocked, "submit", "study=mini", "cluster=debug", code=4).split(" ")
    )
    said = analysis(unlocked, code=4)
    assert f"{what}  {name}" in said
    assert "SURVIVED" not in said
    assert "KILLED" not in said
    kvexp(unlocked, "verify", "mini", code=4)
    assert ceremony.holds(unlocked)["seal R"] is False


def test_a_link_in_place_of_a_sealed_file_is_no_file(locked):
    path = locked / "analysis/core/decide.py"
    elsewhere = locked / "decide.txt"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    assert "module analysis.core.decide was loaded from" in analysis(locked, code=4)


def test_submit_refuses_another_grid_other_code_and_a_dirty_tree(unlocked):
    run = ("submit", "study=mini", "cluster=debug")
    assert "configured otherwise" in kvexp(unlocked, *run, "task.max_new_tokens=3", code=4)
    assert "configured otherwise" in kvexp(unlocked, *run, "suite.shard_examples=1", code=4)
    with (unlocked / "kvexp/estimate.py").open("a") as file:
        file.write("# another protocol\n")
    assert "the code that makes data is not that of seal R" in kvexp(unlocked, *run, code=4)


def git(root, *arguments):
    name = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    return subprocess.run(
        ["git", *name, *arguments], cwd=root, capture_output=True, text=True, check=True
    ).stdout


def test_a_dirty_tree_is_refused_unless_it_is_allowed_and_then_told(fresh):
    (fresh / ".gitignore").write_text("__pycache__/\nresults/\nown-tsa/\n")
    git(fresh, "init", "-q")
    git(fresh, "add", "-A")
    git(fresh, "commit", "-qm", "before")
    kvexp(fresh, "seal", "mini")
    commit = git(fresh, "rev-parse", "HEAD").strip()
    assert commit in (fresh / "preregistration/mini/seals/R.json").read_text()
    (fresh / "conf/config.yaml").write_text((fresh / "conf/config.yaml").read_text() + "# changed\n")
    run = ("submit", "study=mini", "cluster=debug")
    assert "commit the changes" in kvexp(fresh, *run, code=4)
    kvexp(fresh, *run, "--allow-dirty")
    kvexp(fresh, "verify", "mini")
    assert ceremony.holds(fresh)["clean tree"] is None


def test_unregistered_runs_go_where_no_analysis_reads(unlocked):
    (unlocked / "preregistration/mini/R.toml").write_text("broken")
    said = kvexp(unlocked, "submit", "study=mini", "cluster=debug", "--unregistered")
    assert "results/scratch/mini" in said
    assert (unlocked / "results/scratch/mini/mini/mini.tiny.words.000/footer.json").exists()
    said = analysis(unlocked, "results/scratch/mini", "--registration", "preregistration/mini", code=2)
    assert "scratch" in said


ADDENDUM = (
    ceremony.REGISTRATION[: ceremony.REGISTRATION.index("[claim.S3]")]
    .replace('id = "R"', 'id = "S"\nparent = "R"')
    .replace('suites = ["mini"]', 'suites = ["later"]')
    + "[claim]\n"
)


def test_an_addendum_names_the_seal_of_its_parent_and_waits_for_it(fresh):
    ceremony.register(fresh, "S", ADDENDUM)
    project.write(fresh, "suite/later", ceremony.SUITE.format(name="later"))
    project.write(fresh, "study/mini", project.STUDY.replace("[mini]", "[mini, later]"))
    assert "seal R first" in kvexp(fresh, "seal", "mini", "S", code=4)
    kvexp(fresh, "seal", "mini")
    parent = hashlib.sha256((fresh / MANIFEST).read_bytes()).hexdigest()
    assert parent in (fresh / "preregistration/mini/seals/S.json").read_text()
    kvexp(fresh, "verify", "mini")
    assert ceremony.holds(fresh)["addendum S"] is True


def test_a_registration_that_does_not_fit_is_not_sealed(fresh):
    path = fresh / "preregistration/mini/R.toml"
    path.write_text(path.read_text().replace('arms = ["topk", "poisson"]', 'arms = ["topk", "h2o"]'))
    said = kvexp(fresh, "seal", "mini", code=2)
    line = next(n for n, line in enumerate(path.read_text().splitlines(), 1) if '"h2o"' in line)
    assert f"R.toml:{line}" in said
    assert not (fresh / MANIFEST).exists()


def test_a_copy_beside_the_results_is_sealed_and_found_again(fresh):
    kvexp(fresh, "seal", "mini", "--copy")
    kvexp(fresh, "submit", "study=mini", "cluster=debug")
    assert not (fresh / "preregistration/mini/seals").exists()
    manifest = fresh / "results/mini/preregistration/seals/R.sha256"
    assert (
        hashlib.sha256(manifest.read_bytes()).hexdigest()
        in (ceremony.shard(fresh) / "attempt-001.json").read_text()
    )
    kvexp(fresh, "verify", "mini")
    assert ceremony.holds(fresh)["seal R"] is True


# Overrides: a study is known by its words --------------------------------------------------------

WORDS = ("suite.n_examples=2", "suite.shard_examples=2")


def test_a_seal_keeps_the_overrides_that_say_which_rows_there_are(fresh):
    told = kvexp(fresh, "seal", "mini", "cluster.workers=2", *WORDS)
    body = (fresh / "preregistration/mini/seals/R.json").read_bytes()
    assert body.endswith(b"}\n")  # a whole line, as every record on disk
    about = json.loads(body)
    assert about["overrides"] == sorted(WORDS)
    assert told.rstrip().endswith(f"kvexp stamp mini {' '.join(WORDS)}")
    for verb in ("seal", "submit"):
        said = kvexp(fresh, verb, "mini", code=2 if verb == "seal" else 4)
        assert (
            "it was sealed with suite.n_examples=2 suite.shard_examples=2, which this command lacks" in said
        )
        assert "n_examples 2, now 4" in said
    said = kvexp(fresh, "seal", "mini", *WORDS, "task.max_new_tokens=3", code=2)
    assert "it was sealed without task.max_new_tokens=3" in said
    assert "sealed already" in kvexp(fresh, "seal", "mini", *WORDS)


def test_words_that_a_next_command_needs_and_those_that_a_seal_keeps():
    words = [
        "study=x",
        "suite=a",
        "cluster=debug",
        "++cluster.workers=2",
        "study.name=y",
        "suite.n_examples=2",
    ]
    words += ["task.data_dir=/records", "model.m.source=/weights", "model.n.source=org/n", "model=m"]
    assert study_words(words) == tuple(words[4:9])
    assert grid_words(words) == ["model.n.source=org/n", "suite.n_examples=2"]


def test_a_renamed_study_borrows_no_seal_and_may_run_beside_one(fresh):
    for verb, *rest in (("seal", *WORDS), ("seal",)):
        said = kvexp(fresh, verb, "study=mini", "study.name=second", *rest, code=2)
        assert f"`kvexp seal mini {' '.join(['study.name=second', *rest])} --copy`" in said
        assert "kvexp new-study second --from mini" in said
    kvexp(fresh, "seal", "mini")
    said = kvexp(fresh, "submit", "mini", "study.name=second", "cluster=debug", *WORDS)
    assert "study second is not sealed: its verdicts will be PREVIEW" in said
    assert "cannot share its seals" in kvexp(fresh, "lock", "mini", "study.name=second", *WORDS, code=2)
    kvexp(fresh, "seal", "mini", "study.name=third", "--copy", *WORDS)
    assert json.loads((fresh / "results/third/preregistration/seals/R.json").read_text())["study"] == "third"


def test_submit_says_once_that_a_study_is_not_sealed(fresh):
    run = ("submit", "mini", "cluster=debug", *WORDS)
    said = kvexp(fresh, *run)
    assert said.count("PREVIEW") == 1
    assert f"kvexp seal mini {' '.join(WORDS)} first" in said
    assert "PREVIEW" not in kvexp(fresh, *run, "--unregistered")
    draft = fresh / "preregistration/mini/R.toml"
    draft.write_text(re.sub(r"^authors = .*$", 'authors = ["FILL IN: name"]', draft.read_text(), flags=re.M))
    said = kvexp(fresh, *run)
    assert "PREVIEW" not in said
    assert "as it stands nothing will judge its logs: " in said
    assert "authors[0] is not filled in" in said
    shutil.rmtree(fresh / "preregistration/mini")
    assert "has no registration in preregistration/mini" in kvexp(fresh, *run)


def repository(root):
    (root / ".gitignore").write_text("__pycache__/\nresults/\nown-tsa/\n")
    git(root, "init", "-q")
    git(root, "add", "-A")
    git(root, "rm", "-rq", "--cached", "preregistration/mini")
    git(root, "commit", "-qm", "before the registration")


def commit_in(root):
    return json.loads((root / "preregistration/mini/seals/R.json").read_text())["git_commit"]


def test_a_seal_names_no_commit_that_lacks_its_files_until_it_is_made_again(fresh):
    repository(fresh)
    said = kvexp(fresh, "seal", "mini")
    assert "not all sealed files are in commit" in said
    assert "preregistration/mini/R.toml" in said
    assert "next: git add and commit, then again kvexp seal mini" in said
    assert commit_in(fresh) is None
    assert "sealed already" in kvexp(fresh, "seal", "mini")
    git(fresh, "add", "-A")
    git(fresh, "commit", "-qm", "with it")
    assert "again, with its commit" in kvexp(fresh, "seal", "mini")
    assert commit_in(fresh) == git(fresh, "rev-parse", "HEAD").strip()
    assert "sealed already" in kvexp(fresh, "seal", "mini")
    assert sha256sum(fresh, MANIFEST).returncode == 0


def test_a_seal_that_something_relies_on_is_not_made_again(fresh):
    repository(fresh)
    kvexp(fresh, "seal", "mini")
    kvexp(fresh, "submit", "mini", "cluster=debug")
    before = (fresh / MANIFEST).read_bytes()
    git(fresh, "add", "-A")
    git(fresh, "commit", "-qm", "with it")
    assert "sealed already" in kvexp(fresh, "seal", "mini")
    assert (fresh / MANIFEST).read_bytes() == before


def test_an_addendum_follows_its_parent_when_that_is_sealed_again(fresh):
    repository(fresh)
    ceremony.register(fresh, "S", ADDENDUM)
    project.write(fresh, "suite/later", ceremony.SUITE.format(name="later"))
    project.write(fresh, "study/mini", project.STUDY.replace("[mini]", "[mini, later]"))
    git(fresh, "add", "conf")
    git(fresh, "commit", "-qm", "conf")
    kvexp(fresh, "seal", "mini")
    git(fresh, "add", "-A")
    git(fresh, "commit", "-qm", "with it")
    assert "sealed already" in kvexp(fresh, "seal", "mini", "R")  # S would be left with another parent
    broken_off = ceremony.copy(fresh, fresh.parent / "broken-off")
    assert kvexp(fresh, "seal", "mini").count("again, with its commit") == 2
    for path in (fresh / "preregistration/mini/seals").glob("R.*"):
        shutil.copy(path, broken_off / "preregistration/mini/seals")
    said = kvexp(broken_off, "seal", "mini")  # a kill came between the two
    assert "R: sealed already" in said
    assert re.search(r"S: sealed \d+ files", said)
    seals = [root / "preregistration/mini/seals/S.json" for root in (fresh, broken_off)]
    assert len({json.loads(path.read_text())["parent"] for path in seals}) == 1
    parent = hashlib.sha256((fresh / MANIFEST).read_bytes()).hexdigest()
    assert parent in (fresh / "preregistration/mini/seals/S.json").read_text()


# Rows that cannot count --------------------------------------------------------------------------


@pytest.mark.parametrize("early", ["the seal", "the stamp"])
def test_shards_that_do_not_count_are_named_by_submit_and_lock(fresh, early):
    run = ("submit", "mini", "cluster=debug", *WORDS)
    if early == "the seal":
        kvexp(fresh, *run)
    kvexp(fresh, "seal", "mini", *WORDS)
    if early == "the stamp":
        kvexp(fresh, *run)
        kvexp(fresh, "stamp", "mini", "--own", *WORDS)
    why = "made without the seal" if early == "the seal" else "made before the seal was stamped"
    for said in (kvexp(fresh, *run, code=4), kvexp(fresh, "lock", "mini", *WORDS, code=3)):
        assert f"results/mini/mini/mini.tiny.words.000: attempt 1 was {why}" in said
        assert "away" in said
    again = ceremony.copy(fresh, fresh.parent / "again")
    shutil.rmtree(ceremony.shard(again))
    kvexp(again, *run)
    kvexp(again, "lock", "mini", *WORDS)
    kvexp(fresh, "lock", "mini", *WORDS, "--incomplete", "it was early")


def test_a_suite_that_was_not_run_cannot_be_locked(fresh):
    kvexp(fresh, "seal", "mini", *WORDS)
    for reason in ((), ("--incomplete", "no time")):
        said = kvexp(fresh, "lock", "mini", *WORDS, *reason, code=3)
        assert f"nothing to lock: kvexp submit mini suite=mini {' '.join(WORDS)}" in said


# Files of examples -------------------------------------------------------------------------------


def test_examples_that_are_gone_are_noticed_by_status_and_submit(unlocked):
    path = unlocked / "results/mini/examples/mini.tiny.words.jsonl"
    before = path.read_bytes()
    path.unlink()
    assert "mini.tiny.words.jsonl is missing: restore it" in kvexp(unlocked, "status", "mini")
    said = kvexp(unlocked, "submit", "mini", "cluster=debug")
    assert "results/mini/examples/mini.tiny.words.jsonl was missing: written again" in said
    assert path.read_bytes() == before
    assert "missing" not in kvexp(unlocked, "status", "mini")
