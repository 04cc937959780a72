"""Amendments and locks: nothing is lost, each step names the one before, and data keep their anchor."""

import contextlib
import hashlib
import io
import itertools
import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from kvexp import cli
from kvexp.ceremony import amend as amending
from kvexp.ceremony import seal as sealing
from kvexp.documents import manifest as seal
from kvexp.documents.manifest import read_manifest
from kvexp.study import provenance
from tests import project
from tests.ceremony import ceremony
from tests.ceremony.ceremony import analysis, kvexp

RUN = ("submit", "study=mini", "cluster=debug")
WHY = ("--why", "the threshold was a typing error")


def move_threshold(root):
    path = root / "preregistration/mini/R.toml"
    path.write_text(path.read_text().replace("tax < 0.03", "tax < -0.9"))


def seal_of(root):
    return hashlib.sha256((root / "preregistration/mini/seals/R.sha256").read_bytes()).hexdigest()


def anchor_of(root):
    kvexp(root, "verify", "mini")
    return ceremony.evidence(root)["seals"][0]["anchor"]


def test_before_data_a_change_is_registered_with_its_diff(fresh):
    kvexp(fresh, "seal", "mini")
    kvexp(fresh, "stamp", "mini", "--own")
    before, anchor = seal_of(fresh), anchor_of(fresh)
    move_threshold(fresh)
    assert "kvexp amend mini R" in kvexp(fresh, "seal", "mini", code=2)
    assert "amended before-data" in kvexp(fresh, "amend", "mini", "R", *WHY)
    folder = fresh / "preregistration/mini/amendments/R-1"
    statement = tomllib.loads((folder / "amendment.toml").read_text())
    assert (statement["stage"], statement["replaces"], statement["why"]) == ("before-data", before, WHY[1])
    assert statement["files"] == {"preregistration/mini/R.toml": "changed"}
    diff = (folder / "change.diff").read_text()
    assert '-kill = "tax < 0.03"' in diff
    assert '+kill = "tax < -0.9"' in diff
    assert hashlib.sha256((folder / "R.sha256").read_bytes()).hexdigest() == before
    assert seal_of(fresh) != before
    done = subprocess.run(
        ["sha256sum", "-c", "--strict", "preregistration/mini/seals/R.sha256"], cwd=fresh, capture_output=True
    )
    assert done.returncode == 0
    assert b"amendments/R-1/amendment.toml: OK" in done.stdout
    assert anchor_of(fresh) == "unanchored"  # the old stamp vouches for the old seal only
    kvexp(fresh, "stamp", "mini", "--own")
    assert anchor_of(fresh) not in (anchor, "unanchored")
    kvexp(fresh, *RUN)
    kvexp(fresh, "verify", "mini")
    assert ceremony.holds(fresh)["amendment R-1"] is True
    assert "amended before data" in analysis(fresh, code=0)


def test_after_data_it_needs_what_was_seen_and_data_keep_their_anchor(unlocked):
    before, anchor = seal_of(unlocked), anchor_of(unlocked)
    move_threshold(unlocked)
    assert "--data-seen" in kvexp(unlocked, "amend", "mini", "R", *WHY, code=2)
    kvexp(unlocked, "amend", "mini", "R", *WHY, "--data-seen", 'the "verdicts"\n')
    kvexp(unlocked, "stamp", "mini", "--own")
    assert anchor_of(unlocked) == anchor
    assert seal_of(unlocked) != before
    (ceremony.shard(unlocked) / "footer.json").unlink()
    log = ceremony.shard(unlocked) / "generations.jsonl"
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:6]))
    kvexp(unlocked, *RUN)  # goes on under the new seal, with the old draws
    attempts = [json.loads(path.read_text()) for path in sorted(ceremony.shard(unlocked).glob("attempt-*"))]
    assert [a["seal"] for a in attempts] == [before, seal_of(unlocked)]
    assert len({a["anchor"] for a in attempts}) == 1
    kvexp(unlocked, "verify", "mini", "--replay", "8", "--seed", "2")
    assert ceremony.holds(unlocked)["replay"] is True
    said = analysis(unlocked, code=0)
    assert "amended after data" in said
    kvexp(unlocked, "lock", "mini")
    assert "amended after data" in analysis(unlocked, code=0)


