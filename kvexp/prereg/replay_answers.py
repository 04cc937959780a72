"""`kvexp verify --decode M`: all arms of random examples, answered again as their shard answered them.

A log whose texts, scores and signals were written beside honest keep sets is found where an example of it
is drawn.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from pathlib import Path

from kvexp.answering import answered
from kvexp.compose import Selection
from kvexp.config import ModelConf
from kvexp.errors import ConfigError, IncompleteError
from kvexp.prereg.forms import Regenerated
from kvexp.prereg.grid_change import other_words
from kvexp.prereg.home import Home
from kvexp.prereg.replay import chosen_shards, loader
from kvexp.prereg.replay_answers_summary import summary
from kvexp.prereg.replay_batches import batches
from kvexp.prereg.replay_compare import threads_of
from kvexp.prereg.replay_examples import Asked, draw_examples
from kvexp.prereg.replay_generation import Made, Matched, matched
from kvexp.prereg.replay_order import by_shard
from kvexp.prereg.replay_rows import Logged, random_seed, refuse_unknown_shards
from kvexp.prereg.stack import is_same_stack
from kvexp.records import Key
from kvexp.replay.model import Loaded
from kvexp.resolved import GenerationShard
from kvexp.tasks import Question, Task


def answer_study(
    selection: Selection, home: Home, m: int, seed: int | None, anchors: Mapping[str, str]
) -> Regenerated:
    """Answer examples of the chosen suites again with the models of this machine; see `replay_study`."""
    words = other_words(home, [one.content.id for one in home.registrations()])
    return answer_again(home.results, chosen_shards(selection), m, seed, loader(selection), anchors, words)


def answer_again(
    results: Path,
    made: list[GenerationShard],
    m: int,
    seed: int | None,
    load: Callable[[ModelConf], Loaded],
    anchors: Mapping[str, str] | None = None,
    words: str = "",
) -> Regenerated:
    """Compare every row of `m` examples, chosen by `seed`, with what the model answers here.

    Arguments and refusals are those of `kvexp.prereg.replay.replay`; examples that failed or lack rows
    are left out and counted.
    """
    if m < 1:
        raise ConfigError(f"decoding again needs at least 1 example, got {m}")
    seed = random_seed(seed)
    refuse_unknown_shards(results, made, words)
    drawn = draw_examples(results, made, m, seed, words)
    if not drawn.chosen:
        raise IncompleteError(
            f"{results} has no example with all its rows to answer again: run kvexp submit first{words}"
        )
    found = list(_all(drawn.chosen, made, load, anchors or {}))
    return summary(found, drawn, seed)


def _all(
    chosen: list[Asked],
    made: list[GenerationShard],
    load: Callable[[ModelConf], Loaded],
    anchors: Mapping[str, str],
) -> Iterator[Matched]:
    for examples, loaded, family, questions in by_shard(chosen, made, load):
        for one in examples:
            yield from _example(one, family, questions[one.example_id], loaded, anchors)


def _example(
    one: Asked, family: Task, question: Question, loaded: Loaded, anchors: Mapping[str, str]
) -> Iterator[Matched]:
    """By attempt: a line that was torn by a kill was made again by the next one, with all the arms."""
    shard = one.shard

    def number(row: Logged) -> int:
        return row.attempt.number

    for _, rows in groupby(sorted(one.rows, key=number), key=number):
        together = list(rows)
        attempt = together[0].attempt
        anchor = anchors.get(shard.suite, attempt.anchor)
        same_stack = is_same_stack(shard, attempt, loaded)
        with threads_of(attempt.threads):
            made = _made(shard, anchor, family, question, together, loaded)
        for row in together:
            yield matched(row, made[row.row.key], same_stack)


def _made(
    shard: GenerationShard, anchor: str, family: Task, question: Question, rows: list[Logged], loaded: Loaded
) -> dict[Key, Made]:
    """All arms of the example, whichever rows are asked for, in the batches that the log states."""
    logged = {one.row.key: one.row.text for one in rows}
    tokenizer = loaded.tokenizer

    def decoded(tokens: list[int]) -> str:
        text: str = tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return text

    number = rows[0].attempt.number
    parts = batches(shard, rows)
    try:
        answers = [
            pair for part in parts for pair in answered(part, anchor, family, question, number, loaded)
        ]
    except (MemoryError, RuntimeError) as error:
        raise IncompleteError(
            f"example {question.example_id} of {shard.shard_id} cannot be answered again here "
            f"({type(error).__name__}): decode on a device like that of its attempt"
        ) from None
    if len(parts) == 1 and any(row.seconds.decode_arms < len(answers) for row, _ in answers):
        raise IncompleteError(
            f"this device has too little memory for the arms of {question.example_id} in one batch, as "
            f"{shard.shard_id} was decoded: decode on a device like that of its attempt"
        )
    made = {}
    for row, answer in answers:
        tokens, stopped = answer.decoded.tokens, answer.decoded.stopped
        made[row.key] = Made(
            row=row,
            tokens=tokens[:-1] if stopped else tokens,
            gaps=answer.decoded.gaps,
            score_of_logged=family.score(logged.get(row.key, row.text), question),
            decoded=decoded,
            places=answer.planned.plan.kept_LKN.numel(),
        )
    return made
