"""Loading a language model for replay: local folder, hub id or the embedded one; never remote code."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from kvexp.errors import InputError
from kvexp.replay import attention

SUPPORTED = ("llama", "mistral", "qwen2")
# End-of-turn tokens that some models leave out of their generation config.
TURN_ENDS = ("<|eot_id|>", "<|im_end|>", "<|end_of_text|>", "<|endoftext|>")


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


def load(source: str | Path, dtype: str, device: str = "cpu", revision: str | None = None) -> Loaded:
    """Raises InputError for a model that is not there, not safe to load or not of a supported kind."""
    refuse_unsupported(_config(source, revision))
    try:
        model = AutoModelForCausalLM.from_pretrained(
            source,
            revision=revision,
            dtype=getattr(torch, dtype),
            attn_implementation=attention.NAME,
            use_safetensors=True,  # never unpickle weights
            trust_remote_code=False,
        )
    except (OSError, ValueError) as error:
        raise InputError(
            f"model {str(source)!r} has a config but no loadable weights ({_first_line(error)}): it "
            "needs safetensors"
        ) from None
    return wrap(model.to(device).eval(), load_tokenizer(source, revision))


def _config(source: str | Path, revision: str | None) -> Any:
    try:
        return AutoConfig.from_pretrained(source, revision=revision, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise InputError(
            f"model {str(source)!r} cannot be loaded ({_first_line(error)}): give a local folder with "
            "safetensors or a hub id that `kvexp` can reach"
        ) from None


def heads_of(source: str | Path, revision: str | None = None) -> tuple[int, int]:
    """Layers and query heads of a layer, from the model's config alone."""
    config = _config(source, revision)
    return config.num_hidden_layers, config.num_attention_heads


def load_tokenizer(source: str | Path, revision: str | None = None) -> Any:
    """Raises InputError for a tokenizer that is missing or not a fast one."""
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            source, revision=revision, trust_remote_code=False, use_fast=True
        )
    except (OSError, ValueError) as error:
        raise InputError(f"model {str(source)!r} has no loadable tokenizer ({_first_line(error)})") from None
    if not tokenizer.is_fast:
        raise InputError(f"model {str(source)!r} has a slow tokenizer: spans need a fast one")
    return tokenizer


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
        raise InputError(
            f"architecture {kind!r} has not been verified for replay: use one of {', '.join(SUPPORTED)}"
        )
    window = getattr(config, "sliding_window", None)
    if window is not None and getattr(config, "use_sliding_window", True):
        raise InputError(
            f"architecture {kind!r} uses a sliding window of {window} tokens: replay supports full "
            "attention only"
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


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
