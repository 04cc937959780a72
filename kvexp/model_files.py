"""A model's config and tokenizer, before its weights are loaded: usable, or one sentence why not."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kvexp.config import ModelConf
from kvexp.errors import InputError, KvexpError

COUNTS = ("num_hidden_layers", "num_attention_heads", "num_key_value_heads", "max_position_embeddings")
SHOWN = 160  # characters of another program's words: some exceptions print a whole config


def config_of(model: ModelConf, folder: str | Path) -> Any:
    """The config of a model in `folder`. Raises InputError for one that cannot be built or replayed."""
    from kvexp.replay.model import read_config, refuse_unsupported

    try:
        kind = _kind(Path(folder))
        if kind is not None:  # before it is built: others may fail in ways of their own
            refuse_unsupported(SimpleNamespace(model_type=kind))
        config = read_config(folder, model.revision)
    except KvexpError as error:
        raise InputError(f"model {model.name}: {error}") from None
    except Exception as error:  # building runs code of each architecture, on whatever the file says
        raise _unusable(model, folder, _words(error)) from None
    for name in COUNTS:
        value = getattr(config, name, None)
        if not isinstance(value, int) or value < 1:
            raise _unusable(model, folder, f"{name} is {str(value)[:SHOWN]}")
    return config


def tokenizer_of(model: ModelConf, folder: str | Path) -> Any:
    """The tokenizer of a model in `folder`. Raises InputError for one that cannot be built."""
    from kvexp.replay.model import load_tokenizer

    try:
        return load_tokenizer(folder, model.revision)
    except KvexpError as error:
        raise InputError(f"model {model.name}: {error}") from None
    except Exception as error:  # the library's own exceptions have no common class
        raise InputError(
            f"model {model.name}: the tokenizer in {folder} cannot be used ({_words(error)}): "
            f"{another(model, 'tokenizer files')}"
        ) from None


def another(model: ModelConf, what: str) -> str:
    """How such files are mended."""
    return f"get the model's own {what} again, or set model.{model.name}.source to another folder"


def _kind(folder: Path) -> str | None:
    try:
        kind = json.loads((folder / "config.json").read_bytes())["model_type"]
    except (OSError, ValueError, LookupError, TypeError):
        return None  # reading it says what is wrong
    return kind if isinstance(kind, str) else None


def _unusable(model: ModelConf, folder: str | Path, why: str) -> InputError:
    return InputError(
        f"model {model.name}: config.json in {folder} cannot be used ({why}): {another(model, 'config.json')}"
    )


def _words(error: Exception) -> str:
    said = " ".join(str(error).split())
    said = f"{said[:SHOWN]}..." if len(said) > SHOWN else said.rstrip(".")
    return f"{type(error).__name__}{f': {said}' if said else ''}"
