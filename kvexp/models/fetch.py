"""`kvexp fetch`: bring what the chosen suites need to this machine, on a login node with network.

Weights come as safetensors with their JSON and tokenizer files, never pickled and never with code. What is
there is skipped, so a killed fetch goes on at the file that was under way, from its beginning: the hub's
library keeps nothing of it that another process could use.
"""

import logging
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn
from rich.table import Table

from kvexp.errors import IncompleteError, InputError, KvexpError, NotFetched, printable
from kvexp.models import hub
from kvexp.models.folder import model_source
from kvexp.models.missing import GATED, lines
from kvexp.models.missing import missing as missing_of
from kvexp.models.weights import INDEX, SINGLE, TOKENIZERS, gigabytes
from kvexp.study.compose import Selection
from kvexp.study.grid import chosen, shards
from kvexp.study.plugins import family_of
from kvexp.study.schema import COMMIT, ModelConf, TaskConf, is_hub
from kvexp.study.words import needed
from kvexp.tasks.base import HubFile, Task

TEXT_FILES = re.compile(r"[^/]+\.(json|jinja)|tokenizer\.model|merges\.txt|vocab\.txt")
PICKLED = re.compile(r"[^/]+\.(bin|pt|pth|pkl|ckpt|h5|msgpack)")
ASK_SECONDS = 10  # for an answer of the hub
STALE_SECONDS = 3600  # a download under way writes all the time; an older part belongs to a killed one


class Unreachable(InputError):
    """The hub does not answer: nothing else can be fetched either."""


@dataclass(frozen=True)
class Item:
    """One repository that a study needs something of.

    Attributes:
        name: how the study calls it, for instance `model qwen2.5-7b`.
        where: what to mend if the hub does not know it.
        repo: on the hub.
        revision: of the repository; None is its main branch.
        kind: `model` or `dataset`.
        choose: which of its files, by their names.
        is_there: whether the cache holds all of them; asks no network.
        is_gated: said by the configuration; the hub has the last word.
    """

    name: str
    where: str
    repo: str
    revision: str | None
    kind: str
    choose: Callable[[list[str]], list[str]]
    is_there: Callable[[], bool]
    is_gated: bool = False


@dataclass(frozen=True)
class Wanted:
    """A file of an item, with its size on the hub; `is_there` if the cache holds it whole."""

    name: str
    size: int
    is_there: bool


def fetch(selection: Selection, console: Console, dry_run: bool = False) -> int:
    """Fetch what the chosen suites lack. Raises IncompleteError if something is still missing after it."""
    models, tasks = needed(selection)
    failed = _prepare_local(models, dry_run)
    missing = [item for item in _items(models, tasks) if not item.is_there()]
    if missing:
        try:
            failed |= _fetch(missing, console, dry_run)
        except Unreachable:
            _print_without_sizes(selection, failed, console)
            raise
    if dry_run:
        return _report(failed, "nothing was downloaded, because of --dry-run", console)
    for name, reason in _verify(selection, models, tasks).items():
        failed.setdefault(name, reason)
    there = f"all there: {len(models)} models and the data of {len(tasks)} tasks; jobs need no network"
    return _report(failed, there, console)


def _print_without_sizes(selection: Selection, failed: dict[str, str], console: Console) -> None:
    """What is known to be missing without asking the hub."""
    found = missing_of(selection, chosen(shards(selection, "assume", {}), selection))
    console.print("missing here; sizes are asked of the hub:")
    for line in (*lines(found), *failed.values()):
        console.print(f"  {printable(line)}", markup=False)


def _prepare_local(models: list[ModelConf], dry_run: bool) -> dict[str, str]:
    """Convert the embedded model, look for folders; what failed, with its reason."""
    failed = {}
    for model in models:
        if is_hub(model) or (dry_run and model.source == "embedded"):
            continue
        try:
            model_source(model)
        except KvexpError as error:
            failed[f"model {model.name}"] = str(error)
    return failed


def _items(models: list[ModelConf], tasks: list[TaskConf]) -> list[Item]:
    data = _sources(tasks)
    return [
        *(_model_item(model) for model in models if is_hub(model)),
        *(_data_item(source, readers) for source, readers in data.items()),
    ]


