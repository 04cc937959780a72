"""`kvexp fetch`: bring what the chosen suites need to this machine, on a login node with network.

Weights come as safetensors with their JSON and tokenizer files, never pickled and never with code. The hub's
library lists, downloads, tries again and shows progress. What is there is skipped, so a killed fetch goes on
at the file that was under way, from its beginning: the library keeps nothing of it for another process.
"""

import errno
import glob
import logging
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console
from rich.table import Table

from kvexp.errors import IncompleteError, InputError, KvexpError, NotFetched, printable
from kvexp.models.folder import INDEX, SINGLE, Source, cached, damage, gigabytes, model_source
from kvexp.models.load import tokenizer_of, words
from kvexp.models.missing import GATED, Missing, lines, missing
from kvexp.study.compose import Selection
from kvexp.study.grid import chosen, shards
from kvexp.study.schema import COMMIT, ModelConf
from kvexp.study.words import needed

WEIGHTS = "*.safetensors"
TEXTS = ("*.json", "*.jinja", "tokenizer.model", "merges.txt", "vocab.txt")
PICKLED = ("*.bin", "*.pt", "*.pth", "*.pkl", "*.ckpt", "*.h5", "*.msgpack")
ASK_SECONDS = 10  # for an answer of the hub
STALE_SECONDS = 3600  # a download under way writes all the time; an older part belongs to a killed one


class Unreachable(InputError):
    """The hub does not answer: nothing else can be fetched either."""


@dataclass(frozen=True)
class Download:
    """What is to be loaded of something that is missing: files of one commit, with their sizes."""

    absent: Missing
    source: Source
    sizes: dict[str, int]

    @property
    def size(self) -> int:
        return sum(self.sizes.values())


def fetch(selection: Selection, console: Console, dry_run: bool = False) -> int:
    """Fetch what the chosen suites lack. Raises IncompleteError if something is still missing after it."""
    absent = _absent(selection)
    failed = {one.name: one.reason for one in absent if one.by_hand}
    if to_fetch := [one for one in absent if not one.by_hand]:
        try:
            failed |= _fetch(to_fetch, console, dry_run)
        except Unreachable:
            console.print("missing here; sizes are asked of the hub:")
            for line in (*lines(to_fetch), *failed.values()):
                console.print(f"  {printable(line)}", markup=False)
            raise
    models, tasks = needed(selection)
    if dry_run:
        return _report(failed, "nothing was downloaded, because of --dry-run", console)
    failed = {one.name: one.reason for one in _absent(selection)} | _without_tokenizer(models) | failed
    there = f"all there: {len(models)} models and the data of {len(tasks)} tasks; jobs need no network"
    return _report(failed, there, console)


def _absent(selection: Selection) -> list[Missing]:
    made = chosen(shards(selection, "assume", {}), selection)
    return missing(selection, made, tasks=selection.chosen["task"])


def _without_tokenizer(models: list[ModelConf]) -> dict[str, str]:
    """Models whose tokenizer cannot be loaded, with the reason; the embedded model is converted for it."""
    failed = {}
    for model in models:
        try:
            tokenizer_of(model, model_source(model))
        except NotFetched:
            continue
        except KvexpError as error:
            failed[f"model {model.name}"] = str(error)
    return failed


def _report(failed: dict[str, str], success: str, console: Console) -> int:
    """Print every reason; raises IncompleteError if there is one."""
    if not failed:
        console.print(success)
        return 0
    for reason in dict.fromkeys(failed.values()):
        console.print(printable(reason), markup=False)
    raise IncompleteError(
        f"{len(failed)} missing: {', '.join(failed)}; what is fetched stays, fetch again to go on"
    )


def _fetch(absent: list[Missing], console: Console, dry_run: bool) -> dict[str, str]:
    """Size, say, download; what failed, with its reason."""
    failed: dict[str, str] = {}
    found = []
    with _quiet_hub():
        for one in absent:
            try:
                found.append(_ask(one))
            except Unreachable:
                raise
            except InputError as error:
                failed[one.name] = str(error)
        if not dry_run:
            _remove_leftovers(found)
        _print_sizes(found, console)
        for number, download in enumerate([] if dry_run else found):
            try:
                _download(download, console)
            except Unreachable as error:  # nor will it be for the others
                return failed | {rest.absent.name: str(error) for rest in found[number:]}
            except InputError as error:
                failed[download.absent.name] = str(error)
    return failed


# What it will cost ---------------------------------------------------------------------------------


