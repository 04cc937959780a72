"""Cells against a float64 reference that loops over tokens, and the design's promises about their numbers.

The reference shares no code with kvexp.replay.cells, kvexp.estimate, the designs or the scores: only the
keyed uniforms are the project's own.
"""

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from transformers import AttentionInterface

from kvexp.design.base import KeepPlan, drawn_plan, fixed_plan
from kvexp.draws import uniforms
from kvexp.estimate import squared_distances, variance_terms
from kvexp.replay.cells import Plans, Queried, errors
from kvexp.replay.model import wrap
from kvexp.replay.prefill import Rows, prefill
from kvexp.replay.protocol import Protocol
from kvexp.study.plugins import build_design, build_score, build_task
from kvexp.study.prompts import Rendering, prompt_of
from tests import tiny
from tests.run.test_measure import AFTER, Short, attention_shards, cells_of, changed, make, measured

SINKS, RECENT, DELTA, FLOOR, LEAST_PI = 4, 32, 0.1, 1e-9, 1e-6
NUMBERS = "expected_kept norm estimate_norm hajek no_offset topk uniform variance largest certificate".split()
COUNTS = "evictable kept tail_kept uniform_kept covered".split()
LAYOUTS = [
    ("llama", 6, 2),
    ("qwen2", 6, 2),
    ("mistral", 6, 2),
    ("llama", 4, 4),
    ("qwen2", 8, 1),
    ("llama", 9, 3),
]


def _record(module, query, key, value, attention_mask, scaling=None, record=None, **_):
    """Attention as usual, with queries, keys and values noted."""
    record.append([t[0].numpy().copy() for t in (query * scaling, key, value)])
    group = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(group, 1), value.repeat_interleave(group, 1)
    out = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True, scale=scaling)
    return out.transpose(1, 2), None


AttentionInterface.register("recording_reference", _record)


def forward(loaded, ids):
    """Scaled queries, keys and values by layer, float64, from a forward pass of transformers' own."""
    record = []
    before = loaded.model.config._attn_implementation
    loaded.model.set_attn_implementation("recording_reference")
    try:
        with torch.no_grad():
            loaded.model(ids[None], use_cache=False, record=record)
    finally:
        loaded.model.set_attn_implementation(before)
    return [[part.astype(np.float64) for part in layer] for layer in record]


