"""Amendments in the evidence, and folders that lie elsewhere: words by hand."""

from types import SimpleNamespace

import pytest

from analysis.core.folders import MUST_BE_HERE, Folders
from analysis.render import evidence
from kvexp.documents.seals import Seals
from kvexp.errors import IntegrityError


@pytest.mark.parametrize("name", [*MUST_BE_HERE, "short"])
def test_a_folder_of_results_that_is_a_link_is_refused(tmp_path, name):
    results = tmp_path / "results" / "mini"
    results.mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    Folders(results, tmp_path).refuse_links(["short"])
    (results / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(IntegrityError, match=f"{name} is a link: put the folder itself there"):
        Folders(results, tmp_path).refuse_links(["short"])


def test_the_mandatory_folders_are_those_that_bind_a_study():
    assert set(MUST_BE_HERE) == {"locks", "examples", "preregistration"}


def step(before=None, commit="c0ffee"):
    stated = SimpleNamespace(replaces="a" * 64, registration="S", number=1)
    return SimpleNamespace(stated=stated, before=before, commit=commit, name="S-1")


def sealed(folder, name, code):
    folder.mkdir(parents=True)
    lines = (("analysis/core/decide.py", code), (f"preregistration/mini/{name}.toml", "1" * 64))
    text = "".join(f"{digest}  {path}\n" for path, digest in lines)
    (folder / f"{name}.sha256").write_text(text)
    return Seals(folder, name)


@pytest.mark.parametrize("same", [True, False])
def test_an_addendum_is_judged_again_only_beside_a_seal_of_its_parent_by_the_same_code(tmp_path, same):
    before = sealed(tmp_path / "amendments" / "S-1", "S", "2" * 64)
    sealed(tmp_path / "seals", "R", "2" * 64 if same else "3" * 64)
    parent = SimpleNamespace(home=tmp_path, name="R", where="preregistration/mini")
    told = list(
        evidence.commands(step(before), "mini", SimpleNamespace(where="preregistration/mini"), parent)
    )
    if same:
        assert told[0].endswith("PREVIEW because no lock is of it; at the root of a clone:")
        assert "git worktree add ../mini-before-S-1 c0ffee" in told[1]
    else:
        assert len(told) == 1
        assert told[0].endswith("no command, no seal of its parent was made by the same code")


def test_a_seal_without_a_commit_has_no_command():
    told = list(evidence.commands(step(commit=None), "mini", SimpleNamespace(where="x"), None))
    assert len(told) == 1
    assert "the seal names no commit" in told[0]


def report(found):
    shown = SimpleNamespace(evidence=found)
    return SimpleNamespace(bound=SimpleNamespace(shown=shown), study=SimpleNamespace(name="mini"))


def test_whether_a_replaced_seal_had_a_time_stamp_is_said_only_where_it_is_known():
    asked = ": for its time stamp run kvexp verify mini"
    assert evidence._amended_when(step(), report(None)) == asked
    without = SimpleNamespace(amendments=[SimpleNamespace(replaces="a" * 64, stamps=[])])
    assert evidence._amended_when(step(), report(without)) == ": no time stamp"
    stamped = SimpleNamespace(amendments=[SimpleNamespace(replaces="a" * 64, stamps=["one"])])
    assert evidence._amended_when(step(), report(stamped)) == ""
