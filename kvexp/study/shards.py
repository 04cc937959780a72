"""Shards, resolved: what one unit of scheduling computes, its id, its digest and the rows it must hold.

A shard is one (suite, model, task, chunk of examples): everything about an example runs off one prefill.
Its digest covers all that decides its rows and nothing about where or how it is run.
"""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, TypeVar

from kvexp.errors import ConfigError
from kvexp.records import CELLS, CHANGES, GENERATIONS, Expected, ExpectedCells, Record
from kvexp.replay.arm import Arm
from kvexp.replay.protocol import Protocol
from kvexp.study.arms import places
from kvexp.study.prompts import Rendering
from kvexp.study.schema import ArmConf, ArmGrid, AttentionConf, ModelConf, SuiteBase, TaskConf, is_folder

T = TypeVar("T")
MOST_SHARED = 256
SHARD_VERSION = 2  # 2: a suite may leave the context out


def once(make: Callable[[Any], T]) -> Callable[[Any], T]:
    """Made once of a value that thousands of shards share, which is known by being itself."""
    made: dict[int, tuple[Any, T]] = {}  # with the value, so that its id stays its own

    def get(value: Any) -> T:
        if id(value) not in made:
            if len(made) >= MOST_SHARED:
                made.clear()
            made[id(value)] = value, make(value)
        return made[id(value)][1]

    return get


@dataclass(frozen=True)
class _Held:
    """For `asdict`, which goes through a dataclass only."""

    value: Any


@once
def _plain(value: Any) -> Any:
    """A value as plain data: nobody may change it."""
    return asdict(_Held(value))["value"]


def _without(plain: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in plain.items() if name not in names}


@dataclass(frozen=True, kw_only=True)
class Shard(ABC):
    """What every shard has; no default is left to be filled in later."""

    log: ClassVar[str]  # name of its log file
    unit: ClassVar[str]  # what its rows are, in the plural
    shared: ClassVar[tuple[str, ...]] = ("model", "task", "protocol")  # fields that many shards have

    suite: str
    model: ModelConf
    task: TaskConf
    protocol: Protocol
    context_tokens: int
    n_examples: int  # of the whole task: a family may need it to choose
    example_seed: int
    chunk: int
    example_ids: list[str]
    protocol_digest: str

    @property
    def shard_id(self) -> str:
        return f"{self.suite}.{self.model.name}.{self.task.name}.{self.chunk:03d}"

    def resolved(self) -> dict[str, Any]:
        """The shard as plain data, in full; a model's folder is known by its digest, not its path."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        plain = {"version": SHARD_VERSION, **values}
        for name in self.shared:
            plain[name] = _plain(values[name])
        # They follow from the model; an attention shard states the first two.
        plain["model"] = _without(plain["model"], "layers", "query_heads", "gated")
        # What was read from there is known by its digests in examples/.
        plain["task"] = _without(plain["task"], "data_dir")
        if is_folder(self.model.source):
            plain["model"]["source"] = "folder"
        return plain

    @property
    def digest(self) -> str:
        body = json.dumps(self.resolved(), sort_keys=True, allow_nan=False)
        return hashlib.sha256(body.encode()).hexdigest()

    @property
    @abstractmethod
    def rendering(self) -> Rendering:
        """How its prompts are rendered."""

    @property
    @abstractmethod
    def n_rows(self) -> int:
        """Rows of a complete log."""

    @abstractmethod
    def expected(self) -> Iterator[Record]:
        """Its lines of the grid, example by example."""

    @abstractmethod
    def keys(self) -> Iterator[Any]:
        """Keys of the rows that a complete log holds."""


@once
def _places(arms: list[tuple[ArmConf, ArmGrid]]) -> tuple[Arm, ...]:
    return tuple(place for conf, entry in arms for place in places(conf, entry))


@dataclass(frozen=True, kw_only=True)
class GenerationShard(Shard):
    """Every arm answers every example."""

    log = GENERATIONS
    unit = "generations"
    shared = (*Shard.shared, "arms")

    arms: list[tuple[ArmConf, ArmGrid]]
    no_context: bool = False

    @property
    def rendering(self) -> Rendering:
        return Rendering(self.model.chat, self.context_tokens, context=not self.no_context)

    def places(self) -> list[Arm]:
        """Every arm at every place of the grid, in the order of the suite."""
        return list(_places(self.arms))

    @property
    def n_rows(self) -> int:
        return len(self.example_ids) * len(self.places())

    def expected(self) -> Iterator[Expected]:
        arms = self.places()
        for example_id in self.example_ids:
            for arm in arms:
                yield Expected(
                    suite=self.suite,
                    shard_id=self.shard_id,
                    model=self.model.name,
                    task=self.task.name,
                    example_id=example_id,
                    arm=arm.name,
                    condition=arm.condition,  # type: ignore[arg-type]
                    budget=arm.budget,
                    seed=arm.seed,
                )

    def keys(self) -> Iterator[Any]:
        return (row.key for row in self.expected())


@dataclass(frozen=True, kw_only=True)
class AttentionShard(Shard):
    """True errors at later queries of every prompt, and the impossibility demonstration on some."""

    log = CELLS
    unit = "cells"
    shared = (*Shard.shared, "attention")

    attention: AttentionConf
    layers: int
    query_heads: int
    world_ids: list[str]  # examples that carry the demonstration

    @property
    def rendering(self) -> Rendering:
        return Rendering(self.attention.chat, self.context_tokens)

    def check_heads(self, layers: int, query_heads: int) -> None:
        """Raises ConfigError if the model has other layers and heads than its file in conf says."""
        if (layers, query_heads) != (self.layers, self.query_heads):
            raise ConfigError(
                f"conf/model/{self.model.name}.yaml says {self.layers} layers and {self.query_heads} query "
                f"heads, but the model has {layers} and {query_heads}"
            )

    def resolved(self) -> dict[str, Any]:
        plain = super().resolved()
        # What every suite has stands in the shard itself, and the examples with worlds by their ids.
        common = [field.name for field in fields(SuiteBase)]
        plain["attention"] = _without(plain["attention"], *common, "world_examples")
        return plain

    @property
    def n_cells(self) -> int:
        """Cells of a complete log, worlds not counted."""
        conf = self.attention
        queries = len(self.example_ids) * len(conf.query_offsets) * len(conf.seeds)
        return queries * len(conf.budgets) * self.layers * self.query_heads

    @property
    def n_worlds(self) -> int:
        """World rows of a complete log: one a layer, changed worlds and world 0."""
        return len(self.world_ids) * len(CHANGES) * (self.attention.worlds + 1) * self.layers

    @property
    def n_rows(self) -> int:
        return self.n_cells + self.n_worlds

    def expected(self) -> Iterator[ExpectedCells]:
        for example_id in self.example_ids:
            yield ExpectedCells(
                suite=self.suite,
                shard_id=self.shard_id,
                model=self.model.name,
                task=self.task.name,
                example_id=example_id,
                budgets=self.attention.budgets,
                seeds=self.attention.seeds,
                offsets=self.attention.query_offsets,
                layers=self.layers,
                heads=self.query_heads,
                worlds=self.attention.worlds if example_id in self.world_ids else 0,
            )

    def keys(self) -> Iterator[Any]:
        for prompt in self.expected():
            yield from prompt.cell_keys()
            yield from prompt.world_keys()
