"""What is wrong with a results folder, and which verdicts it touches."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from kvexp.errors import printable


@dataclass(frozen=True, order=True)
class Problem:
    """One contradiction in the logs."""

    message: str  # what and where, in a sentence; what it quotes from logs is made printable
    suite: str = ""  # the suite it touches; empty: the whole study
    shard_id: str = ""  # the shard it touches; empty: the whole suite

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", printable(self.message))

    def touches(self, shards: set[tuple[str, str]]) -> bool:
        """Whether rows of any of these (suite, shard) pairs are in doubt."""
        if not self.suite:
            return True
        return any(suite == self.suite and self.shard_id in ("", shard_id) for suite, shard_id in shards)


@dataclass
class _Stated:
    """The values of one thing, each with the first place that states it, and the suites in doubt."""

    places: dict[str, str] = field(default_factory=dict)
    suites: set[str] = field(default_factory=set)


class Same:
    """What must be the same wherever it is stated, in every attempt of a study or every row of a task."""

    def __init__(self) -> None:
        self._things: dict[tuple[str, str], _Stated] = {}

    def state(self, words: str, scope: str, value: str, where: str, suite: str = "") -> None:
        """Note a value.

        Args:
            words: what is wrong if another value is stated in the same scope.
            scope: what the value belongs to, for instance a model.
            value: as stated.
            where: file, or file and line.
            suite: in doubt if there are two values; empty: the whole study.
        """
        thing = self._things.setdefault((words, scope), _Stated())
        thing.places.setdefault(value, where)
        thing.suites.add(suite)

    def problems(self) -> Iterator[Problem]:
        """One problem for each suite in doubt, naming the first two values."""
        for (words, _), thing in self._things.items():
            if len(thing.places) > 1:
                (a, at_a), (b, at_b) = list(thing.places.items())[:2]
                message = f"{words}: '{a[:16]}' in {at_a}, '{b[:16]}' in {at_b}"
                yield from (Problem(message, suite) for suite in sorted(thing.suites))