def _ask(one: Missing) -> Download:
    """What the hub has and this machine has not; loads nothing. Raises InputError."""
    from huggingface_hub import HfApi, snapshot_download

    source = one.source
    assert source is not None
    is_model = source.filename is None
    with _said(one), TemporaryDirectory() as empty:
        asked: dict[str, Any] = {"repo_id": source.repo, "repo_type": source.kind}
        info = HfApi().repo_info(**asked, revision=source.revision, timeout=ASK_SECONDS)
        pinned = source._replace(revision=_checked_commit(source.revision, info.sha))
        # For an empty cache the library says the sizes on the hub; for ours, those of damaged files too.
        # It asks for every file by name: a gated repository shows its list of files to everyone.
        answer = snapshot_download(
            **asked,
            revision=pinned.revision,
            allow_patterns=[WEIGHTS, *TEXTS, *PICKLED] if is_model else source.filename,
            ignore_patterns="*/*" if is_model else None,
            cache_dir=empty,
            etag_timeout=ASK_SECONDS,
            tqdm_class=_bars(is_shown=False),
            dry_run=True,
        )
        sizes = _checked_sizes({file.filename: file.file_size for file in answer})
        names = model_files(list(sizes)) if is_model else list(sizes)
        if not names:
            raise InputError("the file that the task reads is not in it")
        return Download(one, pinned, {n: sizes[n] for n in names if not _is_whole(pinned, n, sizes[n])})


def _checked_commit(revision: str | None, sha: Any) -> str:
    """Raises InputError for an answer that no hub would give."""
    commit, pinned = str(sha), COMMIT.fullmatch(revision or "")
    if not COMMIT.fullmatch(commit) or (pinned and commit != revision):
        raise InputError(f"the hub names the commit {commit[:60]!r} for revision {revision!r}")
    return commit


def _checked_sizes(sizes: dict[str, Any]) -> dict[str, int]:
    """Raises InputError for a file that no repository has."""
    for name, size in sizes.items():
        if not isinstance(size, int) or size < 0 or "\\" in name or ".." in name.split("/"):
            raise InputError(f"the hub lists the file {str(name)[:60]!r} of {str(size)[:20]} bytes")
    return sizes


def model_files(names: list[str]) -> list[str]:
    """Of a repository's files those that loading needs: top level only, one copy of the weights.

    Raises InputError for a repository without safetensors.
    """

    def like(*patterns: str) -> list[str]:
        return [n for n in names if "/" not in n and any(fnmatchcase(n, p) for p in patterns)]

    weights = [SINGLE] if SINGLE in names else [n for n in like(WEIGHTS) if not n.startswith("consolidated")]
    if not weights:
        pickled = like(*PICKLED)
        raise InputError(
            "it has no safetensors"
            + (f", only weights that loading would have to execute ({pickled[0]})" if pickled else "")
        )
    texts = [n for n in like(*TEXTS) if not n.endswith(".index.json") or (n == INDEX and SINGLE not in names)]
    return sorted({*weights, *texts})


def _is_whole(source: Source, name: str, size: int) -> bool:
    """Whether the cache has the file. Data are missing, or others than are pinned, whatever their size."""
    path = cached(source, name, source.repo)
    if source.filename is not None or path is None or not path.is_file() or path.stat().st_size != size:
        return False
    return not name.endswith(".safetensors") or damage(path) is None


def _print_sizes(found: list[Download], console: Console) -> None:
    """What is to be loaded, from where. Raises InputError if it does not fit on the disk."""
    if not found:
        return
    table = Table("to fetch", "from", "revision", box=None)
    for column in ("files", "size"):
        table.add_column(column, justify="right")
    for one in found:
        name, (repo, commit, _) = one.absent.name, one.source
        gated = " (gated)" if one.absent.gated else ""
        table.add_row(f"{name}{gated}", repo, str(commit)[:12], str(len(one.sizes)), gigabytes(one.size))
    console.print(table)
    if any(one.absent.gated for one in found):
        console.print(GATED)
    to_load, free = sum(one.size for one in found), _free()
    room = "unknown" if free is None else gigabytes(free)
    console.print(f"{gigabytes(to_load)} in all, {room} free in {_cache()}")
    console.print("whole files stay if this is killed; the one under way begins again")
    if free is not None and to_load > free:
        raise InputError(
            f"{gigabytes(to_load)} are to be fetched and {_cache()} has {gigabytes(free)} free: set "
            "HF_HOME to a folder on a larger disk"
        )


def _cache() -> Path:
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def _free() -> int | None:
    """Free bytes where the cache is, or will be."""
    for folder in (_cache(), *_cache().absolute().parents):
        with suppress(OSError):
            return shutil.disk_usage(folder).free
    return None


# Downloading ---------------------------------------------------------------------------------------


