"""Loading a language model for replay: from its folder, without network and without remote code."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from transformers import GenerationConfig

from kvexp.errors import InputError
from kvexp.replay import attention

SUPPORTED = ("llama", "mistral", "qwen2")
# End-of-turn tokens that some models leave out of their generation config.
TURN_ENDS = ("<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end_of_text|>", "<|endoftext|>")


@dataclass(frozen=True)
class Loaded:
    """A model ready for replay."""

    model: Any
    tokenizer: Any
    stop_ids: frozenset[int]
    layers: int
    query_heads: int
    kv_heads: int
    max_positions: int
    device: torch.device


def wrap(model: Any, tokenizer: Any) -> Loaded:
    """A model that is in memory already, made ready for replay."""
    config = model.config
    refuse_unsupported(config)
    model.set_attn_implementation(attention.NAME)
    return Loaded(
        model=model,
        tokenizer=tokenizer,
        stop_ids=stop_ids(model.generation_config, tokenizer),
        layers=config.num_hidden_layers,
        query_heads=config.num_attention_heads,
        kv_heads=config.num_key_value_heads,
        max_positions=config.max_position_embeddings,
        device=next(model.parameters()).device,
    )


def refuse_unsupported(config: Any) -> None:
    """Raises InputError, naming the architecture, unless every layer attends to the whole prefix."""
    kind = config.model_type
    layer_types = set(getattr(config, "layer_types", None) or ["full_attention"])
    others = sorted(layer_types - {"full_attention"})
    if others:
        raise InputError(
            f"architecture {kind!r} has {', '.join(others)} layers: replay supports full attention "
            f"in every layer only ({', '.join(SUPPORTED)})"
        )
    if kind not in SUPPORTED:
        raise _not_verified(kind)
    window = getattr(config, "sliding_window", None)
    if window is not None and getattr(config, "use_sliding_window", True):
        raise InputError(
            f"architecture {kind!r} uses a sliding window of {window} tokens: replay supports full "
            "attention only"
        )


def _not_verified(kind: str) -> InputError:
    return InputError(
        f"architecture {kind!r} has not been verified for replay: use one of {', '.join(SUPPORTED)}"
    )


def stop_ids(generation: GenerationConfig | None, tokenizer: Any) -> frozenset[int]:
    """Ids that end an answer: from the generation config, the tokenizer and known end-of-turn tokens."""
    ids: set[int] = set()
    for source in (getattr(generation, "eos_token_id", None), getattr(tokenizer, "eos_token_id", None)):
        if isinstance(source, int):
            ids.add(source)
        elif isinstance(source, Iterable):
            ids.update(int(i) for i in source)
    if tokenizer is not None:
        vocabulary = tokenizer.get_vocab()
        ids.update(vocabulary[token] for token in TURN_ENDS if token in vocabulary)
    return frozenset(ids)
