"""Theorem 1 and Remark 1: what top-k can compute is the same bytes in every world, its true error is not."""

from collections import Counter
from dataclasses import dataclass, replace

import pytest
import torch

from kvexp.draws import uniforms
from kvexp.records import CHANGES
from kvexp.replay.cells import Queried, Scored, permuted, rotated, statistics
from kvexp.replay.model import wrap
from kvexp.run import measure
from kvexp.scores.base import Layer, Score
from kvexp.study.plugins import build_design
from tests import tiny
from tests.run.test_measure import (
    Short,
    attention_shards,
    cells_of,
    changed,
    make,
    measured,
    worlds_of,
)

LAYOUTS = [("llama", 6, 2), ("qwen2", 4, 4), ("mistral", 8, 1), ("llama", 9, 3)]
CHANGED = {"permutation": permuted, "rotation": rotated}


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def shard(tmp_path_factory, tiny_folder):
    """One offset: the demonstration uses the first."""
    root = make(tmp_path_factory.mktemp("worlds") / "project", tiny_folder)
    return changed(attention_shards(root)[0], query_offsets=[16])


@pytest.fixture(scope="module")
def loaded():
    return wrap(tiny.model("llama"), tiny.tokenizer())


@pytest.fixture(scope="module")
def rows(shard, loaded):
    return measured(shard, loaded)


@pytest.fixture(scope="module")
def replay(shard, loaded):
    """The prompt after its prefill, as `measure` has it."""
    return replay_of(shard, loaded)


def replay_of(shard, loaded, family=None):
    seen = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measure, "_cells", lambda replay: seen.append(replay) or [])
        patch.setattr(measure, "_worlds", lambda replay, change: [])
        measured(shard, loaded, family=family)
    return seen[0]


def fitting(shard, loaded):
    return replace(shard, layers=loaded.layers, query_heads=loaded.query_heads)


def by_layer(worlds, change):
    """The seven rows of every layer, in the order of the worlds."""
    layers = sorted({row.layer for row in worlds})
    found = [[row for row in worlds if (row.change, row.layer) == (change, layer)] for layer in layers]
    assert all([row.world for row in group] == list(range(7)) for group in found)
    return found


@dataclass(frozen=True)
class TopK:
    """One layer of top-k: everything that `statistics` reads."""

    layer: Queried
    keys: torch.Tensor
    scored: Scored
    kept: torch.Tensor  # (K, n)

    @property
    def digest(self):
        return statistics(self.layer, self.keys, self.scored)


def topk_of(replay, kind="cell", number=1, budget=0.25):
    scored = Scored(
        mass_Kn=replay.prefill.masses[replay.rows[kind]][number],
        score=replay.scores[kind],
        design=build_design("topk"),
        protected_n=replay.protected,
        slots=replay.slots(budget),
    )
    kept = replay.plans(kind, budget, 0)[number].topk.kept_LKN[0]
    return TopK(Queried.of(replay.prefill, number), replay.prefill.keys[number].clone(), scored, kept)


def in_world(topk, change, seed=1):
    """The layer with other values of evicted tokens."""
    heads, n = topk.kept.shape
    width = n if change == "permutation" else topk.layer.values_KND.shape[-1]
    drawn = torch.from_numpy(uniforms("test", seed, "t", "e", change, (1, heads, width)))[0]
    return replace(topk, layer=CHANGED[change](topk.layer, ~topk.kept, drawn))


def some(mask, place=0):
    return int(mask.nonzero()[place])


def test_statistics_are_the_same_bytes_in_all_seven_worlds_and_errors_are_not(rows):
    worlds = worlds_of(rows)
    assert len(worlds) == 2 * 7 * 3
    for change in CHANGES:
        for group in by_layer(worlds, change):
            assert len({row.statistics for row in group}) == 1
            for head in range(6):
                assert len({row.topk[head] for row in group}) > 4
                assert len({row.hajek[head] for row in group}) > 4
                assert all(row.topk[head] > 0 for row in group)
    # Layers, changes and prompts do not share statistics: a constant would pass the line above.
    assert len({row.statistics for row in worlds}) == 2 * 3


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_statistics_are_the_same_bytes_on_every_kind_of_model(shard, layout):
    kind, heads, kv_heads = layout
    loaded = wrap(tiny.model(kind, heads=heads, kv_heads=kv_heads, seed=2), tiny.tokenizer())
    worlds = worlds_of(measured(fitting(shard, loaded), loaded, family=Short()))
    for change in CHANGES:
        for group in by_layer(worlds, change):
            assert len({row.statistics for row in group}) == 1
            assert len({tuple(row.topk) for row in group}) > 4
            assert {len(getattr(row, n)) for row in group for n in ("topk", "hajek", "covered")} == {heads}


