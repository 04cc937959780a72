"""Planted logs reach every verdict that a claim can have."""

import itertools
import re
from types import SimpleNamespace

import msgspec
import pytest

from analysis.core.data import Data
from analysis.core.decide import answer, decide
from analysis.core.study import load
from kvexp.documents.condition import State, parse, verdict
from kvexp.documents.schema import Variant
from kvexp.documents.source import RegistrationError
from tests import planted
from tests.analysis.test_cells import HEADS
from tests.planted import LONG, SHORT, World

CLAIMS = ("R1", "R2", "R3", "R4", "S1", "S2", "S3")


def by_budget(row):
    """Damage that the larger budget repairs."""
    return {0.125: 0.7, 0.25: 0.6, 0.5: 0.1}[row.budget]


def by_suite(row):
    return 0.6 if row.suite == LONG else 0.05


def by_arm(row):
    return 0.8 if row.arm == "poisson" else 0.0


def one_score_per_example(row):
    """Every row of an example fails or succeeds and scores alike: AUC 22/36 on twelve clusters."""
    rank = 2 * int(row.example_id[-2:]) + (row.task == "facts")
    success = "SSFFSFSFSFSF"[rank] == "S"
    signals = dict.fromkeys(("entropy", "evicted_mass", "margin", "output_logprob"), 0.0)
    return {"success": success, "certificate": float(rank), **signals}


def almost_as_good(row):
    """The certificate is the log-probability, but wrong about every row of one example."""
    told = World(blame={"output_logprob": 4.0}, full=0.9)(row)
    is_odd = (row.task, row.example_id) == ("words", ODD)
    return {**told, "certificate": 0.0 if is_odd else told["output_logprob"] + 20.0}


# An example of `words` that the full cache answers and an eviction spoils.
ODD = "words-0003"

WORLDS = {
    ("R1", State.KILLED): World(),
    ("R1", State.SURVIVED): World(difficulty={"certificate": 3.0}),
    ("R1", State.NOT_MET): one_score_per_example,
    ("R2", State.KILLED): World(difficulty={"entropy": 3.0}),
    ("R2", State.SURVIVED): World(difficulty={"certificate": 3.0}),
    ("R2", State.NOT_MET): World(difficulty={"certificate": 4.0, "evicted_mass": 1.2}),
    ("R3", State.KILLED): World(blame={"output_logprob": 3.0}),
    ("R3", State.SURVIVED): World(blame={"certificate": 3.0}),
    ("R3", State.NOT_MET): almost_as_good,
    ("R4", State.KILLED): World(),
    ("R4", State.SURVIVED): World(full=0.9, induced=by_budget, blame={"certificate": 4.0}),
    ("S1", State.KILLED): World(),
    ("S1", State.SURVIVED): World(induced=by_suite),
    ("S2", State.KILLED): World(),
    ("S2", State.SURVIVED): World(difficulty={"certificate": 3.0}),
    ("S3", State.KILLED): World(),
    ("S3", State.SURVIVED): World(induced=by_arm),
}
EXAMPLES = {("R1", State.NOT_MET): 6}


def reachable(claim):
    """The verdicts that numbers beside the constants of the conditions can give."""
    texts = [claim.kill] + ([claim.support] if claim.support else [])
    kill, *support = map(parse, texts)
    near = sorted(
        {float(n) + d for text in texts for n in re.findall(r"\d+\.?\d*", text) for d in (-0.1, 0, 0.1)}
    )
    rows = [
        SimpleNamespace(lo=lo, value=value, hi=hi, n=100)
        for lo, value, hi in itertools.combinations_with_replacement(near, 3)
    ]
    worlds = (
        dict(zip(claim.quantities, row, strict=True))
        for row in itertools.product(rows, repeat=len(claim.quantities))
    )
    return {
        verdict(kill.holds(world), support[0].holds(world) if support else None, bool(support))
        for world in worlds
    }


def test_every_reachable_verdict_is_planted(registrations, of_cells):
    claims = {name: claim for one in (*registrations, of_cells) for name, claim in one.content.claim.items()}
    planted_ones = {name: set() for name in claims}
    for name, state in (*WORLDS, *HEADS):
        planted_ones[name].add(state)
    assert planted_ones == {name: reachable(claim) for name, claim in claims.items()}
    assert reachable(claims["R3"]) == {State.KILLED, State.SURVIVED, State.NOT_MET}


def question(registrations, claim_id):
    owner = next(one for one in registrations if claim_id in one.content.claim)
    return owner.question(claim_id)


@pytest.mark.parametrize(("claim_id", "state"), WORLDS, ids=lambda part: str(part))
def test_planted_logs_reach_the_verdict(plant, registrations, claim_id, state):
    examples = EXAMPLES.get((claim_id, state), 16)
    study = plant(WORLDS[claim_id, state], planted.plan(examples=examples))
    found = answer(study, question(registrations, claim_id))
    assert found.state is state, dict(found.quantities)


