"""Where the folder of a shard lies, and whether it is closed: asked by verbs that load no model."""

from pathlib import Path

from kvexp import shard_log
from kvexp.resolved import Shard


def folder_of(results: Path, shard: Shard) -> Path:
    """results/<study>/<suite>/<shard_id>."""
    return results / shard.suite / shard.shard_id


def is_complete(results: Path, shard: Shard) -> bool:
    """A footer closes a shard."""
    return (folder_of(results, shard) / shard_log.FOOTER).exists()
