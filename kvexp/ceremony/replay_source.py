"""What a replay reads of a study's logs: its rows, those drawn by lot, and what makes each of them again."""

import hashlib
import heapq
import json
import os
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch

from kvexp.ceremony.grid_changes import config_changes, other_words
from kvexp.ceremony.home import Home
from kvexp.errors import ConfigError, IntegrityError
from kvexp.models.folder import model_source
from kvexp.models.load import load_model
from kvexp.records import GENERATIONS, Attempt, Generation, Key
from kvexp.replay.arm import Arm
from kvexp.replay.model import Loaded
from kvexp.run.log import folder_of, read_state
from kvexp.study import provenance
from kvexp.study.compose import Selection
from kvexp.study.grid import shards
from kvexp.study.plugins import family_of
from kvexp.study.prompts import counter
from kvexp.study.schema import ModelConf
from kvexp.study.shards import GenerationShard
from kvexp.tasks.base import Question, Task

THREADS = 256  # the most that a log's word is taken for


@dataclass(frozen=True)
class Logged:
    """A row, and what it was made with."""

    shard: GenerationShard
    attempt: Attempt
    arm: Arm
    row: Generation

    @property
    def key(self) -> Key:
        return self.row.key

    @property
    def place(self) -> str:
        row = self.row
        where = f"{row.suite} {row.model} {row.task} {row.example_id}"
        axes = (row.condition, None if row.budget is None else f"{row.budget:g}")
        said = [row.arm, *(axis for axis in axes if axis is not None)]
        return " ".join([where, *said, *([] if row.seed is None else [f"seed {row.seed}"])])

    @property
    def is_drawn(self) -> bool:
        """Whether its keep set depends on the anchor; where the whole cache is the budget none does."""
        return self.arm.design.is_random and self.arm.budget is not None and self.arm.budget < 1


@dataclass(frozen=True)
class Together:
    """Rows of one example by one attempt, which share a prefill, and what makes them again.

    A line that was torn by a kill was made again by the next attempt, with all the arms.
    """

    rows: list[Logged]
    anchor: str
    loaded: Loaded
    family: Task
    question: Question

    @property
    def shard(self) -> GenerationShard:
        return self.rows[0].shard

    @property
    def attempt(self) -> Attempt:
        return self.rows[0].attempt

    @cached_property
    def same_stack(self) -> bool:
        return is_same_stack(self.shard, self.attempt, self.loaded)

    @contextmanager
    def threads(self) -> Iterator[None]:
        """As many threads as the attempt had: they decide the order of sums, so the last bit of a score."""
        before = torch.get_num_threads()
        torch.set_num_threads(min(max(1, self.attempt.threads), THREADS))
        try:
            yield
        finally:
            torch.set_num_threads(before)


class Item(Protocol):
    """What is drawn: a row, or an example."""

    @property
    def key(self) -> tuple[Any, ...]:
        """Its name, which no other item has."""


Drawn = TypeVar("Drawn", bound=Item)


