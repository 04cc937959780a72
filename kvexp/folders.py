"""Models in a folder of one's own: where it is, and whether it is whole."""

from pathlib import Path

from kvexp.config import ModelConf
from kvexp.errors import InputError
from kvexp.weights import lacking


def own_folder(model: ModelConf) -> Path:
    """The folder that a model's source names. Raises InputError for the home of an unknown user."""
    try:
        return Path(model.source).expanduser()
    except RuntimeError as error:
        raise InputError(f"model {model.name}: {model.source}: {error}: {_another(model)}") from None


def check_folder(model: ModelConf) -> None:
    """Raises InputError for a folder that is not there or not whole, naming the override."""
    folder, other = own_folder(model), _another(model)
    if not folder.is_dir():
        raise InputError(f"model {model.name}: the folder {folder} is missing: make it, or {other}")
    if (name := lacking(folder)) is not None:
        raise InputError(f"model {model.name}: {name} is missing in {folder} or damaged: add it, or {other}")


def _another(model: ModelConf) -> str:
    return f"set model.{model.name}.source to another folder"
