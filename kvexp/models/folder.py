"""Where a model's files are on this machine, and their digest: embedded, in a folder, or in the hub's cache.

Only `kvexp fetch` talks to the hub. Everything else reads the local cache, so that a compute node without
network neither waits nor retries.
"""

import contextlib
import hashlib
from pathlib import Path
from typing import Any, NamedTuple

from kvexp import files
from kvexp.errors import ConfigError, InputError, NotFetched
from kvexp.models.embedded import MANIFEST, embedded_model
from kvexp.models.weights import lacking
from kvexp.study.schema import ModelConf, is_hub, is_pinned

# What decides how a model answers; readmes, licences and our manifest do not.
MODEL_SUFFIXES = {".safetensors", ".bin", ".gguf", ".json", ".jinja", ".model", ".txt"}
WEIGHT_SUFFIXES = {".safetensors", ".bin", ".gguf"}


def model_source(model: ModelConf) -> str:
    """The folder that transformers loads.

    Raises NotFetched for a hub model that is not on this machine: nothing here waits for a network.
    """
    if model.source == "embedded":
        return str(embedded_model())
    if is_hub(model):
        return str(_hub_folder(model))
    folder = own_folder(model)
    if not (folder / "config.json").is_file():
        raise InputError(
            f"model {model.name!r} is not there: {folder} has no config.json (set model.{model.name}.source)"
        )
    return str(folder)


def own_folder(model: ModelConf) -> Path:
    """The folder that a model's source names. Raises InputError for the home of an unknown user."""
    try:
        return Path(model.source).expanduser()
    except RuntimeError as error:
        raise InputError(f"model {model.name}: {model.source}: {error}: {another_folder(model)}") from None


def another_folder(model: ModelConf) -> str:
    """How a folder of one's own that cannot be used is replaced."""
    return f"set model.{model.name}.source to another folder"


class Source(NamedTuple):
    """What is needed of the hub: a model, or one file of a data set."""

    repo: str
    revision: str | None  # None is the main branch
    filename: str | None = None

    @property
    def kind(self) -> str:
        return "model" if self.filename is None else "dataset"

    def __str__(self) -> str:
        file = "" if self.filename is None else f"{self.filename} of "
        return f"{file}{self.repo!r} at {(self.revision or 'main')[:12]}"


def source_of(model: ModelConf) -> Source | None:
    """Where the hub has a model; None for another one."""
    return Source(model.source, model.revision) if is_hub(model) else None


def _hub_folder(model: ModelConf) -> Path:
    """The whole model in the hub's cache. Raises NotFetched unless it is there."""
    source = Source(model.source, model.revision)
    found = cached(source, "config.json", f"model.{model.name}.source")
    name = None if found is None else lacking(found.parent)
    if found is None or name is not None:
        missing = "nothing of it is there" if found is None else f"{name} is missing or damaged"
        raise NotFetched(
            f"model {model.name}: {source} is not on this machine ({missing}): run `kvexp fetch` with "
            f"the same study and model={model.name} where there is a network"
        )
    return found.parent


def cached(source: Source, filename: str, where: str) -> Path | None:
    """One file in the hub's cache. Raises ConfigError for what is no hub id, with `where` it is said."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        found: Any = try_to_load_from_cache(
            source.repo, filename, revision=source.revision, repo_type=source.kind
        )
    except HFValidationError:
        raise ConfigError(
            f"{where} is {source.repo!r}, which is no hub id (OWNER/NAME): a folder begins with /, ./, ../ "
            "or ~"
        ) from None
    return Path(found) if isinstance(found, str) else None


def content_digest(model: ModelConf) -> str | None:
    """Of a model's files; a commit of the hub pins them without reading fifteen gigabytes."""
    if is_pinned(model):
        return None
    source = Path(model_source(model))
    # A folder without weights has none; loading it will say so better.
    with contextlib.suppress(InputError):
        return model_digest(source)
    return None


def model_digest(folder: Path) -> str:
    """One sha256 for a model: over names and digests of its weight, config and tokenizer files.

    Reads every byte once per process, whatever the manifest says, because the result stands in the logs
    as evidence of what ran. Symbolic links are followed (model hubs cache that way); subfolders are not.
    """
    try:
        paths = [p for p in folder.iterdir() if p.suffix in MODEL_SUFFIXES and p.is_file()]
    except OSError as error:
        raise InputError(f"{folder} cannot be read as a model folder: {error.strerror}.") from error
    paths = sorted((path for path in paths if path.name != MANIFEST), key=lambda path: path.name)
    if not any(path.suffix in WEIGHT_SUFFIXES for path in paths):
        raise InputError(f"{folder} holds no model weights: name a folder with safetensors files.")
    lines = (f"{files.digest_once(path)}  {path.name}\n" for path in paths)
    return hashlib.sha256("".join(lines).encode()).hexdigest()
