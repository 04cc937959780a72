"""The measurements of one setting: decode step, prefill, suite throughput, memory, phases."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from kvexp.design.base import slots
from kvexp.replay import harness
from kvexp.replay.arm import Arm
from kvexp.replay.cache import BatchCache, Block
from kvexp.replay.decode import Decoding
from kvexp.replay.harness import Planned, answer_all
from kvexp.replay.prefill import Prefill, Rows, prefill
from kvexp.replay.signals import StepSignals
from kvexp.replay.store import Kept
from scripts.benching import timing
from scripts.benching.baseline import answer, own_attention
from scripts.benching.setting import Setting, draw, same_design
from scripts.benching.timing import interleaved, peak_bytes, ratio, seconds

# Variant of a decode step -> kind of arm, entropy read, certificate read.
STEPS = {
    "full": ("full", True, False),
    "deterministic, no signal read": ("deterministic", False, False),
    "deterministic": ("deterministic", True, False),
    "poisson": ("poisson", True, False),
    "poisson + certificate": ("poisson", True, True),
}


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    setting: str
    what: str
    value: float
    unit: str  # "ratio", "s", "ms", "MB", "%"
    target: str = ""


def state_of(setting: Setting, kinds: Sequence[list[Arm]]) -> tuple[Prefill, list[list[Planned]]]:
    """One prefill of the prompt, and keep plans of several lists of arms."""
    loaded, prompt, protocol = setting.loaded, setting.prompt, setting.protocol
    state = harness._prefill(loaded, prompt, [arm for arms in kinds for arm in arms], protocol)
    return state, [harness._plan(loaded, state, prompt, arms, protocol, draw) for arms in kinds]


def group(
    setting: Setting, state: Prefill, planned: list[Planned], entropy: bool, certificate: bool
) -> Decoding:
    """A group of arms ready to decode."""
    kept = [Kept(p.plan.kept_LKN, p.plan.pi_LKN, p.arm.estimator == "hajek") for p in planned]
    block = Block(state, kept, setting.new_tokens)
    if entropy:
        span = slice(0, len(planned) if certificate else 0)
        loaded = setting.loaded
        block.signals = StepSignals(
            setting.protocol, span, len(planned), loaded.query_heads, loaded.kv_heads, loaded.device
        )
    return Decoding(setting.loaded, BatchCache([block]), setting.prompt)


def decode_steps(setting: Setting, repeats: int, count: int = 8, budget: float = 0.25) -> list[Row]:
    """Every variant of a step at equal budget and batch, step by step in turn, whole generations."""
    kinds = list(dict.fromkeys(kind for kind, _, _ in STEPS.values()))
    state, planned = state_of(setting, [same_design(kind, budget, count) for kind in kinds])
    plans = dict(zip(kinds, planned, strict=True))
    first, whole = [], []
    for turn in range(repeats + 1):
        times = _generations(setting, state, plans)
        if turn:
            first.append({name: sum(t[: setting.protocol.steps]) for name, t in times.items()})
            whole.append({name: sum(t) for name, t in times.items()})
    return list(_step_rows(setting, first, whole, count))


def _generations(setting: Setting, state: Prefill, plans: dict[str, list[Planned]]) -> dict[str, list[float]]:
    """Seconds of every step of every variant."""
    running = {
        name: group(setting, state, plans[kind], entropy, certificate)
        for name, (kind, entropy, certificate) in STEPS.items()
    }
    times: dict[str, list[float]] = {name: [] for name in running}
    for _ in range(setting.new_tokens):
        for name, decoding in running.items():
            times[name].append(seconds(decoding.step, setting.loaded.device))
    return times


def _step_rows(
    setting: Setting, first: list[dict[str, float]], whole: list[dict[str, float]], count: int
) -> list[Row]:
    steps = setting.new_tokens
    rows = [
        Row(
            setting.name,
            f"decode step of {count} arms, {name}",
            1e3 * statistics.median(t[name] for t in whole) / steps,
            "ms",
        )
        for name in STEPS
    ]
    pairs = [
        ("full", "deterministic", "", ""),
        ("poisson", "deterministic", "", ""),
        ("poisson + certificate", "deterministic", "<= 1.10", "<= 1.35"),
        ("poisson + certificate", "deterministic, no signal read", "", ""),
    ]
    for over, under, target, target_first in pairs:
        name = f"decode step, {over} / {under}"
        for what, times, aim in (
            (f"{name}, {steps} steps", whole, target),
            (f"{name}, first {setting.protocol.steps}", first, target_first),
        ):
            value = ratio([t[over] for t in times], [t[under] for t in times])
            rows.append(Row(setting.name, what, value, "ratio", aim))
    return rows


def prefill_rows(setting: Setting, arms: list[Arm], repeats: int) -> list[Row]:
    """What the score rows of a grid add to a prefill."""
    prompt, loaded = setting.prompt, setting.loaded
    requests = [
        Rows(arm.score.rows(spans := prompt.spans(arm.condition)), spans.n_evictable)
        for arm in arms
        if arm.score is not None
    ]
    times = interleaved(
        {
            "without": lambda: prefill(loaded, prompt.ids[:-1], []),
            "with": lambda: prefill(loaded, prompt.ids[:-1], requests),
        },
        repeats,
        loaded.device,
    )
    added = 100 * (ratio(times["with"], times["without"]) - 1)
    return [
        Row(setting.name, "prefill without score rows", statistics.median(times["without"]), "s"),
        Row(setting.name, "score rows, added to the prefill", added, "%", "<= 8 %"),
    ]


def throughput(setting: Setting, arms: list[Arm], repeats: int) -> list[Row]:
    """All arms of one example: together off one prefill, and one at a time as peers do."""
    loaded, prompt = setting.loaded, setting.prompt

    def together() -> list[int]:
        made = answer_all(loaded, prompt, arms, setting.protocol, setting.new_tokens, draw)
        return [len(a.decoded.tokens) for a in made]

    lengths = together()  # the warm-up; the baseline decodes as many tokens for every arm

    def one_at_a_time() -> None:
        with own_attention(loaded.model):
            for arm, length in zip(arms, lengths, strict=True):
                keep = None
                if arm.budget is not None:
                    keep = slots(arm.budget, prompt.spans(arm.condition).n_evictable, 36)
                answer(loaded, prompt.ids, keep, length)

    times = interleaved(
        {"together": together, "one at a time": one_at_a_time}, repeats, loaded.device, warm_up=0
    )
    speed = ratio(times["one at a time"], times["together"])
    tokens = f"{min(lengths)} to {max(lengths)} tokens an answer"
    return [
        Row(setting.name, f"{len(arms)} arms together, {tokens}", statistics.median(times["together"]), "s"),
        Row(setting.name, f"{len(arms)} arms one at a time", statistics.median(times["one at a time"]), "s"),
        Row(setting.name, f"throughput of {len(arms)} arms / one at a time", speed, "ratio", ">= 6"),
    ]


def memory(setting: Setting, count: int = 8, budget: float = 0.25) -> list[Row]:
    """Peak of a group of Poisson arms with certificate, against its padded keys and values."""
    state, (planned,) = state_of(setting, [same_design("poisson", budget, count)])
    size = 0

    def run() -> None:
        nonlocal size
        decoding = group(setting, state, planned, entropy=True, certificate=True)
        (block,) = decoding.cache.blocks
        layers = block.layers
        size = sum(x.nbytes for layer in layers for x in (layer.keys_AKSD, layer.values_AKSD))
        for _ in range(setting.new_tokens):
            decoding.step()

    peak = peak_bytes(run, setting.loaded.device)
    return [
        Row(setting.name, f"keys and values of a group of {count}, padded", size / 1e6, "MB"),
        Row(setting.name, "peak of the group beyond them", 100 * (peak / size - 1), "%", "<= 10 %"),
    ]


def by_phase(setting: Setting, arms: list[Arm], repeats: int) -> list[Row]:
    """Seconds of one example by phase."""
    loaded = setting.loaded
    taken = []
    for turn in range(repeats + 1):
        with timing.measured(loaded.device) as spent:
            answer_all(loaded, setting.prompt, arms, setting.protocol, setting.new_tokens, draw)
        if turn:
            taken.append(spent)
    return [
        Row(setting.name, f"phase: {phase}", statistics.median(t[phase] for t in taken), "s")
        for phase in timing.PHASES
    ]
