"""What an attempt says it set out to do, against its digest and against the grid."""

import hashlib
import itertools
import json
import math
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec

from kvexp.records import SIGNALS, Attempt, Cell, Count, ExpectedCells, Generation, World

C = TypeVar("C", bound=msgspec.Struct)
R = TypeVar("R")
T = TypeVar("T")
# Example, arm, condition, budget, seed.
Row = tuple[str, str, str | None, float | None, int | None]


class PlannedPrompt(NamedTuple):
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
    def of(cls, expected: ExpectedCells) -> "PlannedPrompt":
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


class AttentionConf(msgspec.Struct, frozen=True):
    """What an attention suite measures, and by what scores."""

    budgets: list[float]
    seeds: Annotated[list[int], msgspec.Meta(min_length=1)]
    query_offsets: Annotated[list[int], msgspec.Meta(min_length=1)]
    worlds: int
    world_budget: float
    score: str
    rotation_score: str
    design_params: DesignParams = DesignParams()


class Settings(msgspec.Struct, frozen=True):
    """The part of a resolved attention shard that decides which cells it has, and how they are certified."""

    suite: str
    model: _Named
    task: _Named
    attention: AttentionConf
    protocol: Level
    example_ids: list[str]
    world_ids: list[str]
    layers: int
    query_heads: int


def disagreement(attempt: Attempt, grid: set[Row]) -> str:
    """How the attempt's config fails its digest or the grid's rows of the shard; empty if it does not."""
    return _disagreement(attempt, grid, _Answers, _rows, "no examples and arms", "rows")


def cell_disagreement(attempt: Attempt, grid: set[PlannedPrompt]) -> str:
    """The same for the prompts of a shard of an attention suite."""
    return _disagreement(attempt, grid, Settings, _prompts, "no prompts and cells", "prompts")


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


