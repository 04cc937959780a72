"""From a study to what must exist: suites -> ordered shards -> generations or cells."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from kvexp.documents.manifest import Manifest
from kvexp.errors import ConfigError, InputError, NotFetched, named
from kvexp.records import ID_LENGTH
from kvexp.replay.arm import Arm
from kvexp.study.arms import places
from kvexp.study.compose import Selection
from kvexp.study.plugins import build_design, build_score, family_of
from kvexp.study.provenance import protocol_manifest
from kvexp.study.schema import AttentionConf, ModelConf, SuiteConf, TaskConf
from kvexp.study.shards import AttentionShard, GenerationShard, Shard
from kvexp.tasks.base import Task

Absent = Literal["refuse", "leave_out", "assume"]
WrittenIds = Mapping[tuple[str, str], list[str]]  # of examples, by suite and task


@dataclass(frozen=True)
class _Examples:
    """Where the ids of examples come from: the data, else what is written down, else `absent` decides."""

    absent: Absent
    written: WrittenIds | None

    def ids(self, suite: SuiteConf | AttentionConf, task: str, family: Task) -> list[str]:
        try:
            return family.example_ids(suite.n_examples, suite.example_seed, suite.context_tokens)
        except InputError as error:
            if self.written is None and (self.absent != "assume" or not isinstance(error, NotFetched)):
                raise
            ids = (self.written or {}).get((suite.name, task))
            return ids or [f"unknown-{i:03d}" for i in range(suite.n_examples)]


def chosen(made: list[Shard], selection: Selection) -> list[Shard]:
    """The shards that the command chose by `suite=`, `model=` and `task=`; never none."""
    names = selection.chosen
    found = [
        s
        for s in made
        if s.suite in names["suite"] and s.model.name in names["model"] and s.task.name in names["task"]
    ]
    if not found:
        raise ConfigError(
            f"nothing is chosen: {', '.join(names['suite'])} has no task {', '.join(names['task'])} on "
            f"{', '.join(names['model'])}"
        )
    return found


def shards(selection: Selection, absent: Absent = "refuse", written: WrittenIds | None = None) -> list[Shard]:
    """All shards of the study, in order. Raises ConfigError if two rows would have the same key.

    `absent` says what becomes of a task whose data are not on this machine: `refuse` raises NotFetched,
    `leave_out` does so only if the command chose its suite and else leaves the whole suite out, `assume`
    counts on as many examples as the suite asks for, under ids that are none. With `written`, data that
    cannot be read stop nothing, whatever the reason: examples are those written down, or assumed.
    """
    digests = {kind: one.digest for kind, one in protocols(selection).items()}
    source = _Examples(absent, written)
    made = [shard for suite in selection.suites for shard in _suite_shards(selection, suite, digests, source)]
    if longest := [s.shard_id for s in made if len(s.shard_id) > ID_LENGTH]:
        raise ConfigError(f"a shard id has at most {ID_LENGTH} characters, shorten a name in {longest[0]!r}")
    for suite in selection.suites:
        if isinstance(suite, SuiteConf):
            with named(f"conf/suite/{suite.name}.yaml"):
                _refuse_twice([p for entry in suite.arms for p in places(selection.arms[entry.arm], entry)])
    return made


def _suite_shards(
    selection: Selection, suite: SuiteConf | AttentionConf, digests: dict[str, str], source: _Examples
) -> list[Shard]:
    """The shards of a suite: all, or none, since a suite that has been begun may not grow."""
    try:
        return [
            shard
            for model in selection.models_of(suite.name)
            for name in suite.tasks
            for shard in _task_shards(selection, suite, model, selection.tasks[name], digests, source)
        ]
    except NotFetched:
        if source.absent == "leave_out" and suite.name not in selection.chosen["suite"]:
            return []
        raise


def _refuse_twice(arms: list[Arm]) -> None:
    keys = [(arm.name, arm.condition, arm.budget, arm.seed) for arm in arms]
    if twice := [key for key in keys if keys.count(key) > 1]:
        name, *axes = twice[0]
        place = " ".join(str(axis) for axis in axes if axis is not None)
        raise ConfigError(f"arms lists {name} twice{f' at {place}' if place else ''}")


def protocols(selection: Selection) -> dict[str, Manifest]:
    """By kind of row, the files that make the study's rows; their digests stand in every attempt."""
    return {kind: protocol_manifest(kind, _parts(selection, kind)) for kind in ("generations", "cells")}


