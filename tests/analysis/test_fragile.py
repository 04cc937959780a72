"""How much verdicts hang on the bootstrap's seed, against deciding again from scratch."""

import json
from dataclasses import replace

import pytest

from analysis.core import decide as claims
from analysis.core import estimates, statistics
from analysis.core.data import Data
from analysis.core.decide import SEEDS, answer, decide, fragile
from analysis.core.verdict_json import to_json
from analysis.core.verdict_text import verdict_table
from analysis.core.verdicts import Report
from kvexp.documents.registration import load_folder
from tests.planted import World


@pytest.fixture(scope="module")
def few(quick):
    """R and S with few draws: as many seeds, each soon drawn."""
    return load_folder(quick, claims.CLAIMS)


def by_hand(study, registered, claim_id, own):
    """The states of other seeds, each decided as the claim itself is."""
    question = registered.question(claim_id)
    other = [replace(question, seed=registered.seed(f"{claim_id} {k}")) for k in range(1, SEEDS + 1)]
    return sum(answer(study, one).state is not own for one in other)


WORLDS = {
    "chance": World(),
    "strong": World(difficulty={"certificate": 3.0, "evicted_mass": 1.2}),
}


@pytest.mark.parametrize("name", WORLDS)
def test_other_seeds_give_what_deciding_again_gives(plant, few, name):
    study = plant(WORLDS[name])
    for registered in few:
        for verdict in decide(study, registered):
            found = fragile(study, verdict)
            expected = by_hand(study, registered, verdict.claim_id, verdict.answer.state)
            assert found is not None
            assert (found.differ, found.of) == (expected, SEEDS), verdict.claim_id


def test_a_verdict_on_the_edge_is_fragile(plant, quick, few, tmp_path, monkeypatch):
    study = plant(World())
    hi = decide(study, few[0])[2].answer.quantities["gain"].hi
    for path in quick.iterdir():
        text = path.read_text().replace('kill = "gain.hi < 0"', f'kill = "gain.hi < {hi:.4f}"')
        (tmp_path / path.name).write_text(text)
    (registered, _) = load_folder(tmp_path, claims.CLAIMS)
    verdict = decide(study, registered)[2]
    redrawn, seeds = Data.redrawn, []
    monkeypatch.setattr(Data, "redrawn", lambda data, one: seeds.append(one) or redrawn(data, one))
    found = fragile(study, verdict)
    assert seeds == [registered.seed(f"R3 {k}") for k in range(1, SEEDS + 1)]
    assert 0 < found.differ < SEEDS
    assert found.differ == by_hand(study, registered, "R3", verdict.answer.state)
    report = Report(study, [registered], [replace(verdict, fragile=found)])
    assert f"fragile {found.differ}/20" in " ".join(verdict_table(report))
    (claim,) = json.loads(to_json(report))["claims"]
    assert claim["fragile"] == {"differ": found.differ, "of": 20}


def test_values_alone_are_never_drawn_again(plant, registrations, monkeypatch):
    study = plant(World())
    verdicts = {verdict.claim_id: verdict for one in registrations for verdict in decide(study, one)}
    monkeypatch.setattr(Data, "redrawn", lambda *_: pytest.fail("drawn"))
    # R1 is killed by its value, whatever its support counts.
    for claim_id in ("R1", "S1", "S2", "S3"):
        assert fragile(study, verdicts[claim_id]).differ == 0
    with pytest.raises(pytest.fail.Exception):
        fragile(study, verdicts["R3"])


def test_an_undecided_claim_has_no_number(plant, registrations):
    study = plant(World(full=1.0, induced=lambda row: 0.0, rescued=1.0))
    verdict = decide(study, registrations[0])[0]
    assert fragile(study, verdict) is None


def test_an_interval_is_computed_when_it_is_read():
    asked = []
    whole = estimates.Estimate(0.5, 0.4, 0.6, 10, 5)

    def compute():
        asked.append(1)
        return whole

    later = estimates.Later(estimates.Estimate(0.5, n=10, clusters=5), compute)
    assert (later.value, later.n, later.clusters, later.undefined, str(later), asked) == (
        0.5,
        10,
        5,
        "",
        "",
        [],
    )
    assert later.noted("more").lo == 0.4
    assert (later.hi, asked) == (0.6, [1])


def test_an_estimate_without_a_value_says_why_before_its_interval_is_asked_for():
    point = estimates.Estimate(None, n=3, clusters=2, undefined="no row is positive")
    later = estimates.Later(point, lambda: point)
    assert (later.value, later.n, later.clusters, later.undefined) == (None, 3, 2, "no row is positive")
    counted = statistics.count([later, estimates.Estimate(0.7, 0.6, 0.8)], lambda one: True)
    assert (counted.value, counted.undefined) == (None, "cannot be counted: no row is positive")
