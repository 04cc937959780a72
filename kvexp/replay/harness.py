"""All arms of one example off one prefill: plans, groups of one budget, decoding, signals."""

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from kvexp.design.base import KeepPlan, drawn_plan, fixed_plan, protected_mask, slots
from kvexp.errors import InputError
from kvexp.replay.arm import Arm
from kvexp.replay.cache import BatchCache, Block
from kvexp.replay.decode import Decoded, decode, feed_suffix
from kvexp.replay.model import Loaded
from kvexp.replay.prefill import Prefill, Rows, prefill
from kvexp.replay.prompt import Prompt, check_length
from kvexp.replay.protocol import Protocol
from kvexp.replay.signals import StepSignals, evicted_mass, margin
from kvexp.replay.store import Kept
from kvexp.scores.base import Score


@dataclass(frozen=True)
class Planned:
    """An arm's keep plan and the signals that exist at eviction time."""

    arm: Arm
    plan: KeepPlan
    n_evictable: int
    evicted_mass: float | None
    margin: float | None
    undefined: dict[str, str]
    seconds: float

    @property
    def keep_digest(self) -> str:
        """sha256 of the keep masks, packed to bits in the order (layer, KV head, position)."""
        bits = np.packbits(self.plan.kept_LKN.cpu().numpy())
        return hashlib.sha256(bits.tobytes()).hexdigest()


@dataclass(frozen=True)
class Answer:
    """What one arm answered, and what it could know about it."""

    planned: Planned
    decoded: Decoded
    text: str
    first_step_cached: float
    certificate_steps: list[float] | None
    entropy: float | None
    blind_cells: int | None
    undefined: dict[str, str]
    prefill_seconds: float
    decode_seconds: float
    decode_arms: int


Uniforms = Callable[[Arm, tuple[int, int, int]], NDArray[np.float64]]


@torch.inference_mode()
def answer_all(
    loaded: Loaded,
    prompt: Prompt,
    arms: list[Arm],
    protocol: Protocol,
    max_new_tokens: int,
    uniforms: Uniforms,
) -> list[Answer]:
    """Answers in the order of `arms`. Raises InputError for a prompt that is too short or too long."""
    check_length(prompt, max_new_tokens, loaded.max_positions)
    clock = time.perf_counter()
    state = _prefill(loaded, prompt, arms, protocol)
    prefill_seconds = time.perf_counter() - clock
    planned = _plan(loaded, state, prompt, arms, protocol, uniforms)
    batch = _Batch(loaded, state, prompt, protocol, max_new_tokens, prefill_seconds)
    answers = batch.answers([[(i, planned[i]) for i in group] for group in _groups(arms)])
    return [answers[i] for i in range(len(arms))]


@torch.inference_mode()
def plan_all(
    loaded: Loaded, prompt: Prompt, arms: list[Arm], protocol: Protocol, uniforms: Uniforms
) -> list[Planned]:
    """The keep plans of `answer_all`, without its answers. Raises InputError as it does."""
    check_length(prompt, 0, loaded.max_positions)
    return _plan(loaded, _prefill(loaded, prompt, arms, protocol), prompt, arms, protocol, uniforms)


def _prefill(loaded: Loaded, prompt: Prompt, arms: list[Arm], protocol: Protocol) -> Prefill:
    for arm in arms:  # a budget that cannot be kept is told before the model works
        _slots(arm, prompt, protocol)
    ids = prompt.ids if protocol.first_token == "prefill" else prompt.ids[:-1]
    return prefill(loaded, ids, [r for arm in arms if (r := _rows(arm, prompt)) is not None])


def _slots(arm: Arm, prompt: Prompt, protocol: Protocol) -> int:
    n = prompt.spans(arm.condition).n_evictable
    if arm.budget is None:
        return n
    return slots(arm.budget, n, protocol.sinks + protocol.recent)