def _download(download: Download, console: Console) -> None:
    """The files into the cache. A cut connection goes on from the pieces that are there."""
    from huggingface_hub import snapshot_download

    one, source = download.absent, download.source
    for name in download.sizes:  # the library takes what has the right name for whole
        if (path := cached(source, name, source.repo)) is not None:
            path.resolve().unlink(missing_ok=True)
            path.unlink(missing_ok=True)
    with _said(one):
        snapshot_download(
            source.repo,
            repo_type=source.kind,
            # A branch leaves its name in the cache, under which it is then found.
            revision=one.source and one.source.revision,
            allow_patterns=[glob.escape(name) for name in download.sizes],
            etag_timeout=ASK_SECONDS,
            tqdm_class=_bars(console.is_terminal),
        )
    console.print(f"{one.name}: {len(download.sizes)} files, {gigabytes(download.size)}", markup=False)


def _remove_leftovers(found: list[Download]) -> None:
    """Parts of files that a killed fetch left: the library never goes on with them, nor removes them."""
    for one in found:
        blobs = _cache() / f"{one.source.kind}s--{one.source.repo.replace('/', '--')}" / "blobs"
        for path in blobs.glob("*.incomplete"):
            with suppress(OSError):
                if time.time() - path.stat().st_mtime > STALE_SECONDS:
                    path.unlink()


def _bars(is_shown: bool) -> Any:
    """The library's progress bars, or none: where they go to a file they would only fill it."""
    from huggingface_hub.utils.tqdm import tqdm

    class Hidden(tqdm):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **{**kwargs, "disable": True})  # type: ignore[no-untyped-call]

    return tqdm if is_shown else Hidden


@contextmanager
def _quiet_hub() -> Iterator[None]:
    """Hide the library's warnings of every retry: what came of them is said once."""
    from huggingface_hub.utils import logging as chatter

    before = chatter.get_verbosity()
    chatter.set_verbosity(logging.CRITICAL)
    try:
        yield
    finally:
        chatter.set_verbosity(before)


# What went wrong -----------------------------------------------------------------------------------


@contextmanager
def _said(one: Missing) -> Iterator[None]:
    """Whatever the hub's library raises, in one sentence. Raises Unreachable, or InputError."""
    try:
        yield
    except Exception as error:
        raise _sentence(one, error) from None


def _sentence(one: Missing, error: BaseException) -> BaseException:
    """What an error means for something to fetch; an error of another kind as it is."""
    from huggingface_hub import errors

    repo, revision, _ = one.source or ("", None, None)
    where = one.name.replace(" ", ".") if one.name.startswith("model ") else "the task's data"
    no_access = (
        "this account may not read it: accept its licence on its page of the hub, then log in with "
        "`hf auth login` or set HF_TOKEN"
    )
    match error:
        case errors.DryRunError() | errors.LocalEntryNotFoundError() if error.__cause__ is not None:
            return _sentence(one, error.__cause__)  # what it was that the library could not do
        case InputError():
            said = f": {error}"
        case errors.GatedRepoError():
            said = f" is gated and {no_access}"
        case errors.RevisionNotFoundError():
            said = f" has no revision {revision!r}: set {where}.revision to one that it has"
        case errors.RepositoryNotFoundError():
            said = f" is not on the hub, or private: check {where}.source, or use `hf auth login`"
        case errors.HfHubHTTPError(response=response) if response.status_code in (401, 403):
            said = f" is gated or private, and {no_access}"
        case errors.HfHubHTTPError(response=response) if response.status_code == 404:
            said = " is not on the hub (HTTP 404): check its name and revision"
        case errors.HfHubHTTPError(response=response):
            said = f": the hub answered with HTTP {response.status_code}: fetch again later"
        case OSError(errno=errno.ENOSPC | errno.EDQUOT):
            said = f": no room is left in {_cache()}: set HF_HOME to a folder on a larger disk"
        case OSError(errno=int()):
            return error
        case ConnectionError() | FileNotFoundError():  # so the library says that there is no network
            return _unreachable(error)
        case OSError():  # of the library; the system's own errors have a number
            said = f": the download broke off ({words(error)}): fetch again"
        case ValueError() | TypeError() | LookupError() | AttributeError():  # a login page is no JSON
            said = f": the hub's answer cannot be read ({words(error)})"
        case _:
            # The classes of its HTTP client are not part of the library's interface; nor are those of Xet.
            known = ("httpx", "httpcore", "huggingface_hub", "builtins")
            return _unreachable(error) if type(error).__module__.startswith(known) else error
    return InputError(f"{one.name}: {repo}{said}")


def _unreachable(error: BaseException) -> Unreachable:
    from huggingface_hub import constants

    if constants.is_offline_mode():
        return Unreachable(
            "HF_HUB_OFFLINE is set, so nothing can be fetched: unset it on a machine with network"
        )
    return Unreachable(
        f"the hub at {constants.ENDPOINT} cannot be reached ({words(error)}): fetch on a machine with "
        "network, for instance the login node, or copy the cache of one that has it and set HF_HOME"
    )
