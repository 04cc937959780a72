"""Locks: a manifest over all logs of a suite, with the registration and its seals copied beside them."""

import hashlib
import shutil
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from kvexp.ceremony.attempts import uncounted
from kvexp.ceremony.home import SHOWN, Home, refuse_broken
from kvexp.ceremony.sealed_tree import code_of
from kvexp.documents.forms import CORE_COPY, LOCKED, LOOKS, STAMPS, Lock, SealedShard
from kvexp.documents.manifest import differences, manifest, read_bytes
from kvexp.documents.registration import Registered
from kvexp.documents.seals import Lines, LockFiles, accepted
from kvexp.errors import ConfigError, IncompleteError, IntegrityError, first
from kvexp.files import write_whole
from kvexp.records import CELLS, FOOTER, GENERATIONS, encode
from kvexp.run import log as shard_log
from kvexp.run.log import check_closed

AGAIN = "@"  # in the names of earlier locks, `<suite>@1.sha256`; no suite has it in its name


def refuse_locked(results: Path, suites: Iterable[str]) -> None:
    """Raises IntegrityError if rows are to be made for a suite that is locked."""
    for suite in dict.fromkeys(suites):
        if LockFiles(results, suite).is_locked:
            raise IntegrityError(
                f"suite {suite} is locked ({LockFiles(results, suite).manifest}), so nothing can be added: "
                "run the rest under another name with study.name=NAME"
            )


def lock(home: Home, one: Registered, suite: str, incomplete: str | None) -> Lock:
    """Lock a suite of a sealed registration.

    Raises IncompleteError if rows are missing and no reason is given, IntegrityError if a log is not what its
    footer closed or the seal is broken, ConfigError if there is nothing to lock.
    """
    seals = home.seals(one.content.id)
    if not seals.is_sealed():
        raise ConfigError(
            f"registration {one.content.id} of study {home.study} is not sealed, so there is nothing to "
            f"judge the logs by: {home.seal_command(one.content.id)}"
        )
    refuse_broken(home, one)
    if incomplete is not None and not incomplete.strip():
        raise ConfigError("--incomplete needs a reason: --incomplete 'what happened'")
    sealed = [shard for shard in seals.read_shards() if shard.suite == suite]
    submit = home.command("submit", f"suite={suite}")
    if not any(home.attempts([suite])):
        raise IncompleteError(
            f"nothing of suite {suite} of study {home.study} has been run, so there is nothing to lock: "
            f"{submit}"
        )
    missing = _missing(home, sealed, accepted(home.folder, one.content.id).values())
    folders = [home.results / suite / shard.shard_id for shard in sealed]
    wrong = uncounted(home, one.content.id, folders)
    if (missing or wrong) and incomplete is None:
        raise _incomplete(home, suite, len(sealed), missing, wrong)
    if not missing and not wrong and incomplete is not None:
        raise ConfigError(f"suite {suite} of study {home.study} is complete: lock it without --incomplete")
    files = LockFiles(home.results, suite)
    files.folder.mkdir(parents=True, exist_ok=True)
    _keep_earlier(files)
    copied = [*_copy_registration(home, one), *_copy_core(home, one)]
    looks = home.results / LOOKS
    body = read_bytes(looks) if looks.exists() else b""
    made = Lock(
        study=home.study,
        suite=suite,
        registration=one.content.id,
        seal=seals.read_manifest().digest,
        rows=_rows(home, sealed),
        expected=sum(shard.rows for shard in sealed),
        incomplete=incomplete,
        looks=body.count(b"\n"),
        looks_sha256=hashlib.sha256(body).hexdigest(),
    )
    write_whole(files.about, encode(made) + b"\n")
    listed = [*_logs(home.results, suite), *copied, *_earlier(files), files.about]
    paths = [path.relative_to(home.results).as_posix() for path in listed]
    write_whole(files.manifest, manifest(home.results, paths).body)
    return made


