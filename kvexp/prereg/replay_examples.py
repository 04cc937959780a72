"""Which examples of a study's logs are answered again, and which cannot be."""

import heapq
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from kvexp.prereg.replay_rows import Logged, logged, ticket
from kvexp.resolved import GenerationShard


@dataclass(frozen=True)
class Asked:
    """An example of a shard, with the row of every arm."""

    shard: GenerationShard
    example_id: str
    rows: list[Logged]


@dataclass(frozen=True)
class Drawn:
    """The chosen examples, and how many there were to choose from."""

    chosen: list[Asked]
    of: int
    failed: int
    missing: int  # some or all rows are not there, and it did not fail


def draw_examples(
    results: Path, made: Iterable[GenerationShard], m: int, seed: int, words: str = ""
) -> Drawn:
    """`m` of the examples whose rows are all there; a larger `m` keeps those of a smaller one.

    Raises IntegrityError for rows that no shard expects, or that were made under another configuration;
    `words`: what the command lacks, or nothing.
    """
    chosen: list[Asked] = []
    of = failed = missing = 0
    for shard in made:
        rows, failures = logged(results, shard, words)
        whole = _whole(shard, rows)
        there = {one.example_id for one in whole}
        left = set(shard.example_ids) - there
        of += len(whole)
        failed += len(left & failures)
        missing += len(left - failures)
        chosen = heapq.nsmallest(m, chosen + whole, key=lambda one: _ticket(seed, one))
    return Drawn(chosen, of, failed, missing)


def _whole(shard: GenerationShard, rows: list[Logged]) -> list[Asked]:
    by_example = defaultdict(list)
    for one in rows:
        by_example[one.row.example_id].append(one)
    arms = len(shard.places())  # keys are unique and expected, so as many rows are all of them
    return [Asked(shard, name, found) for name, found in by_example.items() if len(found) == arms]


def _ticket(seed: int, one: Asked) -> bytes:
    shard = one.shard
    return ticket("decode", seed, shard.suite, shard.model.name, shard.task.name, one.example_id)
