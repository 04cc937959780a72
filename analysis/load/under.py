"""What a seal asks of a suite: the shards of its grid, and which attempts count."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kvexp.prereg.chain import UNREGISTERED, Lines, why_not
from kvexp.prereg.forms import SealedShard
from kvexp.records import Attempt, Expected, ExpectedCells


@dataclass(frozen=True)
class Under:
    """The seal of one suite.

    Attributes:
        seal: names it in messages.
        shards: what the grid of the suite must be, by shard id.
        accepted: by seal id, the shards whose rows count (see `kvexp.prereg.chain.accepted`).
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
