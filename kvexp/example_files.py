"""Where the examples of a study stand beside its logs, and which of them are gone although it was begun."""

from collections.abc import Iterable
from pathlib import Path

from kvexp.resolved import Shard
from kvexp.started import begun


def example_file(results: Path, shard: Shard) -> Path:
    """The file of all examples of a shard's task."""
    return results / "examples" / f"{shard.suite}.{shard.model.name}.{shard.task.name}.jsonl"


def lost(results: Path, made: Iterable[Shard]) -> dict[Path, None]:
    """Files that submit wrote before the attempts that are there, and that are there no longer."""
    there = set(begun(results))
    paths = dict.fromkeys(example_file(results, shard) for shard in made if shard.suite in there)
    return {path: None for path in paths if not path.exists()}
