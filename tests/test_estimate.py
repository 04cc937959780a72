"""Estimates, variance and certificate against explicit formulas and full enumeration of designs."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kvexp.estimate import (
    logit_offset,
    normalised_entropy,
    radius,
    squared_distances,
    variance_terms,
    with_exact_distance,
)

TAIL, SURE, DIM = 8, 4, 3


@pytest.fixture
def setting():
    """Attention over 4 certain and 8 tail tokens, in float64."""
    generator = torch.Generator().manual_seed(7)
    logits = torch.randn(SURE + TAIL, generator=generator, dtype=torch.float64)
    values = torch.randn(SURE + TAIL, DIM, generator=generator, dtype=torch.float64)
    pi = torch.ones(SURE + TAIL, dtype=torch.float64)
    pi[SURE:] = 0.05 + 0.9 * torch.rand(TAIL, generator=generator, dtype=torch.float64)
    return logits, values, pi


def keep_sets(pi):
    """All 256 keep sets of the tail with their probabilities."""
    for bits in itertools.product([False, True], repeat=TAIL):
        kept = torch.tensor([True] * SURE + list(bits))
        p = torch.where(kept, pi, 1 - pi)[SURE:]
        yield kept, float(p.prod())


def test_hajek_by_logit_offset_equals_the_explicit_ratio():
    generator = torch.Generator().manual_seed(0)
    logits = 5 * torch.randn(200, 50, generator=generator)
    values, pi = torch.randn(200, 50, 16, generator=generator), torch.rand(200, 50, generator=generator)
    pi = pi.double().clamp(1e-6, 1)
    weights = (logits + logit_offset(pi)).softmax(-1)
    by_offset = (weights.unsqueeze(-2) @ values).squeeze(-2)
    a = logits.double().exp() / pi
    explicit = (a.unsqueeze(-1) * values.double()).sum(-2) / a.sum(-1, keepdim=True)
    assert float((by_offset - explicit).abs().max()) < 1e-5
    assert float((by_offset - explicit).abs().mean()) < 1e-6


def test_the_offset_is_float32_and_zero_for_certain_tokens():
    offset = logit_offset(torch.tensor([1.0, 1e-6, 0.5], dtype=torch.float64))
    assert offset.dtype == torch.float32
    assert offset.tolist() == pytest.approx([0.0, math.log(1e6), math.log(2)])


def test_the_horvitz_thompson_form_is_unbiased_over_all_256_keep_sets(setting):
    """Theorem 2 by enumeration: true y and N plugged in, the linearised error's variance comes out."""
    logits, values, pi = setting
    a = logits.exp()
    total = a.sum()
    y = (a[:, None] * values).sum(0) / total
    x = a[:, None] * (values - y) / total
    mean_v = mean_error = second = 0.0
    for kept, probability in keep_sets(pi):
        linear = ((kept / pi - 1)[:, None] * x).sum(0)
        weights = a / pi / total
        distances = squared_distances(values, y[None], values.square().sum(-1))[0]
        v = variance_terms(weights[kept], 1 - pi[kept], distances[kept]).sum()
        mean_v += probability * float(v)
        mean_error += probability * linear
        second += probability * float(linear.square().sum())
    assert float(mean_error.norm()) < 1e-12
    assert second == pytest.approx(float(((1 - pi) / pi * x.square().sum(-1)).sum()), rel=1e-12)
    assert mean_v == pytest.approx(second, rel=1e-12)


def test_the_plug_in_variance_is_close_but_biased_and_shrinks_with_larger_pi(setting):
    """The deployed V uses the estimates of y and N: reported, not called unbiased."""
    logits, values, pi = setting

    def relative_bias(pi):
        a, expected, truth = logits.exp(), 0.0, 0.0
        y = (a[:, None] * values).sum(0) / a.sum()
        truth = float(((1 - pi) / pi * (a / a.sum()).square() * (values - y).square().sum(-1)).sum())
        for kept, probability in keep_sets(pi):
            weights = (logits[kept] - pi[kept].log()).softmax(-1)
            estimate = weights @ values[kept]
            d = squared_distances(values[kept], estimate[None], values[kept].square().sum(-1))[0]
            expected += probability * float(variance_terms(weights, 1 - pi[kept], d).sum())
        return expected / truth - 1

    small, large = relative_bias(pi), relative_bias(1 - (1 - pi) * 0.05)
    assert 1e-6 < abs(small) < 0.9
    assert abs(large) < abs(small) / 3


