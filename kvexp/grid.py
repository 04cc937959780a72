"""From a study to what must exist: suites -> ordered shards -> generations, with ids and digests.

A shard is one (suite, model, task, chunk of examples): all arms of an example run off one prefill. Its
digest covers everything that decides its rows and nothing about where or how it is run.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from kvexp.compose import Selection
from kvexp.config import ArmConf, ArmGrid, ClusterConf, ModelConf, SuiteConf, TaskConf, is_folder
from kvexp.errors import ConfigError, named
from kvexp.places import places
from kvexp.provenance import protocol_digest
from kvexp.records import ID_LENGTH, Expected
from kvexp.replay.arm import Arm
from kvexp.replay.protocol import Protocol
from kvexp.tasks import task

SHARD_VERSION = 1


@dataclass(frozen=True)
class Shard:
    """One unit of scheduling, resolved: no default is left to be filled in later."""

    suite: str
    model: ModelConf
    task: TaskConf
    arms: list[tuple[ArmConf, ArmGrid]]
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
        plain = {"version": SHARD_VERSION, **asdict(self)}
        if is_folder(self.model.source):
            plain["model"]["source"] = "folder"
        return plain

    @property
    def digest(self) -> str:
        body = json.dumps(self.resolved(), sort_keys=True, allow_nan=False)
        return hashlib.sha256(body.encode()).hexdigest()

    def places(self) -> list[Arm]:
        """Every arm at every place of the grid, in the order of the suite."""
        return [place for conf, entry in self.arms for place in places(conf, entry)]

    def expected(self) -> Iterator[Expected]:
        """The rows that a complete shard holds, example by example."""
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
            f"nothing is chosen: {', '.join(names['suite'])} has no task {', '.join(names['task'])}"
        )
    return found


def shards(selection: Selection) -> list[Shard]:
    """All shards of the study, in order. Raises ConfigError if two rows would have the same key."""
    digest = protocol_digest(_parts(selection))
    made = [
        shard
        for suite in selection.suites
        for model in selection.models
        for name in suite.tasks
        for shard in _task_shards(selection, suite, model, selection.tasks[name], digest)
    ]
    if longest := [s.shard_id for s in made if len(s.shard_id) > ID_LENGTH]:
        raise ConfigError(f"a shard id has at most {ID_LENGTH} characters, shorten a name in {longest[0]!r}")
    for suite in selection.suites:
        with named(f"conf/suite/{suite.name}.yaml"):
            _refuse_twice([p for entry in suite.arms for p in places(selection.arms[entry.arm], entry)])
    return made


def _refuse_twice(arms: list[Arm]) -> None:
    keys = [(arm.name, arm.condition, arm.budget, arm.seed) for arm in arms]
    if twice := [key for key in keys if keys.count(key) > 1]:
        name, *axes = twice[0]
        place = " ".join(str(axis) for axis in axes if axis is not None)
        raise ConfigError(f"arms lists {name} twice{f' at {place}' if place else ''}")


def _parts(selection: Selection) -> set[str]:
    """The files of one part that the study uses, as `scores/window`."""
    arms, tasks = selection.arms.values(), selection.tasks.values()
    scores = {name for arm in arms for name in (arm.score, arm.aware_score) if name is not None}
    return (
        {f"design/{arm.design}" for arm in arms}
        | {f"scores/{name}" for name in scores}
        | {f"tasks/{conf.family}" for conf in tasks}
    )


def _task_shards(
    selection: Selection, suite: SuiteConf, model: ModelConf, conf: TaskConf, digest: str
) -> Iterator[Shard]:
    with named(f"conf/task/{conf.name}.yaml"):
        family = task(conf.family, **conf.params)
    with named(f"conf/suite/{suite.name}.yaml"):
        ids = family.example_ids(suite.n_examples, suite.example_seed, suite.context_tokens)
    for chunk, start in enumerate(range(0, len(ids), suite.shard_examples)):
        yield Shard(
            suite=suite.name,
            model=model,
            task=conf,
            arms=[(selection.arms[entry.arm], entry) for entry in suite.arms],
            protocol=selection.study.protocol,
            context_tokens=suite.context_tokens,
            n_examples=suite.n_examples,
            example_seed=suite.example_seed,
            chunk=chunk,
            example_ids=ids[start : start + suite.shard_examples],
            protocol_digest=digest,
        )


def expected_minutes(shard: Shard, cluster: ClusterConf) -> float | None:
    """From the cluster's measured rates, every answer taken at full length; None without a rate."""
    rate = cluster.rates.get(shard.model.name)
    if rate is None:
        return None
    groups = len({1.0 if arm.budget is None else arm.budget for arm in shard.places()})
    seconds = (
        shard.context_tokens / rate.prefill_tokens_per_s
        + groups * shard.task.max_new_tokens / rate.decode_steps_per_s
    )
    return len(shard.example_ids) * seconds / 60 / cluster.workers
