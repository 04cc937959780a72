"""Scores of a few tokens: which rows each one reads, and what it makes of their attention, by hand."""

import math

import pytest
import torch

from kvexp.replay.prefill import Rows, attention_mass
from kvexp.scores.base import Layer, Spans
from kvexp.study.plugins import build_score

LOG2 = math.log(2)


def cached(mass, values):
    """A layer whose keys no shipped score reads."""
    return Layer(torch.full_like(values, torch.nan), values, torch.arange(values.shape[1]), mass)


def mass_of(rows, n_keys=4):
    """Attention of 2 query heads on 1 KV head. Token i has the key i: logits of a query q are q * i * scale.

    Head 0 asks with log 2 (weights 1 2 4 8 over their sum) and head 1 with 0 (even weights).
    """
    query = torch.tensor([[[LOG2]] * 5, [[0.0]] * 5]).view(2, 5, 1) * 2
    key = torch.arange(5.0).view(1, 5, 1)
    return attention_mass(query, key, Rows(rows, n_keys), scaling=0.5)[0].tolist()


def test_the_mass_of_one_row_is_causal_and_the_mean_over_its_heads():
    assert mass_of(range(0, 1)) == pytest.approx([1, 0, 0, 0], abs=1e-6)
    assert mass_of(range(1, 2)) == pytest.approx([(1 / 3 + 1 / 2) / 2, (2 / 3 + 1 / 2) / 2, 0, 0], abs=1e-6)
    three = [(1 / 7 + 1 / 3) / 2, (2 / 7 + 1 / 3) / 2, (4 / 7 + 1 / 3) / 2, 0]
    assert mass_of(range(2, 3)) == pytest.approx(three, abs=1e-6)


def test_the_mass_of_several_rows_is_their_sum():
    """Rows 1 and 3: 1/3 1/2 and 1/15 1/4, halved."""
    expected = [
        (1 / 3 + 1 / 2 + 1 / 15 + 1 / 4) / 2,
        (2 / 3 + 1 / 2 + 2 / 15 + 1 / 4) / 2,
        (4 / 15 + 1 / 4) / 2,
        (8 / 15 + 1 / 4) / 2,
    ]
    assert mass_of(range(1, 4, 2)) == pytest.approx(expected, abs=1e-6)
    assert sum(mass_of(range(0, 4))) == pytest.approx(4, abs=1e-6)


def test_the_mass_is_the_mean_over_the_heads_of_one_kv_head():
    """Two KV heads of two heads each: the first head attends as above, the other three evenly."""
    query = torch.zeros(4, 4, 1)
    query[0] = 2 * LOG2
    key = torch.arange(4.0).view(1, 4, 1).expand(2, 4, 1)
    mass = attention_mass(query, key, Rows(range(1, 2), 4), scaling=0.5)
    assert mass[0].tolist() == pytest.approx([(1 / 3 + 1 / 2) / 2, (2 / 3 + 1 / 2) / 2, 0, 0], abs=1e-6)
    assert mass[1].tolist() == pytest.approx([1 / 2, 1 / 2, 0, 0], abs=1e-6)


def test_the_mass_of_many_rows_is_summed_over_chunks():
    """200 rows of even attention: token i gets 1/j for every row j of them, counted from 1, that sees it."""
    query, key = torch.zeros(2, 200, 3), torch.randn(1, 200, 3)
    every = attention_mass(query, key, Rows(range(0, 200), 200), 1.0)[0]
    third = attention_mass(query, key, Rows(range(2, 200, 3), 200), 1.0)[0]
    for token in (0, 1, 63, 64, 65, 128, 199):
        assert float(every[token]) == pytest.approx(sum(1 / j for j in range(token + 1, 201)), rel=1e-5)
        seen = [j for j in range(3, 201, 3) if j > token]
        assert float(third[token]) == pytest.approx(sum(1 / j for j in seen), rel=1e-5, abs=1e-7)


SPANS = Spans(n_evictable=10, question=(6, 9))


@pytest.mark.parametrize(
    ("name", "params", "spans", "rows"),
    [
        ("accumulated", {"stride": 1}, SPANS, list(range(10))),
        ("accumulated", {"stride": 4}, SPANS, [3, 7]),
        ("accumulated", {"stride": 5}, SPANS, [4, 9]),
        ("accumulated", {"stride": 11}, SPANS, []),
        ("accumulated", {}, Spans(33, (0, 1)), [15, 31]),
        ("window", {"window": 3}, SPANS, [7, 8, 9]),
        ("window", {"window": 10}, SPANS, list(range(10))),
        ("window", {"window": 11}, SPANS, list(range(10))),
        ("window", {}, Spans(70, (0, 1)), list(range(6, 70))),
        ("value_weighted", {"window": 3}, SPANS, [7, 8, 9]),
        ("value_weighted", {"window": 11}, SPANS, list(range(10))),
        ("value_weighted", {}, Spans(70, (0, 1)), list(range(6, 70))),
        ("question", {}, SPANS, [6, 7, 8]),
        ("question", {}, Spans(8, (6, 9)), [6, 7]),  # the rest of the question is not in the cache yet
        ("question", {}, Spans(10, (6, 10)), [6, 7, 8, 9]),
    ],
)
def test_the_rows_of_a_score(name, params, spans, rows):
    assert list(build_score(name, **params).rows(spans)) == rows


def test_what_a_score_makes_of_attention():
    """Values with L1 norms 3, 4, 0 and 2; pooling over 3 neighbours, two of them at the ends."""
    mass = torch.tensor([[1.0, 4.0, 7.0, 1.0], [0.0, 0.0, 6.0, 0.0]])
    values = torch.tensor([[1.0, -2.0], [-2.0, -2.0], [0.0, 0.0], [2.0, 0.0]]).expand(2, 4, 2)
    for name in ("accumulated", "question"):
        assert torch.equal(build_score(name).finish(cached(mass, values)), mass)
    weighted = build_score("value_weighted").finish(cached(mass, values))
    assert weighted.tolist() == [[3, 16, 0, 2], [0, 0, 0, 0]]
    assert build_score("window", pool=1).finish(cached(mass, values)).tolist() == mass.tolist()
    assert build_score("window", pool=3).finish(cached(mass, values)).tolist() == [
        [2.5, 4, 4, 4],
        [0, 2, 2, 3],
    ]
    five = build_score("window").finish(cached(mass, values))  # two neighbours on each side
    assert five.tolist() == [[4, 3.25, 3.25, 4], [2, 1.5, 1.5, 2]]


def test_the_norm_of_a_narrow_value_is_summed_in_float32():
    """bfloat16 knows 8 bits: 256 + 1 would stay 256 there."""
    values = torch.tensor([[[256.0, 1.0]]]).bfloat16()
    assert build_score("value_weighted").finish(cached(torch.ones(1, 1), values)).tolist() == [[257.0]]


def test_what_scores_say_of_themselves():
    names = ("accumulated", "question", "value_weighted", "window")
    assert {n: build_score(n).conditions for n in names} == {
        "accumulated": ("aware", "stream"),
        "question": ("aware",),
        "value_weighted": ("aware", "stream"),
        "window": ("aware", "stream"),
    }
    assert {n: build_score(n).reads_values for n in names} == {
        "accumulated": False,
        "question": False,
        "value_weighted": True,
        "window": False,
    }