def _parts(selection: Selection, kind: str) -> set[str]:
    """The files of one part that the study's suites of one kind use, as `scores/window`."""
    suites = [s for s in selection.suites if isinstance(s, AttentionConf) == (kind == "cells")]
    found = {f"tasks/{selection.tasks[name].family}" for suite in suites for name in suite.tasks}
    for suite in suites:
        if isinstance(suite, AttentionConf):
            found |= {f"scores/{suite.score}", f"scores/{suite.rotation_score}"}
            found |= {"design/poisson", "design/topk", "design/uniform"}
            continue
        for arm in (selection.arms[entry.arm] for entry in suite.arms):
            found.add(f"design/{arm.design}")
            found |= {f"scores/{name}" for name in (arm.score, arm.aware_score) if name is not None}
    return found


def _task_shards(
    selection: Selection,
    suite: SuiteConf | AttentionConf,
    model: ModelConf,
    conf: TaskConf,
    digests: dict[str, str],
    source: _Examples,
) -> Iterator[Shard]:
    family = family_of(conf)
    with named(f"conf/suite/{suite.name}.yaml"):
        ids = source.ids(suite, conf.name, family)
        if isinstance(suite, SuiteConf):
            _check_suite(selection, suite, conf, family)
        if isinstance(suite, AttentionConf):
            _check_scores(suite)
    arms = [(selection.arms[e.arm], e) for e in suite.arms] if isinstance(suite, SuiteConf) else []
    for chunk, start in enumerate(range(0, len(ids), suite.shard_examples)):
        common: dict[str, Any] = {
            "suite": suite.name,
            "model": model,
            "task": conf,
            "protocol": selection.study.protocol,
            "context_tokens": suite.context_tokens,
            "n_examples": suite.n_examples,
            "example_seed": suite.example_seed,
            "chunk": chunk,
            "example_ids": ids[start : start + suite.shard_examples],
        }
        if isinstance(suite, SuiteConf):
            yield GenerationShard(
                **common, arms=arms, no_context=suite.no_context, protocol_digest=digests["generations"]
            )
            continue
        if model.layers is None or model.query_heads is None:
            raise ConfigError(
                f"conf/model/{model.name}.yaml: an attention suite needs layers and query_heads, as the "
                "model's config.json has them"
            )
        yield AttentionShard(
            **common,
            attention=suite,
            layers=model.layers,
            query_heads=model.query_heads,
            world_ids=[i for i in common["example_ids"] if i in ids[: suite.world_examples]],
            protocol_digest=digests["cells"],
        )


def _check_suite(selection: Selection, suite: SuiteConf, conf: TaskConf, family: Task) -> None:
    if not family.has_answers:
        raise ConfigError(f"task {conf.name} has no answers: only an attention suite can use it")
    if suite.no_context:
        arms = [place for entry in suite.arms for place in places(selection.arms[entry.arm], entry)]
        if compressed := [arm.name for arm in arms if not arm.design.keeps_all]:
            raise ConfigError(f"without a context there is nothing to evict, but {compressed[0]} is listed")


def _check_scores(suite: AttentionConf) -> None:
    """Raises ConfigError for parts that do not exist, or cannot do what the suite wants of them."""
    build_design("poisson", **suite.design_params)
    if suite.world_examples and build_score(suite.score, **suite.score_params).reads_values:
        raise ConfigError(
            f"the {suite.score} score reads values, so it sees a permutation of them: set world_examples: 0"
        )
    for name, params in (
        (suite.score, suite.score_params),
        (suite.rotation_score, suite.rotation_score_params),
    ):
        if suite.condition not in build_score(name, **params).conditions:
            raise ConfigError(f"the {name} score is undefined in the {suite.condition} condition")


# How many rows of each kind there are, in the words that every command uses.


KINDS = {"generations": "generations", "cells": "cells", "worlds": "world rows"}


@dataclass(frozen=True)
class Counts:
    """Rows by kind."""

    generations: int = 0  # answers of an arm to an example
    cells: int = 0  # attention cells
    worlds: int = 0  # of the impossibility demonstration, one row a layer of each world

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
