"""A probe shows a keep set at places that its row's key chooses."""

import hashlib
import json

import numpy as np
import pytest
import torch

from kvexp.replay.probe import PLACES, agreement, probe

KEY = ["embedded-1k", "m", "words", "3-000", "poisson", "stream", 0.25, 1]
SHAPE = (3, 2, 700)


def mask(share=0.3, seed=0):
    return torch.rand(SHAPE, generator=torch.Generator().manual_seed(seed)) < share


def by_hand(kept, key):
    """One place after the other, from the words of the documentation."""
    number = int.from_bytes(hashlib.sha256(json.dumps(["probe", *key]).encode()).digest()[:16], "big")
    layers, heads, tokens = kept.shape
    bits = ""
    for raw in np.random.Philox(key=number).random_raw(512):
        place = int((int(raw) >> 11) * 2.0**-53 * (layers * heads * tokens))
        bits += str(int(kept[place // (heads * tokens), place // tokens % heads, place % tokens]))
    return f"{int(bits, 2):0128x}"


def test_it_is_what_the_documentation_says():
    assert probe(mask(), KEY) == by_hand(mask(), KEY)
    assert probe(torch.ones(SHAPE, dtype=torch.bool), KEY) == "f" * 128
    assert probe(torch.zeros(SHAPE, dtype=torch.bool), KEY) == "0" * 128


@pytest.mark.parametrize("at", range(len(KEY)))
def test_every_field_of_the_key_chooses_other_places(at):
    other = [*KEY]
    other[at] = f"{KEY[at]}1" if isinstance(KEY[at], str) else KEY[at] + 0.5
    assert probe(mask(), other) != probe(mask(), KEY)


def test_the_fields_do_not_run_into_each_other():
    assert probe(mask(), ["ab", "c"]) != probe(mask(), ["a", "bc"])
    assert probe(mask(), [None]) != probe(mask(), ["null"])


def test_agreement_counts_the_places_that_are_the_same():
    assert agreement("f" * 128, "f" * 128) == PLACES
    assert agreement("f" * 128, "0" * 128) == 0
    assert agreement("0" * 128, "0" * 127 + "7") == PLACES - 3


def test_agreement_estimates_the_share_of_all_tokens_without_bias():
    one = mask()
    flips = torch.rand(SHAPE, generator=torch.Generator().manual_seed(1)) < 0.05
    truth = 1 - float(flips.double().mean())
    other = one ^ flips
    found = [agreement(probe(one, [n]), probe(other, [n])) / PLACES for n in range(400)]
    error = np.std(found) / np.sqrt(len(found))
    assert np.mean(found) == pytest.approx(truth, abs=4 * error)
    assert np.std(found) == pytest.approx(np.sqrt(truth * (1 - truth) / PLACES), rel=0.15)


def test_both_ends_of_the_keep_set_can_be_drawn():
    first, last = torch.zeros(2, SHAPE[0] * SHAPE[1] * 8, dtype=torch.bool)
    first[0] = last[-1] = True
    for kept in (first, last):
        assert any(int(probe(kept.view(3, 2, 8), [n]), 16) for n in range(20))