def test_a_lock_is_made_again_for_an_amendment_and_the_first_one_stays(locked):
    first = (locked / "results/mini/locks/mini.sha256").read_bytes()
    move_threshold(locked)
    kvexp(locked, "amend", "mini", "R", *WHY, "--data-seen", "everything")
    kvexp(locked, "verify", "mini")
    assert ceremony.holds(locked)["lock mini"] is None
    said = " ".join(analysis(locked, code=0).split())
    assert "run kvexp lock mini mini --again, then kvexp verify mini" in said
    assert "was amended in preregistration/mini after the lock" in said
    assert "locked already" in kvexp(locked, "lock", "mini")
    kvexp(locked, "lock", "mini", "--again")
    assert (locked / "results/mini/locks/mini@1.sha256").read_bytes() == first
    assert (locked / "results/mini/locks/mini@1.tsr").exists()
    assert not (locked / "results/mini/locks/mini.tsr").exists()
    kvexp(locked, "verify", "mini")
    assert ceremony.holds(locked)["lock mini"] is True
    assert "amended after data" in analysis(locked, code=0)


def test_code_that_makes_data_is_amended_and_old_rows_count_only_if_that_is_said(unlocked):
    with (unlocked / "kvexp/estimate.py").open("a") as file:
        file.write("# mended\n")
    seen = ("--data-seen", "one shard failed")
    accepting = ceremony.copy(unlocked, unlocked.parent / "accepting")
    kvexp(unlocked, "amend", "mini", "R", "--why", "a bug", *seen)
    kvexp(accepting, "amend", "mini", "R", "--why", "a comment", *seen, "--accept-protocol")
    kvexp(unlocked, "verify", "mini")
    kvexp(accepting, "verify", "mini")
    assert [a["counts"] for a in ceremony.evidence(unlocked)["attempts"]] == [False, False]
    assert [a["counts"] for a in ceremony.evidence(accepting)["attempts"]] == [True, True]
    assert "INCOMPLETE" in analysis(unlocked, code=3)
    analysis(accepting, code=0)


def test_an_amendment_that_says_before_data_is_caught(unlocked):
    """The attempts are hidden while it is made."""
    results = unlocked / "results/mini"
    hidden = results.rename(unlocked / "hidden")
    move_threshold(unlocked)
    assert "before-data" in kvexp(unlocked, "amend", "mini", "R", *WHY)
    hidden.rename(results)
    kvexp(unlocked, "verify", "mini", code=4)
    assert ceremony.holds(unlocked)["amendment R-1"] is False


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("R", *WHY), "nothing that seal R"),
        (WHY, "say which registration"),
        (("Q", *WHY), "no registration 'Q'"),
    ],
)
def test_mistakes(locked, arguments, said):
    assert said in kvexp(locked, "amend", "mini", *arguments, code=2)


def test_an_amendment_needs_a_reason_and_a_seal(fresh):
    assert "not sealed" in kvexp(fresh, "amend", "mini", "R", *WHY, code=2)
    kvexp(fresh, "seal", "mini")
    move_threshold(fresh)
    assert "--why" in kvexp(fresh, "amend", "mini", "R", code=2)
    assert not (fresh / "preregistration/mini/amendments").exists()


def test_a_results_folder_stands_alone(locked):
    """Its registration is gone from the repository, or is another one by now."""
    expected = analysis(locked, code=0)
    shutil.rmtree(locked / "preregistration/mini")
    assert analysis(locked, code=0) == expected
    kvexp(locked, "verify", "mini")
    assert ceremony.holds(locked)["seal R"] is True
    assert ceremony.evidence(locked)["grade"] == 1


