"""How many rows of each kind there are, in the words that every command uses."""

from collections.abc import Iterable
from dataclasses import dataclass

from kvexp.resolved import AttentionShard, GenerationShard, Shard

KINDS = {"generations": "generations", "cells": "cells", "worlds": "world rows"}


@dataclass(frozen=True)
class Counts:
    """Rows by kind.

    Attributes:
        generations: answers of an arm to an example.
        cells: attention cells.
        worlds: of the impossibility demonstration, one row a layer of each world.
    """

    generations: int = 0
    cells: int = 0
    worlds: int = 0

    @classmethod
    def of(cls, shard: Shard) -> "Counts":
        """Of a complete shard."""
        if isinstance(shard, AttentionShard):
            return cls(cells=shard.n_cells, worlds=shard.n_worlds)
        return cls(generations=shard.n_rows if isinstance(shard, GenerationShard) else 0)

    @property
    def total(self) -> int:
        return self.generations + self.cells + self.worlds

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(
            self.generations + other.generations, self.cells + other.cells, self.worlds + other.worlds
        )

    def __str__(self) -> str:
        """Every kind that there is, as `8,640 generations, 29,160 cells, 5,040 world rows`."""
        told = [f"{getattr(self, kind):,} {words}" for kind, words in KINDS.items() if getattr(self, kind)]
        return ", ".join(told) or "0 generations"

    def done_of(self, whole: "Counts") -> str:
        """So many of `whole`, for every kind that `whole` has."""
        told = [
            f"{getattr(self, kind):,} of {n:,} {words}"
            for kind, words in KINDS.items()
            if (n := getattr(whole, kind)) or getattr(self, kind)
        ]
        return ", ".join(told) or "0 of 0 generations"


NONE = Counts()


def total(counts: Iterable[Counts]) -> Counts:
    """The sum."""
    return sum(counts, start=NONE)


def counts_of(made: Iterable[Shard]) -> Counts:
    """Of complete shards."""
    return total(map(Counts.of, made))
