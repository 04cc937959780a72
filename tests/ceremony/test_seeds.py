"""What the bootstrap's seeds are made from, and which format a new seal takes."""

import pytest

from analysis.core import decide
from analysis.core.folders import Folders
from analysis.core.seals import read_seals, seeded
from kvexp.ceremony import seal
from kvexp.ceremony.authorities import load_trust
from kvexp.ceremony.stamp import read_token
from kvexp.documents.anchor import DerError, stated
from kvexp.documents.manifest import SealError
from kvexp.documents.registration import load
from kvexp.documents.seals import seed_basis
from tests.ceremony import ceremony
from tests.ceremony.ceremony import kvexp

FIRST = (
    ceremony.REGISTRATION.replace("kvexp-registration/2", "kvexp-registration/1")
    .split("\n[claim.S3.witness]")[0]
    .replace('minus success of poisson" }', 'minus success of poisson", range = [-1, 1] }')
)
WHY = ("--why", "a word", "--data-seen", "none")


def home(root):
    return root / "preregistration/mini"


def anchor(root):
    return read_token(home(root) / "seals/R.sha256", load_trust(root, home(root))).anchor


def reword(root):
    path = home(root) / "R.toml"
    path.write_text(
        path.read_text().replace("Randomising costs accuracy.", "Randomising costs much accuracy.")
    )


def test_seeds_come_from_the_stamp_of_the_first_seal_whatever_is_amended(fresh):
    kvexp(fresh, "seal", "mini")
    assert seed_basis(home(fresh), "R") == "unanchored mini R"
    kvexp(fresh, "stamp", "mini", "--own")
    first = anchor(fresh)
    assert seed_basis(home(fresh), "R") == first
    reword(fresh)
    kvexp(fresh, "amend", "mini", "R", *WHY)
    assert seed_basis(home(fresh), "R") == first
    kvexp(fresh, "stamp", "mini", "--own")
    assert anchor(fresh) != first  # keys the draws, of which there were none
    assert seed_basis(home(fresh), "R") == first


def test_the_analysis_takes_them_from_the_seal_or_else_from_the_names(locked, unsealed):
    one = load(home(locked) / "R.toml", decide.CLAIMS)
    folders = Folders(locked / "results/mini", locked)
    found = seeded(one, read_seals([one], folders), "mini")
    assert found.basis == anchor(locked)
    assert found.seed("S3") == found.question("S3").seed != one.question("S3").seed
    bare = load(home(unsealed) / "R.toml", decide.CLAIMS)
    assert seeded(bare, {}, "mini").basis == "unanchored mini R"
    assert seeded(bare, {}, "another").seed("S3") != seeded(bare, {}, "mini").seed("S3")
    first = ceremony.register(locked, "R", FIRST)
    old = load(first, decide.CLAIMS)
    assert seeded(old, {}, "mini").basis == old.digest


def test_a_reply_that_is_no_stamp_of_the_first_seal_gives_no_seeds(unlocked):
    reply = home(unlocked) / "seals/R.tsr"
    body = reply.read_bytes()
    reply.write_bytes(body.replace(bytes.fromhex(stated(body).imprint), bytes(32)))
    with pytest.raises(SealError, match=r"R.tsr is about another file than R.sha256: restore it"):
        seed_basis(home(unlocked), "R")
    for broken in (b"", b"a reply", body[:200], body[:40]):
        reply.write_bytes(broken)
        with pytest.raises(SealError, match=r"R.tsr is no time stamp \("):
            seed_basis(home(unlocked), "R")
    assert "R.tsr is no time stamp (" in " ".join(ceremony.analysis(unlocked, code=4).split())


@pytest.mark.parametrize("length", range(0, 4000, 61))
def test_any_piece_of_a_reply_is_read_or_refused(performed, length):
    body = (home(performed) / "seals/R.tsr").read_bytes()
    try:
        found = stated(body[:length])
    except DerError:
        return
    assert found == stated(body)


def test_what_was_never_sealed_is_sealed_in_the_second_format_alone(fresh, monkeypatch):
    ceremony.register(fresh, "R", FIRST)
    said = kvexp(fresh, "seal", "mini", code=2)
    assert "R.toml has the format kvexp-registration/1, in which only a study that was sealed in it" in said
    assert 'write format = "kvexp-registration/2", leave range and count away' in " ".join(said.split())
    assert not (home(fresh) / "seals").exists()

    with monkeypatch.context() as patch:  # as version 1 sealed it
        patch.setattr(seal, "_refuse_first_format", lambda *_: None)
        kvexp(fresh, "seal", "mini")
    kvexp(fresh, "seal", "mini")
    reword(fresh)
    kvexp(fresh, "amend", "mini", "R", *WHY)
    assert load(home(fresh) / "R.toml", decide.CLAIMS).is_first_format

    ceremony.register(fresh, "R", ceremony.REGISTRATION)
    kvexp(fresh, "amend", "mini", "R", *WHY)
    ceremony.register(fresh, "R", FIRST)
    assert "has the format kvexp-registration/1" in kvexp(fresh, "amend", "mini", "R", *WHY, code=2)
