"""Attention mass of chosen rows against the full attention matrix."""

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch

from kvexp.errors import ConfigError
from kvexp.replay.arm import Arm
from kvexp.replay.harness import plan_all
from kvexp.replay.model import wrap
from kvexp.replay.prefill import Rows, attention_mass, prefill
from kvexp.replay.prompt import Prompt
from kvexp.replay.protocol import Protocol
from kvexp.scores.base import Layer, Score, Spans
from kvexp.study.plugins import build_design, build_score
from tests import tiny


@pytest.mark.parametrize("rows", [range(0, 50), range(3, 47, 5), range(40, 41), range(30, 50)])
def test_mass_equals_column_sums_of_the_causal_attention_matrix(rows):
    generator = torch.Generator().manual_seed(1)
    query, key = torch.randn(6, 50, 8, generator=generator), torch.randn(2, 50, 8, generator=generator)
    mass = attention_mass(query, key, Rows(rows, 50), 0.3)
    logits = query.double() @ key.double().repeat_interleave(3, 0).transpose(-1, -2) * 0.3
    weights = (logits + torch.full((50, 50), -torch.inf, dtype=torch.float64).triu(1)).softmax(-1)
    slow = weights[:, list(rows)].sum(1).view(2, 3, 50).mean(1)
    torch.testing.assert_close(mass.double(), slow, atol=1e-5, rtol=1e-5)
    assert mass.sum(-1).tolist() == pytest.approx([len(rows)] * 2, rel=1e-5)


def test_mass_over_a_shorter_prefix_is_unchanged_by_what_follows():
    query, key = torch.randn(4, 60, 8), torch.randn(4, 60, 8)
    whole = attention_mass(query, key, Rows(range(0, 40, 3), 40), 0.2)
    alone = attention_mass(query[:, :40], key[:, :40], Rows(range(0, 40, 3), 40), 0.2)
    assert torch.equal(whole, alone)


def test_prefill_keeps_keys_and_values_of_every_layer_and_shares_equal_requests():
    loaded = wrap(tiny.model("llama"), tiny.tokenizer())
    request = Rows(range(0, 30, 2), 30)
    state = prefill(loaded, torch.arange(3, 43), [request, Rows(range(0, 30, 2), 30)])
    assert list(state.masses) == [request]
    assert len(state.keys) == len(state.values) == len(state.masses[request]) == 3
    assert state.keys[0].shape == (2, 40, 8)


@pytest.mark.parametrize(
    ("name", "params", "expected"),
    [
        ("accumulated", {"stride": 16}, range(15, 100, 16)),
        ("window", {"window": 64}, range(36, 100)),
        ("window", {"window": 640}, range(0, 100)),
        ("question", {}, range(80, 95)),
    ],
)
def test_rows_of_the_shipped_scores(name, params, expected):
    assert build_score(name, **params).rows(Spans(100, (80, 95))) == expected


def test_window_pools_over_neighbours_without_padding_bias():
    mass = torch.tensor([[1.0, 2.0, 3.0, 4.0, 50.0]])
    nothing = torch.empty(1, 5, 2)
    layer = Layer(nothing, nothing, torch.arange(5), mass)
    pooled = build_score("window", pool=3).finish(layer)
    assert pooled.tolist() == [pytest.approx([1.5, 2.0, 3.0, 19.0, 27.0])]
    assert torch.equal(build_score("window", pool=1).finish(layer), mass)


@dataclass(frozen=True)
class KeyNorm(Score):
    """As a file of kvexp/scores would have it: it reads keys and positions, and no attention."""

    reads_attention: ClassVar[bool] = False

    def finish(self, layer):
        assert layer.position_N.tolist() == list(range(layer.keys_KND.shape[1]))
        assert not layer.mass_KN.any()
        return 1 / layer.keys_KND.float().norm(dim=-1)


def test_a_score_may_read_the_keys_alone():
    """Key norm is one new class: no query row is asked of the prefill, and top-k keeps the shortest keys."""
    loaded = wrap(tiny.model("llama"), tiny.tokenizer())
    prompt = Prompt(torch.arange(20, 80), 0, 52, (54, 58), 52)
    arm = Arm("key_norm", KeyNorm(), build_design("topk"), "plain", "stream", 0.8)
    [planned] = plan_all(loaded, prompt, [arm], Protocol(sinks=4, recent=8), lambda *_: None)
    state = prefill(loaded, prompt.ids, [])
    free = slice(4, 44)
    for layer, keys in enumerate(state.keys):
        norms = keys[:, free].norm(dim=-1)
        kept = planned.plan.kept_LKN[layer, :, free]
        assert kept.sum(-1).tolist() == [round(0.8 * 52) - 12] * len(norms)
        for head in range(len(norms)):
            assert norms[head][kept[head]].max() <= norms[head][~kept[head]].min()


@pytest.mark.parametrize(
    ("name", "params"), [("window", {"pool": 4}), ("window", {"window": 0}), ("accumulated", {"stride": 0})]
)
def test_scores_refuse_parameters_without_a_meaning(name, params):
    with pytest.raises(ConfigError):
        build_score(name, **params)
