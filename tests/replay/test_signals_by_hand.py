"""Signals and stores of a few tokens, with every number worked out by hand."""

import math

import pytest
import torch

from kvexp.design.base import KeepPlan
from kvexp.replay.protocol import Protocol
from kvexp.replay.signals import StepSignals, evicted_mass, margin
from kvexp.replay.store import packed


def test_evicted_mass_is_the_lost_share_of_all_cached_tokens_by_head():
    """Head 0 loses 2 + 1 of 10, head 1 loses 8 of 16: (0.3 + 0.5) / 2. Protected tokens count, too."""
    score = torch.tensor([[[4.0, 2.0, 3.0, 1.0], [1.0, 8.0, 3.0, 4.0]]])
    kept = torch.tensor([[[True, False, True, False], [True, False, True, True]]])
    assert evicted_mass(score, kept) == pytest.approx(0.4, abs=1e-12)
    assert evicted_mass(score, torch.ones_like(kept)) == 0.0
    assert evicted_mass(score, torch.zeros_like(kept)) == 1.0


def test_evicted_mass_is_undefined_where_a_head_has_no_mass():
    kept = torch.tensor([[[True, False], [True, False]]])
    assert evicted_mass(torch.tensor([[[1.0, 1.0], [0.0, 0.0]]]), kept) is None


PROTECTED = torch.tensor([True, False, False, False, False, True])


def test_margin_is_the_step_between_kept_and_evicted_over_the_population_sd():
    """Unprotected scores 1 3 5 7: mean 4, sd sqrt((9 + 1 + 1 + 9) / 4). The 7 and 5 stay: (5 - 3) / sd.

    Of the other head, 2 2 2 10: mean 4, sd sqrt((4 + 4 + 4 + 36) / 4), and (10 - 2) / sd.
    """
    score = torch.tensor([[[0.0, 1.0, 5.0, 3.0, 7.0, 99.0], [50.0, 2.0, 2.0, 10.0, 2.0, 0.0]]])
    kept = torch.tensor([[[True, False, True, False, True, True], [True, False, False, True, False, True]]])
    one, other = 2 / math.sqrt(5), 8 / math.sqrt(12)
    assert margin(score, kept, PROTECTED) == pytest.approx((one + other) / 2, rel=1e-12)


def test_margin_may_be_negative():
    """A recency design keeps a 1 and evicts a 9: scores 9 1, sd 4."""
    score = torch.tensor([[[5.0, 9.0, 1.0, 5.0]]])
    kept = torch.tensor([[[True, False, True, True]]])
    protected = torch.tensor([True, False, False, True])
    assert margin(score, kept, protected) == pytest.approx(-2.0, rel=1e-12)


@pytest.mark.parametrize(
    ("score", "kept"),
    [
        ([0.0, 1.0, 2.0, 3.0, 4.0, 0.0], [True] * 6),
        ([0.0, 1.0, 2.0, 3.0, 4.0, 0.0], [True, False, False, False, False, True]),
        ([0.0, 2.0, 2.0, 2.0, 2.0, 0.0], [True, True, False, False, False, True]),
    ],
    ids=["nothing evicted", "nothing unprotected kept", "no spread"],
)
def test_margin_is_undefined_in_any_such_head(score, kept):
    fine = torch.tensor([0.0, 1.0, 2.0, 3.0, 4.0, 0.0])
    its = torch.tensor([True, False, False, True, True, True])
    scores, both = (
        torch.stack([fine, torch.tensor(score)])[None],
        torch.stack([its, torch.tensor(kept)])[None],
    )
    assert margin(scores, both, PROTECTED) is None
    assert margin(scores[:, :1], both[:, :1], PROTECTED) is not None


def test_sizes_of_a_plan_by_hand():
    """Two heads: 1 + .5 + .25 + .25 and 1 + 1 + .5 + .5 expected; 3 and 3 kept; 2 and 1 of the tail."""
    pi = torch.tensor([[[1.0, 0.5, 0.25, 0.25], [1.0, 1.0, 0.5, 0.5]]], dtype=torch.float64)
    kept = torch.tensor([[[True, True, False, True], [True, True, True, False]]])
    plan = KeepPlan(kept, pi)
    assert (plan.expected, plan.realised, plan.tail_kept) == (2.5, 3.0, 1.5)


# One layer, 1 KV head, 4 tokens of 2 numbers -------------------------------------------------------

KEYS = torch.arange(8.0).view(1, 4, 2)
VALUES = torch.tensor([[[3.0, 4.0], [1.0, 0.0], [0.0, 2.0], [6.0, 8.0]]])
KEPT = torch.tensor([[True, False, True, True]])
PI = torch.tensor([[1.0, 0.2, 0.5, 0.25]], dtype=torch.float64)


