"""`kvexp verify --decode M`: all arms of random examples, answered again as their shard answered them.

A log whose texts, scores and signals were written beside honest keep sets is found where an example of it
is drawn.
"""

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

from kvexp.ceremony.changes import other_words
from kvexp.ceremony.compare_answers import Made, Matched, matched, most_moved, most_parted
from kvexp.ceremony.home import Home
from kvexp.ceremony.replay_draws import SHOWN, chosen_shards, loader, threads_of
from kvexp.ceremony.replay_rows import (
    Logged,
    by_shard,
    is_same_stack,
    logged,
    random_seed,
    refuse_unknown_shards,
    ticket,
)
from kvexp.documents.forms import Regenerated
from kvexp.errors import ConfigError, IncompleteError
from kvexp.records import Key
from kvexp.replay.model import Loaded
from kvexp.run.answer import answered
from kvexp.study.compose import Selection
from kvexp.study.schema import ArmConf, ArmGrid, ModelConf
from kvexp.study.shards import GenerationShard
from kvexp.tasks.base import Question, Task

# Which arms of an example are answered as one batch again: those that its log says were one.
#
# The last digits of an answer depend on its batch. All arms are one, but a device whose memory is too small
# for that decodes them budget by budget, and so did logs from before all budgets were one batch.


def batches(shard: GenerationShard, rows: Sequence[Logged]) -> list[GenerationShard]:
    """The shard, or for every budget the shard with the arms of that budget alone."""
    arms = len(shard.places())
    if all(one.row.seconds.decode_arms >= arms for one in rows):
        return [shard]
    budgets = sorted({_budget(place.budget) for place in shard.places()})
    return [replace(shard, arms=list(_of_budget(shard.arms, budget))) for budget in budgets]


def _budget(budget: float | None) -> float:
    return 1.0 if budget is None else budget


def _of_budget(arms: Sequence[tuple[ArmConf, ArmGrid]], budget: float) -> Iterator[tuple[ArmConf, ArmGrid]]:
    for conf, entry in arms:
        if not entry.budgets:
            if budget == 1.0:
                yield conf, entry
        elif budget in entry.budgets:
            yield conf, replace(entry, budgets=[budget])


# Which examples of a study's logs are answered again, and which cannot be.


@dataclass(frozen=True)
class Asked:
    """An example of a shard, with the row of every arm."""

    shard: GenerationShard
    example_id: str
    rows: list[Logged]


@dataclass(frozen=True)
class Drawn:
    """The chosen examples, and how many there were to choose from."""

    chosen: list[Asked]
    of: int
    failed: int
    missing: int  # some or all rows are not there, and it did not fail


def draw_examples(
    results: Path, made: Iterable[GenerationShard], m: int, seed: int, words: str = ""
) -> Drawn:
    """`m` of the examples whose rows are all there; a larger `m` keeps those of a smaller one.

    Raises IntegrityError for rows that no shard expects, or that were made under another configuration;
    `words`: what the command lacks, or nothing.
    """
    chosen: list[Asked] = []
    of = failed = missing = 0
    for shard in made:
        rows, failures = logged(results, shard, words)
        whole = _whole(shard, rows)
        there = {one.example_id for one in whole}
        left = set(shard.example_ids) - there
        of += len(whole)
        failed += len(left & failures)
        missing += len(left - failures)
        chosen = heapq.nsmallest(m, chosen + whole, key=lambda one: _ticket(seed, one))
    return Drawn(chosen, of, failed, missing)


def _whole(shard: GenerationShard, rows: list[Logged]) -> list[Asked]:
    by_example = defaultdict(list)
    for one in rows:
        by_example[one.row.example_id].append(one)
    arms = len(shard.places())  # keys are unique and expected, so as many rows are all of them
    return [Asked(shard, name, found) for name, found in by_example.items() if len(found) == arms]


def _ticket(seed: int, one: Asked) -> bytes:
    shard = one.shard
    return ticket("decode", seed, shard.suite, shard.model.name, shard.task.name, one.example_id)


# What answering again says of a study: counts, largest differences, and what disagrees.


def summary(found: list[Matched], drawn: Drawn, seed: int) -> Regenerated:
    """What became of the rows of the examples that were drawn."""
    wrong = [one.wrong for one in found if one.wrong] + list(_too_many(found))
    return Regenerated(
        examples=len(drawn.chosen),
        of=drawn.of,
        failed=drawn.failed,
        missing=drawn.missing,
        seed=seed,
        rows=len(found),
        equal=sum(one.equal for one in found),
        keep_sets_equal=sum(one.keep_set_equal for one in found),
        texts_equal=sum(one.text_equal for one in found),
        near_ties=sum(one.near_tie for one in found),
        largest=_largest(found),
        same_stack=all(one.same_stack for one in found),
        holds=not wrong,
        disagreements=wrong[:SHOWN],
    )


def _too_many(found: list[Matched]) -> Iterator[str]:
    """Near-ties explain each text that parts, rounding each keep set that moved, but not any number."""
    abroad = [one for one in found if not one.same_stack]
    for dtype in sorted({one.dtype for one in abroad}):
        rows = [one for one in abroad if one.dtype == dtype]
        parted, most = sum(one.near_tie for one in rows), most_parted(dtype, len(rows))
        if parted > most:
            yield (
                f"on other software {parted} of {len(rows)} {dtype} texts part at near-ties, more than the "
                f"{most:g} that rounding explains"
            )
        moved = sum(not one.keep_set_equal for one in rows)
        if moved > (most := most_moved(dtype, [one.places for one in rows])):
            yield (
                f"on other software {moved} of {len(rows)} {dtype} keep sets moved, more than the {most:.1f} "
                "that rounding explains"
            )


def _largest(found: Iterable[Matched]) -> dict[str, float]:
    """By signal, the largest finite difference of rows that were explained."""
    largest: dict[str, float] = {}
    for one in found:
        if not one.wrong:
            for name, value in one.largest.items():
                largest[name] = max(value, largest.get(name, 0.0))
    return dict(sorted(largest.items()))


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

    Arguments and refusals are those of `replay_draws.replay`; examples that failed or lack rows are
    left out and counted.
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
