"""What verify says in words: of stamps that clocks cannot order, of existing data, of files that moved on."""

import shutil
from types import SimpleNamespace
from typing import get_args, get_type_hints

import pytest

from kvexp.ceremony.checks import _clocks
from kvexp.ceremony.evidence import MEANS, told
from kvexp.cli import main
from kvexp.documents.schema import Registration
from tests.ceremony.ceremony import evidence, holds, kvexp


@pytest.mark.parametrize(
    ("first", "stamped", "said", "does_hold"),
    [
        ("2026-01-01T00:00:02Z", "2026-01-01T00:00:01Z", ") after the time stamp (", True),
        ("2026-01-01T00:00:01Z", "2026-01-01T00:00:01Z", "in the very second of the time stamp", True),
        ("2026-01-01T00:00:01Z", "2026-01-01T00:00:01.9Z", "in the very second of the time stamp", True),
        ("2026-01-01T00:00:01Z", "2026-01-01T00:00:02Z", ") BEFORE the time stamp (", None),
    ],
)
def test_clocks_order_seconds_and_nothing_finer(first, stamped, said, does_hold):
    stamp = SimpleNamespace(time=stamped, anchor="a")
    found = SimpleNamespace(seals={"R": SimpleNamespace(stamps=[stamp], anchor="a")}, amendments=[])
    (check,) = _clocks(found, "R", first)
    assert (said in check.words, check.holds) == (True, does_hold)


def test_every_level_of_existing_data_has_words():
    levels = get_args(get_type_hints(Registration)["existing_data"])
    assert set(levels) == set(MEANS)
    assert told("before-creation") == "there were none yet (before-creation)"


KILL = ('kill = "tax < 0.03"', 'kill = "tax < 0.05"')


def change(path, before, after):
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))


def test_an_edit_after_the_lock_is_said_above_the_table_with_its_fields(locked, monkeypatch, capfd):
    kvexp(locked, "verify", "mini")
    shown = kvexp(locked, "verify", "mini")
    assert "existing data: there were none yet (before-creation)" in shown
    assert "judged by" not in shown
    change(locked / "preregistration/mini/R.toml", *KILL)
    change(locked / "preregistration/mini/R.toml", "authors = [", "registrations_made = 2\nauthors = [")
    said = kvexp(locked, "verify", "mini", code=4)
    assert holds(locked)["seal R"] is False
    (locked / "results/mini/evidence.json").unlink()
    monkeypatch.chdir(locked)
    monkeypatch.setenv("PYTHONPATH", str(locked))
    assert main(["verdicts", "mini"]) == 0
    table = capfd.readouterr().out
    for text in (said, table):
        judged, *_ = text.splitlines()
        assert judged.startswith("registration R: judged by results/mini/locks/registration/R.toml (sha256 ")
        assert judged.endswith("preregistration/mini/R.toml differs from it and judges nothing:")
        assert "  claim.S3.kill: 'tax < 0.03', in the working file 'tax < 0.05'\n" in text
        assert "  registrations_made: absent, in the working file 2\n" in text
        assert "cp results/mini/locks/registration/R.toml preregistration/mini/R.toml; or" in text
        assert "kvexp amend mini R --why WHY --data-seen WHAT, then kvexp lock mini mini --again\n" in text
    assert table.index("judged by") < table.index("kill: tax < 0.03")
    assert main(["verdicts", "mini", "--json"]) == 0
    out, err = capfd.readouterr()
    assert out.startswith("{")
    assert "judged by" in err
    # What is said to do is done.
    shutil.copyfile(locked / "results/mini/locks/registration/R.toml", locked / "preregistration/mini/R.toml")
    assert "judged by" not in kvexp(locked, "verify", "mini")


def test_of_a_copy_that_is_sealed_the_original_is_told_too(fresh):
    kvexp(fresh, "seal", "mini", "--copy")
    change(fresh / "preregistration/mini/R.toml", *KILL)
    said = kvexp(fresh, "verify", "mini")
    assert "R: judged by results/mini/preregistration/R.toml (" in said
    assert "made in results/mini/preregistration/R.toml and amended there: kvexp amend mini R " in said
    change(fresh / "preregistration/mini/R.toml", *KILL[::-1])
    with (fresh / "preregistration/mini/R.toml").open("a") as file:
        file.write("# a remark\n")
    assert "  in comments or layout only\n" in kvexp(fresh, "verify", "mini")
    (fresh / "preregistration/mini/R.toml").write_text("[[[\x1b[31m")
    assert "  it cannot be read: " in kvexp(fresh, "verify", "mini")
    assert evidence(fresh)["home"] == "results/mini/preregistration"
    # Under another name the original is another study's.
    said = kvexp(fresh, "verify", "mini", "study.name=other", code=2)
    assert "judged by" not in said


WORDS = [
    ("suite=mini", "suite=mini: {verb} is about the whole study, no suite of it"),
    ("model=tiny", "model=tiny: {verb} is about the whole study, no model of it"),
    ("task=words", "task=words: {verb} is about the whole study, no task of it"),
    ("suite=6k", "has no suite '6k'"),
    ("bogus=1", "there is no group 'bogus'"),
    (
        "suite.n_examples=2",
        "suite.n_examples=2 does not fit results/mini, which was {how} otherwise (mini.tiny.",
    ),
    ("model.tiny.dtype=float16", "model.dtype float32, now float16): leave it out"),
]


@pytest.mark.parametrize(("word", "said"), WORDS)
def test_words_that_do_not_concern_or_fit_are_refused_by_what_judges(performed, word, said):
    for verb in ("verdicts", "report", "verify", "lock"):
        if (verb, word) == ("lock", "suite=mini"):
            assert "mini: locked already" in kvexp(performed, verb, "mini", word)
            continue
        shown = kvexp(performed, verb, "mini", word, code=2)
        assert said.format(verb=verb, how="sealed") in shown
        assert len(shown.splitlines()) == 1


def test_more_words_that_are_refused(performed):
    assert "'R' is no part" in kvexp(performed, "verify", "mini", "R", code=2)
    for verb in ("seal", "stamp", "amend"):
        assert f"{verb} is about the whole study" in kvexp(performed, verb, "mini", "suite=mini", code=2)


def test_without_a_seal_words_are_held_against_what_was_run(fresh):
    kvexp(fresh, "submit", "mini", "cluster=debug")
    same = ("suite.n_examples=4", "suite.mini.shard_examples=2")
    for word in same:  # other words for the same grid
        kvexp(fresh, "verify", "mini", word)
    said = kvexp(fresh, "verify", "mini", "suite.n_examples=3", code=2)
    assert "which was run otherwise (mini.tiny.words.000: n_examples 4, now 3" in said
    said = kvexp(
        fresh, "verdicts", "mini", "study.suites=[mini,demo-512]", "study.models=[smollm2-135m]", code=2
    )
    assert "its shard mini.tiny.words.000 is none of theirs" in said
