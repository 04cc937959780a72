"""Scoring logged texts again: a row's score must be that of its text."""

from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

from kvexp.config import ModelConf
from kvexp.families import family_of
from kvexp.prompting import counter
from kvexp.records import Generation
from kvexp.replay.model import Loaded
from kvexp.resolved import GenerationShard
from kvexp.shard_log import read_state
from kvexp.tasks import Question, Task


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
