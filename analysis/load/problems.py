"""What is wrong with a results folder, and which verdicts it touches."""

from dataclasses import dataclass

from kvexp.terminal import printable


@dataclass(frozen=True, order=True)
class Problem:
    """One contradiction in the logs.

    Attributes:
        message: what and where, in a sentence; what it quotes from logs is made printable.
        suite: the suite it touches; empty: the whole study.
        shard_id: the shard it touches; empty: the whole suite.
    """

    message: str
    suite: str = ""
    shard_id: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", printable(self.message))

    def touches(self, shards: set[tuple[str, str]]) -> bool:
        """Whether rows of any of these (suite, shard) pairs are in doubt."""
        if not self.suite:
            return True
        return any(suite == self.suite and self.shard_id in ("", shard_id) for suite, shard_id in shards)
