"""Where the time of one example goes, by phase, measured around the harness's own functions."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch

from kvexp.replay import harness
from scripts.benching.timing import seconds

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
