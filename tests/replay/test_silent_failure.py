"""Theorem 1 in the harness: what a fixed design can see does not depend on what it evicted."""

import pytest
import torch

from kvexp.replay import harness
from kvexp.replay.harness import answer_all
from kvexp.replay.model import wrap
from kvexp.replay.protocol import Protocol
from tests import tiny
from tests.replay.test_against_dense import all_arms, draw, prompt_of


def world(monkeypatch, loaded, prompt, arm, chosen_LKN, seed):
    """The answer of one arm after permuting, per layer and KV head, the values of chosen tokens."""
    real = harness.prefill

    def permuted(*arguments):
        state = real(*arguments)
        for layer, values_KND in enumerate(state.values):
            state.values[layer] = values = values_KND.clone()
            for head in range(loaded.kv_heads):
                where = chosen_LKN[layer, head].nonzero().flatten()
                order = torch.randperm(len(where), generator=torch.Generator().manual_seed(seed))
                values[head, where] = values_KND[head, where[order]]
        return state

    with monkeypatch.context() as patch:
        patch.setattr(harness, "prefill", permuted)
        (answer,) = answer_all(loaded, prompt, [arm], Protocol(), 8, draw)
    return answer


def visible(answer):
    """Everything a log row would hold, as exact values."""
    planned, decoded = answer.planned, answer.decoded
    return (
        decoded.tokens,
        decoded.logprobs,
        decoded.gaps,
        answer.text,
        answer.entropy,
        answer.certificate_steps,
        planned.evicted_mass,
        planned.margin,
        planned.keep_digest,
    )


@pytest.fixture(scope="module")
def setting():
    torch.set_num_threads(1)
    loaded = wrap(tiny.model("llama"), tiny.tokenizer())
    return loaded, prompt_of(loaded)


FIXED = [arm for arm in all_arms((0.25,)) if arm.budget and not arm.design.is_random]


@pytest.mark.parametrize("arm", FIXED, ids=lambda arm: arm.name)
def test_permuting_evicted_values_leaves_every_signal_of_a_fixed_design_bit_identical(
    monkeypatch, setting, arm
):
    loaded, prompt = setting
    (plain,) = answer_all(loaded, prompt, [arm], Protocol(), 8, draw)
    evicted = ~plain.planned.plan.kept_LKN
    for seed in range(6):
        assert visible(world(monkeypatch, loaded, prompt, arm, evicted, seed)) == visible(plain)


def test_permuting_retained_values_does_change_the_signals(monkeypatch, setting):
    loaded, prompt = setting
    for arm in FIXED:
        (plain,) = answer_all(loaded, prompt, [arm], Protocol(), 8, draw)
        kept = plain.planned.plan.kept_LKN
        assert visible(world(monkeypatch, loaded, prompt, arm, kept, 0)) != visible(plain)


def test_permuting_evicted_values_does_change_the_full_caches_answer(monkeypatch, setting):
    """The worlds differ: only the evictor cannot tell."""
    loaded, prompt = setting
    full, h2o = all_arms((0.25,))[0], FIXED[1]
    (plain,) = answer_all(loaded, prompt, [full], Protocol(), 8, draw)
    (evictor,) = answer_all(loaded, prompt, [h2o], Protocol(), 8, draw)
    other = world(monkeypatch, loaded, prompt, full, ~evictor.planned.plan.kept_LKN, 0)
    assert visible(other) != visible(plain)
