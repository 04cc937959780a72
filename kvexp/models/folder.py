"""Models and data in a folder of one's own: where it is, and whether it is whole."""

import contextlib
import json
from collections.abc import Callable
from functools import cache, lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zipfile import is_zipfile

from kvexp.errors import InputError, KvexpError
from kvexp.models import hub
from kvexp.models.embedded import embedded_model, model_digest
from kvexp.models.weights import SINGLE, TOKENIZER_SETS, TOKENIZERS, has_tokenizer, lacking
from kvexp.study.compose import Selection
from kvexp.study.schema import ModelConf, is_hub, is_pinned
from kvexp.study.shards import AttentionShard, Shard

# A model's config and tokenizer, before its weights are loaded: usable, or one sentence why not.


COUNTS = ("num_hidden_layers", "num_attention_heads", "num_key_value_heads", "max_position_embeddings")
SHOWN = 160  # characters of another program's words: some exceptions print a whole config


def config_of(model: ModelConf, folder: str | Path) -> Any:
    """The config of a model in `folder`. Raises InputError for one that cannot be built or replayed."""
    from kvexp.models.load import read_config
    from kvexp.replay.model import refuse_unsupported

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
    from kvexp.models.load import load_tokenizer

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


OTHER_WEIGHTS = ("*.bin", "*.pt", "*.pth", "*.gguf")


def own_folder(model: ModelConf) -> Path:
    """The folder that a model's source names. Raises InputError for the home of an unknown user."""
    try:
        return Path(model.source).expanduser()
    except RuntimeError as error:
        raise InputError(f"model {model.name}: {model.source}: {error}: {_another(model)}") from None


def check_folder(model: ModelConf) -> None:
    """Raises InputError for a folder that is not there, not whole or not usable, naming the override."""
    folder, other = own_folder(model), _another(model)
    if not folder.is_dir():
        raise InputError(f"model {model.name}: the folder {folder} is missing: make it, or {other}")
    if (folder / "config.json").is_file():  # of another kind, its weights do not matter
        config_of(model, folder)
    if (name := lacking(folder)) is None:
        tokenizer_of(model, folder)
        return
    others = sorted(path.name for kind in OTHER_WEIGHTS for path in folder.glob(kind))
    if name == SINGLE and others and not (folder / name).exists():
        raise InputError(
            f"model {model.name}: {folder} has its weights as {others[0]}, but kvexp needs safetensors, "
            f"{name}: save them so, or {other}"
        )
    if name == TOKENIZERS[0] and not has_tokenizer(folder):
        files = ", or ".join(" and ".join(names) for names in TOKENIZER_SETS)
        raise InputError(
            f"model {model.name}: {folder} has no tokenizer ({files}): add its files, or {other}"
        )
    raise InputError(f"model {model.name}: {name} is missing in {folder} or damaged: add it, or {other}")


def check_data(data_dir: str) -> None:
    """Raises InputError if a task's data_dir is one file of records, where their folder is wanted."""
    try:
        path = Path(data_dir).expanduser().absolute()
    except RuntimeError:
        return  # a user whose home is unknown; reading says so
    is_records = path.is_file() and path.suffix != ".zip" and not is_zipfile(path)
    if (path.suffix == ".jsonl" and not path.exists()) or is_records:
        raise InputError(
            f"data_dir {data_dir} is a file of records, not their folder: name the folder, "
            f"task.data_dir={path.parent}"
        )


def _another(model: ModelConf) -> str:
    return f"set model.{model.name}.source to another folder"


def model_source(model: ModelConf) -> str:
    """The folder that transformers loads: the embedded model's, the configured one or the hub cache's.

    Raises NotFetched for a hub model that is not on this machine: nothing here waits for a network.
    """
    if model.source == "embedded":
        return str(embedded_model())
    if is_hub(model):
        return str(hub.model_folder(model))
    folder = own_folder(model)
    if not (folder / "config.json").is_file():
        raise InputError(
            f"model {model.name!r} is not there: {folder} has no config.json (set model.{model.name}.source)"
        )
    return str(folder)


def tokenizers(selection: Selection) -> Callable[[str], Any]:
    """Loads the tokenizer of a model of the study by name, once."""
    models = {model.name: model for model in selection.models}

    @cache
    def load(name: str) -> Any:
        model = models[name]
        return tokenizer_of(model, model_source(model))

    return load


def check_heads(todo: list[Shard]) -> None:
    """Raises ConfigError, before anything is begun, if conf and a model's config count other heads."""
    for shard in {s.model.name: s for s in todo if isinstance(s, AttentionShard)}.values():
        config = config_of(shard.model, model_source(shard.model))
        shard.check_heads(config.num_hidden_layers, config.num_attention_heads)


@lru_cache(maxsize=1)
def load_model(source: str, dtype: str, device: str, revision: str | None) -> Any:
    """A loaded model, kept for the next shard of the same process."""
    from kvexp.models.load import load

    return load(source, dtype, device, revision)


def content_digest(model: ModelConf) -> str | None:
    """Of a model's files; a commit of the hub pins them without reading fifteen gigabytes."""
    if is_pinned(model):
        return None
    source = Path(model_source(model))
    # A folder without weights has none; loading it will say so better.
    with contextlib.suppress(InputError):
        return model_digest(source)
    return None
