"""Models and data in a folder of one's own: where it is, and whether it is whole."""

from pathlib import Path
from zipfile import is_zipfile

from kvexp.config import ModelConf
from kvexp.errors import InputError
from kvexp.model_files import config_of, tokenizer_of
from kvexp.weights import SINGLE, TOKENIZER_SETS, TOKENIZERS, has_tokenizer, lacking

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
