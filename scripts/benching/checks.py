"""Does another device or type make what float32 on the CPU makes, by fused kernels and without waiting?"""

import copy
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from kvexp.replay.harness import Answer, answer_all
from kvexp.replay.prefill import prefill
from kvexp.replay.products import product
from scripts.benching.measures import group, state_of
from scripts.benching.setting import Setting, draw, grid, same_design

FUSED = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION]


@dataclass(frozen=True)
class Check:
    """One comparison; `value` None: it cannot be made here."""

    what: str
    value: float | None
    limit: float
    at_least: bool = False

    @property
    def holds(self) -> bool:
        if self.value is None:
            return True
        return self.value >= self.limit if self.at_least else self.value <= self.limit


def moved(setting: Setting, device: str, dtype: str) -> Setting:
    """The same weights on another device, in another type."""
    target = torch.device(device)
    model = copy.deepcopy(setting.loaded.model).to(target, getattr(torch, dtype))
    loaded = replace(setting.loaded, model=model, device=target)
    return replace(setting, name=f"{setting.name}, {dtype}", loaded=loaded)


def against(reference: Setting, device: str) -> Iterator[Check]:
    """Answers of all arms of the grid on the device, in float32 and bfloat16, against the CPU's."""
    expected = _answers(reference)
    # In bfloat16 the scores themselves are other numbers: keep sets differ, and with them what follows.
    for dtype, keep, radius in (("float32", 0.9999, 0.01), ("bfloat16", 0.97, 0.05)):
        yield from _compared(dtype, expected, _answers(moved(reference, device, dtype)), keep, radius)


def _answers(setting: Setting) -> list[Answer]:
    return answer_all(setting.loaded, setting.prompt, grid(), setting.protocol, setting.new_tokens, draw)


def _compared(
    dtype: str, expected: list[Answer], made: list[Answer], keep: float, radius: float
) -> Iterator[Check]:
    pairs = list(zip(expected, made, strict=True))
    same = [(a.planned.plan.kept_LKN == b.planned.plan.kept_LKN.cpu()).double().mean() for a, b in pairs]
    yield Check(f"{dtype}: places on which keep sets agree, worst arm", float(min(same)), keep, at_least=True)
    first = [
        abs(a.certificate_steps[0] - b.certificate_steps[0]) / (a.certificate_steps[0] + 1e-9)
        for a, b in pairs
        if a.certificate_steps and b.certificate_steps
    ]
    yield Check(
        f"{dtype}: relative difference of step 1's certificate, median", statistics.median(first), radius
    )
    logprobs = [abs(a.decoded.logprobs[0] - b.decoded.logprobs[0]) for a, b in pairs]
    limit = 0.01 if dtype == "float32" else 0.2
    yield Check(
        f"{dtype}: difference of the first log-probability, median", statistics.median(logprobs), limit
    )
    if dtype == "float32":
        parted = [x for a, b in pairs if (x := _gap_where_texts_part(a, b)) is not None]
        yield Check("float32: logit gap where an answer parts, largest", max(parted, default=0.0), 0.01)


def _gap_where_texts_part(one: Answer, other: Answer) -> float | None:
    """None: the same tokens."""
    a, b = one.decoded, other.decoded
    for i, (x, y) in enumerate(zip(a.tokens, b.tokens, strict=False)):
        if x != y:
            return min(a.gaps[i], b.gaps[i])
    return None


def arithmetic(device: str) -> Iterator[Check]:
    """Products with a bfloat16 cache against float64: nothing but the last float32 digits is lost."""
    generator = torch.Generator().manual_seed(5)
    rows = torch.randn(4, 2, 21, 128, generator=generator)
    cached = torch.randn(4, 2, 3001, 128, generator=generator).bfloat16()
    weights = torch.randn(4, 2, 21, 3001, generator=generator).softmax(-1)
    for what, one, other in (
        ("logits", rows, cached.transpose(-1, -2)),
        ("outputs", weights, cached),
    ):
        exact = one.double() @ other.double()
        made = product(one.to(device), other.to(device)).cpu().double()
        error = float((made - exact).abs().max() / exact.abs().max())
        yield Check(f"bfloat16 cache: relative error of {what}", error, 1e-5)


def fused(setting: Setting) -> Iterator[Check]:
    """Prefill with the unfused kernel forbidden."""
    what = f"{setting.name}: prefill needs the unfused kernel"
    if setting.loaded.device.type != "cuda":
        yield Check(what, None, 0)
        return

    def run() -> None:
        with sdpa_kernel(FUSED):
            prefill(setting.loaded, setting.prompt.ids[:-1], [])

    yield Check(what, _refused(run), 0)


def waits(setting: Setting) -> Iterator[Check]:
    """Decode steps, signals and all, with every wait of the host for the device forbidden."""
    what = f"{setting.name}: a decode step makes the host wait"
    if setting.loaded.device.type != "cuda":
        yield Check(what, None, 0)
        return
    state, (planned,) = state_of(setting, [same_design("poisson", 0.25, 4)])
    decoding = group(setting, state, planned, entropy=True, certificate=True)
    decoding.step()

    def run() -> None:
        torch.cuda.set_sync_debug_mode("error")
        try:
            for _ in range(3):
                decoding.step()
        finally:
            torch.cuda.set_sync_debug_mode("default")

    yield Check(what, _refused(run), 0)


def _refused(run: Callable[[], None]) -> float:
    """1 if the call raises a RuntimeError, else 0."""
    try:
        run()
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        print(f"  ({str(error).splitlines()[0]})")
        return 1.0
    return 0.0
