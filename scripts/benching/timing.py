"""Times by phase and peaks of memory: medians of interleaved repeats."""

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch

from kvexp.replay import harness

CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
_clock = CLOCKS["wall"]


def use(clock: str) -> None:
    """Time by the wall, or by what the process's threads spent: steadier where others share the cores."""
    global _clock
    _clock = CLOCKS[clock]


def wait(device: torch.device) -> None:
    """Until the device has done what it was told."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def seconds(run: Callable[[], Any], device: torch.device) -> float:
    """Of one call."""
    wait(device)
    start = _clock()
    run()
    wait(device)
    return _clock() - start


def interleaved(
    runs: Mapping[str, Callable[[], Any]], repeats: int, device: torch.device, warm_up: int = 1
) -> dict[str, list[float]]:
    """Seconds of every run, one after the other, `repeats` times over; warm-up rounds do not count."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(warm_up + repeats):
        for name, run in runs.items():
            spent = seconds(run, device)
            if turn >= warm_up:
                times[name].append(spent)
    return times


def ratio(over: list[float], under: list[float]) -> float:
    """Median of the ratios within a repeat: what slows a whole repeat down cancels."""
    return statistics.median(a / b for a, b in zip(over, under, strict=True))


def peak_bytes(run: Callable[[], Any], device: torch.device) -> int:
    """The most bytes of tensors alive during a call, beyond those before it."""
    if device.type == "cuda":
        wait(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        run()
        wait(device)
        return torch.cuda.max_memory_allocated(device) - before
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as made:
        run()
    results = made.profiler.kineto_results  # type: ignore[union-attr]
    events = [event for event in results.events() if event.name() == "[memory]"]
    alive = peak = 0
    for event in sorted(events, key=lambda event: int(event.start_ns())):
        alive += int(event.nbytes())
        peak = max(peak, alive)
    return peak


# Where the time of one example goes, by phase, measured around the harness's own functions.


# Phase -> the harness's name for what it calls.
PHASES = {
    "prefill with score rows": "prefill",
    "keep plans": "_plan",
    "packing": "Block",
    "suffix": "feed_suffix",
    "decode": "decode",
}


@contextmanager
def measured(device: torch.device) -> Iterator[dict[str, float]]:
    """Seconds by phase of what runs inside."""
    spent = dict.fromkeys(PHASES, 0.0)
    with ExitStack() as stack:
        for phase, name in PHASES.items():
            stack.enter_context(patch.object(harness, name, _timed(phase, name, spent, device)))
        yield spent


def _timed(phase: str, name: str, spent: dict[str, float], device: torch.device) -> Callable[..., Any]:
    inner = getattr(harness, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        out: list[Any] = []
        spent[phase] += seconds(lambda: out.append(inner(*args, **kwargs)), device)
        return out[0]

    return call
