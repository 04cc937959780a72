"""The peers' way: for every arm a prefill, a compression and a decode with transformers' own DynamicCache.

What a peer spends on scores is left out, so the comparison flatters it. Every head keeps as many tokens as
every other, since that cache has one length.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from transformers import DynamicCache

from kvexp.replay import attention
from kvexp.replay.model import Loaded


@contextmanager
def own_attention(model: Any) -> Iterator[None]:
    """transformers' SDPA in place of the harness's attention."""
    model.set_attn_implementation("sdpa")
    try:
        yield
    finally:
        model.set_attn_implementation(attention.NAME)


@torch.inference_mode()
def answer(loaded: Loaded, ids: torch.Tensor, keep: int | None, new_tokens: int) -> list[int]:
    """Greedy tokens of one arm that keeps `keep` tokens of the cache (None: all)."""
    ids = ids.to(loaded.device)
    cache = DynamicCache()
    loaded.model(input_ids=ids[None, :-1], cache=cache, use_cache=True, logits_to_keep=1)
    if keep is not None:
        cache = compressed(cache, keep)
    token, answers = ids[None, -1:], []
    for step in range(new_tokens):
        position = torch.tensor([[len(ids) - 1 + step]], device=loaded.device)
        out = loaded.model(input_ids=token, cache=cache, position_ids=position, use_cache=True)
        token = out.logits[:, -1].argmax(-1, keepdim=True)
        answers.append(int(token))
    return answers


def compressed(cache: Any, keep: int) -> Any:
    """The `keep` tokens of every head whose keys are longest: a score that costs nothing."""
    made = DynamicCache()
    for number, layer in enumerate(cache.layers):
        kept = layer.keys.norm(dim=-1).topk(keep, dim=-1).indices.sort(-1).values
        index = kept[..., None].expand(-1, -1, -1, layer.keys.shape[-1])
        made.update(layer.keys.gather(2, index), layer.values.gather(2, index), number)
    return made