def _rows(arm: Arm, prompt: Prompt) -> Rows | None:
    if arm.score is None:
        return None
    spans = prompt.spans(arm.condition)
    rows = arm.score.rows(spans)
    if arm.score.reads_attention and not rows:
        raise InputError(
            f"arm {arm.name}: none of the {spans.n_evictable} tokens in the cache is a query that its score "
            "reads: use a longer prompt or another score"
        )
    return Rows(rows, spans.n_evictable)


def _plan(
    loaded: Loaded,
    state: Prefill,
    prompt: Prompt,
    arms: list[Arm],
    protocol: Protocol,
    uniforms: Uniforms,
) -> list[Planned]:
    scores: dict[tuple[Score, Rows], torch.Tensor] = {}
    inclusion: dict[tuple[object, ...], torch.Tensor] = {}  # draws of one design share their pi
    drawn: dict[tuple[object, ...], torch.Tensor] = {}  # budgets share their uniforms
    planned = []
    for arm in arms:
        clock = time.perf_counter()
        n = prompt.spans(arm.condition).n_evictable
        shape = (loaded.layers, loaded.kv_heads, n)
        protected = protected_mask(n, protocol.sinks, protocol.recent, loaded.device)
        score = _score(state, arm, prompt, scores)
        place = (arm.score, arm.design, arm.condition, arm.budget)
        if place not in inclusion:
            # A design without a score reads only the shape.
            basis = torch.empty(shape, device=loaded.device) if score is None else score
            inclusion[place] = arm.design.inclusion(basis, protected, _slots(arm, prompt, protocol))
        if arm.design.is_random:
            key = (arm.condition, arm.seed)
            if key not in drawn:
                drawn[key] = torch.from_numpy(uniforms(arm, shape)).to(loaded.device)
            plan = drawn_plan(inclusion[place], drawn[key])
        else:
            plan = fixed_plan(inclusion[place])
        planned.append(_planned(arm, plan, n, score, protected, clock))
    return planned


def _score(
    state: Prefill, arm: Arm, prompt: Prompt, made: dict[tuple[Score, Rows], torch.Tensor]
) -> torch.Tensor | None:
    """The arm's score (L, K, N), made once for all arms that share it."""
    rows = _rows(arm, prompt)
    if arm.score is None or rows is None:
        return None
    if (arm.score, rows) not in made:
        made[arm.score, rows] = torch.stack([arm.score.finish(layer) for layer in state.layers(rows)])
    return made[arm.score, rows]


def _planned(
    arm: Arm,
    plan: KeepPlan,
    n: int,
    score: torch.Tensor | None,
    protected: torch.Tensor,
    clock: float,
) -> Planned:
    mass, gap = None, None
    undefined = {}
    if score is None:
        undefined = {"evicted_mass": "no score", "margin": "no score"}
    else:
        mass = evicted_mass(score, plan.kept_LKN)
        if mass is None:
            undefined["evicted_mass"] = "no score mass in some head"
        if arm.design.is_random:
            undefined["margin"] = "random design"
        else:
            gap = margin(score, plan.kept_LKN, protected)
            if gap is None:
                undefined["margin"] = "nothing evicted or scores without spread in some head"
    return Planned(arm, plan, n, mass, gap, undefined, time.perf_counter() - clock)


def _groups(arms: list[Arm]) -> list[list[int]]:
    """Indices of arms decoded as one batch: one group a budget, the full cache with budget 1.

    Within a group: stream arms first (they alone feed the suffix), certified arms side by side.
    """
    by_budget: dict[float, list[int]] = {}
    for i, arm in enumerate(arms):
        by_budget.setdefault(1.0 if arm.budget is None else arm.budget, []).append(i)

    def order(i: int) -> tuple[bool, bool]:
        stream = arms[i].condition == "stream"
        return (not stream, arms[i].certified == stream)

    return [sorted(group, key=order) for _, group in sorted(by_budget.items())]