def test_statistics_are_the_same_bytes_on_a_bfloat16_model(shard):
    """As in the paper study."""
    loaded = wrap(tiny.model("llama").to(torch.bfloat16), tiny.tokenizer())
    worlds = worlds_of(measured(shard, loaded))
    for change in CHANGES:
        for group in by_layer(worlds, change):
            assert len({row.statistics for row in group}) == 1, change


def test_top_k_keeps_the_same_tokens_in_the_plan_and_in_the_statistics(shard):
    """Else worlds change the value of a token that the statistics retain; bfloat16 norms tie often."""
    replay = replay_of(shard, wrap(tiny.model("llama").to(torch.bfloat16), tiny.tokenizer()))
    for number in range(3):
        topk = topk_of(replay, "rotation", number)
        n = topk.kept.shape[1]
        place = torch.arange(n)
        cached = Layer(topk.keys[:, :n], topk.layer.values_KND[:, :n], place, topk.scored.mass_Kn)
        again = topk.scored.score.finish(cached)[None]
        pi = topk.scored.design.inclusion(again, topk.scored.protected_n, topk.scored.slots)
        assert torch.equal(pi[0] > 0, topk.kept)


def test_two_norms_that_only_float64_tells_apart_leave_the_statistics_the_same(replay):
    """The same in float32: two tokens at the edge of the budget whose norms differ by rounding."""
    generator = torch.Generator().manual_seed(0)
    drawn = torch.rand(1000, 8, generator=generator)
    exact = drawn.double().sum(-1).float()
    low = drawn[drawn.sum(-1) < exact][0]  # rounded down on the way
    high = torch.zeros(8)
    high[0] = low.double().sum().float()
    assert float(low.sum()) < float(high.sum()) == float(low.double().sum().float())
    free, room = (~replay.protected).nonzero()[:, 0], replay.slots(0.25) - int(replay.protected.sum())
    values = torch.full_like(replay.prefill.values[0], 1e-3)
    values[:, free[: room - 1]] = 100.0
    values[:, free[room]], values[:, free[room + 7]] = low, high
    layers = [values] * 3
    masses = {rows: [torch.ones_like(m) for m in mass] for rows, mass in replay.prefill.masses.items()}
    same = replace(replay, prefill=replace(replay.prefill, values=layers, masses=masses))
    for group in by_layer(list(measure._worlds(same, "rotation")), "rotation"):
        assert len({row.statistics for row in group}) == 1


def test_world_0_is_the_cell_of_its_budget_draw_and_query(shard, loaded, rows):
    cells = {(row.layer, row.head): row for row in cells_of(rows) if (row.budget, row.seed) == (0.25, 0)}
    plain = [row for row in worlds_of(rows) if row.change == "permutation" and row.world == 0]
    aware = measured(changed(shard, score="value_weighted", budgets=[0.25], seeds=[0]), loaded)
    aware_cells = {(row.layer, row.head): row for row in cells_of(aware)}
    turned = [row for row in worlds_of(rows) if row.change == "rotation" and row.world == 0]
    for worlds, there in ((plain, cells), (turned, aware_cells)):
        assert len(worlds) == 3
        for world in worlds:
            for head in range(6):
                cell = there[world.layer, head]
                assert (world.budget, world.seed, world.offset) == (cell.budget, cell.seed, cell.offset)
                assert world.score == cell.score
                assert world.topk[head] == cell.topk
                assert world.hajek[head] == cell.hajek
                assert world.certificate[head] == cell.certificate
                assert world.covered[head] == cell.covered


def test_worlds_stand_at_the_first_draw_and_query(shard, loaded):
    two = changed(shard, seeds=[3, 0], query_offsets=[40, 16])
    found = {(row.budget, row.seed, row.offset) for row in worlds_of(measured(two, loaded))}
    assert found == {(0.25, 3, 40)}


@pytest.mark.parametrize("kind", ["cell", "rotation"])
def test_two_retained_values_exchanged_change_the_statistics(replay, kind):
    topk = topk_of(replay, kind)
    for head in range(2):
        values = topk.layer.values_KND.clone()
        one, other = some(topk.kept[head], 1), some(topk.kept[head], 9)
        values[head, [one, other]] = values[head, [other, one]]
        assert replace(topk, layer=replace(topk.layer, values_KND=values)).digest != topk.digest