def test_a_lock_refuses_what_is_not_as_its_footer_says(unlocked):
    with (ceremony.shard(unlocked) / "generations.jsonl").open("a") as file:
        file.write("\n")
    assert "changed after footer.json" in kvexp(unlocked, "lock", "mini", code=4)
    assert not (unlocked / "results/mini/locks/mini.sha256").exists()


def test_a_complete_suite_needs_no_excuse(unlocked):
    assert "is complete" in kvexp(unlocked, "lock", "mini", "--incomplete", "why not", code=2)
    assert "no registration in" in kvexp(unlocked, "lock", "mini", "other", code=2)


def test_a_locked_suite_takes_no_rows(unlocked):
    shutil.rmtree(ceremony.shard(unlocked, 1))
    kvexp(unlocked, "lock", "mini", "--incomplete", "no time")
    assert "is locked" in kvexp(unlocked, *RUN, code=4)
    assert not ceremony.shard(unlocked, 1).exists()


def finish(root, arguments):
    """Run it again; the kill may have come when all was written, and then nothing has changed."""
    with contextlib.suppress(AssertionError):
        kvexp(root, *arguments)


def test_a_kill_at_any_moment_leaves_an_amendment_that_running_it_again_finishes(unlocked, monkeypatch):
    """Every write, copy, removal and renaming is once the last thing that happens."""
    kvexp(unlocked, "verify", "mini")
    move_threshold(unlocked)
    arguments = ("amend", "mini", "R", *WHY, "--data-seen", "everything")
    for step in range(40):
        root = ceremony.copy(unlocked, unlocked.parent / f"killed-{step}")
        left = [step]

        def dying(real, left=left):
            def call(*given, **named):
                if left[0] == 0:
                    raise KeyboardInterrupt
                left[0] -= 1
                return real(*given, **named)

            return call

        with monkeypatch.context() as patch:
            patch.setattr(amending, "write_whole", dying(amending.write_whole))
            patch.setattr(sealing, "write_whole", dying(sealing.write_whole))
            patch.setattr(amending.shutil, "copyfile", dying(shutil.copyfile))
            patch.setattr(type(root), "unlink", dying(type(root).unlink))
            patch.setattr(type(root), "rename", dying(type(root).rename))
            patch.chdir(root)
            patch.setattr(provenance, "PACKAGE", root / "kvexp")
            with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
                ended = cli.main(arguments)
        if ended == 0:
            break
        finish(root, arguments)
        kvexp(root, "verify", "mini")
        assert ceremony.holds(root)["amendment R-1"] is True
        assert not (root / "preregistration/mini/amendments/R-2").exists()
    assert step > 10


def test_code_that_an_amendment_accepts_is_listed_and_its_suite_can_be_locked(unlocked):
    with (unlocked / "kvexp/estimate.py").open("a") as file:
        file.write("# mended\n")
    said = kvexp(unlocked, "amend", "mini", "R", *WHY, "--data-seen", "all", "--accept-protocol")
    assert "kvexp/estimate.py" in said
    kvexp(unlocked, "lock", "mini")
    kvexp(unlocked, "verify", "mini")
    assert ceremony.holds(unlocked)["lock mini"] is True
    analysis(unlocked, code=0)


def test_an_amendment_cannot_be_rewritten_to_have_come_before_data(unlocked):
    move_threshold(unlocked)
    kvexp(unlocked, "amend", "mini", "R", *WHY, "--data-seen", "the verdicts")
    statement = unlocked / "preregistration/mini/amendments/R-1/amendment.toml"
    statement.write_text(
        statement.read_text().replace("after-data", "before-data").replace("attempts = 2", "attempts = 0")
    )
    manifest = unlocked / "preregistration/mini/seals/R.sha256"
    files = dict(read_manifest(manifest).files)
    manifest.write_bytes(seal.manifest(unlocked, files).body)
    kvexp(unlocked, "verify", "mini", code=4)
    assert "before-data" in analysis(unlocked, code=4)


