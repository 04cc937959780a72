"""Which rows of a study's logs are replayed, and whether they are rows that it can have."""

import hashlib
import json
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Protocol, TypeVar

from kvexp.ceremony.changes import config_changes
from kvexp.errors import ConfigError, IntegrityError
from kvexp.records import GENERATIONS, Attempt, Generation
from kvexp.replay.arm import Arm
from kvexp.replay.model import Loaded
from kvexp.run.log import read_state
from kvexp.study import provenance
from kvexp.study.plugins import family_of
from kvexp.study.prompts import counter
from kvexp.study.schema import ModelConf
from kvexp.study.shards import GenerationShard
from kvexp.tasks.base import Question, Task


@dataclass(frozen=True)
class Logged:
    """A row, and what it was made with."""

    shard: GenerationShard
    attempt: Attempt
    arm: Arm
    row: Generation

    @property
    def place(self) -> str:
        row = self.row
        where = f"{row.suite} {row.model} {row.task} {row.example_id}"
        axes = (row.condition, None if row.budget is None else f"{row.budget:g}")
        said = [row.arm, *(axis for axis in axes if axis is not None)]
        return " ".join([where, *said, *([] if row.seed is None else [f"seed {row.seed}"])])


def ticket(purpose: str, seed: int, *key: object) -> bytes:
    """What has the smallest tickets is chosen: at random, and in no order of files."""
    return hashlib.sha256(json.dumps([purpose, seed, *key]).encode()).digest()


def random_seed(given: int | None) -> int:
    """The seed that chooses what is replayed: a given one, or one from the operating system."""
    if given is not None and given < 0:
        raise ConfigError(f"the seed of a replay is at least 0, got {given}")
    return int.from_bytes(os.urandom(6), "big") if given is None else given


def refuse_unknown_shards(results: Path, made: list[GenerationShard], words: str) -> None:
    """Raises IntegrityError for a log of no shard; `words`: what the command lacks, or nothing."""
    known = {(shard.suite, shard.shard_id) for shard in made}
    for suite in sorted({shard.suite for shard in made}):
        for log in sorted((results / suite).glob(f"*/{GENERATIONS}")):
            if (suite, log.parent.name) not in known:
                raise IntegrityError(
                    f"{log} belongs to no shard of the study: replay under the overrides that it was run "
                    f"with{words}, or move its folder away"
                )


def random_rows(results: Path, shard: GenerationShard, words: str) -> Iterator[Logged]:
    """The rows of a shard whose keep sets depend on the anchor. Raises IntegrityError as `logged` does."""
    return (one for one in logged(results, shard, words)[0] if _is_drawn(one.arm))


def logged(results: Path, shard: GenerationShard, words: str) -> tuple[list[Logged], set[str]]:
    """All rows of a shard, and the ids of examples whose last try failed.

    Raises IntegrityError for a row that the shard does not expect, and for an attempt that was configured
    otherwise; `words`: what the command lacks, or nothing.
    """
    folder = results / shard.suite / shard.shard_id
    state = read_state(folder, shard.log)
    attempts = {attempt.number: attempt for attempt in state.attempts}
    for attempt in attempts.values():
        # Code may have been amended since; what a row was asked to be may not.
        if changes := config_changes(attempt.config, json.loads(json.dumps(shard.resolved()))):
            raise IntegrityError(
                f"attempt {attempt.number} of {folder} was made under another configuration than the study "
                f"has now ({'; '.join(changes)}): replay under the overrides that it was run with{words}"
            )
    expected = set(shard.keys())
    arms = {(a.name, a.condition, a.budget, a.seed): a for a in shard.places()}
    found = []
    for key, row in state.rows.items():
        if not isinstance(row, Generation) or key not in expected:
            raise IntegrityError(
                f"{folder / shard.log} holds a row that its shard does not expect "
                f"({' '.join(map(str, key))}): restore the log"
            )
        arm = arms[row.arm, row.condition, row.budget, row.seed]
        found.append(Logged(shard, attempts[row.attempt], arm, row))
    return found, {one.example_id for one in state.failed}


