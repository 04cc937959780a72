"""Every claim's numbers, recomputed from the planted answers without the analysis."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from analysis.core.decide import answer
from analysis.core.study import load
from tests import planted
from tests.planted import LONG, SHORT, World

REAL = ("words", "facts")
EVERY = ("passcodes", *REAL)


class Told:
    """Planted answers, and questions about them."""

    def __init__(self, answers):
        self.answers = answers

    def keys(self, suite, tasks, arm, condition=None, budget=None, seed=None):
        wanted = {"condition": condition, "budget": budget, "seed": seed}
        return [
            key
            for key in self.answers
            if (key.suite, key.arm) == (suite, arm)
            and key.task in tasks
            and all(value in (None, getattr(key, name)) for name, value in wanted.items())
        ]

    def success(self, key):
        return self.answers[key]["success"]

    def full(self, key):
        return self.success(key._replace(arm="full", condition=None, budget=None, seed=None))

    def auc(self, keys, signal):
        failed = [not self.success(key) for key in keys]
        return roc_auc_score(failed, [self.answers[key][signal] for key in keys])

    def accuracy(self, keys):
        return np.mean([self.success(key) for key in keys])

    def induced(self, keys):
        return 1 - self.accuracy([key for key in keys if self.full(key)])


@pytest.fixture(scope="module")
def study(tmp_path_factory, owners):
    """A study where every number is different from every other, and what it was planted with."""
    grid = planted.plan(examples=14)
    world = World(
        full=0.8,
        induced=lambda row: (
            (0.7 if row.condition == "stream" else 0.5) * (1.3 - row.budget)
            + (0.1 if row.suite == LONG else 0.0)
            + (0.1 if row.arm == "topk" else 0.0)
            + (0.15 if row.seed == 1 else 0.0)
        ),
        blame={"certificate": 1.3, "evicted_mass": 0.5},
        difficulty={"output_logprob": 0.8, "entropy": 0.4},
    )
    folder = planted.write(tmp_path_factory.mktemp("claims") / "embedded", grid, world)
    return load(folder, owners), Told({row.key: world(row) for row in grid})


@pytest.fixture
def value(study, registrations):
    """The value of a quantity of a claim, or of one of its variants."""

    def get(claim_id, name, variant=None):
        owner = next(one for one in registrations if claim_id in one.content.claim)
        claim = owner.content.claim[claim_id]
        change = {**claim.readings, **claim.sensitivity}[variant] if variant else None
        found = answer(study[0], owner.question(claim_id, change)).quantities[name]
        assert found.undefined == ""
        return pytest.approx(found.value, abs=1e-12)

    return get


def test_r1_and_s2_are_the_auc_on_real_tasks(study, value):
    _, told = study
    expected = told.auc(told.keys(SHORT, REAL, "poisson"), "certificate")
    assert expected == value("R1", "auc_pooled")
    assert told.auc(told.keys(LONG, REAL, "poisson"), "certificate") == value("S2", "auc_pooled")


def test_r2_is_the_largest_of_the_panel_on_all_tasks(study, value):
    _, told = study
    panel = {"streaming_llm": ["entropy"], **dict.fromkeys(("h2o", "snapkv", "topk"), DETERMINISTIC)}
    aucs = [
        told.auc(told.keys(SHORT, EVERY, arm), signal) for arm, signals in panel.items() for signal in signals
    ]
    assert max(aucs) == value("R2", "strongest")
    assert max(max(auc, 1 - auc) for auc in aucs) == value("R2", "strongest", "either direction")
    assert told.auc(told.keys(SHORT, EVERY, "poisson"), "certificate") == value("R2", "certificate")
    stream = told.keys(SHORT, EVERY, "poisson", "stream")
    assert told.auc(stream, "certificate") == value("R2", "certificate", "stream with stream")
    aware = [told.auc(told.keys(SHORT, EVERY, "topk"), signal) for signal in DETERMINISTIC]
    assert max(aware) == value("R2", "strongest", "aware with aware")


DETERMINISTIC = ["entropy", "evicted_mass", "margin"]


@pytest.mark.parametrize(
    ("variant", "suites"),
    [(None, (SHORT,)), ("embedded-2k", (LONG,)), ("both suites", (SHORT, LONG))],
)
def test_r3_is_the_difference_on_what_the_full_cache_answers(study, value, variant, suites):
    _, told = study
    keys = [key for suite in suites for key in told.keys(suite, REAL, "poisson") if told.full(key)]
    gain = told.auc(keys, "certificate") - told.auc(keys, "output_logprob")
    assert gain == value("R3", "gain", variant)


@pytest.mark.parametrize(
    ("variant", "tasks", "q"),
    [(None, EVERY, 0.25), ("main tasks only", REAL, 0.25), ("q = 0.1", EVERY, 0.1), ("q = 0.7", EVERY, 0.7)],
)
@pytest.mark.parametrize("condition", ["aware", "stream"])
def test_r4_moves_the_top_share_within_condition_and_seed(study, value, variant, tasks, q, condition):
    _, told = study
    gains = []
    for seed in (0, 1):
        small = told.keys(SHORT, tasks, "poisson", condition, 0.25, seed)
        small.sort(key=lambda key: -told.answers[key]["certificate"])
        before = np.array([told.success(key) for key in small], float)
        after = np.array([told.success(key._replace(budget=0.5)) for key in small], float)
        # Whole rows first, then the fraction of one that is left of the quota.
        whole, rest = divmod(q * len(small), 1)
        share = np.array([1.0] * int(whole) + [rest] + [0.0] * len(small))[: len(small)]
        gated = (share * after + (1 - share) * before).mean()
        gains.append(gated - ((1 - q) * before.mean() + q * after.mean()))
    assert np.mean(gains) == value("R4", condition, variant)


def test_s1_is_the_rise_of_the_induced_rate(study, value):
    _, told = study
    rates = [told.induced(told.keys(suite, REAL, "poisson", "aware", 0.25)) for suite in (LONG, SHORT)]
    assert rates[0] - rates[1] == value("S1", "rise")


def test_s3_is_the_tax_at_the_harshest_budget(study, value):
    _, told = study
    seeds = [told.accuracy(told.keys(LONG, REAL, "poisson", "aware", 0.125, seed)) for seed in (0, 1)]
    tax = told.accuracy(told.keys(LONG, REAL, "topk", "aware", 0.125)) - np.mean(seeds)
    assert tax == value("S3", "tax")


def test_an_example_is_one_cluster_in_both_suites(study, registrations):
    loaded, told = study
    keys = [key for s in (SHORT, LONG) for key in told.keys(s, REAL, "poisson", "aware", 0.25)]
    answered = [key for key in keys if told.full(key)]
    rise = answer(loaded, registrations[1].question("S1")).quantities["rise"]
    assert rise.lo < rise.value < rise.hi
    assert rise.n == len(answered)
    assert rise.clusters == len({(key.task, key.example_id) for key in answered}) < 28