def _incomplete(home: Home, suite: str, n: int, missing: list[str], wrong: list[str]) -> IncompleteError:
    """Shards that are not there, and shards whose rows do not count: what is wrong, and what to do."""
    submit = home.command("submit", f"suite={suite}")
    told = [f"lacks {len(missing)} of {n} shards"] if missing else []
    todo = f"run `{submit}`"
    if wrong:
        told.append(f"has {len(wrong)} of {n} shards whose rows do not count")
        todo = f"move the folders that do not count away and run `{submit}`"
    return IncompleteError(
        f"suite {suite} of study {home.study} {' and '.join(told)}: {todo}, or lock it as it "
        "is with --incomplete REASON",
        first([*wrong, *missing], SHOWN),
    )


def _missing(home: Home, sealed: list[SealedShard], seals: Collection[Lines]) -> list[str]:
    """Why shards are not complete. Raises IntegrityError for one that is, and not as sealed."""
    found = []
    for shard in sealed:
        folder = home.results / shard.suite / shard.shard_id
        log = CELLS if (folder / CELLS).exists() else GENERATIONS
        if shard_log.is_locked(folder, log):
            raise IncompleteError(f"{folder} is being written by another process: wait for it")
        if (folder / FOOTER).exists():
            allowed = {lines[shard.shard_id].shard_digest for lines in seals if shard.shard_id in lines}
            made_as = shard_log.read_footer(folder).shard_digest  # an amendment may accept the code before
            check_closed(folder, made_as if made_as in allowed else shard.shard_digest, log)
        else:
            found.append(f"{shard.shard_id}: {'no footer' if folder.exists() else 'not started'}")
    return found


def _rows(home: Home, sealed: list[SealedShard]) -> int:
    folders = [home.results / shard.suite / shard.shard_id for shard in sealed]
    return sum(shard_log.read_footer(folder).rows for folder in folders if (folder / FOOTER).exists())


def _logs(results: Path, suite: str) -> Iterator[Path]:
    """Every file of the suite, abandoned attempts and strangers included, and its examples."""
    for folder, pattern in ((results / suite, "**/*"), (results / "examples", f"{suite}.*")):
        for path in sorted(folder.glob(pattern)):
            if path.is_symlink():
                raise IntegrityError(f"{path} is a link: put the file itself there")
            if path.is_file():
                yield path


def _copy_registration(home: Home, one: Registered) -> Iterator[Path]:
    """The registration, its seals, amendments and the author's own authorities, as they are now."""
    target = home.results / LOCKED
    sources = [home.folder / f"{one.content.id}.toml", *home.seals(one.content.id).files]
    for folder in (*home.amendments(one.content.id), home.trust):
        sources += sorted(path for path in folder.glob("*") if path.is_file())
    for source in sources:
        copy = target / source.relative_to(home.folder)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, copy)
        # A further witness of the seal may come later, and the copies of several registrations share trust/.
        if copy.suffix not in STAMPS:
            yield copy


def _copy_core(home: Home, one: Registered) -> Iterator[Path]:
    """The code that the seal lists, which `--as-sealed` judges by: it is intact, see `refuse_broken`."""
    for path in code_of(home.seals(one.content.id)):
        copy = home.results / CORE_COPY / path
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(home.root / path, copy)
        yield copy


def _keep_earlier(files: LockFiles) -> None:
    """A lock that holds may be made again, for an amendment; the one before stays beside it."""
    if not files.is_locked:
        return
    found = [
        line
        for line in differences(files.results, files.read_manifest())
        if not line.split("  ", 1)[1].startswith((f"{LOCKED}/", f"{CORE_COPY}/"))
    ]
    if found:
        raise IntegrityError(f"{files.manifest} does not hold: restore the files", found[:SHOWN])
    number = len(list(files.folder.glob(f"{files.suite}{AGAIN}*.sha256"))) + 1
    for path in (files.manifest, files.about, *files.folder.glob(f"{files.suite}.ts[qr]")):
        shutil.copyfile(path, path.with_name(f"{files.suite}{AGAIN}{number}{path.suffix}"))
    for path in files.folder.glob(f"{files.suite}.ts[qr]"):
        path.unlink()


def _earlier(files: LockFiles) -> list[Path]:
    return sorted(
        path for path in files.folder.glob(f"{files.suite}{AGAIN}*") if path.suffix in (".sha256", ".json")
    )