def test_tokens_with_certainty_add_exactly_nothing():
    weights, values = torch.rand(6).softmax(-1), torch.randn(6, 4)
    y = (weights @ values)[None]
    distances = squared_distances(values, y, values.square().sum(-1))[0]
    terms = variance_terms(weights, torch.zeros(6), distances)
    assert terms.tolist() == [0.0] * 6
    assert float(radius(terms.sum(), terms.amax(), y.norm(), 0.1, 1e-9)) == 0.0


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.01, 0.5))
def test_radius_is_eq_4_with_b_the_root_of_the_largest_term(seed, delta):
    generator = torch.Generator().manual_seed(seed)
    n = 20
    logits = torch.randn(n, generator=generator, dtype=torch.float64)
    values = torch.randn(n, 5, generator=generator, dtype=torch.float64)
    pi = torch.rand(n, generator=generator, dtype=torch.float64).clamp(0.02, 1)
    a = logits.exp()
    big_n = (a / pi).sum()
    y = ((a / pi)[:, None] * values).sum(0) / big_n
    v = (
        sum((1 - pi[i]) / pi[i] ** 2 * a[i] ** 2 * (values[i] - y).square().sum() for i in range(n))
        / big_n**2
    )
    b = max(float((1 - pi[i]).sqrt() / pi[i] * a[i] * (values[i] - y).norm() / big_n) for i in range(n))
    expected = (math.sqrt(2 * v * math.log(1 / delta)) + b * math.log(1 / delta)) / (float(y.norm()) + 1e-9)
    weights = (logits - pi.log()).softmax(-1)
    distances = squared_distances(values, (weights @ values)[None], values.square().sum(-1))[0]
    terms = variance_terms(weights, 1 - pi, distances)
    made = radius(terms.sum(), terms.amax(), (weights @ values).norm(), delta, 1e-9)
    assert float(made) == pytest.approx(expected, rel=1e-9)


def test_squared_distances_of_several_estimates_equal_a_loop_and_are_never_negative():
    values, estimates = 100 + torch.randn(2, 30, 8), torch.randn(2, 3, 8)
    estimates[0, 0] = values[0, 4]
    made = squared_distances(values, estimates, values.square().sum(-1))
    pairs = zip(values, estimates, strict=True)
    slow = torch.stack([torch.stack([(v - e).square().sum(-1) for e in es]) for v, es in pairs])
    torch.testing.assert_close(made, slow, rtol=1e-4, atol=0.2)
    assert (made >= 0).all()


def test_the_distance_to_a_value_that_has_nearly_all_the_weight_is_not_rounding_noise():
    """|v|^2 - 2 v.y + |y|^2 cancels there; the direct difference does not."""
    generator = torch.Generator().manual_seed(3)
    values = 50 * torch.randn(40, 16, generator=generator)
    weights = torch.full((40,), 1e-6)
    weights[7] = 1 - 39e-6
    estimate = (weights.double() @ values.double()).float()[None]
    exact = (values[7].double() - estimate[0].double()).square().sum()
    naive = squared_distances(values, estimate, values.square().sum(-1))
    made = with_exact_distance(naive, values, estimate, weights[None])
    assert abs(float(naive[0, 7]) / float(exact) - 1) > 0.5
    assert float(made[0, 7]) == pytest.approx(float(exact), rel=1e-3)
    others = torch.arange(40) != 7
    assert torch.equal(made[0, others], naive[0, others])


def test_entropy_is_one_for_even_weights_and_zero_for_a_single_one():
    weights = torch.tensor([[0.25] * 4 + [0.0], [1.0, 0, 0, 0, 0]])
    assert normalised_entropy(weights, torch.tensor([4.0, 4.0])).tolist() == pytest.approx([1.0, 0.0])
