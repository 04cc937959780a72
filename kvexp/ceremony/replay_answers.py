"""`kvexp verify --decode M`: all arms of random examples, answered again as their shard answered them.

A log whose texts, scores and signals were written beside honest keep sets is found where an example of it
is drawn.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from kvexp.ceremony.compare_answers import Made, Matched, matched, most_moved, most_parted
from kvexp.ceremony.replay_source import Logged, Source, Together, random_seed
from kvexp.documents.forms import Regenerated
from kvexp.errors import ConfigError, IncompleteError
from kvexp.records import Key
from kvexp.run.answer import answered
from kvexp.study.schema import ArmConf, ArmGrid
from kvexp.study.shards import GenerationShard

SHOWN = 20


@dataclass(frozen=True)
class Asked:
    """An example of a shard, with the row of every arm."""

    shard: GenerationShard
    example_id: str
    rows: list[Logged]

    @property
    def key(self) -> tuple[str, ...]:
        return self.shard.suite, self.shard.model.name, self.shard.task.name, self.example_id


@dataclass(frozen=True)
class DrawnExamples:
    """The chosen examples, and how many there were to choose from."""

    chosen: list[Asked]
    of: int
    failed: int
    missing: int  # some or all rows are not there, and it did not fail


def answer_again(source: Source, m: int, seed: int | None) -> Regenerated:
    """Compare every row of `m` examples, chosen by `seed`, with what the model answers here.

    Refusals are those of `replay_draws.replay`; examples that failed or lack rows are left out and counted.
    """
    if m < 1:
        raise ConfigError(f"decoding again needs at least 1 example, got {m}")
    seed = random_seed(seed)
    drawn = draw_examples(source, m, seed)
    if not drawn.chosen:
        raise IncompleteError(
            f"{source.results} has no example with all its rows to answer again: run kvexp submit "
            f"first{source.words}"
        )
    rows = [row for one in drawn.chosen for row in one.rows]
    return _summary([one for same in source.together(rows) for one in _answer(same)], drawn, seed)


def draw_examples(source: Source, m: int, seed: int) -> DrawnExamples:
    """`m` of the examples whose rows are all there; a larger `m` keeps those of a smaller one."""
    failed = missing = 0

    def whole(shard: GenerationShard) -> list[Asked]:
        nonlocal failed, missing
        rows, failures = source.logged(shard)
        by_example = defaultdict(list)
        for one in rows:
            by_example[one.row.example_id].append(one)
        arms = len(shard.places())  # keys are unique and expected, so as many rows are all of them
        found = [Asked(shard, name, there) for name, there in by_example.items() if len(there) == arms]
        left = set(shard.example_ids) - {one.example_id for one in found}
        failed += len(left & failures)
        missing += len(left - failures)
        return found

    chosen, of = source.draw("decode", m, seed, whole)
    return DrawnExamples(chosen, of, failed, missing)


def _answer(same: Together) -> Iterator[Matched]:
    with same.threads():
        made = _made(same)
    for row in same.rows:
        yield matched(row, made[row.key], same.same_stack)


def _made(same: Together) -> dict[Key, Made]:
    """All arms of the example, whichever rows are asked for, in the batches that the log states."""
    logged = {one.key: one.row.text for one in same.rows}
    shard, question, tokenizer = same.shard, same.question, same.loaded.tokenizer

    def decoded(tokens: list[int]) -> str:
        text: str = tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return text

    parts, number = batches(shard, same.rows), same.attempt.number
    try:
        answers = [
            pair
            for part in parts
            for pair in answered(part, same.anchor, same.family, question, number, same.loaded)
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
            score_of_logged=same.family.score(logged.get(row.key, row.text), question),
            decoded=decoded,
            places=answer.planned.plan.kept_LKN.numel(),
        )
    return made


def batches(shard: GenerationShard, rows: Sequence[Logged]) -> list[GenerationShard]:
    """The shard, or for every budget the shard with the arms of that budget alone: as the log says it was.

    The last digits of an answer depend on its batch. All arms are one, but a device whose memory is too small
    for that decodes them budget by budget, and so did logs from before all budgets were one batch.
    """
    arms = shard.places()
    if all(one.row.seconds.decode_arms >= len(arms) for one in rows):
        return [shard]
    budgets = sorted({1.0 if place.budget is None else place.budget for place in arms})
    return [replace(shard, arms=list(_of_budget(shard.arms, budget))) for budget in budgets]


def _of_budget(arms: Sequence[tuple[ArmConf, ArmGrid]], budget: float) -> Iterator[tuple[ArmConf, ArmGrid]]:
    for conf, entry in arms:
        if not entry.budgets:
            if budget == 1.0:
                yield conf, entry
        elif budget in entry.budgets:
            yield conf, replace(entry, budgets=[budget])


def _summary(found: list[Matched], drawn: DrawnExamples, seed: int) -> Regenerated:
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