def test_the_odd_world_is_what_it_says(plant, registrations):
    study = plant(one_score_per_example, planted.plan(examples=6))
    found = answer(study, question(registrations, "R1"))
    assert found.quantities["auc_pooled"].value == 22 / 36
    assert found.quantities["auc_pooled"].clusters == 12


NEEDS = {claim: {SHORT} if claim[0] == "R" else {LONG} for claim in CLAIMS} | {"S1": {SHORT, LONG}}


@pytest.mark.parametrize("suite", [SHORT, LONG])
def test_a_shard_without_footer_leaves_only_its_claims_incomplete(whole, registrations, owners, suite):
    shard_id = f"{suite}.smollm2-135m.words.000"
    (whole / suite / shard_id / "footer.json").unlink()
    study = load(whole, owners)
    for claim_id, suites in NEEDS.items():
        found = answer(study, question(registrations, claim_id))
        assert (found.state is State.INCOMPLETE) is (suite in suites), claim_id
        if suite in suites:
            assert not found.quantities
            (missing,) = found.missing
            assert (missing.suite, missing.shard_id) == (suite, shard_id)
            assert missing.rows == missing.of > 0
            assert missing.reason == "not complete (no footer)"


@pytest.mark.parametrize("suite", [SHORT, LONG])
def test_a_changed_log_invalidates_only_its_claims(whole, registrations, owners, suite):
    log = whole / suite / f"{suite}.smollm2-135m.words.000" / "generations.jsonl"
    log.write_bytes(log.read_bytes().replace(b'"n_generated":8', b'"n_generated":9', 1))
    study = load(whole, owners)
    for claim_id, suites in NEEDS.items():
        found = answer(study, question(registrations, claim_id))
        assert (found.state is State.INVALID) is (suite in suites), claim_id
        if suite in suites:
            assert not found.quantities
            assert "sha256" in found.problems[0]


def test_invalid_stands_above_incomplete(whole, registrations, owners):
    words = whole / SHORT / f"{SHORT}.smollm2-135m.words.000"
    (words / "footer.json").unlink()
    facts = whole / SHORT / f"{SHORT}.smollm2-135m.facts.000" / "footer.json"
    facts.write_text("{}")
    assert answer(load(whole, owners), question(registrations, "R1")).state is State.INVALID


def test_an_undefined_statistic_makes_a_claim_incomplete(plant, registrations):
    study = plant(World(full=1.0, induced=lambda row: 0.0, rescued=1.0))
    for claim_id in ("R1", "R2", "R3", "S2"):
        found = answer(study, question(registrations, claim_id))
        assert found.state is State.INCOMPLETE
        assert any("one class only" in number.undefined for number in found.quantities.values())
    # What is defined is still decided: nothing fails anywhere, so nothing rises.
    assert answer(study, question(registrations, "S1")).state is State.KILLED


def test_a_value_decides_where_only_the_interval_is_unknown(plant, registrations):
    # Four examples a task make eight clusters: no interval, and the support is unknown.
    killed = plant(World(blame={"output_logprob": 1.0}), planted.plan(examples=4))
    found = answer(killed, question(registrations, "R1"))
    assert found.quantities["auc_pooled"].lo is None
    assert (found.kill, found.support, found.state) == (True, None, State.KILLED)


def test_without_a_kill_an_unknown_support_is_incomplete(plant, registrations):
    study = plant(World(difficulty={"certificate": 3.0}), planted.plan(examples=4))
    found = answer(study, question(registrations, "R1"))
    assert (found.kill, found.support, found.state) == (False, None, State.INCOMPLETE)


@pytest.mark.parametrize(("lost", "state"), [(2, State.SURVIVED), (3, State.INCOMPLETE)])
def test_one_percent_of_rows_may_lack_the_signal(plant, registrations, lost, state):
    grid, world = planted.plan(), World(difficulty={"certificate": 3.0})
    population = [r.key for r in grid if r.arm == "poisson" and (r.suite, r.task) == (SHORT, "words")]

    def forgetful(row):
        told = world(row)
        return {**told, "certificate": None} if row.key in population[:lost] else told

    found = answer(plant(forgetful, grid), question(registrations, "R1"))
    assert found.state is state
    number = found.quantities["auc_pooled"]
    if state is State.SURVIVED:
        assert (number.n, number.note.partition("; ")[0]) == (254, "2 rows without certificate left out")
    else:
        assert number.undefined == "certificate undefined in 3 of 256 rows"


def test_own_failure_needs_no_full_rows_and_induced_failure_does(tmp_path, registrations, owners):
    grid = [row for row in planted.plan(examples=12) if row.arm != "full"]
    study = load(planted.write(tmp_path / "bare" / "embedded", grid, World()), owners)
    assert study.problems == ()
    assert answer(study, question(registrations, "R1")).state is State.KILLED
    with pytest.raises(Exception, match="needs the full cache's rows"):
        decide(study, registrations[0])


