"""What an attempt says it set out to do, against its digest and against the grid."""

import hashlib
import itertools
import json
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec

from kvexp.records import Attempt, Count, ExpectedCells

C = TypeVar("C", bound=msgspec.Struct)
R = TypeVar("R")
T = TypeVar("T")
# Example, arm, condition, budget, seed.
Row = tuple[str, str, str | None, float | None, int | None]


class Prompt(NamedTuple):
    """What is measured on one prompt of an attention suite; the order of an axis means nothing."""

    suite: str
    model: str
    task: str
    example_id: str
    budgets: tuple[float, ...]
    seeds: tuple[int, ...]
    offsets: tuple[int, ...]
    layers: int
    heads: int
    worlds: int

    @classmethod
    def of(cls, expected: ExpectedCells) -> "Prompt":
        """As the grid says it."""
        values = {name: getattr(expected, name) for name in cls._fields}
        axes = {name: tuple(sorted(values[name])) for name in ("budgets", "seeds", "offsets")}
        return cls(**{**values, **axes})


class Level(msgspec.Struct, frozen=True):
    """The registered constants of the certificate, and the tokens that are never evicted."""

    delta: Annotated[float, msgspec.Meta(gt=0, lt=1)]
    norm_floor: Annotated[float, msgspec.Meta(ge=0)]
    sinks: Count
    recent: Count


class _Named(msgspec.Struct):
    name: str


class _Places(msgspec.Struct):
    conditions: list[str]
    budgets: list[float]
    seeds: list[int]


class _Answers(msgspec.Struct):
    """The part of a resolved shard that decides which generations it has; the rest may be anything."""

    example_ids: list[str]
    arms: list[tuple[_Named, _Places]]


class DesignParams(msgspec.Struct, frozen=True):
    """How the design spends the budget; the defaults are those of Poisson."""

    allocation: str = "iterated"
    floor: Annotated[float, msgspec.Meta(gt=0, lt=1)] = 1e-6  # smallest pi


class Attention(msgspec.Struct, frozen=True):
    """What an attention suite measures, and by what scores."""

    budgets: list[float]
    seeds: Annotated[list[int], msgspec.Meta(min_length=1)]
    query_offsets: Annotated[list[int], msgspec.Meta(min_length=1)]
    worlds: int
    world_budget: float
    score: str
    rotation_score: str
    design_params: DesignParams = DesignParams()


class _Cells(msgspec.Struct):
    """The part of a resolved shard that decides which cells it has, and how they are certified."""

    suite: str
    model: _Named
    task: _Named
    attention: Attention
    protocol: Level
    example_ids: list[str]
    world_ids: list[str]
    layers: int
    query_heads: int


class Settings(msgspec.Struct, frozen=True):
    """The part of a resolved attention shard that its rows must agree with."""

    protocol: Level
    attention: Attention


def disagreement(attempt: Attempt, grid: set[Row]) -> str:
    """How the attempt's config fails its digest or the grid's rows of the shard; empty if it does not."""
    return _disagreement(attempt, grid, _Answers, _rows, "no examples and arms", "rows")


def cell_disagreement(attempt: Attempt, grid: set[Prompt]) -> str:
    """The same for the prompts of a shard of an attention suite."""
    return _disagreement(attempt, grid, _Cells, _prompts, "no prompts and cells", "prompts")


def common(attempt: Attempt) -> str:
    """Digest of what all shards of one suite, model and task share: the config without its examples."""
    own = ("chunk", "example_ids", "world_ids")
    return _digest({name: value for name, value in attempt.config.items() if name not in own})


def constants(attempt: Attempt) -> str:
    """Digest of the protocol's constants, which all shards of a study share."""
    return _digest({"protocol": attempt.config.get("protocol")})


def settings(attempt: Attempt) -> Settings | None:
    """What rows of an attention shard must agree with; None if the config lacks it, a disagreement."""
    try:
        return msgspec.convert(attempt.config, Settings)
    except msgspec.ValidationError:
        return None


def _disagreement(
    attempt: Attempt, grid: set[R], kind: type[C], rows_of: Callable[[C], set[R]], nothing: str, noun: str
) -> str:
    if _digest(attempt.config) != attempt.shard_digest:
        return "its config does not have the shard digest that it states"
    try:
        config = msgspec.convert(attempt.config, kind)
    except msgspec.ValidationError as error:
        return f"its config names {nothing} ({error})"
    rows = rows_of(config)
    if rows == grid:
        return ""
    if not grid:
        return "the grid has no such shard"
    return f"its config has {len(rows - grid)} {noun} that the grid lacks and lacks {len(grid - rows)} of it"


def _digest(config: dict[str, Any]) -> str:
    try:
        body = json.dumps(config, sort_keys=True, allow_nan=False)
    except (ValueError, RecursionError):
        return ""
    return hashlib.sha256(body.encode()).hexdigest()


def _axis(values: Sequence[T]) -> Sequence[T | None]:
    return values or [None]


def _rows(config: _Answers) -> set[Row]:
    """Examples times arms; an arm without conditions is the full cache, one without seeds draws nothing."""
    axes = [
        (arm.name, *place)
        for arm, at in config.arms
        for place in itertools.product(_axis(at.conditions), _axis(at.budgets), _axis(at.seeds))
    ]
    return {(example_id, *place) for example_id in config.example_ids for place in axes}


def _prompts(config: _Cells) -> set[Prompt]:
    conf = config.attention
    return {
        Prompt(
            config.suite,
            config.model.name,
            config.task.name,
            example_id,
            tuple(sorted(conf.budgets)),
            tuple(sorted(conf.seeds)),
            tuple(sorted(conf.query_offsets)),
            config.layers,
            config.query_heads,
            conf.worlds if example_id in config.world_ids else 0,
        )
        for example_id in config.example_ids
    }
