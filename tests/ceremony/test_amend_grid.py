"""An amendment and the grid: what was forgotten on the command line is not registered as a change."""

import pytest

from kvexp.ceremony.grid_changes import config_changes, grid_changes
from kvexp.documents.forms import SealedShard
from tests.ceremony import ceremony
from tests.ceremony.ceremony import kvexp

WHY = ("--why", "a typing error")
WORD = "suite.n_examples=2"


@pytest.fixture
def sealed(fresh):
    kvexp(fresh, "seal", "mini", WORD)
    return fresh


def change(root):
    path = root / "preregistration/mini/R.toml"
    path.write_text(path.read_text().replace("tax < 0.03", "tax < -0.9"))


def test_a_forgotten_override_is_refused_and_named(sealed):
    seals = sealed / "preregistration/mini/seals"
    before = {path.name: path.read_bytes() for path in seals.iterdir()}
    for edit in (lambda root: None, change):
        edit(sealed)
        said = kvexp(sealed, "amend", "mini", "R", *WHY, code=2)
        assert f"it was sealed with {WORD}, which this command lacks" in said
        assert "added  mini.tiny.words.001 (12 rows)" in said
        assert "changed  mini.tiny.words.000: n_examples 2, now 4" in said
        assert "--change-grid" in said
    assert {path.name: path.read_bytes() for path in seals.iterdir()} == before
    assert not (sealed / "preregistration/mini/amendments").exists()
    said = kvexp(sealed, "amend", "mini", "R", *WHY, WORD)
    assert "1 file, the same grid" in said
    assert said.rstrip().endswith(f"kvexp stamp mini R {WORD}")


def test_a_grid_that_shall_change_is_shown_and_kept(sealed):
    said = kvexp(sealed, "amend", "mini", "R", *WHY, "--change-grid")
    assert "0 files, 2 shards of the grid" in said
    assert "grid: added  mini.tiny.words.001 (12 rows)" in said
    diff = (sealed / "preregistration/mini/amendments/R-1/change.diff").read_text()
    assert "# grid: added  mini.tiny.words.001 (12 rows)\n" in diff
    kvexp(sealed, "verify", "mini")
    assert ceremony.holds(sealed)["amendment R-1"] is True
    kvexp(sealed, "submit", "mini", "cluster=debug")


def test_code_that_makes_data_is_no_change_of_the_grid(sealed):
    with (sealed / "kvexp/estimate.py").open("a") as file:
        file.write("# mended\n")
    assert "the same grid" in kvexp(sealed, "amend", "mini", "R", *WHY, WORD)


def test_an_amendment_that_was_broken_off_is_not_finished_under_other_words(sealed, monkeypatch):
    from kvexp.ceremony import amend

    change(sealed)
    with monkeypatch.context() as patch:
        patch.setattr(amend, "read_amendment", lambda folder: (_ for _ in ()).throw(KeyboardInterrupt))
        kvexp(sealed, "amend", "mini", "R", *WHY, WORD, code=130)
    assert (sealed / "preregistration/mini/amendments/R-1").is_dir()
    assert "--change-grid" in kvexp(sealed, "amend", "mini", "R", *WHY, code=2)
    kvexp(sealed, "amend", "mini", "R", *WHY, WORD)


def shard(name, **changes):
    fields = {
        "suite": "s",
        "shard_id": name,
        "shard_digest": "1" * 64,
        "protocol_digest": "2" * 64,
        "rows": 3,
        "grid_sha256": "3" * 64,
        "questions_sha256": "4" * 64,
        "model_digest": "5" * 64,
        "config": {"protocol_digest": "2" * 64, "n": 1, "task": {"name": "t"}},
    }
    return SealedShard(**{**fields, **changes})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, []),
        ({"protocol_digest": "9" * 64, "shard_digest": "9" * 64}, []),
        ({"config": {"protocol_digest": "9" * 64, "n": 1, "task": {"name": "t"}}}, []),
        ({"rows": 4}, ["changed  a: 3 rows, now 4"]),
        ({"questions_sha256": "9" * 64}, ["changed  a: its questions or references are others"]),
        ({"model_digest": None}, ["changed  a: the files of its model are others"]),
        ({"shard_id": "b"}, ["removed  a (3 rows)", "added  b (3 rows)"]),
        (
            {"config": {"protocol_digest": "2" * 64, "task": {"name": "u"}}},
            ["changed  a: n 1, now absent; task.name t, now u"],
        ),
    ],
)
def test_what_counts_as_a_change(changes, said):
    assert grid_changes([shard("a")], [shard("a", **changes)]) == said


def test_fields_in_lists_have_their_place_and_many_are_counted():
    before = {"arms": [[{"name": "full"}, {"budgets": []}]], "ids": ["a"], **{f"x{i}": 0 for i in range(9)}}
    assert config_changes(before, {**before, "arms": [[{"name": "topk"}, {"budgets": [0.5]}]]}) == [
        "arms.0.0.name full, now topk",
        "arms.0.1.budgets [], now [0.5]",
    ]
    found = config_changes(before, {**before, **{f"x{i}": 1 for i in range(9)}})
    assert found[-1] == "and 5 fields more"
    assert config_changes(before, before) == []