class Reference:
    """One layer of one prompt, token by token."""

    def __init__(self, layer, n, width=64, pool=5):
        self.q_HND, self.k_KND, self.v_KND = layer
        self.n, self.group = n, len(self.q_HND) // len(self.k_KND)
        self.free = range(SINKS, n - RECENT)
        self.score = cache(lambda kv: self.window(kv, width, pool))
        self.pi, self.topk = cache(self.pi), cache(self.topk)

    def attention(self, head, at):
        """exp(logit - a constant) of every token up to the query's own, one by one."""
        query, keys = self.q_HND[head, at], self.k_KND[head // self.group]
        logits = [float(keys[i] @ query) for i in range(at + 1)]
        highest = max(logits)
        return [math.exp(logit - highest) for logit in logits]

    def window(self, kv, width, pool):
        """SnapKV: attention of the last positions in the cache, mean over the group, pooled."""
        mass = [0.0] * self.n
        for at in range(max(0, self.n - width), self.n):
            for head in range(kv * self.group, (kv + 1) * self.group):
                a = self.attention(head, at)
                total = sum(a)
                for i in range(at + 1):
                    mass[i] += a[i] / total / self.group
        around = [range(max(0, i - pool // 2), min(self.n, i + pool // 2 + 1)) for i in range(self.n)]
        return [sum(mass[j] for j in near) / len(near) for near in around]

    def pi(self, kv, kept):
        """clip(c * score, 1e-6, 1) on unprotected tokens, c by bisection so that pi adds up to the budget."""
        s, m = self.score(kv), kept - SINKS - RECENT
        low, high = 0.0, 1 / min(s[i] for i in self.free if s[i] > 0)
        for _ in range(200):
            c = (low + high) / 2
            spent = sum(min(1.0, max(LEAST_PI, c * s[i])) for i in self.free)
            low, high = (c, high) if spent < m else (low, c)
        pi = [1.0] * self.n
        for i in self.free:
            pi[i] = min(1.0, max(LEAST_PI, high * s[i]))
        return pi

    def topk(self, kv, kept):
        """Protected tokens and the highest scores; of equal ones the earlier."""
        s = [np.float32(x) for x in self.score(kv)]
        best = set(sorted(self.free, key=lambda i: (-s[i], i))[: kept - SINKS - RECENT])
        return [i not in self.free or i in best for i in range(self.n)]

    def ratio(self, a, values, kept, pi, at):
        """sum(a v / pi) / sum(a / pi) over kept tokens and all that came after the eviction; and the sum."""
        above, below = np.zeros(values.shape[1]), 0.0
        for i in range(at + 1):
            if i >= self.n or kept[i]:
                share = a[i] / (pi[i] if i < self.n else 1.0)
                above, below = above + share * values[i], below + share
        return above / below, below

    def cell(self, head, at, kept, uniform):
        """The numbers of one cell; `uniform`: the draw of this KV head."""
        kv, n = head // self.group, self.n
        values, a, pi = self.v_KND[kv], self.attention(head, at), self.pi(kv, kept)
        always = [1.0] * n
        y, total = self.ratio(a, values, [True] * n, always, at)
        drawn = [uniform[i] < pi[i] for i in range(n)]
        even = [(kept - SINKS - RECENT) / len(self.free) if i in self.free else 1.0 for i in range(n)]
        evenly = [uniform[i] < even[i] for i in range(n)]
        scale = norm(y) + FLOOR
        estimate, big_n = self.ratio(a, values, drawn, pi, at)
        variance = b = 0.0
        for i in range(n):
            if drawn[i] and pi[i] < 1:
                variance += (1 - pi[i]) / pi[i] ** 2 * a[i] ** 2 * norm(values[i] - estimate) ** 2 / big_n**2
                b = max(b, math.sqrt(1 - pi[i]) / pi[i] * a[i] * norm(values[i] - estimate) / big_n)
        log = math.log(1 / DELTA)
        certificate = (math.sqrt(2 * variance * log) + b * log) / (norm(estimate) + FLOOR)
        return {
            "evictable": n,
            "expected_kept": sum(pi),
            "kept": sum(drawn),
            "tail_kept": sum(k and p < 1 for k, p in zip(drawn, pi, strict=True)),
            "uniform_kept": sum(evenly),
            "norm": norm(y),
            "estimate_norm": norm(estimate),
            "hajek": norm(estimate - y) / scale,
            "no_offset": norm(self.ratio(a, values, drawn, always, at)[0] - y) / scale,
            "topk": norm(self.ratio(a, values, self.topk(kv, kept), always, at)[0] - y) / scale,
            "uniform": norm(self.ratio(a, values, evenly, even, at)[0] - y) / scale,
            "variance": variance,
            "largest": b,
            "certificate": certificate,
            "covered": norm(estimate - y) <= certificate * (norm(estimate) + FLOOR),
            "rare_attention": sum(a[i] for i in range(n) if pi[i] < 1e-3) / total,
        }


def norm(vector):
    return math.sqrt(sum(float(x) ** 2 for x in vector))


def expected_cells(loaded, shard, prompt, example_id, wanted=lambda **_: True):
    """The reference's cells of one prompt by (budget, seed, offset, layer, head)."""
    conf, n = shard.attention, prompt.n_prefix + prompt.n_context
    last = n + max(conf.query_offsets)
    windows = {"width": conf.score_params.get("window", 64), "pool": conf.score_params.get("pool", 5)}
    layers = [Reference(layer, n, **windows) for layer in forward(loaded, prompt.ids[: last + 1])]
    shape = (loaded.layers, loaded.kv_heads, n)
    made = {}
    for seed in conf.seeds:
        u = uniforms("unanchored", seed, shard.task.name, example_id, conf.condition, shape)
        for budget in conf.budgets:
            for number, layer in enumerate(layers):
                for head in range(loaded.query_heads):
                    for offset in conf.query_offsets:
                        place = {"budget": budget, "seed": seed, "offset": offset}
                        if wanted(**place, layer=number, head=head):
                            made[budget, seed, offset, number, head] = layer.cell(
                                head, n + offset, round(budget * n), u[number, head // layer.group]
                            )
    return made


def place_of(row):
    return row.budget, row.seed, row.offset, row.layer, row.head


def assert_cells_equal(rows, expected):
    """Every number to 1e-5; an error of 1e-3 is a difference of outputs that float32 states know to 1e-7."""
    for row in rows:
        slow, place = expected[place_of(row)], place_of(row)
        for name in COUNTS:
            assert getattr(row, name) == slow[name], (name, place)
        for name in NUMBERS:
            assert getattr(row, name) == pytest.approx(slow[name], rel=1e-5, abs=1e-7), (name, place)


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def shard(tmp_path_factory, tiny_folder):
    root = make(tmp_path_factory.mktemp("cells") / "project", tiny_folder)
    return attention_shards(root)[0]


@pytest.fixture(scope="module")
def loaded():
    return wrap(tiny.model("llama"), tiny.tokenizer())


def short(shard, loaded, **changes):
    """The shard without worlds, for any model, and the prompt of its first example with a short context."""
    shard = replace(shard, layers=loaded.layers, query_heads=loaded.query_heads, world_ids=[])
    family = Short()
    (question,) = family.load(1, shard.example_seed, 0)
    return changed(shard, **changes), prompt_of(
        loaded.tokenizer, family, question, Rendering(chat=False, limit=4096)
    )


PEAKED = {"window": 4, "pool": 1}  # few rows, unpooled: many tokens with a small pi


def one_short_prompt(shard, layout, offsets, seed):
    """Rows of `measure` and the reference's, at one draw."""
    kind, heads, kv_heads = layout
    loaded = wrap(tiny.model(kind, heads=heads, kv_heads=kv_heads), tiny.tokenizer())
    short_shard, prompt = short(shard, loaded, seeds=[seed], query_offsets=offsets, score_params=PEAKED)
    rows = measured(short_shard, loaded, family=Short())
    assert len(rows) == 2 * len(offsets) * 3 * heads
    return rows, expected_cells(loaded, short_shard, prompt, short_shard.example_ids[0])


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize(("offsets", "seed"), [([16], 0), ([3, 0, 16], 1)], ids=str)
def test_every_cell_of_every_kind_of_model_equals_the_loop_over_tokens(shard, layout, offsets, seed):
    rows, expected = one_short_prompt(shard, layout, offsets, seed)
    assert_cells_equal(rows, expected)
    assert max(row.rare_attention for row in rows) > 1e-3


def test_a_real_shards_rows_equal_the_loop_over_tokens(shard, loaded):
    """Prose, two budgets, two offsets, two seeds, as `submit` would run it; every sixth cell is looped."""
    family = build_task("prose")
    question = family.load(shard.n_examples, shard.example_seed, shard.context_tokens)[1]
    prompt = prompt_of(loaded.tokenizer, family, question, Rendering(chat=False, limit=4096))

    def wanted(budget, seed, offset, layer, head):
        return (head + layer + seed + 2 * (offset > 8) + 3 * (budget > 0.3)) % 6 == 0

    expected = expected_cells(loaded, shard, prompt, question.example_id, wanted)
    rows = [row for row in measured(shard, loaded, number=1) if place_of(row) in expected]
    assert len(rows) == len(expected) == 2 * 2 * 2 * 3 * 6 / 6
    assert_cells_equal(rows, expected)


def test_the_numbers_above_are_not_all_alike(shard, loaded):
    """Otherwise the comparison would pass with any keep set."""
    rows = cells_of(measured(shard, loaded, number=1))
    for name in [*NUMBERS[1:-1], "kept", "tail_kept", "uniform_kept"]:
        assert len({getattr(row, name) for row in rows}) > 15, name
    assert {row.covered for row in rows} == {True, False}
    n = rows[0].evictable
    assert {(row.evictable, row.budget, row.expected_kept) for row in rows} == {
        (n, b, round(b * n)) for b in (0.25, 0.5)
    }


def test_a_single_clip_says_what_it_expects_to_keep(shard, loaded):
    single, _ = short(shard, loaded, design_params={"allocation": "single_clip"}, score_params=PEAKED)
    for row in measured(single, loaded, family=Short()):
        assert SINKS + RECENT < row.expected_kept < round(row.budget * row.evictable) - 1
        assert row.tail_kept <= row.kept < row.evictable


class Noted:
    """The rows that scores asked the prefill for, and the queries that it kept."""

    def __init__(self, monkeypatch):
        from kvexp.run import measure

        def noted(loaded, ids, requests, queries_at):
            self.requests, self.queries_at = list(requests), list(queries_at)
            return prefill(loaded, ids, self.requests, self.queries_at)

        monkeypatch.setattr(measure, "prefill", noted)


@pytest.mark.parametrize("name", ["window", "accumulated"])
def test_queries_took_no_part_in_scoring(shard, loaded, monkeypatch, name):
    noted = Noted(monkeypatch)
    rows = measured(changed(shard, score=name), loaded)
    n = rows[0].evictable
    assert noted.queries_at == [n + offset for offset in shard.attention.query_offsets]
    assert len(noted.requests) == 2  # of the cells' score and of the rotation's
    for request in noted.requests:
        assert request.n_keys == n
        assert 0 <= min(request.positions) <= max(request.positions) < n <= min(noted.queries_at)


PLANNED = ("expected_kept", "kept", "tail_kept", "uniform_kept", "evictable")


def test_the_text_after_the_eviction_changes_no_score_and_no_plan(shard, loaded, monkeypatch):
    """Scores and keep sets to the bit, for both kinds of score; the errors do change."""
    from kvexp.run import measure

    seen = []
    monkeypatch.setattr(measure, "_cells", lambda replay: seen.append(replay) or [])
    monkeypatch.setattr(measure, "_worlds", lambda replay, change: [])
    texts = (AFTER, "\n" + "Entirely other words stand here. " * 2)
    for after in texts:
        measured(shard, loaded, family=Short(after=after))
    assert not torch.equal(seen[0].prefill.queries[1], seen[1].prefill.queries[1])
    for kind in ("cell", "rotation"):
        one, other = (replay.prefill.masses[replay.rows[kind]] for replay in seen)
        for ours, theirs in zip(one, other, strict=True):
            assert torch.equal(ours, theirs)
        pairs = zip(seen[0].plans(kind, 0.5, 1), seen[1].plans(kind, 0.5, 1), strict=True)
        for ours, theirs in pairs:
            for name in ("poisson", "topk", "uniform"):
                a, b = getattr(ours, name), getattr(theirs, name)
                assert torch.equal(a.kept_LKN, b.kept_LKN)
                assert torch.equal(a.pi_LKN, b.pi_LKN)


def test_the_text_after_the_eviction_changes_the_errors(shard, loaded):
    texts = (AFTER, AFTER[::-1].rstrip())
    ours, theirs = (cells_of(measured(shard, loaded, family=Short(after=text))) for text in texts)
    assert [[getattr(r, n) for n in PLANNED] for r in ours] == [
        [getattr(r, n) for n in PLANNED] for r in theirs
    ]
    assert [r.hajek for r in ours] != [r.hajek for r in theirs]


def test_the_last_query_alone_decides_how_far_the_model_reads(shard, loaded):
    """A query sees nothing after itself: an offset's numbers do not depend on the other offsets."""
    both = cells_of(measured(shard, loaded, number=1))
    first = cells_of(measured(changed(shard, query_offsets=[8]), loaded, number=1))
    by_place = {place_of(row): row for row in both}
    for row in first:
        other = by_place[place_of(row)]
        for name in NUMBERS:
            assert getattr(row, name) == pytest.approx(getattr(other, name), rel=1e-5, abs=1e-6)
        for name in COUNTS:
            assert getattr(row, name) == getattr(other, name)


class Attention:
    """Real attention of a tiny model at a later query, and a design with a least pi on it, layer by layer.

    `sharpness` scales the queries. At 1 a few of the 316 tokens have all the attention, and a random model's
    score does not know which: too few heavy tokens are sampled for a plug-in, so that its coverage falls.
    """

    def __init__(self, sharpness, budget=0.35, least_pi=0.02):
        model = tiny.model("llama")
        with torch.no_grad():
            for layer in model.model.layers:
                layer.self_attn.q_proj.weight.mul_(sharpness)
        loaded = wrap(model, tiny.tokenizer())
        family = Short()
        prompt = prompt_of(
            loaded.tokenizer, family, family.load(1, 5, 0)[0], Rendering(chat=False, limit=4096)
        )
        self.n = prompt.n_prefix + prompt.n_context
        read = build_score("window")
        rows = Rows(read.rows(prompt.spans("stream")), self.n)
        state = prefill(loaded, prompt.ids, [rows], [self.n + 8])
        self.protected = torch.arange(self.n) < SINKS
        self.protected |= torch.arange(self.n) >= self.n - RECENT
        self.kept = round(budget * self.n)
        self.scores = torch.stack([read.finish(layer) for layer in state.layers(rows)])
        made = build_design("poisson", floor=least_pi)
        self.pi = made.inclusion(self.scores, self.protected, self.kept)
        self.topk = fixed_plan(build_design("topk").inclusion(self.scores, self.protected, self.kept))
        self.layers = [Queried.of(state, number) for number in range(loaded.layers)]

    def draw(self, number):
        return torch.from_numpy(uniforms("test", number, "t", "e", "stream", tuple(self.pi.shape)))

    def errors(self, layer, uniform, said_pi=None):
        """True errors of a draw made with the true pi, estimated and certified with what is said."""
        pi = self.pi[layer, None]
        kept = drawn_plan(pi, uniform[layer, None]).kept_LKN
        said = KeepPlan(kept, pi if said_pi is None else said_pi[layer, None])
        topk = KeepPlan(self.topk.kept_LKN[layer, None], self.topk.pi_LKN[layer, None])
        return errors(self.layers[layer], Plans(said, topk, said), Protocol())


DRAWS = 2000


@pytest.mark.parametrize(("sharpness", "least_coverage"), [(1.0, None), (0.5, 0.9)])
def test_over_2000_draws_the_horvitz_thompson_form_has_the_true_variance_as_its_mean(
    record_property, sharpness, least_coverage
):
    """Theorem 2 on a model's own attention; bias and coverage of the deployed plug-in stand beside it."""
    floored = Attention(sharpness)
    assert float(floored.pi.min()) >= 0.02
    draws = [floored.draw(number) for number in range(DRAWS)]
    distance, bias, covered = [], [], []
    for number, layer in enumerate(floored.layers):
        a = layer.logits_KGQN.softmax(-1)[:, :, 0]  # (K, G, N): the true N is divided out
        y = a @ layer.values_KND
        x = a[..., None] * (layer.values_KND[:, None] - y[:, :, None])
        pi = torch.nn.functional.pad(floored.pi[number], (0, a.shape[-1] - floored.n), value=1.0)[:, None]
        true = ((1 - pi) / pi * x.square().sum(-1)).sum(-1)
        assert float(true.min()) > 0
        distances = squared_distances(layer.values_KND, y, layer.values_KND.square().sum(-1))
        terms = variance_terms(a / pi, 1 - pi, distances)[..., : floored.n]
        kept = torch.stack([u[number] for u in draws]) < floored.pi[number]
        form = torch.einsum("skn,kgn->skg", kept.double(), terms)
        distance.append((form.mean(0) - true) / (form.std(0) / DRAWS**0.5))
        found = [floored.errors(number, u) for u in draws]
        bias.append(torch.stack([f.variance[..., 0] for f in found]).mean(0) / true - 1)
        covered.append(torch.stack([f.covered[..., 0] for f in found]).double().mean(0))
    distance, bias, covered = (torch.stack(parts).flatten() for parts in (distance, bias, covered))
    reported = {
        "horvitz_thompson_largest_distance": float(distance.abs().max()),  # Monte Carlo standard errors
        "plug_in_bias_mean": float(bias.mean()),
        "plug_in_bias_lowest": float(bias.min()),
        "plug_in_bias_highest": float(bias.max()),
        "coverage": float(covered.mean()),
        "coverage_lowest": float(covered.min()),
    }
    for name, value in reported.items():
        record_property(name, value)
    print(f"sharpness {sharpness:g}, {len(distance)} cells, {DRAWS} draws: {reported}")
    assert len(distance) == 18
    assert reported["horvitz_thompson_largest_distance"] < 4
    assert all(math.isfinite(value) for value in reported.values())
    assert least_coverage is None or reported["coverage"] >= least_coverage


def test_coverage_falls_when_pi_is_misreported():
    """The negative control: the same draws, estimated and certified with pi^power instead of their pi."""
    floored = Attention(0.5)
    coverage = {}
    for power in (1.0, 0.3, 0.1, 0.01):
        found = [
            floored.errors(layer, floored.draw(number), floored.pi**power).covered
            for number in range(150)
            for layer in range(3)
        ]
        coverage[power] = float(torch.stack(found).double().mean())
    print("coverage:", coverage)
    honest, *misreported = coverage.values()
    assert honest >= 0.9
    assert misreported == sorted(misreported, reverse=True)
    assert max(misreported) < honest - 0.1
    assert min(misreported) < 0.2


def test_at_budget_one_every_error_is_zero_and_every_cell_is_covered(shard, loaded):
    whole, _ = short(shard, loaded, budgets=[1.0])
    for row in measured(whole, loaded, family=Short()):
        assert (row.kept, row.uniform_kept, row.tail_kept) == (row.evictable, row.evictable, 0)
        assert row.expected_kept == row.evictable
        assert max(row.hajek, row.no_offset, row.topk, row.uniform) < 1e-12
        assert (row.variance, row.largest, row.certificate, row.covered) == (0.0, 0.0, 0.0, True)
        assert row.estimate_norm == pytest.approx(row.norm, rel=1e-7)