def store_of(*arms, new_slots=2):
    return packed(KEYS, VALUES, list(arms), new_slots)


def test_a_store_packs_kept_tokens_with_offsets_norms_and_what_pi_leaves():
    """Kept are tokens 0, 2 and 3. |v|^2 = 25, 4, 100; 1 - pi = 0, 1/2, 3/4; log(1/pi) = 0, log 2, log 4."""
    made = store_of((KEPT, PI, True), (KEPT, PI, False), (torch.ones(1, 4, dtype=torch.bool), PI, True))
    assert made.width == 4
    assert made.count_AK.tolist() == [[3], [3], [4]]
    assert made.evicted_AK.tolist() == [[True], [True], [False]]
    for arm in (0, 1):
        assert made.keys_AKSD[arm, 0, :3].tolist() == [[0, 1], [4, 5], [6, 7]]
        assert made.values_AKSD[arm, 0, :3].tolist() == [[3, 4], [0, 2], [6, 8]]
        assert made.norms_AKW[arm, 0, :3].tolist() == [25, 4, 100]
        assert made.not_pi_AKW[arm, 0].tolist() == [0, 0.5, 0.75, 0]
    absent = [-math.inf] * 3  # the place that this arm leaves empty, and two slots for new tokens
    assert made.offset_AKS[0, 0].tolist() == pytest.approx([0, math.log(2), math.log(4), *absent])
    assert made.offset_AKS[1, 0].tolist() == [0, 0, 0, *absent]
    assert made.not_pi_AKW[2, 0].tolist() == pytest.approx([0, 0.8, 0.5, 0.75])
    assert made.norms_AKW[2, 0].tolist() == [25, 1, 4, 100]
    made.append(4, torch.full((2, 1, 1, 2), 7.0), torch.full((2, 1, 1, 2), 9.0))
    assert made.offset_AKS[:, 0, 4:].tolist() == [[0, -math.inf], [0, -math.inf], [-math.inf, -math.inf]]
    assert made.keys_AKSD[1, 0, 4].tolist() == [7, 7]
    assert made.values_AKSD[1, 0, 4].tolist() == [9, 9]


def test_tokens_behind_those_that_a_plan_speaks_of_are_fed_again_and_not_evicted():
    """A stream arm evicts before the question exists: the prefill's later tokens are not its own."""
    made = store_of((torch.ones(1, 2, dtype=torch.bool), PI[:, :2], True), (KEPT[:, :2], PI[:, :2], True))
    assert made.count_AK.tolist() == [[2], [1]]
    assert made.evicted_AK.tolist() == [[False], [True]]
    assert made.not_pi_AKW[0, 0].tolist() == pytest.approx([0, 0.8])
    assert made.values_AKSD[0, 0, :2].tolist() == [[3, 4], [1, 0]]


def read_once(signals, weights, store, new=1):
    """One layer of one step, whose attention output is what the weights give."""
    values = store.values_AKSD[:, :, : weights.shape[-1]]
    out = weights @ values
    signals.read(store, weights, out, values, torch.full((len(weights), 1), float(new)))


def test_a_certificate_of_one_cell_by_hand():
    """Weights 1/2, 1/4, 1/4 on the values (3,4), (0,2), (6,8) and 0 on a new token: y = (3, 4.5).

    Terms (1 - pi) w^2 |v - y|^2: 0; 1/2 * 1/16 * (9 + 6.25); 3/4 * 1/16 * (9 + 12.25).
    """
    protocol = Protocol(head_stride=1, steps=2, delta=0.1, norm_floor=1e-9)
    store = store_of((KEPT, PI, True))
    signals = StepSignals(protocol, slice(0, 1), 1, 1, 1)
    store.append(3, torch.zeros(1, 1, 1, 2), torch.tensor([[[[50.0, 50.0]]]]))
    read_once(signals, torch.tensor([[[[0.5, 0.25, 0.25, 0.0]]]]), store)
    small, large = 15.25 / 32, 3 * 21.25 / 64
    log = math.log(10)
    norm = math.sqrt(9 + 20.25)
    expected = (math.sqrt(2 * (small + large) * log) + math.sqrt(large) * log) / norm
    assert signals.certificates(0, range(1)) == [pytest.approx(expected, rel=1e-6)]
    # Retained are 3 tokens and the new one: entropy (1/2 log 2 + 2 * 1/4 log 4) / log 4.
    assert signals.entropy(0, range(1)) == pytest.approx(1.5 * math.log(2) / math.log(4), rel=1e-6)
    assert signals.blind_cells(0, range(1)) == 0


