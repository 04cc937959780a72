"""Rows of changed worlds: values are exchanged and turned here, and errors are summed token by token."""

import numpy as np
import pytest
import torch

from kvexp.draws import uniforms
from kvexp.replay.model import wrap
from kvexp.study.prompts import Rendering, prompt_of
from tests import tiny
from tests.replay.test_cells import Reference, forward
from tests.run.test_measure import Short, attention_shards, changed, make, measured, worlds_of

BUDGET = 0.25


class Valued(Reference):
    """A layer whose score is the attention of the last positions times the L1 norm of a value."""

    def window(self, kv, width, pool):
        mass = super().window(kv, width, 1)
        return [m * float(np.abs(self.v_KND[kv, i]).sum()) for i, m in enumerate(mass)]


def exchanged(values_KND, evicted_Kn, uniform_Kn):
    """Evicted tokens in order take the values of the evicted tokens in the order of their uniforms."""
    made = values_KND.copy()
    for kv, evicted in enumerate(evicted_Kn):
        places = [i for i, gone in enumerate(evicted) if gone]
        for place, source in zip(places, sorted(places, key=lambda i, u=uniform_Kn[kv]: u[i]), strict=True):
            made[kv, place] = values_KND[kv, source]
    return made


def turned(values_KND, evicted_Kn, uniform_KD):
    """Evicted values with the sign of each coordinate below 1/2 changed, and of an even number of them."""
    made = values_KND.copy()
    for kv, evicted in enumerate(evicted_Kn):
        signs = [-1 if u < 0.5 else 1 for u in uniform_KD[kv]]
        if np.prod(signs) < 0:
            signs[-1] = -signs[-1]
        for i, gone in enumerate(evicted):
            if gone:
                made[kv, i] = values_KND[kv, i] * signs
    return made


@pytest.fixture(scope="module")
def setting(tmp_path_factory, tiny_folder):
    torch.set_num_threads(1)
    root = make(tmp_path_factory.mktemp("worlds") / "project", tiny_folder)
    shard = changed(
        attention_shards(root)[0],
        query_offsets=[5, 12],
        seeds=[4, 1],
        worlds=2,
        world_budget=BUDGET,
        budgets=[0.5],
        score_params={"window": 4, "pool": 1},
        rotation_score_params={"window": 6},
    )
    loaded = wrap(tiny.model("llama"), tiny.tokenizer())
    return worlds_of(measured(shard, loaded, anchor="an anchor", attempt=3, family=Short())), shard, loaded


LOGGED = ("norm", "estimate_norm", "topk", "hajek", "certificate", "covered")


def test_every_world_equals_the_loops(setting):
    """At the first draw and query; keep sets are those of the cache as it is."""
    rows, shard, loaded = setting
    family = Short()
    (question,) = family.load(1, shard.example_seed, 0)
    prompt = prompt_of(loaded.tokenizer, family, question, Rendering(chat=False, limit=4096))
    n = prompt.n_prefix + prompt.n_context
    kept, at = round(BUDGET * n), n + 5
    layers = forward(loaded, prompt.ids[: at + 1])

    def draw(condition, width):
        return uniforms("an anchor", 4, "prose", question.example_id, condition, (3, 2, width))

    uniform, dim = draw("stream", n), layers[0][2].shape[-1]
    by_place = {(row.change, row.world, row.layer): row for row in rows}
    assert len(by_place) == len(rows) == 2 * 3 * 3
    kinds = {
        "permutation": (lambda layer: Reference(layer, n, 4, 1), exchanged, n),
        "rotation": (lambda layer: Valued(layer, n, 6, 1), turned, dim),
    }
    for change, (reference, altered, width) in kinds.items():
        for number, (queries, keys, values) in enumerate(layers):
            plain = reference((queries, keys, values))
            evicted = [[not stays for stays in plain.topk(kv, kept)] for kv in range(2)]
            assert all(sum(gone) == n - kept for gone in evicted)
            for world in range(3):
                there = values
                if world:
                    there = altered(values, evicted, draw(f"{change} {world}", width)[number])
                    assert not np.array_equal(there, values)
                layer = reference((queries, keys, there))
                row = by_place[change, world, number]
                for head in (1, 4):  # one of each KV head
                    slow = layer.cell(head, at, kept, uniform[number, head // 3])
                    for name in LOGGED:
                        made = getattr(row, name)[head]
                        assert made == pytest.approx(slow[name], rel=1e-5, abs=1e-7), (change, world, name)


def test_a_world_says_where_it_belongs(setting):
    rows, shard, _ = setting
    for row in rows:
        assert (row.attempt, row.suite, row.model, row.task) == (3, "cells", "tiny", "prose")
        assert (row.shard_id, row.example_id) == ("cells.tiny.prose.000", shard.example_ids[0])
        assert (row.budget, row.seed, row.offset) == (BUDGET, 4, 5)
        assert row.score == ("value_weighted" if row.change == "rotation" else "window")
