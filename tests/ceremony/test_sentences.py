"""What a person is told by stamp, lock and verify when a word is missing or a file is the wrong one."""

import pytest

from tests.ceremony import ceremony
from tests.ceremony.ceremony import kvexp

WORD = "suite.n_examples=2"


@pytest.fixture
def sealed(fresh):
    kvexp(fresh, "seal", "mini", WORD)
    return fresh


def test_a_reply_needs_its_query_and_must_answer_it(sealed):
    reply = ("stamp", "mini", "R", WORD, "--reply")
    query = "preregistration/mini/seals/R.tsq"
    said = kvexp(sealed, *reply, "requirements.lock", code=2)
    assert (
        f"R has no query yet, which a reply could answer: `kvexp stamp mini R {WORD} --query` writes it"
        in said
    )
    said = kvexp(sealed, "stamp", "mini", WORD, "--query")
    assert f"post {query} to an authority" in said
    assert f"kvexp stamp mini R {WORD} --reply FILE" in said
    kvexp(sealed, "stamp", "mini", "--own", WORD)
    token = sealed / "preregistration/mini/seals/R.tsr"
    other = token.rename(sealed / "other.tsr")
    (sealed / query).unlink()
    kvexp(sealed, "stamp", "mini", WORD, "--query")  # a nonce of its own
    for name, why in (
        ("requirements.lock", "no time stamp that can be read"),
        ("other.tsr", "the token answers another query"),
    ):
        said = kvexp(sealed, *reply, name, code=4)
        assert f"{name} is not taken for R: " in said
        assert why in said
        assert f"give the answer to {query}" in said
    assert "is the query itself" in kvexp(sealed, *reply, query, code=2)
    assert "nothing.tsr cannot be read" in kvexp(sealed, *reply, "nothing.tsr", code=4)
    assert not token.exists()
    assert other.exists()


def test_a_name_that_stamp_does_not_know_and_two_that_it_could_mean(locked):
    assert "no seal or lock 'Q' (there are: R, mini)" in kvexp(locked, "stamp", "mini", "Q", code=2)
    said = kvexp(locked, "stamp", "mini", "--reply", "x", code=2)
    assert "kvexp stamp mini R --reply ... (there are R, mini)" in said


def test_a_replay_without_the_words_of_the_seal_says_which_are_missing(sealed):
    kvexp(sealed, "submit", "mini", "cluster=debug", WORD)
    said = kvexp(sealed, "verify", "mini", "--replay", "1", code=4)
    assert f"it was sealed with {WORD}, which this command lacks" in said
    assert "n_examples 2, now 4" in said
    kvexp(sealed, "verify", "mini", "--replay", "1", WORD)
    assert ceremony.holds(sealed)["replay"] is True


def test_a_replay_of_a_study_without_a_seal_says_what_differs(fresh):
    kvexp(fresh, "submit", "mini", "cluster=debug", WORD)
    said = kvexp(fresh, "verify", "mini", "--replay", "1", code=4)
    assert "n_examples 2, now 4" in said


def test_every_next_command_carries_the_words_of_this_one(sealed):
    told = [kvexp(sealed, "stamp", "mini", WORD, "--query"), kvexp(sealed, "seal", "mini", WORD)]
    told.append(kvexp(sealed, "submit", "mini", "cluster=debug", WORD))
    told.append(kvexp(sealed, "lock", "mini", WORD))
    for said in told:
        commands = [line for line in said.splitlines() if "kvexp stamp" in line]
        assert commands, said
        assert all(f"{WORD}" in line for line in commands)