def test_a_lock_needs_a_reason_that_says_something(unlocked):
    shutil.rmtree(ceremony.shard(unlocked, 1))
    assert "needs a reason" in kvexp(unlocked, "lock", "mini", "--incomplete", " ", code=2)


def git(root, *arguments):
    name = ("-c", "user.name=a test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *name, *arguments], cwd=root, capture_output=True, check=True)


def typed(root):
    """The lines to type that evidence.md prints for the seal before the first amendment."""
    lines = (root / "results/mini/evidence.md").read_text().splitlines()
    start = next(number for number, line in enumerate(lines) if "at the root of a clone:" in line)
    return [
        line.strip() for line in itertools.takewhile(lambda x: x.startswith(" " * 11), lines[start + 1 :])
    ]


def test_the_verdict_by_the_first_seal_can_be_had_by_typing_what_is_printed(fresh):
    (fresh / ".gitignore").write_text("__pycache__/\nresults/\nown-tsa/\n")
    git(fresh, "init", "-q")
    git(fresh, "add", "-A")
    git(fresh, "commit", "-qm", "registered")
    kvexp(fresh, "seal", "mini")
    kvexp(fresh, "stamp", "mini", "--own")
    first = seal_of(fresh)
    git(fresh, "add", "-A")
    git(fresh, "commit", "-qm", "sealed")
    kvexp(fresh, *RUN)
    kvexp(fresh, "lock", "mini")
    for number, threshold in enumerate(("-0.9", "-0.8"), start=1):
        path = fresh / "preregistration/mini/R.toml"
        path.write_text(path.read_text().replace("tax < 0.03", "tax < -0.9").replace("-0.9", threshold))
        git(fresh, "commit", "-qam", "another threshold")
        kvexp(fresh, "amend", "mini", "R", *WHY, "--data-seen", f"the verdicts {number}")
        git(fresh, "add", "-A")
        git(fresh, "commit", "-qm", "amended")
    kvexp(fresh, "lock", "mini", "--again")
    kvexp(fresh, "verify", "mini")
    assert ceremony.holds(fresh)["R before its data"] is None
    assert "contradicted: existing data is said to be before-creation" in str(
        ceremony.evidence(fresh)["checks"]
    )
    said = analysis(fresh, code=0)
    assert "AMENDED AFTER DATA" in said.splitlines()[0]
    assert said.splitlines()[-1] == "study mini, UNWITNESSED, AMENDED AFTER DATA"
    full = (fresh / "results/mini/evidence.md").read_text()
    flat = " ".join(full.split())
    assert f"AMENDMENTS of R, first sealed as {first[:12]}" in flat
    assert "R-1 amended after data, 2 attempts and 0 recorded looks: the threshold was a typing error" in flat
    assert '- kill = "tax < 0.03" + kill = "tax < -0.9"' in flat
    assert "touches S3 (kill)" in flat
    stamped = ceremony.evidence(fresh)["amendments"][0]["stamps"][0]
    assert f"seal {first[:12]} stamped {stamped['time']}" in flat
    done = subprocess.run(
        ["bash", "-euc", "\n".join(typed(fresh))],
        cwd=fresh,
        env={**project.environment(), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert f"seal {first[:12]}" in done.stdout
    assert "kill: tax < 0.03" in done.stdout
    assert "AMENDED" not in done.stdout
    assert "PREVIEW, not evidence yet: suite mini is not locked" in done.stdout


def test_a_seal_without_a_commit_says_why_there_is_no_command(unlocked):
    move_threshold(unlocked)
    kvexp(unlocked, "amend", "mini", "R", *WHY, "--data-seen", "all")
    analysis(unlocked, code=0)
    full = " ".join((unlocked / "results/mini/evidence.md").read_text().split())
    assert "no command, the seal names no commit" in full
