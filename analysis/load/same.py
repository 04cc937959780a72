"""What must be the same wherever it is stated: in every attempt of a study, in every row of a task."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from analysis.load.problems import Problem


@dataclass
class _Stated:
    """The values of one thing, each with the first place that states it, and the suites in doubt."""

    places: dict[str, str] = field(default_factory=dict)
    suites: set[str] = field(default_factory=set)


class Same:
    """Collects statements and reports the things of which there are two."""

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
