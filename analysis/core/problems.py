"""What is wrong with a results folder, and which verdicts it touches."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from kvexp.documents.forms import SealedShard
from kvexp.documents.seals import UNREGISTERED, Lines, why_not
from kvexp.errors import printable
from kvexp.records import Attempt, Expected, ExpectedCells


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


# What must be the same wherever it is stated: in every attempt of a study, in every row of a task.


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


# What a seal asks of a suite: the shards of its grid, and which attempts count.


@dataclass(frozen=True)
class Under:
    """The seal of one suite.

    Attributes:
        seal: names it in messages.
        shards: what the grid of the suite must be, by shard id.
        accepted: by seal id, the shards whose rows count (see `kvexp.documents.seals.accepted`).
        stamped: whether attempts must carry the anchor of a time stamp.
    """

    seal: str
    shards: Mapping[str, SealedShard]
    accepted: Mapping[str, Lines]
    stamped: bool = False

    def why_not(self, attempt: Attempt) -> str:
        """Why the rows of an attempt do not count; empty: they do."""
        return why_not(attempt, self.accepted, self.stamped)


def unregistered(attempt: Attempt) -> str:
    """Why an attempt of a suite without a seal has no place among results; empty: it has."""
    return "it was made with --unregistered" if attempt.anchor == UNREGISTERED else ""


def grid_digests(
    data: bytes, lines: Sequence[Expected | ExpectedCells], suites: Mapping[str, object]
) -> dict[str, dict[str, str]]:
    """By suite and shard id, sha256 of the shard's lines in grid.jsonl, line breaks included."""
    totals: dict[str, dict[str, hashlib._Hash]] = {}
    for line, row in zip(data.split(b"\n"), lines, strict=False):
        if row.suite in suites:
            total = totals.setdefault(row.suite, {}).setdefault(row.shard_id, hashlib.sha256())
            total.update(line + b"\n")
    return {
        suite: {shard: total.hexdigest() for shard, total in shards.items()}
        for suite, shards in totals.items()
    }


def differs(found: Mapping[str, str], under: Under) -> Iterator[str]:
    """How the shards of a suite in the grid, with their digests, are not the sealed ones."""
    sealed = {name: shard.grid_sha256 for name, shard in under.shards.items()}
    both = found.keys() & sealed.keys()
    for words, shards in (
        ("lacks the shard", sealed.keys() - found.keys()),
        ("has the shard", found.keys() - sealed.keys()),
        ("has other rows in the shard", {name for name in both if found[name] != sealed[name]}),
    ):
        if shards:
            rest = f" and {len(shards) - 1} more" if len(shards) > 1 else ""
            yield f"{words} {min(shards)}{rest}"