def _prompts(config: Settings) -> set[PlannedPrompt]:
    conf = config.attention
    return {
        PlannedPrompt(
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


# What a row says about itself must agree with itself.


SLACK = 1e-5  # relative: 7 written digits, through a sum and a square root
TINY = 1e-150  # below it a square leaves the floats, and digits are lost


def contradiction(row: Generation) -> str:
    """The first contradiction inside a row, in words; empty if there is none."""
    steps = row.certificate_steps
    if (steps is None) != (row.certificate is None):
        return "certificate and certificate_steps are not there together"
    if steps is not None and not steps:
        return "certificate_steps is empty"
    if steps is not None and row.certificate != max(steps):
        return f"certificate {row.certificate} is not the largest of certificate_steps, {max(steps)}"
    absent = {name for name in SIGNALS if getattr(row, name) is None}
    if unexplained := sorted(absent - row.undefined.keys()):
        return f"{unexplained[0]} is null without a reason in undefined"
    if needless := sorted(row.undefined.keys() - absent):
        return f"undefined gives a reason for {needless[0]}, which is there or is no signal"
    return _kept_contradiction(row)


def _kept_contradiction(row: Generation) -> str:
    """Whether the sizes of the kept set lie within each other; they are means of float32 sums."""
    for name in ("expected_kept", "realised_kept"):
        if not 0 <= getattr(row, name) <= row.n_evictable * (1 + SLACK):
            return f"{name} {getattr(row, name)} is not between 0 and {row.n_evictable} evictable tokens"
    if row.tail_kept is not None and not 0 <= row.tail_kept <= row.realised_kept * (1 + SLACK):
        return f"tail_kept {row.tail_kept} is not between 0 and {row.realised_kept} kept tokens"
    return ""


def cell_contradiction(row: Cell, settings: Settings) -> str:
    """The first contradiction inside a cell or with its attempt's config, in words; empty if there is none.

    Numbers are written with 7 digits, so what is recomputed from them may be off by SLACK.
    """
    level = settings.protocol
    log_level = -math.log(level.delta)
    # Root by root: squares of small numbers would lose their digits.
    bound = math.sqrt(2 * log_level) * math.sqrt(row.variance) + row.largest * log_level
    stated = row.certificate * (row.estimate_norm + level.norm_floor)
    square = row.largest * row.largest
    if row.score != settings.attention.score:
        return f"score {row.score} is not that of its attempt, {settings.attention.score}"
    if square > row.variance * (1 + SLACK) + TINY * TINY:
        return f"largest {row.largest} squared exceeds the variance {row.variance}, of which it is one term"
    if row.variance > row.tail_kept * square * (1 + SLACK) + TINY * TINY:
        return f"variance {row.variance} exceeds {row.tail_kept} terms of which the largest is {square:g}"
    if max(bound, stated) > min(bound, stated) * (1 + SLACK) + TINY:
        return f"certificate {row.certificate} does not follow from variance, largest and estimate_norm"
    certified = (row.covered, row.certificate, row.hajek, row.norm, row.estimate_norm)
    return _error_contradiction(*certified, level.norm_floor) or _count_contradiction(row, settings)


def _error_contradiction(
    covered: bool, certificate: float, hajek: float, norm: float, estimate_norm: float, floor: float
) -> str:
    """Whether the error fits its flag, and the two norms, between which it lies (triangle inequality)."""
    stated, error = certificate * (estimate_norm + floor), hajek * (norm + floor)
    if (error > stated * (1 + SLACK) + TINY) if covered else (stated > error * (1 + SLACK) + TINY):
        truth = "covered" if covered else "not covered"
        return f"it is called {truth}, against its certificate {certificate} and error {hajek}"
    slack = SLACK * (norm + estimate_norm) + TINY
    if not abs(norm - estimate_norm) - slack <= error <= norm + estimate_norm + slack:
        return f"no estimate of norm {estimate_norm} is {error:g} away from an output of norm {norm}"
    return ""


def _count_contradiction(row: Cell, settings: Settings) -> str:
    """Whether the kept tokens fit the budget rule."""
    protected = settings.protocol.sinks + settings.protocol.recent
    if row.tail_kept > row.kept:
        return f"tail_kept {row.tail_kept} exceeds kept {row.kept}"
    for name in ("kept", "uniform_kept", "expected_kept"):
        value = getattr(row, name)
        if not protected * (1 - SLACK) <= value <= row.evictable * (1 + SLACK):
            return f"{name} {value} is not between {protected} protected and {row.evictable} evictable tokens"
    design, slots = settings.attention.design_params, round(row.budget * row.evictable)
    if design.allocation == "iterated" and row.expected_kept < slots * (1 - SLACK):
        return (
            f"expected_kept {row.expected_kept} is less than the {slots} that an iterated allocation spends"
        )
    # Where few scores are above 0 the floor of pi comes on top of the budget.
    if row.expected_kept > (slots + design.floor * row.evictable) * (1 + SLACK):
        return f"expected_kept {row.expected_kept} exceeds the budget {row.budget} of {row.evictable} tokens"
    return ""


def world_contradiction(row: World, heads: int, settings: Settings) -> str:
    """The first contradiction inside a world or with its attempt's config, in words; empty if none."""
    for name in ("norm", "estimate_norm", "topk", "hajek", "certificate", "covered"):
        if len(getattr(row, name)) != heads:
            return f"{name} has {len(getattr(row, name))} numbers for {heads} heads"
    conf = settings.attention
    score = conf.rotation_score if row.change == "rotation" else conf.score
    place = (row.budget, row.seed, row.offset, row.score)
    if place != (conf.world_budget, conf.seeds[0], conf.query_offsets[0], score):
        return "its budget, seed, offset or score is not that of its attempt"
    columns = (row.covered, row.certificate, row.hajek, row.norm, row.estimate_norm)
    for head, numbers in enumerate(zip(*columns, strict=True)):
        if words := _error_contradiction(*numbers, settings.protocol.norm_floor):
            return f"head {head}: {words}"
    return ""