def test_a_new_tokens_weight_enters_the_output_and_not_the_variance():
    """All weight on the new token and the certain one: no variance, though the head evicted a token."""
    protocol = Protocol(head_stride=1, steps=2)
    store = store_of((KEPT, PI, True), (torch.ones(1, 4, dtype=torch.bool), torch.ones_like(PI), True))
    store.append(4, torch.zeros(2, 1, 1, 2), torch.full((2, 1, 1, 2), 5.0))
    signals = StepSignals(protocol, slice(0, 2), 2, 1, 1)
    read_once(signals, torch.tensor([0.5, 0, 0, 0, 0.5]).expand(2, 1, 1, 5), store)
    assert [signals.certificates(arm, range(1)) for arm in (0, 1)] == [[0.0], [0.0]]
    # The other arm has evicted nothing: its certificate of 0 is no blindness.
    assert [signals.blind_cells(arm, range(1)) for arm in (0, 1)] == [1, 0]


def test_steps_are_kept_apart_and_end():
    """Step 0: two tokens share the weight; step 1: one has all; step 2 is not read any more."""
    signals = StepSignals(Protocol(head_stride=1, steps=2), slice(0, 1), 1, 1, 1)
    store = store_of((KEPT, PI, True), new_slots=0)
    half, sure = torch.tensor([[[[0.5, 0.5, 0.0]]]]), torch.tensor([[[[0.0, 0.0, 1.0]]]])
    entropies = [math.log(2) / math.log(3), 0.0]
    for weights in (half, sure, half):
        read_once(signals, weights, store, new=0)
        signals.step += 1
    assert signals.done
    assert signals.entropy(0, range(1)) == pytest.approx(entropies[0], rel=1e-6)
    assert signals.entropy(0, range(1, 2)) == pytest.approx(entropies[1], abs=1e-9)
    assert signals.entropy(0, range(2)) == pytest.approx(sum(entropies) / 2, rel=1e-6)
    assert signals.entropy(0, range(0)) is None
    # Token 2 of the store has all the weight and is the estimate: its own distance is 0.
    first = signals.certificates(0, range(2))
    assert first[0] > 0
    assert first[1] == 0.0
    assert (signals.blind_cells(0, range(1)), signals.blind_cells(0, range(1, 2))) == (0, 1)


@pytest.mark.parametrize(
    ("heads", "kv_heads", "stride", "sampled"),
    [
        (6, 2, 4, [0, 4]),
        (6, 2, 1, [0, 1, 2, 3, 4, 5]),
        (9, 3, 2, [0, 2, 4, 6, 8]),
        (8, 2, 3, [0, 3, 6]),
        (4, 4, 3, [0, 3]),
        (6, 2, 9, [0]),
    ],
)
def test_every_stride_th_head_counts_once(heads, kv_heads, stride, sampled):
    """Head h puts 1 - h/10 on one token and the rest on another; the mean is over the sampled heads."""
    group = heads // kv_heads
    share = 1 - torch.arange(heads).view(1, kv_heads, group) / 10
    weights = torch.stack([share, 1 - share], -1)
    values = torch.tensor([[2.0, 0.0], [0.0, 1.0]]).expand(kv_heads, 2, 2)
    kept, pi = torch.ones(kv_heads, 2, dtype=torch.bool), torch.full((kv_heads, 2), 0.5, dtype=torch.float64)
    kept = torch.nn.functional.pad(kept, (0, 1))  # a third token is evicted
    pi = torch.nn.functional.pad(pi, (0, 1), value=0.5)
    values = torch.nn.functional.pad(values, (0, 0, 0, 1), value=3.0)
    store = packed(torch.zeros_like(values), values, [(kept, pi, True)], 0)
    signals = StepSignals(Protocol(head_stride=stride, steps=1), slice(0, 1), 1, heads, kv_heads)
    for _ in range(3):  # layers, all the same
        read_once(signals, weights, store, new=0)
    entropies, radii, log = [], [], math.log(10)
    for head in sampled:
        p = 1 - head / 10
        entropies.append(-sum(x * math.log(x) for x in (p, 1 - p) if x > 0) / math.log(2))
        y = (2 * p, 1 - p)
        terms = [
            0.5 * p**2 * ((2 - y[0]) ** 2 + y[1] ** 2),
            0.5 * (1 - p) ** 2 * (y[0] ** 2 + (1 - y[1]) ** 2),
        ]
        bound = math.sqrt(2 * sum(terms) * log) + math.sqrt(max(terms)) * log
        radii.append(bound / (math.hypot(*y) + 1e-9))
    assert signals.entropy(0, range(1)) == pytest.approx(sum(entropies) / len(sampled), rel=1e-5)
    assert signals.certificates(0, range(1)) == [pytest.approx(sum(radii) / len(sampled), rel=1e-5)]
    assert signals.blind_cells(0, range(1)) == 3  # head 0 of every layer: its estimate is the token itself