def test_a_missing_full_row_leaves_the_induced_claims_incomplete(whole, registrations, owners):
    log = whole / SHORT / f"{SHORT}.smollm2-135m.words.000" / "generations.jsonl"
    lines = log.read_bytes().splitlines(True)
    gone = next(line for line in lines if b'"arm":"full"' in line)
    log.write_bytes(b"".join(line for line in lines if line is not gone))
    planted.close(log.parent)
    study = load(whole, owners)
    states = {claim: answer(study, question(registrations, claim)).state for claim in CLAIMS}
    assert [claim for claim in CLAIMS if states[claim] is State.INCOMPLETE] == ["R3", "S1"]
    missing = answer(study, question(registrations, "R3")).missing
    assert (missing[0].rows, missing[0].reason) == (1, "absent from a closed log")


def test_readings_and_sensitivities_look_at_what_they_name(plant, registrations):
    # Half of a token F1 wherever `facts` fail: a success under the lenient threshold only.
    world = World(full=0.9, induced=by_budget, difficulty={"certificate": 3.0})

    def halfway(row):
        told = world(row)
        is_near = row.task == "facts" and not told["success"]
        return {**told, "score": 0.4 if is_near else float(told["success"])}

    r1, _, r3, r4 = decide(plant(halfway), registrations[0])
    strict = r1.answer.quantities["auc_pooled"]
    lenient = r1.sensitivity["f1 >= 0.3"].quantities["auc_pooled"]
    assert 0.6 < lenient.value < 0.9 < strict.value
    assert (lenient.n, lenient.clusters) == (strict.n, strict.clusters)
    sizes = [r3.readings[name].quantities["gain"].n for name in ("embedded-2k", "both suites")]
    assert sizes[1] == sizes[0] + r3.answer.quantities["gain"].n
    gains = {name: found.quantities["stream"].value for name, found in r4.readings.items()}
    assert len({round(gain, 9) for name, gain in gains.items() if name.startswith("q")}) > 5
    real = r4.readings["main tasks only"].quantities["stream"]
    assert real.clusters == r4.answer.quantities["stream"].clusters * 2 / 3


def test_a_sensitivity_that_changes_the_verdict_is_said_to_move_it(plant, registrations):
    # Entropy is as good as the certificate, but points the wrong way.
    study = plant(World(difficulty={"certificate": 3.0, "entropy": -6.0}))
    r2 = decide(study, registrations[0])[1]
    assert r2.answer.state is State.SURVIVED
    assert r2.sensitivity["either direction"].state is State.KILLED
    assert [name for name in r2.sensitivity if r2.moves(name)] == ["either direction"]


def test_orientation_is_fixed(plant, registrations):
    # Raw margins and log-probabilities are small, the other signals large, where answers fail.
    signals = ("certificate", "entropy", "evicted_mass", "margin", "output_logprob")
    data = Data.of(plant(World(difficulty=dict.fromkeys(signals, 3.0))).table, question(registrations, "R2"))
    for arm, signal in (("poisson", "certificate"), *(("h2o", signal) for signal in signals[1:])):
        rows = data.counted[data.counted["arm"] == arm]
        assert data.point(data.auc(rows, signal)).value > 0.95, signal


def varied(registrations, claim_id, **changes):
    owner = next(one for one in registrations if claim_id in one.content.claim)
    return owner.question(claim_id, Variant(**changes))


def test_folding_makes_no_noise_visible(plant, registrations):
    study = plant(World())
    folded, plain = (
        answer(study, varied(registrations, "R2", parameters=parameters)).quantities["visible"].value
        for parameters in ({"folded": True, "visible_from": 0.5}, {"visible_from": 0})
    )
    assert folded == plain <= 2


def test_r4_drops_no_arm_that_draws_nothing(plant, registrations):
    arms = {"arms": ["poisson", "topk"]}
    found = answer(plant(World()), varied(registrations, "R4", population=arms))
    assert found.state is State.INCOMPLETE
    assert found.quantities["aware"].undefined == "certificate undefined in 48 of 48 rows"


def test_r4_escalates_each_arm_to_itself(plant, registrations):
    grid = planted.plan()
    twins = [msgspec.structs.replace(row, arm="twin") for row in grid if row.arm == "poisson"]
    study = plant(World(induced=by_budget), grid + twins)
    arms = {"arms": ["poisson", "twin"]}
    found = answer(study, varied(registrations, "R4", population=arms)).quantities["aware"]
    assert found.n == 2 * answer(study, question(registrations, "R4")).quantities["aware"].n


@pytest.mark.parametrize(
    ("claim_id", "parameters", "message"),
    [
        ("R2", {"panel": {}}, "parameter 'panel' must list signals"),
        ("R2", {"panel": {"h3o": ["entropy"]}}, "the population has no rows with arm 'h3o'"),
        ("S1", {"longer": "embedded-4k"}, "the population has no rows with suite 'embedded-4k'"),
        ("S3", {"randomised": "snapkv"}, "the population has no rows with arm 'snapkv'"),
    ],
)
def test_parameters_must_choose_rows(whole, registrations, owners, claim_id, parameters, message):
    changed = varied(registrations, claim_id, parameters=parameters)
    with pytest.raises(RegistrationError, match=message):
        answer(load(whole, owners), changed)
