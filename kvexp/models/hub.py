"""The hub's models and files in this machine's cache: found without network, or said to be missing.

Only `kvexp fetch` talks to the hub. Everything else reads the local cache, so that a compute node
without network neither waits nor retries.
"""

from pathlib import Path
from typing import Any

from kvexp.errors import ConfigError, NotFetched
from kvexp.models.weights import lacking
from kvexp.study.schema import ModelConf


def model_folder(model: ModelConf) -> Path:
    """The whole model in the cache. Raises NotFetched unless it is there."""
    folder = snapshot(model)
    missing = "nothing of it is there" if folder is None else f"{lacking(folder)} is missing or damaged"
    if folder is None or lacking(folder) is not None:
        raise NotFetched(
            f"model {model.name}: {named(model)} is not on this machine ({missing}): run `kvexp fetch` with "
            f"the same study and model={model.name} where there is a network"
        )
    return folder


def named(model: ModelConf) -> str:
    """A hub model with its revision, for a sentence."""
    return f"{model.source!r} at {(model.revision or 'main')[:12]}"


def snapshot(model: ModelConf) -> Path | None:
    """Where the cache holds this state of a model, whole or not."""
    found = cached(model.source, "config.json", model.revision, "model", f"model.{model.name}.source")
    return found and found.parent


def cached(repo: str, filename: str, revision: str | None, kind: str, where: str) -> Path | None:
    """One file in the cache, at a revision. Raises ConfigError for what is no hub id."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        found: Any = try_to_load_from_cache(repo, filename, revision=revision, repo_type=kind)
    except HFValidationError:
        raise ConfigError(
            f"{where} is {repo!r}, which is no hub id (OWNER/NAME): a folder begins with /, ./, ../ or ~"
        ) from None
    return Path(found) if isinstance(found, str) else None
