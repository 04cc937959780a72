"""Greedy decoding of a group of arms: own loop, no processors, explicit positions."""

from dataclasses import dataclass, replace
from itertools import accumulate

import torch

from kvexp.replay.attention import forward
from kvexp.replay.cache import BatchCache
from kvexp.replay.model import Loaded
from kvexp.replay.prefill import Prefill
from kvexp.replay.prompt import Prompt


@dataclass(frozen=True)
class Decoded:
    """The answer of one arm."""

    tokens: list[int]  # the stop token included
    logprobs: list[float]
    gaps: list[float]  # between the two largest logits
    stopped: bool  # by a stop token


@dataclass(frozen=True)
class Step:
    """One forward pass of the batch, on the device."""

    arms: list[int]  # of each row
    token: torch.Tensor
    logprob: torch.Tensor
    gap: torch.Tensor


@torch.inference_mode()
def feed_suffix(loaded: Loaded, cache: BatchCache, prompt: Prompt) -> None:
    """Feed the tokens between the context and the last prompt token to the stream arms."""
    start, end = prompt.n_prefix + prompt.n_context, prompt.n - 1
    streams = sum(block.streams for block in cache.blocks)
    if not streams or end <= start:
        return
    for block in cache.blocks:
        block.fed = block.streams
    ids = prompt.ids[start:end].to(loaded.device).expand(streams, -1)
    forward(loaded.model, ids, start, cache)
    cache.advance(end - start)
    for block in cache.blocks:
        block.fed = len(block.arms)


class Decoding:
    """Greedy answers of the arms of a cache, one token a step; an arm that has stopped leaves the batch.

    With `prefilled` the aware arms' first answer token comes from the full prefill: their last prompt
    token is put into the cache as the prefill saw it.
    """

    def __init__(
        self, loaded: Loaded, cache: BatchCache, prompt: Prompt, prefilled: Prefill | None = None
    ) -> None:
        self.cache = cache
        self._loaded, self._prefilled = loaded, prefilled
        first = [0, *accumulate(len(block.arms) for block in cache.blocks)]
        self._first = first[:-1]  # where a block's arms begin among all
        self._arms = first[-1]
        self._stop = torch.tensor(sorted(loaded.stop_ids), dtype=torch.long, device=loaded.device)
        self._ids = prompt.ids[-1:].to(loaded.device).expand(self._arms, 1)
        self._position = prompt.n - 1
        self._stopped = torch.zeros(self._arms, dtype=torch.bool, device=loaded.device)
        self._steps: list[Step] = []

    @torch.inference_mode()
    def step(self) -> None:
        """One token for every arm that goes on."""
        logits = forward(self._loaded.model, self._ids, self._position, self.cache)
        if not self._steps and self._prefilled is not None:
            self._take_from_prefill(logits, self._prefilled)
        self.cache.advance(1)
        token = logits.argmax(-1)
        best = logits.topk(2, dim=-1).values
        logprob = logits.gather(-1, token[:, None])[:, 0] - logits.logsumexp(-1)
        self._steps.append(Step(self._rows(), token, logprob, best[:, 0] - best[:, 1]))
        self._stopped |= torch.isin(token, self._stop)
        self._ids = token[:, None]
        self._position += 1

    def _rows(self) -> list[int]:
        """Which arm, of all, each row of the batch is."""
        blocks = zip(self._first, self.cache.blocks, strict=True)
        return [first + arm for first, block in blocks for arm in block.arms]

    def _take_from_prefill(self, logits: torch.Tensor, prefill: Prefill) -> None:
        for first, block in zip(self._first, self.cache.blocks, strict=True):
            aware = slice(block.streams, len(block.arms))
            logits[first + aware.start : first + aware.stop] = prefill.logits
            for keys, values, store in zip(prefill.keys, prefill.values, block.layers, strict=True):
                slot = store.width + block.used
                store.keys_AKSD[aware, :, slot] = keys[:, -1]
                store.values_AKSD[aware, :, slot] = values[:, -1]

    def finish(self) -> bool:
        """Whether every arm has stopped; those that have leave the batch once their signals are read."""
        if len(self._steps) % LOOK_EVERY[self._loaded.device.type == "cpu"]:
            return False
        stopped: list[bool] = self._stopped.tolist()
        if all(stopped):
            return True
        if any(stopped) and all(b.signals is None or b.signals.done for b in self.cache.blocks):
            self._drop(stopped)
        return False

    def _drop(self, stopped: list[bool]) -> None:
        at, before, left = 0, [], 0
        for block in self.cache.blocks:
            size = len(block.arms)
            before += [at + row for row in block.drop(stopped[at : at + size])]
            at, left = at + size, left + len(block.arms)
        if left < at:
            chosen = torch.tensor(before, device=self._loaded.device)
            self._ids, self._stopped = self._ids[chosen], self._stopped[chosen]

    def answers(self) -> list[Decoded]:
        """What was decoded so far, by arm."""
        return _by_arm(self._steps, self._arms, self._loaded.stop_ids)


# Steps between looks at who has stopped, by whether the device is the CPU: elsewhere a look waits for it.
LOOK_EVERY = {True: 1, False: 8}


def decode(
    loaded: Loaded,
    cache: BatchCache,
    prompt: Prompt,
    max_new_tokens: int,
    prefilled: Prefill | None = None,
) -> list[Decoded]:
    """Feed the last prompt token, then greedy tokens, to all arms until each has stopped."""
    decoding = Decoding(loaded, cache, prompt, prefilled)
    for _ in range(max_new_tokens):
        decoding.step()
        if decoding.finish():
            break
    return decoding.answers()


def _by_arm(steps: list[Step], arms: int, stop_ids: frozenset[int]) -> list[Decoded]:
    """Every arm's tokens up to its stop; one transfer brings all of them from the device."""
    rows = [arm for step in steps for arm in step.arms]
    columns = [
        torch.cat([getattr(step, name) for step in steps]).tolist() for name in ("token", "logprob", "gap")
    ]
    made = [Decoded([], [], [], False) for _ in range(arms)]
    stopped = [False] * arms
    for arm, token, logprob, gap in zip(rows, *columns, strict=True):
        if not stopped[arm]:
            made[arm].tokens.append(token)
            made[arm].logprobs.append(logprob)
            made[arm].gaps.append(gap)
            stopped[arm] = token in stop_ids
    return [replace(answer, stopped=end) for answer, end in zip(made, stopped, strict=True)]
