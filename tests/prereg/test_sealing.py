"""Seals: what they cover and what they do not, checked with sha256sum and by the command."""

import hashlib
import subprocess

import pytest

from tests import project
from tests.prereg import ceremony
from tests.prereg.ceremony import analysis, kvexp

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
        ("analysis/decide.py", "changed"),
        ("analysis/claims/s3.py", "changed"),
        ("kvexp/records.py", "changed"),
        ("kvexp/prereg/condition.py", "changed"),
        ("requirements.lock", "missing"),
        ("analysis/statistics/mine.py", "added"),
        ("analysis/verdict/mine.py", "added"),
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
    path = locked / "analysis/decide.py"
    elsewhere = locked / "decide.txt"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    assert "missing  analysis/decide.py" in analysis(locked, code=4)


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
