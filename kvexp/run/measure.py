"""From one prompt to the log rows of its attention cells: prefill, keyed draws, true errors, worlds."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from kvexp.design.base import KeepPlan, drawn_plan, fixed_plan, protected_mask, slots
from kvexp.draws import uniforms
from kvexp.errors import InputError
from kvexp.records import CHANGES, Cell, Change, World
from kvexp.replay.cells import Errors, Outcome, Plans, Queried, Scored, errors, outcome, permuted, rotated
from kvexp.replay.model import Loaded
from kvexp.replay.prefill import Prefill, Rows, prefill
from kvexp.replay.prompt import Prompt, check_length
from kvexp.scores.base import Score
from kvexp.study.plugins import build_design, build_score
from kvexp.study.prompts import prompt_of
from kvexp.study.shards import AttentionShard
from kvexp.tasks.base import Question, Task

DIGITS = 7  # significant, in the log


@torch.inference_mode()
def measure(
    shard: AttentionShard, anchor: str, family: Task, question: Question, attempt: int, loaded: Loaded
) -> list[Cell | World]:
    """All cells of one prompt, and its worlds if it carries the demonstration."""
    shard.check_heads(loaded.layers, loaded.query_heads)
    prompt = prompt_of(loaded.tokenizer, family, question, shard.rendering)
    replay = _replay(shard, anchor, question.example_id, attempt, loaded, prompt)
    rows: list[Cell | World] = list(_cells(replay))
    if question.example_id in shard.world_ids:
        rows += [row for change in CHANGES for row in _worlds(replay, change)]
    return rows


@dataclass(frozen=True)
class _Replay:
    """One prompt after its prefill."""

    shard: AttentionShard
    anchor: str
    names: Mapping[str, Any]  # what every row of the prompt begins with
    prefill: Prefill
    n: int  # evictable tokens
    rows: Mapping[str, Rows]  # by kind of row, the queries that its score reads
    scores: Mapping[str, Score]

    @property
    def protected(self) -> torch.Tensor:
        protocol = self.shard.protocol
        return protected_mask(self.n, protocol.sinks, protocol.recent, self.prefill.keys[0].device)

    def slots(self, budget: float) -> int:
        return slots(budget, self.n, int(self.protected.sum()))

    def uniforms(self, seed: int, condition: str, shape: tuple[int, int, int]) -> torch.Tensor:
        where = (self.names["task"], self.names["example_id"], condition)
        drawn = uniforms(self.anchor, seed, *where, shape)
        return torch.from_numpy(drawn).to(self.prefill.keys[0].device)

    def plans(self, kind: str, budget: float, seed: int) -> list[Plans]:
        """What the three designs keep, by layer."""
        made = [self.scores[kind].finish(layer) for layer in self.prefill.layers(self.rows[kind])]
        score_LKn = torch.stack(made)
        kept = self.slots(budget)
        uniform = self.uniforms(seed, self.shard.attention.condition, tuple(score_LKn.shape))  # type: ignore[arg-type]
        pi = build_design("poisson", **self.shard.attention.design_params)
        whole = Plans(
            poisson=drawn_plan(pi.inclusion(score_LKn, self.protected, kept), uniform),
            topk=fixed_plan(build_design("topk").inclusion(score_LKn, self.protected, kept)),
            uniform=drawn_plan(build_design("uniform").inclusion(score_LKn, self.protected, kept), uniform),
        )
        return [
            Plans(*(_layer_of(plan, layer) for plan in (whole.poisson, whole.topk, whole.uniform)))
            for layer in range(len(made))
        ]


def _layer_of(plan: KeepPlan, layer: int) -> KeepPlan:
    return KeepPlan(plan.kept_LKN[layer, None], plan.pi_LKN[layer, None])


def _replay(
    shard: AttentionShard, anchor: str, example_id: str, attempt: int, loaded: Loaded, prompt: Prompt
) -> _Replay:
    """Prefill up to the last query. Raises InputError for a prompt that is too short or too long."""
    conf, protocol = shard.attention, shard.protocol
    spans = prompt.spans(conf.condition)
    n, last = spans.n_evictable, spans.n_evictable + max(conf.query_offsets)
    check_length(prompt, 0, loaded.max_positions)
    if last >= prompt.n:
        raise InputError(
            f"query offset {max(conf.query_offsets)} lies beyond the prompt: only {prompt.n - n} tokens "
            "follow the eviction"
        )
    worlds = [conf.world_budget] if example_id in shard.world_ids else []
    for budget in (*conf.budgets, *worlds):  # told before the model works
        slots(budget, n, protocol.sinks + protocol.recent)
    scores = {
        "cell": build_score(conf.score, **conf.score_params),
        "rotation": build_score(conf.rotation_score, **conf.rotation_score_params),
    }
    rows = {kind: Rows(s.rows(spans), n) for kind, s in scores.items()}
    if not all(rows[kind].positions or not s.reads_attention for kind, s in scores.items()):
        raise InputError(f"none of the {n} evictable tokens is a query that the score reads")
    queries_at = [n + offset for offset in conf.query_offsets]
    state = prefill(loaded, prompt.ids[: last + 1], rows.values(), queries_at)
    names = {
        "attempt": attempt,
        "suite": shard.suite,
        "shard_id": shard.shard_id,
        "model": shard.model.name,
        "task": shard.task.name,
        "example_id": example_id,
    }
    return _Replay(shard, anchor, names, state, n, rows, scores)


def _cells(replay: _Replay) -> Iterator[Cell]:
    conf = replay.shard.attention
    plans = {(b, s): replay.plans("cell", b, s) for b in conf.budgets for s in conf.seeds}
    for number in range(replay.shard.layers):
        layer = Queried.of(replay.prefill, number)
        for (budget, seed), by_layer in plans.items():
            found = errors(layer, by_layer[number], replay.shard.protocol)
            place = {"budget": budget, "seed": seed, "layer": number, "score": conf.score}
            for at, offset in enumerate(conf.query_offsets):
                yield from _rows(replay, by_layer[number], found, at, {**place, "offset": offset})


def _rows(replay: _Replay, plans: Plans, found: Errors, at: int, place: dict[str, Any]) -> Iterator[Cell]:
    """One row for every query head, from the `at`-th query."""
    columns: dict[str, list[Any]] = {name: _values(value[..., at]) for name, value in vars(found).items()} | {
        name: _values(count) for name, count in _counts(plans, found.hajek.shape[1]).items()
    }
    for head in range(replay.shard.query_heads):
        values = {name: column[head] for name, column in columns.items()}
        yield Cell(**replay.names, **place, head=head, evictable=replay.n, **values)


def _counts(plans: Plans, group: int) -> dict[str, torch.Tensor]:
    """Kept tokens of the KV heads, repeated for each of their `group` query heads."""
    kept, pi = plans.poisson.kept_LKN[0], plans.poisson.pi_LKN[0]
    counts = {
        "expected_kept": pi.sum(-1),
        "kept": kept.sum(-1),
        "tail_kept": (kept & (pi < 1)).sum(-1),
        "uniform_kept": plans.uniform.kept_LKN[0].sum(-1),
    }
    return {name: count.repeat_interleave(group) for name, count in counts.items()}


def _worlds(replay: _Replay, change: Change) -> Iterator[World]:
    """World 0, as it is, and the changed ones, by layer, at the first query and draw."""
    conf = replay.shard.attention
    kind = "rotation" if change == "rotation" else "cell"
    budget, seed, offset = conf.world_budget, conf.seeds[0], conf.query_offsets[0]
    plans = replay.plans(kind, budget, seed)
    changes = _world_uniforms(replay, change, plans[0])
    for number in range(replay.shard.layers):
        as_it_is, evicted = Queried.of(replay.prefill, number), ~plans[number].topk.kept_LKN[0]
        scored = Scored(
            mass_Kn=replay.prefill.masses[replay.rows[kind]][number],
            score=replay.scores[kind],
            design=build_design("topk"),
            protected_n=replay.protected,
            slots=replay.slots(budget),
        )
        for world, drawn in enumerate([None, *changes]):
            layer = as_it_is
            if drawn is not None:
                layer = (permuted if change == "permutation" else rotated)(as_it_is, evicted, drawn[number])
            keys, protocol = replay.prefill.keys[number], replay.shard.protocol
            yield World(
                **replay.names,
                budget=budget,
                seed=seed,
                offset=offset,
                change=change,
                world=world,
                layer=number,
                score=conf.rotation_score if kind == "rotation" else conf.score,
                **_world(outcome(layer, keys, scored, plans[number], protocol)),
            )


def _world_uniforms(replay: _Replay, change: Change, plans: Plans) -> list[torch.Tensor]:
    """What changes the values in each changed world: keyed by change, world, layer and KV head."""
    _, kv_heads, n = plans.topk.kept_LKN.shape
    width = n if change == "permutation" else replay.prefill.values[0].shape[-1]
    shape = (replay.shard.layers, kv_heads, width)
    conf = replay.shard.attention
    names = [f"{change} {world}" for world in range(1, conf.worlds + 1)]
    return [replay.uniforms(conf.seeds[0], name, shape) for name in names]


def _world(found: Outcome) -> dict[str, Any]:
    names = ("norm", "estimate_norm", "topk", "hajek", "certificate", "covered")
    columns = {name: _values(getattr(found.errors, name)[..., 0]) for name in names}
    return {"statistics": found.statistics, **columns}


def _values(tensor: torch.Tensor) -> list[Any]:
    """By query head; fractions with the digits of the log."""
    values: list[Any] = tensor.flatten().tolist()
    return [_rounded(value) for value in values] if tensor.is_floating_point() else values


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
