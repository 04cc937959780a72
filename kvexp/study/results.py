"""Has anything of a study been run? From its files alone; leaf: verbs that only judge ask it too."""

import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

from kvexp.errors import IncompleteError, InputError
from kvexp.study.shards import Shard

GRID = "grid.jsonl"
SCRATCH = "scratch"  # below results/, for runs that no analysis reads


def results_of(study: str, root: Path, *, is_registered: bool) -> Path:
    """Where a study's logs go. Raises InputError if something else lies there."""
    folder = root / "results" / ("." if is_registered else SCRATCH) / study
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is no folder: move it away, or give the results a name, study.name=NAME")
    return folder


def begun(results: Path) -> list[str]:
    """Suites that have an attempt: until then, nothing depends on what was prepared."""
    return sorted({path.parent.parent.name for path in results.glob("*/*/attempt-*.json")})


def is_started(results: Path) -> bool:
    """Whether a study has a grid or an attempt."""
    return (results / GRID).exists() or bool(begun(results))


def refuse_unstarted(results: Path, overrides: Sequence[str]) -> None:
    """Raises IncompleteError, with the command that helps, for a study without grid and attempts."""
    if is_started(results):
        return
    words = [word for word in overrides if not word.lstrip("+").startswith("cluster")]
    is_scratch = results.parent.name == SCRATCH
    if not is_scratch and is_started(results.parent / SCRATCH / results.name):
        raise IncompleteError(
            f"{results.name} was only run with --unregistered, into {SCRATCH}/{results.name}, which no "
            f"analysis reads: {shlex.join(['kvexp', 'status', *words, '--unregistered'])}"
        )
    flag = ["--unregistered"] if is_scratch else []
    raise IncompleteError(f"nothing has been run: {shlex.join(['kvexp', 'submit', *words, *flag])}")


# Where the examples of a study stand beside its logs, and which of them are gone although it was begun.


def example_file(results: Path, shard: Shard) -> Path:
    """The file of all examples of a shard's task."""
    return results / "examples" / f"{shard.suite}.{shard.model.name}.{shard.task.name}.jsonl"


def lost(results: Path, made: Iterable[Shard]) -> dict[Path, None]:
    """Files that submit wrote before the attempts that are there, and that are there no longer."""
    there = set(begun(results))
    paths = dict.fromkeys(example_file(results, shard) for shard in made if shard.suite in there)
    return {path: None for path in paths if not path.exists()}
