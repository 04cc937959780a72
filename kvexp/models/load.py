"""A model's config, tokenizer and weights from its folder: no network, no pickled weights, no remote code.

torch and transformers are imported where they are used: planning, submitting to Slurm and looking at a
study's status need neither.
"""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from kvexp.errors import InputError, KvexpError
from kvexp.models.folder import another_folder, gigabytes, model_source, weight_bytes, weight_files
from kvexp.replay.memory import free_bytes, is_out_of_memory
from kvexp.study.compose import Selection
from kvexp.study.schema import ModelConf
from kvexp.study.shards import AttentionShard, Shard

if TYPE_CHECKING:
    from kvexp.replay.model import Loaded

COUNTS = ("num_hidden_layers", "num_attention_heads", "num_key_value_heads", "max_position_embeddings")
SHOWN = 160  # characters of another program's words: some exceptions print a whole config
LOCAL: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}


@lru_cache(maxsize=1)
def load_model(source: str, dtype: str, device: str, revision: str | None) -> "Loaded":
    """A loaded model, kept for the next shard of the same process."""
    return load(source, dtype, device, revision)


def load(source: str | Path, dtype: str, device: str = "cpu", revision: str | None = None) -> "Loaded":
    """A model from a folder, or from the hub's local cache; no network is asked.

    Raises InputError for a model that is not there, not safe to load, too large or not of a supported kind.
    """
    import torch
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM

    from kvexp.replay import attention
    from kvexp.replay.model import wrap

    read_config(source, revision)
    _check_memory(Path(source), dtype, device)
    try:
        model = AutoModelForCausalLM.from_pretrained(
            source,
            dtype=getattr(torch, dtype),
            attn_implementation=attention.NAME,
            use_safetensors=True,  # never unpickle weights
            revision=revision,
            **LOCAL,
        )
        model = model.to(device).eval()
    except (OSError, ValueError, SafetensorError) as error:
        raise InputError(
            f"model {str(source)!r} has a config but no loadable weights ({words(error)}): it "
            "needs safetensors"
        ) from None
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        raise _too_little(source, device, "it ran out while loading") from None
    return wrap(model, load_tokenizer(source, revision))


def _check_memory(folder: Path, dtype: str, device: str) -> None:
    """Raises InputError, with both numbers, if the weights alone do not fit."""
    needed, free = weight_bytes(weight_files(folder), dtype), free_bytes(device)
    if free is not None and needed > free:
        raise _too_little(
            folder, device, f"its weights need {gigabytes(needed)} and {gigabytes(free)} are free"
        )


def _too_little(folder: str | os.PathLike[str], device: str, why: str) -> InputError:
    """The sentence for a model that does not fit."""
    return InputError(
        f"model {str(folder)!r} does not fit into the memory of {device} ({why}): take a larger machine, a "
        "smaller model, or bfloat16 weights"
    )


def read_config(source: str | Path, revision: str | None = None) -> Any:
    """Raises InputError for a config that cannot be built, or of a model that replay does not support."""
    from transformers import AutoConfig

    from kvexp.replay.model import refuse_unsupported

    kind = _kind(Path(source))
    if kind is not None:  # before it is built: other architectures may fail in ways of their own
        refuse_unsupported(SimpleNamespace(model_type=kind))
    with _built("config.json", source):  # building runs code of each architecture, on whatever the file says
        config = AutoConfig.from_pretrained(source, revision=revision, **LOCAL)
        for name in COUNTS:
            value = getattr(config, name, None)
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} is {value}")
    refuse_unsupported(config)
    return config


def _kind(folder: Path) -> str | None:
    try:
        kind = json.loads((folder / "config.json").read_bytes())["model_type"]
    except (OSError, ValueError, LookupError, TypeError):
        return None  # reading it says what is wrong
    return kind if isinstance(kind, str) else None


def load_tokenizer(source: str | Path, revision: str | None = None) -> Any:
    """Raises InputError for a tokenizer that cannot be built, or is not a fast one."""
    from transformers import AutoTokenizer

    with _built("tokenizer", source):  # the library's own exceptions have no common class
        tokenizer = AutoTokenizer.from_pretrained(source, revision=revision, use_fast=True, **LOCAL)
        if not tokenizer.is_fast:
            raise ValueError("it is a slow one, and spans need a fast one")
    return tokenizer


@contextmanager
def _built(what: str, folder: str | Path) -> Iterator[None]:
    """Whatever building something from a model's files raises, in one sentence."""
    try:
        yield
    except Exception as error:
        raise InputError(
            f"the {what} in {folder} cannot be loaded ({words(error)}): get the model's own {what} again"
        ) from None


def words(error: BaseException) -> str:
    """What another program says about an error, on one line and not at length, or else the error's name."""
    said = " ".join(str(error).split())
    said = said if " " in said else f"{type(error).__name__} {said}".strip()  # a missing key is but its name
    return f"{said[:SHOWN]}..." if len(said) > SHOWN else said.rstrip(".")


@contextmanager
def _of(model: ModelConf) -> Iterator[None]:
    """Begins the sentence with the study's name of the model, and ends it with the setting to mend."""
    try:
        yield
    except KvexpError as error:
        raise InputError(f"model {model.name}: {error}, or {another_folder(model)}") from None


def config_of(model: ModelConf, folder: str | Path) -> Any:
    """The config of a study's model in `folder`. Raises InputError for one that cannot be replayed."""
    with _of(model):
        return read_config(folder, model.revision)


def tokenizer_of(model: ModelConf, folder: str | Path) -> Any:
    """The tokenizer of a study's model in `folder`. Raises InputError for one that cannot be built."""
    with _of(model):
        return load_tokenizer(folder, model.revision)


def tokenizers(selection: Selection) -> Callable[[str], Any]:
    """Loads the tokenizer of a model of the study by name, once."""
    models = {model.name: model for model in selection.models}
    return cache(lambda name: tokenizer_of(models[name], model_source(models[name])))


def check_heads(todo: list[Shard]) -> None:
    """Raises ConfigError, before anything is begun, if conf and a model's config count other heads."""
    for shard in {s.model.name: s for s in todo if isinstance(s, AttentionShard)}.values():
        config = config_of(shard.model, model_source(shard.model))
        shard.check_heads(config.num_hidden_layers, config.num_attention_heads)
