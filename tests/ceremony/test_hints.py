"""Every command that is printed works as typed, under another name of the study and a changed grid too."""

import re

import pytest

from kvexp.verbs import stamp
from tests.ceremony import ceremony
from tests.ceremony.ceremony import kvexp

NAME, WORD = "study.name=mine", "suite.n_examples=2"
STUDY = ("mini", NAME, WORD)
VERBS = "plan|fetch|seal|stamp|submit|status|lock|verify|verdicts|report|amend|new-study"
# What may follow a verb: a study, a suite, an id, an option, an override, what an author fills in.
PART = r"(?:mini|mine|[A-Z]+|\d+|--[a-z-]+|[\w.]+=[^\s,;:`')]+)"
HINT = re.compile(rf"kvexp (?:{VERBS})(?: {PART})*")
RUN = ("cluster=debug",)


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    """A stamp as it is hinted at asks a public authority: here, an own one answers."""
    homes = []
    real = stamp._stamp

    def known(parsed, home, *rest):
        homes.append(home)
        return real(parsed, home, *rest)

    monkeypatch.setattr(stamp, "_stamp", known)
    monkeypatch.setattr(stamp, "network_answer", lambda trusts, wanted: stamp.own_answer(homes[-1]))


def hints(said):
    return list(dict.fromkeys(HINT.findall(said)))


def needed(said):
    """Without those that are open to whoever wants to see more, or judges by code that has changed since."""
    return [hint for hint in hints(said) if "--decode" not in hint and "--as-sealed" not in hint]


def try_all(root, said, tmp_path, *expected):
    """Run every printed command in a copy of the project; returns them."""
    found = hints(said)
    assert [hint.split()[1] for hint in found] == list(expected), said
    for number, hint in enumerate(found):
        there = ceremony.copy(root, tmp_path / f"{root.name}-{len(list(tmp_path.iterdir()))}-{number}")
        words = hint.split()[1:]
        kvexp(there, *words, *(RUN if words[0] == "submit" else ()))
    return found


def test_before_a_seal(fresh, tmp_path):
    said = kvexp(fresh, "status", *STUDY, code=3)
    try_all(fresh, said, tmp_path, "submit")
    said = kvexp(fresh, "stamp", *STUDY, code=2)
    try_all(fresh, said, tmp_path, "seal")
    kvexp(fresh, "submit", *STUDY, *RUN)
    for words, code, expected in (
        (("submit", *STUDY, *RUN), 0, ["seal"]),
        (("status", *STUDY), 0, []),
        (("verify", *STUDY), 0, ["verify"]),
        (("lock", *STUDY), 2, ["seal"]),
        (("stamp", *STUDY), 2, ["seal"]),
    ):
        said = kvexp(fresh, *words, code=code)
        tried = try_all(fresh, said, tmp_path, *expected)
        assert all("--copy" in hint for hint in tried if " seal " in hint)


def test_beside_the_seals_of_another_study(fresh, tmp_path):
    kvexp(fresh, "seal", "mini")
    for verb in ("seal", "verify"):
        said = kvexp(fresh, verb, *STUDY, code=2)
        try_all(fresh, said, tmp_path, "seal", "new-study")


@pytest.mark.slow
def test_the_whole_ceremony_by_typing_what_is_printed(fresh):
    said = kvexp(fresh, "seal", *STUDY, "--copy")
    (hint,) = hints(said)
    kvexp(fresh, *hint.split()[1:])
    assert hints(kvexp(fresh, "submit", *STUDY, *RUN)) == []
    found = hints(kvexp(fresh, "lock", *STUDY))
    assert [hint.split()[1] for hint in found] == ["stamp", "verify"]
    for hint in found:
        kvexp(fresh, *hint.split()[1:])
    assert needed(kvexp(fresh, "verify", *STUDY)) == []

    # The claims are changed after the lock: restore them, or amend and lock again.
    claims = fresh / "results/mine/preregistration/R.toml"
    claims.write_text(claims.read_text().replace('kill = "tax < 0.03"', 'kill = "tax < 0.05"'))
    said = kvexp(fresh, "verify", *STUDY, code=4)
    amend, lock = needed(said)
    assert [amend.split()[1], lock.split()[1]] == ["amend", "lock"]
    kvexp(fresh, *amend.split()[1:])
    said = kvexp(fresh, "verify", *STUDY)
    assert lock in hints(said)
    kvexp(fresh, *lock.split()[1:])
    assert needed(kvexp(fresh, "verify", *STUDY)) == []


def test_what_is_sealed_and_changed_names_the_amendment(fresh, tmp_path):
    kvexp(fresh, "seal", *STUDY, "--copy")
    kvexp(fresh, "submit", *STUDY, *RUN)
    claims = fresh / "results/mine/preregistration/R.toml"
    claims.write_text(claims.read_text().replace("Randomising costs", "Randomising may cost"))
    for verb in ("submit", "seal", "lock"):
        said = kvexp(fresh, verb, *STUDY, *(RUN if verb == "submit" else ()), code=2 if verb == "seal" else 4)
        try_all(fresh, said, tmp_path, "amend")
    said = kvexp(fresh, "amend", *STUDY, code=2)
    try_all(fresh, said, tmp_path, "amend")


def test_a_renamed_study_is_known_by_its_name_alone(fresh):
    """The analysis, which knows no overrides, says `kvexp verify mine`."""
    kvexp(fresh, "submit", *STUDY, *RUN)
    for words in (("status", "mine"), ("verify", "mine"), ("plan", "study=mine"), ("submit", "mine", *RUN)):
        said = kvexp(fresh, *words)
        assert "mine" in said
        assert (fresh / "results/mine/grid.jsonl").read_text().count("\n") == 2 * 6
    kvexp(fresh, "submit", *STUDY, *RUN)  # and by its words, as ever
    assert "there is no study 'other'" in kvexp(fresh, "status", "other", code=2)
    (fresh / "results/mine/words.json").write_text('{"words": ["study=${oc.env:HOME}", "study.name=mine"]}')
    assert "there is no study 'mine'" in kvexp(fresh, "verify", "mine", code=2)
    (fresh / "results/mine/words.json").write_text("[" * 100_000)
    assert "there is no study 'mine'" in kvexp(fresh, "verify", "mine", code=2)