def _model_item(model: ModelConf) -> Item:
    def is_there() -> bool:
        try:
            hub.model_folder(model)
        except NotFetched:
            return False
        return True

    name = f"model {model.name}"
    where = f"model.{model.name}"
    return Item(name, where, model.source, model.revision, "model", model_files, is_there, model.gated)


def _data_item(source: HubFile, readers: dict[str, Task]) -> Item:
    def is_there() -> bool:
        """Whether all may use the file: it may be here, and another one than is pinned."""
        try:
            for family in readers.values():
                family.example_ids(1, 0, 1)
        except NotFetched:
            return False
        except InputError:  # fetching again would not mend it; it is said in the end
            return True
        return True

    return Item(
        name=f"data of {', '.join(readers)}",
        where="the task's data",
        repo=source.repo,
        revision=source.revision,
        kind="dataset",
        choose=lambda there: [name for name in there if name == source.filename],
        is_there=is_there,
    )


def _sources(tasks: list[TaskConf]) -> dict[HubFile, dict[str, Task]]:
    """Files of the hub that tasks read, with the tasks."""
    found: dict[HubFile, dict[str, Task]] = {}
    for conf in tasks:
        family = family_of(conf)
        if (source := family.source()) is not None:
            found.setdefault(source, {})[conf.name] = family
    return found


def model_files(names: list[str]) -> list[str]:
    """Of a repository's files those that loading needs: top level only, one copy of the weights.

    Raises InputError for a repository without safetensors.
    """
    top = [name for name in names if "/" not in name]
    weights = [n for n in top if n.endswith(".safetensors") and not n.startswith("consolidated")]
    if SINGLE in top:
        weights = [SINGLE]
    if not weights:
        pickled = [n for n in top if PICKLED.fullmatch(n)]
        raise InputError(
            "it has no safetensors"
            + (f", only weights that loading would have to execute ({pickled[0]})" if pickled else "")
        )
    indices = [n for n in top if n.endswith(".index.json") and (n != INDEX or SINGLE in top)]
    texts = [n for n in top if TEXT_FILES.fullmatch(n) and n not in indices]
    if not set(TOKENIZERS) & set(texts):
        texts += [n for n in top if n in TOKENIZERS]
    return sorted({*weights, *texts})


# What it will cost ---------------------------------------------------------------------------------


def _fetch(missing: list[Item], console: Console, dry_run: bool) -> dict[str, str]:
    """Size, say, download; what failed, with its reason."""
    failed: dict[str, str] = {}
    plans: dict[str, tuple[Item, str, list[Wanted]]] = {}
    with _quiet_hub():
        for item in missing:
            try:
                plans[item.name] = (item, *_size(item))
            except Unreachable:
                raise
            except InputError as error:
                failed[item.name] = str(error)
        if not dry_run:
            for item in missing:
                _remove_leftovers(item)
        free = _free()
        to_load = sum(_bytes(files) for _, _, files in plans.values())
        _print_sizes(plans, to_load, free, console)
        if free is not None and to_load > free:
            raise InputError(
                f"{gigabytes(to_load)} are to be fetched and {_cache()} has {gigabytes(free)} free: set "
                "HF_HOME to a folder on a larger disk"
            )
        if not dry_run:
            failed |= _download_all(list(plans.values()), to_load, console)
    return failed


def _size(item: Item) -> tuple[str, list[Wanted]]:
    """The commit that a revision names, and the files to have of it."""
    from huggingface_hub import HfApi, get_hf_file_metadata, hf_hub_url

    with _said(item):
        info: Any = HfApi().repo_info(
            item.repo,
            revision=item.revision,
            repo_type=item.kind,
            files_metadata=True,
            timeout=ASK_SECONDS,
        )
        commit, sizes = _checked(item, info)
        chosen = item.choose(list(sizes))
        if not chosen:
            raise InputError("the file that the task reads is not in it")
        wanted = [_wanted(item, commit, name, sizes[name]) for name in chosen]
        if not all(file.is_there for file in wanted):
            # A gated repository shows its list of files to everyone: ask for one of them.
            url = hf_hub_url(item.repo, chosen[0], repo_type=item.kind, revision=commit)
            get_hf_file_metadata(url, timeout=ASK_SECONDS)
        return commit, wanted


