"""Keyed choices: the same key gives the same picks on every machine, in every Python and any order."""

import hashlib
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TypeVar

T = TypeVar("T")


class Choices:
    """A stream of 64-bit integers, sha256(key, counter), and the picks made from it."""

    def __init__(self, *key: str | int) -> None:
        self._key = "/".join(map(str, key)).encode()
        self._counter = 0

    def below(self, bound: int) -> int:
        """An integer in [0, bound); the bias of the remainder, bound / 2**64, does not matter here."""
        digest = hashlib.sha256(self._key + b"#%d" % self._counter).digest()
        self._counter += 1
        return int.from_bytes(digest[:8], "big") % bound

    def uniform(self) -> float:
        """A number in [0, 1) with 53 bits."""
        return self.below(2**53) / 2**53

    def pick(self, items: Sequence[T]) -> T:
        """One item."""
        return items[self.below(len(items))]

    def shuffled(self, items: Sequence[T]) -> Iterator[T]:
        """The items in random order, drawn one by one (a Fisher-Yates shuffle)."""
        pool = list(items)
        for place in range(len(pool)):
            other = place + self.below(len(pool) - place)
            pool[place], pool[other] = pool[other], pool[place]
            yield pool[place]

    def sample(self, items: Sequence[T], size: int) -> list[T]:
        """`size` different items in random order."""
        return list(islice(self.shuffled(items), size))
