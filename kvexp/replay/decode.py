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


@torch.inference_mode()
def decode(
    loaded: Loaded,
    cache: GroupCache,
    prompt: Prompt,
    max_new_tokens: int,
    prefilled: tuple[Prefill, slice] | None = None,
) -> list[Decoded]:
    """Feed the last prompt token, then greedy tokens, to all arms until each has stopped.

    `prefilled` names arms whose first answer token comes from the full prefill: their last prompt token
    is put into the cache as the prefill saw it.
    """
    arms = cache.rows.stop
    stop = torch.tensor(sorted(loaded.stop_ids), dtype=torch.long, device=loaded.device)
    ids = prompt.ids[-1:].to(loaded.device).expand(arms, 1)
    stopped = torch.zeros(arms, dtype=torch.bool, device=loaded.device)
    steps: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []
    for step in range(max_new_tokens):
        logits = forward(loaded.model, ids, prompt.n - 1 + step, cache)
        if step == 0 and prefilled is not None:
            logits[prefilled[1]] = prefilled[0].logits
            _overwrite_last_token(cache, *prefilled)
        cache.advance(1)
        if cache.signals is not None:
            cache.signals.step += 1
        token = logits.argmax(-1)
        best = logits.topk(2, dim=-1).values
        logprob = logits.gather(-1, token[:, None])[:, 0] - logits.logsumexp(-1)
        steps.append((token, logprob, best[:, 0] - best[:, 1]))
        stopped |= torch.isin(token, stop)
        if bool(stopped.all()):
            break
        ids = token[:, None]
    return _by_arm(steps, loaded.stop_ids)


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
