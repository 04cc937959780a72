"""Greedy decoding of a group of arms: own loop, no processors, explicit positions."""

from dataclasses import dataclass

import torch

from kvexp.replay.attention import forward
from kvexp.replay.cache import GroupCache
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


@torch.inference_mode()
def feed_suffix(loaded: Loaded, cache: GroupCache, prompt: Prompt, streams: int) -> None:
    """Feed the tokens between the context and the last prompt token to the first `streams` arms."""
    start, end = prompt.n_prefix + prompt.n_context, prompt.n - 1
    if not streams or end <= start:
        return
    everyone, cache.rows = cache.rows, slice(0, streams)
    ids = prompt.ids[start:end].to(loaded.device).expand(streams, -1)
    forward(loaded.model, ids, start, cache)
    cache.advance(end - start)
    cache.rows = everyone


class Decoding:
    """Greedy answers of the arms of a cache, one token a step.

    `prefilled` names arms whose first answer token comes from the full prefill: their last prompt token
    is put into the cache as the prefill saw it.
    """

    def __init__(
        self,
        loaded: Loaded,
        cache: GroupCache,
        prompt: Prompt,
        prefilled: tuple[Prefill, slice] | None = None,
    ) -> None:
        self.cache = cache
        self._loaded, self._prefilled = loaded, prefilled
        arms = cache.rows.stop
        self._stop = torch.tensor(sorted(loaded.stop_ids), dtype=torch.long, device=loaded.device)
        self._ids = prompt.ids[-1:].to(loaded.device).expand(arms, 1)
        self._position = prompt.n - 1
        self._stopped = torch.zeros(arms, dtype=torch.bool, device=loaded.device)
        self._steps: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []

    @torch.inference_mode()
    def step(self) -> None:
        """One token for every arm."""
        cache = self.cache
        logits = forward(self._loaded.model, self._ids, self._position, cache)
        if not self._steps and self._prefilled is not None:
            logits[self._prefilled[1]] = self._prefilled[0].logits
            _overwrite_last_token(cache, *self._prefilled)
        cache.advance(1)
        if cache.signals is not None:
            cache.signals.step += 1
        token = logits.argmax(-1)
        best = logits.topk(2, dim=-1).values
        logprob = logits.gather(-1, token[:, None])[:, 0] - logits.logsumexp(-1)
        self._steps.append((token, logprob, best[:, 0] - best[:, 1]))
        self._stopped |= torch.isin(token, self._stop)
        self._ids = token[:, None]
        self._position += 1

    @property
    def finished(self) -> bool:
        """Whether every arm has stopped."""
        return bool(self._stopped.all())

    def answers(self) -> list[Decoded]:
        """What was decoded so far, by arm."""
        return _by_arm(self._steps, self._loaded.stop_ids)


def decode(
    loaded: Loaded,
    cache: GroupCache,
    prompt: Prompt,
    max_new_tokens: int,
    prefilled: tuple[Prefill, slice] | None = None,
) -> list[Decoded]:
    """Feed the last prompt token, then greedy tokens, to all arms until each has stopped."""
    decoding = Decoding(loaded, cache, prompt, prefilled)
    for _ in range(max_new_tokens):
        decoding.step()
        if decoding.finished:
            break
    return decoding.answers()


def _overwrite_last_token(cache: GroupCache, prefill: Prefill, rows: slice) -> None:
    for layer, store in enumerate(cache.layers):
        slot = store.width + cache.used
        store.keys_AKSD[rows, :, slot] = prefill.keys[layer][:, -1]
        store.values_AKSD[rows, :, slot] = prefill.values[layer][:, -1]


def _by_arm(
    steps: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]], stop_ids: frozenset[int]
) -> list[Decoded]:
    tokens, logprobs, gaps = (torch.stack(column, 1).tolist() for column in zip(*steps, strict=True))
    answers = []
    for ids, scores, differences in zip(tokens, logprobs, gaps, strict=True):
        length = next((i + 1 for i, t in enumerate(ids) if t in stop_ids), len(ids))
        answers.append(
            Decoded(ids[:length], scores[:length], differences[:length], ids[length - 1] in stop_ids)
        )
    return answers
