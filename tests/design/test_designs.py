"""Selection designs: budgets, protection, inclusion probabilities, draws."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kvexp.design.base import TooShort, drawn_plan, fixed_plan, protected_mask, slots
from kvexp.design.poisson import proportional, single_clip
from kvexp.draws import uniforms
from kvexp.errors import ConfigError, InputError
from kvexp.study.plugins import build_design

FIXED, RANDOM = ("recency", "topk"), ("poisson", "uniform")


def skewed(shape, power=8, seed=0):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)).pow(power)


@pytest.mark.parametrize("name", FIXED + RANDOM)
@pytest.mark.parametrize("budget", [0.125, 0.25, 0.5, 0.999, 1.0])
def test_every_design_spends_exactly_its_budget_and_protects(name, budget):
    score, protected = skewed((3, 2, 400)), protected_mask(400, 4, 32)
    pi = build_design(name).inclusion(score, protected, slots(budget, 400, 36))
    torch.testing.assert_close(
        pi.sum(-1), torch.full((3, 2), float(round(budget * 400)), dtype=torch.float64)
    )
    assert (pi[..., protected] == 1).all()
    assert ((pi >= 0) & (pi <= 1)).all()
    if name in FIXED:
        assert set(pi.unique().tolist()) <= {0.0, 1.0}


def test_recency_keeps_sinks_and_the_newest():
    pi = build_design("recency").inclusion(torch.empty(1, 1, 100), protected_mask(100, 4, 32), 50)
    assert pi[0, 0].nonzero().flatten().tolist() == [*range(4), *range(54, 100)]


def test_top_k_keeps_the_highest_and_breaks_ties_by_position():
    score = torch.zeros(1, 1, 60)
    score[0, 0, 20], score[0, 0, 10] = 3.0, 2.0
    pi = build_design("topk").inclusion(score, protected_mask(60, 4, 32), 40)
    assert pi[0, 0].nonzero().flatten().tolist() == [*range(6), 10, 20, *range(28, 60)]


def test_protected_tokens_stay_although_all_scores_tie_at_the_maximum():
    pi = build_design("topk").inclusion(torch.full((1, 1, 60), 9.0), protected_mask(60, 4, 32), 37)
    assert pi[0, 0, protected_mask(60, 4, 32)].tolist() == [1.0] * 36


@pytest.mark.parametrize(("budget", "n"), [(0.25, 100), (0.36, 100), (1.0, 36), (0.9, 20)])
def test_a_budget_that_protection_fills_names_both_numbers(budget, n):
    with pytest.raises(TooShort, match=rf"{round(budget * n)} of {n}.* 36"):
        slots(budget, n, 36)


def test_short_caches_are_protected_whole_without_an_error_of_indexing():
    assert protected_mask(3, 4, 32).all()


def slow_inclusion(score, m, floor):
    """Bisection on the probabilities themselves, in a loop, for one row."""
    positive = [s for s in score if s > 0]
    if len(positive) <= m:
        rest = max((m - len(positive)) / max(1, len(score) - len(positive)), floor)
        return [1.0 if s > 0 else rest for s in score]
    low, high = 0.0, 1e300
    for _ in range(3000):
        middle = (
            low + (high - low) / 2 if high < 1e-3 or low > high / 4 else (low * high) ** 0.5 or high / 1e6
        )
        total = sum(min(max(middle * s, floor), 1.0) for s in score)
        low, high = (low, middle) if total >= m else (middle, high)
    return [min(max(high * s, floor), 1.0) for s in score]


rows = st.lists(
    st.one_of(st.just(0.0), st.floats(1e-12, 1e12), st.sampled_from([1.0, 2.0])), min_size=4, max_size=40
)


@settings(max_examples=150, deadline=None)
@given(rows, st.data())
def test_proportional_probabilities_add_up_to_m_and_equal_a_slow_solution(score, data):
    m = data.draw(st.integers(1, len(score)))
    pi = proportional(torch.tensor(score, dtype=torch.float64)[None], m, 1e-6)[0]
    assert float(pi.sum()) == pytest.approx(
        m, abs=1e-6 * len(score) if sum(s > 0 for s in score) == m else 1e-9
    )
    if m < len(score):
        assert pi.tolist() == pytest.approx(slow_inclusion(score, m, 1e-6), rel=1e-6, abs=1e-9)
    ranked = sorted(zip(score, pi.tolist(), strict=True))
    assert all(a[1] <= b[1] + 1e-12 for a, b in itertools.pairwise(ranked))


def test_fewer_positive_scores_than_slots_become_certain_and_the_rest_is_spread():
    score = torch.zeros(1, 20, dtype=torch.float64)
    score[0, 3:6] = torch.tensor([1.0, 5.0, 0.1])
    pi = proportional(score, 8, 1e-6)[0]
    assert pi[3:6].tolist() == [1.0] * 3
    assert pi[6:].tolist() == pytest.approx([5 / 17] * 14)


def test_all_zero_scores_are_sampled_evenly():
    assert proportional(torch.zeros(1, 10, dtype=torch.float64), 4, 1e-6)[0].tolist() == pytest.approx(
        [0.4] * 10
    )


def test_a_single_clip_underspends_a_skewed_budget():
    score = skewed((1, 1, 2000), power=30).double()
    assert float(single_clip(score, 500, 1e-6).sum()) < 400
    assert float(proportional(score, 500, 1e-6).sum()) == pytest.approx(500)


def test_a_floor_that_alone_spends_more_than_the_budget_is_refused():
    score, protected = skewed((1, 1, 1000)), protected_mask(1000, 4, 32)
    with pytest.raises(InputError, match=r"floor of 0\.9 on 964 tokens .* the 214"):
        build_design("poisson", floor=0.9).inclusion(score, protected, 250)


def test_unknown_names_and_parameters_are_one_sentence():
    with pytest.raises(ConfigError, match="did you mean 'poisson'"):
        build_design("poison")
    with pytest.raises(ConfigError, match="no parameter 'flor'; did you mean 'floor'"):
        build_design("poisson", flor=0.1)
    with pytest.raises(ConfigError, match="must be float"):
        build_design("poisson", floor="x")
    with pytest.raises(ConfigError, match="no design named"):
        build_design("os")


def test_inclusion_frequencies_match_pi_by_monte_carlo():
    score = skewed((1, 1, 80), power=3)
    pi = build_design("poisson").inclusion(score, protected_mask(80, 4, 32), 56)
    draws, counts = 4000, torch.zeros(80)
    for seed in range(draws):
        u = torch.from_numpy(uniforms("unanchored", seed, "t", "e", "stream", (1, 1, 80)))
        counts += drawn_plan(pi, u).kept_LKN[0, 0]
    p = pi[0, 0]
    standard = ((counts / draws - p) / (p * (1 - p) / draws).sqrt().clamp_min(1e-12))[p < 1]
    assert (counts[p == 1] == draws).all()
    assert float(standard.abs().max()) < 4.5
    assert float(standard.std()) == pytest.approx(1, abs=0.35)


def test_a_smaller_budget_keeps_a_subset():
    score, protected = skewed((2, 2, 300)), protected_mask(300, 4, 32)
    u = torch.from_numpy(uniforms("unanchored", 0, "t", "e", "stream", (2, 2, 300)))
    kept = [
        drawn_plan(build_design("poisson").inclusion(score, protected, slots(b, 300, 36)), u).kept_LKN
        for b in (0.25, 0.5, 0.75)
    ]
    assert (kept[0] <= kept[1]).all()
    assert (kept[1] <= kept[2]).all()


def test_plan_sizes_are_means_over_layers_and_heads():
    kept = torch.tensor([[[True, True, False, True]], [[True, False, False, False]]])
    plan = fixed_plan(kept.double())
    assert (plan.expected, plan.realised, plan.tail_kept) == (2.0, 2.0, 0.0)
    pi = torch.full((1, 1, 4), 0.5, dtype=torch.float64)
    plan = drawn_plan(pi, torch.tensor([[[0.1, 0.9, 0.49, 0.5]]], dtype=torch.float64))
    assert (plan.expected, plan.realised, plan.tail_kept) == (2.0, 2.0, 2.0)


class TestUniforms:
    KEY = ("anchor", 0, "task", "example", "stream")

    def test_golden_values_pin_the_stream_for_ever(self):
        made = uniforms(*self.KEY, (2, 1, 5))
        assert [float(u).hex() for u in made.ravel()] == GOLDEN

    def test_a_longer_context_extends_the_stream(self):
        assert np.array_equal(uniforms(*self.KEY, (2, 2, 9))[..., :5], uniforms(*self.KEY, (2, 2, 5)))

    @pytest.mark.parametrize("index", range(5))
    def test_every_part_of_the_key_matters(self, index):
        other = list(self.KEY)
        other[index] = 1 if index == 1 else "other"
        assert not np.intersect1d(uniforms(*self.KEY, (2, 2, 50)), uniforms(*other, (2, 2, 50))).size

    def test_layers_and_heads_have_streams_of_their_own(self):
        assert len(np.unique(uniforms(*self.KEY, (3, 4, 50)))) == 600

    def test_uniform_moments(self):
        made = uniforms(*self.KEY, (4, 4, 5000))
        assert made.min() >= 0
        assert made.max() < 1
        assert abs(made.mean() - 0.5) < 4 / (12 * made.size) ** 0.5


GOLDEN = [
    "0x1.19f0e4860cc7dp-1",
    "0x1.68414443f6835p-1",
    "0x1.08b002c476648p-3",
    "0x1.b93d00c4ced98p-2",
    "0x1.c2cb5d821de6dp-1",
    "0x1.a18aa620fc660p-3",
    "0x1.7dd1537f996fcp-2",
    "0x1.b81b5e09a0cc0p-6",
    "0x1.22cf659ded994p-2",
    "0x1.9cd1d111f6bd2p-2",
]