def test_one_bit_of_a_retained_key_value_or_logit_changes_the_statistics(replay):
    topk = topk_of(replay)
    where = (1, some(topk.kept[1], 5), 3)
    keys, values = topk.keys.clone(), topk.layer.values_KND.clone()
    keys[where] = torch.nextafter(keys[where], torch.tensor(torch.inf))
    values[where] = torch.nextafter(values[where], torch.tensor(torch.inf, dtype=values.dtype))
    logits = topk.layer.logits_KGQN.clone()
    logits[1, 2, 0, where[1]] += 1e-14
    others = [
        replace(topk, keys=keys),
        replace(topk, layer=replace(topk.layer, values_KND=values)),
        replace(topk, layer=replace(topk.layer, logits_KGQN=logits)),
    ]
    assert len({topk.digest, *(other.digest for other in others)}) == 4


def test_a_later_tokens_value_changes_the_statistics(replay):
    """Tokens after the eviction are retained, too."""
    topk = topk_of(replay)
    values = topk.layer.values_KND.clone()
    values[0, topk.kept.shape[1] + 2, 0] += 1e-9
    assert replace(topk, layer=replace(topk.layer, values_KND=values)).digest != topk.digest


def test_a_kept_token_exchanged_for_an_evicted_one_changes_the_statistics(replay):
    """Their scores change places: what is kept besides, and every key and value, stays as it is."""
    topk = topk_of(replay)
    free = ~replay.protected
    kept, evicted = some(topk.kept[0] & free, 3), some(~topk.kept[0], 3)
    plain = replace(topk.scored, score=Untouched())
    before = replace(topk, scored=plain)
    mass = topk.scored.mass_Kn.clone()
    mass[0, [kept, evicted]] = mass[0, [evicted, kept]]
    assert replace(before, scored=replace(plain, mass_Kn=mass)).digest != before.digest


def test_evicted_keys_values_and_logits_do_not_enter_the_statistics(replay):
    topk = topk_of(replay)
    n = topk.kept.shape[1]
    keys, values = topk.keys.clone(), topk.layer.values_KND.clone()
    logits = topk.layer.logits_KGQN.clone()
    for head in range(2):
        keys[head, :n][~topk.kept[head]] = 7.0
        values[head, :n][~topk.kept[head]] = torch.nan
        logits[head, ..., :n][..., ~topk.kept[head]] = 9.0
    other = replace(topk, keys=keys, layer=Queried(logits, values))
    assert other.digest == topk.digest


@dataclass(frozen=True)
class Untouched(Score):
    """The attention mass as it is."""

    def rows(self, spans):
        return range(spans.n_evictable)


@dataclass(frozen=True)
class SumsValues(Untouched):
    """Reads more of a value than its norm."""

    def finish(self, layer):
        return layer.mass_KN * (1 + layer.values_KND.sum(-1).abs()).to(layer.mass_KN.dtype)


def test_a_score_that_reads_more_than_norms_is_noticed(replay):
    """Remark 1 ends there: its statistics differ between rotated worlds, as those of a norm do not."""
    topk = topk_of(replay, "rotation")
    nosy = replace(topk, scored=replace(topk.scored, score=SumsValues()))
    worlds = range(1, 7)
    assert len({nosy.digest, *(in_world(nosy, "rotation", w).digest for w in worlds)}) > 5
    assert len({topk.digest, *(in_world(topk, "rotation", w).digest for w in worlds)}) == 1


def test_a_permutation_is_noticed_by_a_score_that_reads_norms(replay):
    """This is why value-aware scores need the second demonstration."""
    topk = topk_of(replay, "rotation")
    assert in_world(topk, "permutation").digest != topk.digest


def as_bytes(tensor):
    return tensor.contiguous().numpy().tobytes()


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", ["cell", "rotation"])
def test_retained_values_and_all_logits_stay_as_they_are(replay, change, kind):
    topk = topk_of(replay, kind)
    before = as_bytes(topk.layer.values_KND)
    world = in_world(topk, change)
    assert as_bytes(topk.layer.values_KND) == before  # world 0 is left alone
    assert as_bytes(world.layer.logits_KGQN) == as_bytes(topk.layer.logits_KGQN)
    n = topk.kept.shape[1]
    for head in range(2):
        old, new = topk.layer.values_KND[head], world.layer.values_KND[head]
        assert as_bytes(old[:n][topk.kept[head]]) == as_bytes(new[:n][topk.kept[head]])
        assert as_bytes(old[n:]) == as_bytes(new[n:])
        assert not torch.equal(old[:n][~topk.kept[head]], new[:n][~topk.kept[head]])


def test_a_permutation_keeps_the_evicted_values_of_every_head(replay):
    topk = topk_of(replay)
    world, n = in_world(topk, "permutation"), topk.kept.shape[1]
    orders = []
    for head in range(2):
        old, new = (t.layer.values_KND[head, :n][~topk.kept[head]] for t in (topk, world))
        assert Counter(map(as_bytes, old)) == Counter(map(as_bytes, new))
        moved = [as_bytes(a) != as_bytes(b) for a, b in zip(old, new, strict=True)]
        assert sum(moved) > 0.9 * len(moved)
        orders.append([{as_bytes(v): i for i, v in enumerate(old)}[as_bytes(v)] for v in new[:40]])
    assert orders[0] != orders[1]