@dataclass(frozen=True)
class _Batch:
    """What the arms of one example share."""

    loaded: Loaded
    state: Prefill
    prompt: Prompt
    protocol: Protocol
    max_new_tokens: int
    prefill_seconds: float

    def answers(self, groups: list[list[tuple[int, Planned]]]) -> dict[int, Answer]:
        """All groups as one batch or, where the device's memory is too small for that, one by one."""
        if len(groups) > 1:
            try:
                return self._decode(groups)
            except torch.OutOfMemoryError:
                pass  # what was taken is given back before the next attempt
        return {i: answer for group in groups for i, answer in self._decode([group]).items()}

    def _decode(self, groups: list[list[tuple[int, Planned]]]) -> dict[int, Answer]:
        clock = time.perf_counter()
        blocks = [self._block([p for _, p in group]) for group in groups]
        cache = BatchCache(blocks)
        feed_suffix(self.loaded, cache, self.prompt)
        cached = [block.new_A1[:, 0].tolist() for block in blocks]
        signals = [self._signals([p for _, p in group]) for group in groups]
        for block, its in zip(blocks, signals, strict=True):
            block.signals = its
        from_prefill = self.state if self.protocol.first_token == "prefill" else None
        decoded = decode(self.loaded, cache, self.prompt, self.max_new_tokens, from_prefill)
        for its in signals:
            its.to_host()
        seconds = time.perf_counter() - clock
        places = [(number, row) for number, group in enumerate(groups) for row in range(len(group))]
        answers = {}
        for (number, row), one in zip(places, decoded, strict=True):
            i, planned = groups[number][row]
            aware = row >= blocks[number].streams
            answers[i] = _answer(
                self.loaded,
                planned,
                one,
                signals[number],
                row,
                cached[number][row] + 1,
                self.prefill_seconds,
                seconds,
                len(places),
                first=int(from_prefill is not None and aware),
            )
        return answers

    def _block(self, planned: list[Planned]) -> Block:
        streams = sum(p.arm.condition == "stream" for p in planned)
        suffix = self.prompt.n - 1 - (self.prompt.n_prefix + self.prompt.n_context)
        return Block(
            self.state,
            [Kept(p.plan.kept_LKN, p.plan.pi_LKN, p.arm.estimator == "hajek") for p in planned],
            new_slots=self.max_new_tokens + (suffix if streams else 0),
            streams=streams,
        )

    def _signals(self, planned: list[Planned]) -> StepSignals:
        certified = [row for row, p in enumerate(planned) if p.arm.certified]
        span = slice(certified[0], certified[-1] + 1) if certified else slice(0, 0)
        loaded = self.loaded
        return StepSignals(
            self.protocol, span, len(planned), loaded.query_heads, loaded.kv_heads, loaded.device
        )


def _answer(
    loaded: Loaded,
    planned: Planned,
    decoded: Decoded,
    signals: StepSignals,
    row: int,
    new_tokens: float,
    prefill_seconds: float,
    decode_seconds: float,
    decode_arms: int,
    first: int,
) -> Answer:
    """`first`: the first step, from 0, whose answer token came out of the compressed cache."""
    steps = range(first, min(signals.protocol.steps, len(decoded.tokens)))
    undefined = dict(planned.undefined)
    certificates, blind = None, None
    if not planned.arm.certified:
        undefined["certificate"] = "needs a random design and the hajek estimator"
    elif not steps:
        undefined["certificate"] = "the only answer token came from the prefill"
    else:
        certificates = signals.certificates(row, steps)
        blind = signals.blind_cells(row, steps)
    entropy = signals.entropy(row, steps)
    if entropy is None:
        undefined["entropy"] = "the only answer token came from the prefill"
    tokens = decoded.tokens[:-1] if decoded.stopped else decoded.tokens
    return Answer(
        planned=planned,
        decoded=decoded,
        text=loaded.tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False),
        first_step_cached=planned.plan.realised + new_tokens,
        certificate_steps=certificates,
        entropy=entropy,
        blind_cells=blind,
        undefined=undefined,
        prefill_seconds=prefill_seconds,
        decode_seconds=decode_seconds,
        decode_arms=decode_arms,
    )
