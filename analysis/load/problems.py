"""What is wrong with a results folder, and which verdicts it touches."""

from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Problem:
    """One contradiction in the logs.

    Attributes:
        message: what and where, in a sentence.
        suite: the suite it touches; empty: the whole study.
        shard_id: the shard it touches; empty: the whole suite.
    """

    message: str
    suite: str = ""
    shard_id: str = ""

    def touches(self, shards: set[tuple[str, str]]) -> bool:
        """Whether rows of any of these (suite, shard) pairs are in doubt."""
        if not self.suite:
            return True
        return any(suite == self.suite and self.shard_id in ("", shard_id) for suite, shard_id in shards)