def _is_drawn(arm: Arm) -> bool:
    """Whether its keep sets depend on the anchor; where the whole cache is the budget none does."""
    return arm.design.is_random and arm.budget is not None and arm.budget < 1


# Scoring logged texts again: a row's score must be that of its text.


def wrong_scores(
    results: Path,
    made: list[GenerationShard],
    load: Callable[[ModelConf], Loaded],
    done: Collection[Any],
) -> Iterator[str]:
    """Every other row, of whatever arm, whose score is not that of its text."""
    for shard in sorted(made, key=lambda shard: shard.model.name):
        folder = results / shard.suite / shard.shard_id
        rows = [row for row in read_state(folder, shard.log).rows.values() if isinstance(row, Generation)]
        if not rows:
            continue
        family = family_of(shard.task)
        questions = questions_of(shard, family, load(shard.model))
        for row in rows:
            if row.key in done:
                continue
            value = family.score(row.text, questions[row.example_id])
            if wrong := "; ".join(wrong_score(row, family.score_name, value)):
                yield f"{' '.join(map(str, row.key))}: {wrong}"


def questions_of(shard: GenerationShard, family: Task, loaded: Loaded) -> dict[str, Question]:
    """The questions of a shard's task, by id of the example."""
    count = counter(loaded.tokenizer)
    asked = family.load(shard.n_examples, shard.example_seed, shard.context_tokens, count)
    return {question.example_id: question for question in asked}


def wrong_score(row: Generation, name: str, value: float) -> Iterator[str]:
    """What is wrong with a row's score, if its text scores `value` by `name`."""
    if row.score_name != name:
        yield f"it is scored by {name}, the log says {row.score_name[:40]!r}"
    if row.score_value != value:
        yield f"the logged text scores {value:.10g}, the log says {row.score_value:.10g}"


# The order in which logged things are made again: by model, then shard; each model is loaded once.


class OfShard(Protocol):
    """A logged row, or an example."""

    @property
    def shard(self) -> GenerationShard:
        """Where it was made."""


Item = TypeVar("Item", bound=OfShard)


def by_shard(
    chosen: Sequence[Item], made: Sequence[GenerationShard], load: Callable[[ModelConf], Loaded]
) -> Iterator[tuple[list[Item], Loaded, Task, dict[str, Question]]]:
    """What was chosen of each shard, in the order of `made`, with what making it again needs."""
    order = {shard.shard_id: at for at, shard in enumerate(made)}
    models = list(dict.fromkeys(shard.model.name for shard in made))

    def place(one: Item) -> tuple[int, int]:
        return models.index(one.shard.model.name), order[one.shard.shard_id]

    for _, of_shard in groupby(sorted(chosen, key=place), key=place):
        together = list(of_shard)
        shard = together[0].shard
        loaded, family = load(shard.model), family_of(shard.task)
        yield together, loaded, family, questions_of(shard, family, loaded)


# What decides the last bit of a score: software, processor and device of an attempt, and of this machine.


# Of `provenance.versions`. The processor's instruction set chooses kernels, and these the order of sums.
STACK = ("torch", "transformers", "tokenizers", "numpy", "platform", "cpu")
DEVICE = "gpu"  # its name; only what runs there depends on it


def is_same_stack(shard: GenerationShard, attempt: Attempt, loaded: Loaded) -> bool:
    """Whether the attempt says that it ran on what runs here, so that every bit must come again.

    What an attempt does not say, because it was not recorded then, is not the same.
    """
    here = provenance.versions()
    names = STACK if loaded.device.type == "cpu" else (*STACK, DEVICE)
    return (
        all(name in here and attempt.versions.get(name) == here[name] for name in names)
        and attempt.device.partition(":")[0] == loaded.device.type
        and f"torch.{attempt.dtype}" == str(loaded.model.dtype)
        and attempt.protocol_digest == shard.protocol_digest
    )
