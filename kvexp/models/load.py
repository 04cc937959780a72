"""Loading a language model: from its folder, without network and without remote code."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import CONFIG_MAPPING, AutoConfig, AutoModelForCausalLM, AutoTokenizer

from kvexp.errors import InputError
from kvexp.models.weights import check_memory, too_little
from kvexp.replay import attention
from kvexp.replay.model import Loaded, _not_verified, refuse_unsupported, wrap


def load(source: str | Path, dtype: str, device: str = "cpu", revision: str | None = None) -> Loaded:
    """A model from a folder, or from the hub's local cache; no network is asked.

    Raises InputError for a model that is not there, not safe to load, too large or not of a supported kind.
    """
    read_config(source, revision)
    check_memory(Path(source), dtype, device)
    try:
        model = AutoModelForCausalLM.from_pretrained(
            source,
            dtype=getattr(torch, dtype),
            attn_implementation=attention.NAME,
            use_safetensors=True,  # never unpickle weights
            revision=revision,
            local_files_only=True,
            trust_remote_code=False,
        )
        model = model.to(device).eval()
    except (OSError, ValueError, SafetensorError) as error:
        raise InputError(
            f"model {str(source)!r} has a config but no loadable weights ({_first_line(error)}): it "
            "needs safetensors"
        ) from None
    except (MemoryError, RuntimeError) as error:
        if not _is_out_of_memory(error):
            raise
        raise too_little(source, device, "it ran out while loading") from None
    return wrap(model, load_tokenizer(source, revision))


def read_config(source: str | Path, revision: str | None = None) -> Any:
    """Raises InputError for a config that is missing, or of a model that replay does not support."""
    _refuse_unknown(Path(source))
    try:
        config = AutoConfig.from_pretrained(
            source, revision=revision, local_files_only=True, trust_remote_code=False
        )
    except (OSError, ValueError) as error:
        raise InputError(
            f"model {str(source)!r} cannot be loaded ({_first_line(error)}): give a local folder with "
            "safetensors, or a hub id and run `kvexp fetch`"
        ) from None
    refuse_unsupported(config)
    return config


def _is_out_of_memory(error: Exception) -> bool:
    """The CPU's allocator has no exception class of its own."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "allocate memory" in str(error)


def _refuse_unknown(folder: Path) -> None:
    """An architecture that transformers does not know either fails with a page of advice; be first."""
    try:
        kind = json.loads((folder / "config.json").read_bytes())["model_type"]
    except (OSError, ValueError, LookupError, TypeError):
        return  # what is wrong with it is said better when it is loaded
    if kind not in CONFIG_MAPPING:
        raise _not_verified(kind)


def heads_of(source: str | Path, revision: str | None = None) -> tuple[int, int]:
    """Layers and query heads of a layer, from the model's config alone."""
    config = read_config(source, revision)
    return config.num_hidden_layers, config.num_attention_heads


def load_tokenizer(source: str | Path, revision: str | None = None) -> Any:
    """Raises InputError for a tokenizer that is missing or not a fast one."""
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            source, revision=revision, local_files_only=True, trust_remote_code=False, use_fast=True
        )
    except (OSError, ValueError) as error:
        raise InputError(f"model {str(source)!r} has no loadable tokenizer ({_first_line(error)})") from None
    if not tokenizer.is_fast:
        raise InputError(f"model {str(source)!r} has a slow tokenizer: spans need a fast one")
    return tokenizer


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