def _checked(item: Item, info: Any) -> tuple[str, dict[str, int]]:
    """The commit and the files' sizes. Raises InputError for an answer that no hub would give."""
    commit, pinned = str(info.sha), COMMIT.fullmatch(item.revision or "")
    if not COMMIT.fullmatch(commit) or (pinned and commit != item.revision):
        raise InputError(f"the hub names the commit {commit[:60]!r} for revision {item.revision!r}")
    sizes = {sibling.rfilename: sibling.size or 0 for sibling in info.siblings or []}
    for name, size in sizes.items():
        if not isinstance(size, int) or size < 0 or "\\" in name or ".." in name.split("/"):
            raise InputError(f"the hub lists the file {str(name)[:60]!r} of {str(size)[:20]} bytes")
    return commit, sizes


def _wanted(item: Item, commit: str, name: str, size: int) -> Wanted:
    path = hub.cached(item.repo, name, commit, item.kind, item.where)
    is_whole = path is not None and path.is_file() and path.stat().st_size == size
    # Data are one file: it is missing, or another one than is pinned, whatever its size.
    return Wanted(name, size, is_whole and item.kind == "model")


def _bytes(files: list[Wanted]) -> int:
    return sum(file.size for file in files if not file.is_there)


def _print_sizes(
    plans: dict[str, tuple[Item, str, list[Wanted]]], to_load: int, free: int | None, console: Console
) -> None:
    table = Table("to fetch", "from", "revision", box=None)
    for column in ("files", "size"):
        table.add_column(column, justify="right")
    for item, commit, files in plans.values():
        n = sum(not file.is_there for file in files)
        name = f"{item.name} (gated)" if item.is_gated else item.name
        table.add_row(name, item.repo, commit[:12], str(n), gigabytes(_bytes(files)))
    if plans:
        console.print(table)
        if any(item.is_gated for item, _, _ in plans.values()):
            console.print(GATED)
        room = "unknown" if free is None else gigabytes(free)
        console.print(f"{gigabytes(to_load)} in all, {room} free in {_cache()}")
        console.print("whole files stay if this is killed; the one under way begins again")


def _cache() -> Path:
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def _free() -> int | None:
    """Free bytes where the cache is, or will be."""
    for folder in (_cache(), *_cache().absolute().parents):
        try:
            return shutil.disk_usage(folder).free
        except OSError:
            continue
    return None


# Downloading ---------------------------------------------------------------------------------------


def _download_all(
    plans: list[tuple[Item, str, list[Wanted]]], to_load: int, console: Console
) -> dict[str, str]:
    failed: dict[str, str] = {}
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    progress = Progress(*columns, console=console, disable=not console.is_terminal)
    with progress:
        bar = progress.add_task("fetching", total=to_load)
        for number, (item, commit, files) in enumerate(plans):
            try:
                for file in files:
                    if file.is_there:
                        continue
                    progress.update(bar, description=f"{item.name}: {file.name}")
                    _download(item, commit, file.name, lambda n: progress.update(bar, advance=n))
                    if not console.is_terminal:
                        console.print(f"{item.name}: {file.name}, {gigabytes(file.size)}")
            except Unreachable as error:  # nor will it be for the others
                return failed | {rest.name: str(error) for rest, _, _ in plans[number:]}
            except InputError as error:
                failed[item.name] = str(error)
    return failed


def _download(item: Item, commit: str, name: str, advance: Callable[[float], object]) -> None:
    """One file into the cache. Within one process a cut connection goes on from the pieces that are there."""
    from huggingface_hub import hf_hub_download

    damaged = hub.cached(item.repo, name, commit, item.kind, item.where)
    if damaged is not None:  # the library would load the right bytes and leave this name with the wrong ones
        damaged.unlink(missing_ok=True)
    with _said(item):
        hf_hub_download(
            item.repo,
            name,
            repo_type=item.kind,
            # A branch leaves its name in the cache, under which it is then found.
            revision=commit if COMMIT.fullmatch(item.revision or "") else item.revision,
            etag_timeout=ASK_SECONDS,
            force_download=damaged is not None,
            tqdm_class=_bar(advance),
        )