def test_a_rotation_keeps_every_norm_to_the_bit_and_has_determinant_one(replay):
    topk = topk_of(replay, "rotation")
    n, signs = topk.kept.shape[1], set()
    for seed in range(1, 30):
        world = in_world(topk, "rotation", seed)
        old, new = topk.layer.values_KND, world.layer.values_KND
        assert as_bytes(old.abs()) == as_bytes(new.abs())
        assert as_bytes(old.abs().sum(-1)) == as_bytes(new.abs().sum(-1))
        assert as_bytes(old.norm(dim=-1)) == as_bytes(new.norm(dim=-1))
        for head in range(2):
            ratio = (new[head, :n] / old[head, :n])[~topk.kept[head]]
            assert ratio.abs().unique().tolist() == [1.0]
            assert torch.equal(ratio, ratio[:1].expand_as(ratio))  # one rotation of the whole head
            assert torch.linalg.det(torch.diag(ratio[0])) == 1
            signs.add(tuple(ratio[0].tolist()))
    assert len(signs) > 30


def test_odd_and_no_flips_are_handled():
    layer = Queried(torch.zeros(3, 1, 1, 5), torch.ones(3, 5, 4, dtype=torch.float64))
    uniform = torch.tensor([[0.1, 0.9, 0.9, 0.9], [0.9] * 4, [0.1] * 3 + [0.9]], dtype=torch.float64)
    given = uniform.clone()
    evicted = torch.tensor([True, False, True]).expand(3, 3)
    new = rotated(layer, evicted, uniform).values_KND
    assert new[:, 0].tolist() == [[-1, 1, 1, -1], [1, 1, 1, 1], [-1, -1, -1, -1]]
    assert (new[:, [1, 3, 4]] == 1).all()
    assert torch.equal(new[:, 0], new[:, 2])
    assert torch.equal(uniform, given)


@pytest.mark.parametrize("change", CHANGES)
def test_the_true_output_moves_and_the_retained_one_does_not(replay, change):
    topk = topk_of(replay, "rotation" if change == "rotation" else "cell")
    n = topk.kept.shape[1]
    moved = in_world(topk, change)
    weights = topk.layer.logits_KGQN.softmax(-1)
    old, new = (weights @ t.layer.values_KND[:, None] for t in (topk, moved))
    assert float(((old - new).norm(dim=-1) / old.norm(dim=-1)).min()) > 1e-3
    there = torch.nn.functional.pad(topk.kept, (0, weights.shape[-1] - n), value=True)
    masked = topk.layer.logits_KGQN.masked_fill(~there[:, None, None], -torch.inf).softmax(-1)
    old, new = (masked @ t.layer.values_KND[:, None] for t in (topk, moved))
    assert torch.equal(old, new)


@pytest.mark.parametrize("change", CHANGES)
def test_the_keep_sets_made_anew_in_every_world_are_those_of_world_0(replay, change):
    """Poisson's pi and draw, top-k's set and uniform's, from the cache of the world itself."""
    kind = "rotation" if change == "rotation" else "cell"
    plans = replay.plans(kind, 0.25, 0)
    values = []
    for number in range(3):
        world = in_world(topk_of(replay, kind, number), change, 5)
        values.append(world.layer.values_KND.to(replay.prefill.values[number].dtype))
    there = replace(replay, prefill=replace(replay.prefill, values=values))
    assert not torch.equal(values[0], replay.prefill.values[0])
    for ours, theirs in zip(plans, there.plans(kind, 0.25, 0), strict=True):
        for name in ("poisson", "topk", "uniform"):
            a, b = getattr(ours, name), getattr(theirs, name)
            assert torch.equal(a.kept_LKN, b.kept_LKN)
            assert as_bytes(a.pi_LKN) == as_bytes(b.pi_LKN)


def test_worlds_and_changes_have_draws_of_their_own(shard, loaded, monkeypatch):
    """Six different worlds on every head and layer, keyed by the anchor."""
    seen = {}

    def noted(change):
        def wrapped(layer, evicted, drawn):
            seen.setdefault(change, []).append(as_bytes(drawn[0]))
            return CHANGED[change](layer, evicted, drawn)

        return wrapped

    monkeypatch.setattr(measure, "permuted", noted("permutation"))
    monkeypatch.setattr(measure, "rotated", noted("rotation"))
    measured(shard, loaded)
    measured(shard, loaded, anchor="another")
    for change in CHANGES:
        assert len(seen[change]) == len(set(seen[change])) == 2 * 6 * 3
