"""Code has changed since a study was sealed: the sealed code judges, or the code of today does anew."""

import hashlib
import json
import shutil
import subprocess
import sys

import pytest

from kvexp.ceremony import lock as locking
from kvexp.ceremony import sealed_tree
from kvexp.documents.manifest import Manifest
from kvexp.errors import IntegrityError, KvexpError
from tests import project
from tests.ceremony.ceremony import analysis, copy, kvexp, shard

CORE = "kvexp/documents/condition.py"
TOML = "results/mini/locks/registration/R.toml"
SEAL = "results/mini/locks/registration/seals/R.shards.jsonl"


def git(root, *arguments):
    names = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    return subprocess.run(["git", "-C", root, *names, *arguments], check=True, capture_output=True).stdout


def committed(root):
    """The project as a repository whose only commit holds the sealed code."""
    git(root, "init", "-q")
    git(root, "add", "analysis", "conf", "kvexp", "requirements.lock")
    git(root, "commit", "-qm", "sealed")
    return root


def changed(root):
    """The project, after its core has changed in a way that would show."""
    path = root / CORE
    path.write_text(path.read_text().replace("return State.KILLED", "return State.SURVIVED"))
    if (root / ".git").exists():
        git(root, "commit", "-qam", "changed")
    return root


def flip(path):
    """One bit of the byte in the middle of a file."""
    body = bytearray(path.read_bytes())
    body[len(body) // 2] ^= 1
    path.write_bytes(bytes(body))


def digests(folder):
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture(scope="module")
def old(tmp_path_factory, performed):
    """A study that was locked without a copy of its core, judged and verified; then its code changed."""
    root = copy(performed, tmp_path_factory.mktemp("old") / "project")
    shutil.rmtree(root / "results/mini/locks")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(locking, "_copy_core", lambda *_: iter(()))
        kvexp(root, "lock", "mini")
    kvexp(root, "verify", "mini")
    analysis(root, code=0)
    return changed(committed(root))


@pytest.fixture
def judged(tmp_path, old):
    return copy(old, tmp_path / "project")


@pytest.fixture
def kept(locked):
    """A study that was locked with a copy of its core, judged; then its code changed, and no git knows it."""
    analysis(locked, code=0)
    return changed(locked)


def as_sealed(root, *arguments, code=0):
    return analysis(root, "results/mini", "--as-sealed", *arguments, code=code)


def verdicts(folder):
    return json.loads((folder / "verdicts.json").read_bytes())


def test_the_message_says_both_ways(judged):
    said = analysis(judged, code=4)
    assert f"changed  {CORE}" in said
    assert "python -m analysis results/mini --as-sealed" in said
    assert "python -m analysis results/mini --anew --out DIR" in said
    said = kvexp(judged, "verify", "mini", code=4)
    assert "kvexp verify mini --as-sealed" in said
    assert "python -m analysis results/mini --anew --out DIR" in said


def test_the_sealed_code_judges_as_it_did_and_writes_where_it_did(judged):
    before = digests(judged / "results")
    (judged / "results/mini/verdicts.json").unlink()
    said = as_sealed(judged)
    assert f"as sealed: by the code of commit {git(judged, 'rev-parse', 'HEAD~1').decode()[:12]}" in said
    assert digests(judged / "results") == before
    as_sealed(judged, "--out", "elsewhere")  # from here, not from the temporary folder
    assert verdicts(judged / "elsewhere")["claims"][0]["state"] == "KILLED"
    assert digests(judged / "results") == before


def test_as_json_it_prints_nothing_else(judged):
    command = [sys.executable, "-m", "analysis", "results/mini", "--as-sealed", "--json"]
    environment = {**project.environment(), "PYTHONPATH": str(judged)}
    done = subprocess.run(command, cwd=judged, env=environment, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == verdicts(judged / "results/mini")


@pytest.mark.parametrize("verb", ["verdicts", "verify", "report"])
def test_the_verbs_judge_by_the_sealed_code(judged, verb):
    before = digests(judged / "results/mini")
    if verb != "verify":
        (judged / "results/mini/verdicts.json").unlink()
    said = kvexp(judged, verb, "mini", "--as-sealed")
    assert "as sealed: by the code of commit" in said
    after = digests(judged / "results/mini")
    assert (after.pop("generations.html", None) is not None) == (verb == "report")
    assert after == before


def test_verify_leaves_the_evidence_alone(judged):
    path = judged / "results/mini/evidence.json"
    path.write_text("{}")
    said = kvexp(judged, "verify", "mini", "--as-sealed", "--json")
    assert "nothing in results/mini was changed" in said
    assert path.read_text() == "{}"


def test_the_newest_commit_that_matches_is_taken(judged):
    (judged / "conf/study/later.yaml").write_text("a: 1\n")
    path = judged / CORE
    now = path.read_bytes()
    path.write_bytes(git(judged, "show", f"HEAD~1:{CORE}"))
    git(judged, "add", "conf")
    git(judged, "commit", "-qam", "back")
    path.write_bytes(now)
    git(judged, "commit", "-qam", "changed again")
    results = judged / "results/mini"
    with sealed_tree.restored(judged, results, [results / "locks/registration"]) as tree:
        assert (tree / "conf/study/later.yaml").read_text() == "a: 1\n"
        assert digests(tree / "results/mini") == digests(results)
        assert not any(path.is_symlink() for path in tree.rglob("*"))


@pytest.mark.parametrize("what", ["a log", "a registration", "a seal"])
def test_one_bit_of_what_is_copied_shows(judged, what):
    places = {"a log": shard(judged) / "generations.jsonl", "a registration": judged / TOML}
    flip(places.get(what, judged / SEAL))
    as_sealed(judged, code=4)


def test_one_bit_of_the_kept_core_shows(kept):
    path = kept / "results/mini/locks/core" / CORE
    flip(path)
    assert f"changed  {CORE}" in as_sealed(kept, code=4)


def test_a_file_that_git_restores_otherwise_shows(judged):
    """An attribute of the repository asks for other ends of lines: git archive obeys."""
    (judged / ".git/info/attributes").write_text("*.py text eol=crlf\n")
    said = as_sealed(judged, code=4)
    assert "the restored files are not as sealed" in said
    assert "changed  analysis/__init__.py" in said


def test_a_folder_that_git_lacks_the_commit_of(judged):
    git(judged, "checkout", "-q", "--orphan", "new")
    git(judged, "commit", "-qm", "another history")
    said = as_sealed(judged, code=4)
    assert "no commit reachable from HEAD" in said
    assert "unshallow" not in said
    said = kvexp(judged, "verify", "mini", "--as-sealed", code=4)
    assert "no commit reachable from HEAD" in said


def test_a_shallow_clone_is_told_to_fetch_the_rest(judged):
    git(judged, "clone", "-q", "--depth=1", f"file://{judged}", "clone")
    shutil.copytree(judged / "clone/.git", judged / "shallow")
    shutil.rmtree(judged / ".git")
    (judged / "shallow").rename(judged / ".git")
    assert "git fetch --unshallow" in as_sealed(judged, code=4)


def test_without_a_repository_it_says_so(judged):
    shutil.rmtree(judged / ".git")
    assert "git shows no code" in as_sealed(judged, code=4)


def test_the_core_that_was_locked_judges_without_git(kept):
    before = digests(kept / "results")
    said = as_sealed(kept)
    assert "as sealed: by the code in" in said
    assert "Nothing is described" in said
    assert digests(kept / "results") == before
    said = kvexp(kept, "verify", "mini", "--as-sealed", code=4)  # which needs more than the core
    assert "git shows no code" in said


def test_the_lock_covers_the_core(locked):
    manifest = (locked / "results/mini/locks/mini.sha256").read_text()
    listed = [line.split("locks/core/")[1] for line in manifest.splitlines() if "locks/core/" in line]
    code = sealed_tree.sealed_code([locked / "preregistration/mini"])
    assert listed == sorted(code)
    assert {CORE, "analysis/claims/s3.py", "kvexp/documents/seals.py"} <= set(listed)
    assert not any(path.startswith("preregistration/") for path in listed)


def test_registrations_under_different_code_have_no_tree(judged):
    home = judged / "preregistration/mini"
    other = Manifest({"preregistration/mini/T.toml": "0" * 64, CORE: "1" * 64}, "")
    (home / "T.toml").write_text("")
    (home / "seals/T.sha256").write_bytes(other.body)
    with pytest.raises(
        IntegrityError, match=f"R, T were sealed or amended under different code .{CORE} of T"
    ):
        sealed_tree.sealed_code([home])


def test_what_is_not_sealed_has_no_sealed_code(fresh):
    with pytest.raises(KvexpError, match="no registration is sealed here"):
        sealed_tree.sealed_code([fresh / "preregistration/mini"])


def test_a_link_among_the_results_stays_one(judged, tmp_path):
    path = shard(judged) / "generations.jsonl"
    path.rename(tmp_path / "elsewhere.jsonl")
    path.symlink_to(tmp_path / "elsewhere.jsonl")
    as_sealed(judged, code=4)


# Anew: the code of today judges, and says so in every state.


def anew(root, out, code=0):
    return analysis(root, "results/mini", "--anew", "--out", str(out), code=code)


def test_anew_the_code_of_today_judges_and_every_state_says_so(judged, tmp_path):
    before = digests(judged / "results")
    said = anew(judged, tmp_path / "out")
    now, then = verdicts(tmp_path / "out"), verdicts(judged / "results/mini")
    assert [claim["state"] for claim in now["claims"]] == ["RE-ANALYSED SURVIVED"]
    now["claims"][0].update(state="KILLED", label=then["claims"][0]["label"])
    assert now == then  # evidence and its word on time stamps included
    assert said.splitlines()[-2].startswith("S3    RE-ANALYSED SURVIVED ")
    assert digests(judged / "results") == before


@pytest.mark.parametrize("what", ["a log", "a registration", "a seal", "a lock"])
def test_anew_everything_but_the_code_is_still_checked(judged, tmp_path, what):
    places = {
        "a log": shard(judged) / "generations.jsonl",
        "a registration": judged / TOML,
        "a seal": judged / SEAL,
        "a lock": judged / "results/mini/locks/mini.sha256",
    }
    flip(places[what])
    anew(judged, tmp_path / "out", code=4)


def test_anew_what_was_judged_from_other_papers_is_no_evidence(judged, tmp_path):
    stamp = next((judged / "preregistration/mini/seals").glob("*.tsr"))
    flip(stamp)
    said = " ".join(anew(judged, tmp_path / "out").split())
    assert f"evidence.json does not count: preregistration/mini/seals/{stamp.name} was changed" in said


def test_anew_nothing_is_written_into_results(judged):
    said = analysis(judged, "results/mini", "--anew", code=2)
    assert "say where with --out DIR" in said
    for out in ("results/mini", "results/mini/again", "results/other"):
        assert "writes nothing into" in anew(judged, out, code=2)
    (judged / "link").symlink_to(judged / "results/mini")
    assert "writes nothing into" in anew(judged, "link", code=2)


def test_one_way_at_a_time(judged):
    analysis(judged, "results/mini", "--anew", "--as-sealed", code=2)
