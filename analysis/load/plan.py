"""What an attempt says it set out to do, against its digest and against the grid."""

import hashlib
import itertools
import json
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from kvexp.records import Attempt

T = TypeVar("T")
# Example, arm, condition, budget, seed.
Row = tuple[str, str, str | None, float | None, int | None]


class _Arm(msgspec.Struct):
    name: str


class _Places(msgspec.Struct):
    conditions: list[str]
    budgets: list[float]
    seeds: list[int]


class _Config(msgspec.Struct):
    """The part of a resolved shard that decides which rows it has; the rest may be anything."""

    example_ids: list[str]
    arms: list[tuple[_Arm, _Places]]


def disagreement(attempt: Attempt, grid: set[Row]) -> str:
    """How the attempt's config fails its digest or the grid's rows of the shard; empty if it does not."""
    if _digest(attempt.config) != attempt.shard_digest:
        return "its config does not have the shard digest that it states"
    try:
        config = msgspec.convert(attempt.config, _Config)
    except msgspec.ValidationError as error:
        return f"its config names no examples and arms ({error})"
    rows = _rows(config)
    if rows == grid:
        return ""
    if not grid:
        return "the grid has no such shard"
    return f"its config has {len(rows - grid)} rows that the grid lacks and lacks {len(grid - rows)} of it"


def _digest(config: dict[str, Any]) -> str:
    try:
        body = json.dumps(config, sort_keys=True, allow_nan=False)
    except (ValueError, RecursionError):
        return ""
    return hashlib.sha256(body.encode()).hexdigest()


def _axis(values: Sequence[T]) -> Sequence[T | None]:
    return values or [None]


def _rows(config: _Config) -> set[Row]:
    """Examples times arms; an arm without conditions is the full cache, one without seeds draws nothing."""
    axes = [
        (arm.name, *place)
        for arm, at in config.arms
        for place in itertools.product(_axis(at.conditions), _axis(at.budgets), _axis(at.seeds))
    ]
    return {(example_id, *place) for example_id in config.example_ids for place in axes}
