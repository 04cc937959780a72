"""A model's folder: whether it is whole, and how large its weights are, without loading them."""

import contextlib
import hashlib
import json
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from kvexp import files
from kvexp.errors import ConfigError, InputError, NotFetched
from kvexp.models.embedded import MANIFEST, embedded_model
from kvexp.study.schema import ModelConf, is_hub, is_pinned

# Whether a model's folder is whole, and how large its weights are: from names, sizes and JSON headers.


SINGLE = "model.safetensors"
INDEX = f"{SINGLE}.index.json"
# One of these sets makes a fast tokenizer. Without any, transformers may make an empty one and say nothing.
TOKENIZER_SETS = (("tokenizer.json",), ("tokenizer.model",), ("vocab.json", "merges.txt"))
TOKENIZERS = tuple(names[0] for names in TOKENIZER_SETS)
ITEM_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
HEADER_LIMIT = 100_000_000  # bytes; the safetensors format allows no longer header


def lacking(folder: Path) -> str | None:
    """The first file that loading would miss, or None for a whole folder; damaged weights are missing."""
    if not (folder / "config.json").is_file():
        return "config.json"
    try:
        files = weight_files(folder)
    except InputError:
        return INDEX
    for path in files or [folder / SINGLE]:
        if not path.is_file() or damage(path) is not None:
            return path.name
    return None if has_tokenizer(folder) else TOKENIZERS[0]


def has_tokenizer(folder: Path) -> bool:
    """Whether the files of some tokenizer are there."""
    return any(all((folder / name).is_file() for name in names) for names in TOKENIZER_SETS)


def weight_files(folder: Path) -> list[Path]:
    """What transformers would load: the one file, or those of the index, there or not; empty: neither.

    Raises InputError for an index that is none, or that names a file elsewhere.
    """
    if (folder / SINGLE).is_file():
        return [folder / SINGLE]
    index = folder / INDEX
    if not index.is_file():
        return []
    try:
        names = set(json.loads(index.read_bytes())["weight_map"].values())
    except (ValueError, LookupError, TypeError, AttributeError):
        raise InputError(f"{index} is no index of weights: fetch the model again") from None
    if outside := [n for n in names if not isinstance(n, str) or Path(n).name != n]:
        raise InputError(f"{index} names {outside[0]!r}, which is no file beside it: fetch the model again")
    return [folder / name for name in sorted(names)]


def weight_bytes(files: list[Path], dtype: str) -> int:
    """Bytes of all weights in memory as `dtype`. Raises InputError for a damaged file."""
    total = 0
    for path in files:
        if (why := damage(path)) is not None:
            raise InputError(f"{path} is damaged ({why}): remove it and get the model again")
        total += sum(prod(t["shape"]) * ITEM_BYTES[dtype] for t in _tensors(path)[1].values())
    return total


def damage(path: Path) -> str | None:
    """What is wrong with a safetensors file, as far as its header and its size tell."""
    try:
        start, tensors = _tensors(path)
        size = start + max((t["data_offsets"][1] for t in tensors.values()), default=0)
    except OSError as error:
        return str(error.strerror or error)
    except (ValueError, LookupError, TypeError, AttributeError):
        return "its header cannot be read"
    there = path.stat().st_size
    return None if there == size else f"{there:,} bytes instead of {size:,}"


def _tensors(path: Path) -> tuple[int, dict[str, Any]]:
    """Where the data begin, and shape and place of every tensor."""
    with path.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if not 0 < length <= HEADER_LIMIT:
            raise ValueError("no safetensors header")
        header = json.loads(stream.read(length))
    return 8 + length, {name: t for name, t in header.items() if name != "__metadata__"}


def gigabytes(n: int) -> str:
    """A number of bytes for a person."""
    return f"{n / 1e9:.2f} GB" if n >= 1e8 else f"{n / 1e6:.1f} MB"


# Where a model's files are on this machine, and their digest: embedded, in a folder, or in the hub's cache.
#
# Only `kvexp fetch` talks to the hub. Everything else reads the local cache, so that a compute node without
# network neither waits nor retries.


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
