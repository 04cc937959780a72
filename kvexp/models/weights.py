"""Whether a model's folder is whole, and how large its weights are: from names, sizes and JSON headers."""

import json
from math import prod
from pathlib import Path
from typing import Any

from kvexp.errors import InputError

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