def _remove_leftovers(item: Item) -> None:
    """Parts of files that a killed fetch left: the library never goes on with them, nor removes them."""
    blobs = _cache() / f"{item.kind}s--{item.repo.replace('/', '--')}" / "blobs"
    for path in blobs.glob("*.incomplete"):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > STALE_SECONDS:
                path.unlink()


def _bar(advance: Callable[[float], object]) -> Any:
    """A progress bar for the hub's library that shows nothing and only passes on the bytes."""
    from tqdm import tqdm  # type: ignore[import-untyped]

    class Bar(tqdm):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **{**kwargs, "disable": True})

        def update(self, n: float | None = 1) -> None:
            advance(n or 0)

    return Bar


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


@contextmanager
def _said(item: Item) -> Iterator[None]:
    """Whatever the hub's library raises, in one sentence. Raises Unreachable, or InputError."""
    from huggingface_hub import errors

    what = f"{item.name}: {item.repo}"
    try:
        yield
    except (errors.OfflineModeIsEnabled, errors.LocalEntryNotFoundError) as error:
        raise _unreachable(error.__cause__ or error) from None
    except errors.GatedRepoError:
        raise InputError(_gated(what)) from None
    except errors.RevisionNotFoundError:
        raise InputError(
            f"{what} has no revision {item.revision!r}: set {item.where}.revision to one that it has"
        ) from None
    except errors.RepositoryNotFoundError:
        raise InputError(
            f"{what} is not on the hub, or private: check {item.where}.source, or log in with `hf auth login`"
        ) from None
    except errors.HfHubHTTPError as error:
        raise InputError(_refused(what, error.response.status_code)) from None
    except InputError as error:
        raise InputError(f"{what}: {error}") from None
    except OSError as error:
        if error.errno is None:  # of the library; the system's own errors have a number
            raise InputError(f"{what}: the download broke off ({_first_line(error)}): fetch again") from None
        raise
    except Exception as error:
        if isinstance(error, ValueError | TypeError | LookupError | AttributeError):
            # A login page, for instance, is no JSON.
            raise InputError(f"{what}: the hub's answer cannot be read ({_first_line(error)})") from None
        # The classes of its HTTP client are not part of the library's interface; nor are those of Xet.
        if not type(error).__module__.startswith(("httpx", "httpcore", "huggingface_hub", "builtins")):
            raise
        raise _unreachable(error) from None


def _unreachable(error: BaseException) -> Unreachable:
    from huggingface_hub import constants

    if constants.is_offline_mode():
        return Unreachable(
            "HF_HUB_OFFLINE is set, so nothing can be fetched: unset it on a machine with network"
        )
    return Unreachable(
        f"the hub at {constants.ENDPOINT} cannot be reached ({_first_line(error)}): fetch on a machine with "
        "network, for instance the login node, or copy the cache of one that has it and set HF_HOME"
    )


def _gated(what: str) -> str:
    return (
        f"{what} is gated and this account may not read it: accept its licence on its page of the hub, then "
        "log in with `hf auth login` or set HF_TOKEN"
    )


def _refused(what: str, status: int) -> str:
    if status in (401, 403):
        return _gated(what).replace("is gated and", "is gated or private, and")
    if status == 404:
        return f"{what} is not on the hub (HTTP 404): check its name and revision"
    return f"{what}: the hub answered with HTTP {status}: fetch again later"


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


# Afterwards ----------------------------------------------------------------------------------------


def _verify(selection: Selection, models: list[ModelConf], tasks: list[TaskConf]) -> dict[str, str]:
    """Resolve everything as a job without network will; what fails, with its reason."""
    failed = {}
    for model in models:
        try:
            _open(model)
        except KvexpError as error:
            failed[f"model {model.name}"] = str(error)
    for conf in tasks:
        suite = next(s for s in selection.suites if conf.name in s.tasks)
        try:
            family = family_of(conf)
            family.example_ids(suite.n_examples, suite.example_seed, suite.context_tokens)
        except KvexpError as error:
            failed[f"data of {conf.name}"] = str(error)
    return failed


def _open(model: ModelConf) -> None:
    """Config and tokenizer of a model; its weights were looked at for being whole."""
    from kvexp.models.load import load_tokenizer, read_config

    folder = Path(model_source(model))
    read_config(folder)
    load_tokenizer(folder)


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