@dataclass(frozen=True)
class Source:
    """The logs of some suites, and the models that made them."""

    results: Path  # results/<study>
    shards: list[GenerationShard]  # all shards of the suites that answer, complete or not
    load: Callable[[ModelConf], Loaded]  # gives a model; it is called once for the shards of each
    # By suite, what its seal's time stamp gives; suites without a seal go by their attempts' word.
    anchors: Mapping[str, str] = field(default_factory=dict)
    words: str = ""  # in brackets, the overrides that the command lacks, if that is known

    @classmethod
    def of(cls, selection: Selection, home: Home, anchors: Mapping[str, str]) -> "Source":
        """The chosen suites, and the models of this machine on the device of the study's cluster."""

        def load(model: ModelConf) -> Loaded:
            device = selection.cluster.device
            loaded: Loaded = load_model(model_source(model), model.dtype, device, model.revision)
            return loaded

        made = [s for s in shards(selection, "leave_out") if s.suite in selection.chosen["suite"]]
        words = other_words(home, [one.content.id for one in home.registrations()])
        return cls(home.results, [s for s in made if isinstance(s, GenerationShard)], load, anchors, words)

    def draw(
        self, purpose: str, n: int, seed: int, items: Callable[[GenerationShard], list[Drawn]]
    ) -> tuple[list[Drawn], int]:
        """`n` of the items of all shards, and how many there are; a larger `n` keeps those of a smaller one.

        Raises IntegrityError for a log of no shard.
        """
        self._refuse_unknown_shards()
        chosen: list[Drawn] = []
        of = 0
        for shard in self.shards:
            here = items(shard)
            of += len(here)
            chosen = heapq.nsmallest(n, chosen + here, key=lambda one: _ticket(purpose, seed, *one.key))
        return chosen, of

    def _refuse_unknown_shards(self) -> None:
        known = {(shard.suite, shard.shard_id) for shard in self.shards}
        for suite in sorted({shard.suite for shard in self.shards}):
            for log in sorted((self.results / suite).glob(f"*/{GENERATIONS}")):
                if (suite, log.parent.name) not in known:
                    raise IntegrityError(
                        f"{log} belongs to no shard of the study: replay under the overrides that it was run "
                        f"with{self.words}, or move its folder away"
                    )

    def logged(self, shard: GenerationShard) -> tuple[list[Logged], set[str]]:
        """All rows of a shard, and the ids of examples whose last try failed.

        Raises IntegrityError for a row that the shard does not expect, and for an attempt that was configured
        otherwise.
        """
        folder = folder_of(self.results, shard)
        state = read_state(folder, shard.log)
        attempts = {attempt.number: attempt for attempt in state.attempts}
        for attempt in attempts.values():
            # Code may have been amended since; what a row was asked to be may not.
            if changes := config_changes(attempt.config, json.loads(json.dumps(shard.resolved()))):
                raise IntegrityError(
                    f"attempt {attempt.number} of {folder} was made under another configuration than the "
                    f"study has now ({'; '.join(changes)}): replay under the overrides that it was run "
                    f"with{self.words}"
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

    def together(self, rows: Iterable[Logged]) -> Iterator[Together]:
        """The rows in the order in which they are made again: by model, shard, example and attempt."""

        def prompt(one: Logged) -> tuple[str, int]:
            return one.row.example_id, one.attempt.number

        of_shard = defaultdict(list)
        for one in rows:
            of_shard[one.shard.shard_id].append(one)
        for shard in self._by_model():
            if shard.shard_id not in of_shard:
                continue
            loaded, family = self.load(shard.model), family_of(shard.task)
            questions = questions_of(shard, family, loaded)
            for (example_id, _), same in groupby(sorted(of_shard[shard.shard_id], key=prompt), key=prompt):
                alike = list(same)
                anchor = self.anchors.get(shard.suite, alike[0].attempt.anchor)
                yield Together(alike, anchor, loaded, family, questions[example_id])

    def wrong_scores(self, done: Collection[Key]) -> Iterator[str]:
        """Every row, of whatever arm, whose score is not that of its text; those `done` are left out."""
        for shard in self._by_model():
            rows = [one for one in self.logged(shard)[0] if one.key not in done]
            if not rows:
                continue
            family = family_of(shard.task)
            questions = questions_of(shard, family, self.load(shard.model))
            for one in rows:
                value = family.score(one.row.text, questions[one.row.example_id])
                if wrong := "; ".join(wrong_score(one.row, family.score_name, value)):
                    yield f"{one.place}: {wrong}"

    def _by_model(self) -> list[GenerationShard]:
        models = list(dict.fromkeys(shard.model.name for shard in self.shards))
        return sorted(self.shards, key=lambda shard: models.index(shard.model.name))


def _ticket(purpose: str, seed: int, *key: object) -> bytes:
    """What has the smallest tickets is chosen: at random, and in no order of files."""
    return hashlib.sha256(json.dumps([purpose, seed, *key]).encode()).digest()


def random_seed(given: int | None) -> int:
    """The seed that chooses what is replayed: a given one, or one from the operating system."""
    if given is not None and given < 0:
        raise ConfigError(f"the seed of a replay is at least 0, got {given}")
    return int.from_bytes(os.urandom(6), "big") if given is None else given


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
