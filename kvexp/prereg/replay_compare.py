"""Comparing logged rows with what the anchor, the seed and the scores of the model give."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby

import torch

from kvexp.answering import keep_probe, plans
from kvexp.config import ModelConf
from kvexp.prereg.replay_order import by_shard
from kvexp.prereg.replay_rows import Logged
from kvexp.prereg.replay_scores import wrong_score
from kvexp.prereg.stack import is_same_stack
from kvexp.records import Generation
from kvexp.replay.harness import Planned
from kvexp.replay.model import Loaded
from kvexp.replay.probe import PLACES, agreement
from kvexp.resolved import GenerationShard
from kvexp.tasks import Question, Task

# The least agreement on another stack, over the probed places of all rows. Measured with the embedded
# model between instruction sets: .999999 in float32, .9965 in bfloat16; under another anchor .76 to .83.
AGREEMENT, HALF_AGREEMENT = 0.999, 0.99
ROW_AGREEMENT = 0.96  # of one row, 20 of 512 places: a row drawn otherwise does not hide among many
THREADS = 256  # the most that a log's word is taken for


@dataclass(frozen=True)
class Compared:
    """One row against its replay."""

    has_probe: bool
    same_stack: bool
    needed: float  # agreement on another stack
    digest_equal: bool
    agree: int  # places; without a probe none that an equal digest does not vouch for
    score_equal: bool
    wrong: str  # a sentence; empty: nothing


def compare_all(
    chosen: list[Logged],
    made: list[GenerationShard],
    load: Callable[[ModelConf], Loaded],
    anchors: Mapping[str, str],
) -> list[Compared]:
    """By shard, then example and attempt: one prefill serves what they share."""

    def prompt(one: Logged) -> tuple[str, int]:
        return one.row.example_id, one.attempt.number

    found: list[Compared] = []
    for rows, loaded, family, questions in by_shard(chosen, made, load):
        for (example_id, _), together in groupby(sorted(rows, key=prompt), key=prompt):
            found += _compare_prompt(list(together), family, questions[example_id], loaded, anchors)
    return found


def _compare_prompt(
    rows: list[Logged], family: Task, question: Question, loaded: Loaded, anchors: Mapping[str, str]
) -> Iterator[Compared]:
    shard, attempt = rows[0].shard, rows[0].attempt
    anchor = anchors.get(shard.suite, attempt.anchor)
    with threads_of(attempt.threads):
        planned = plans(shard, anchor, family, question, [one.arm for one in rows], loaded)
    same_stack = is_same_stack(shard, attempt, loaded)
    for one, plan in zip(rows, planned, strict=True):
        yield _compare(one, plan, family, question, same_stack)


@contextmanager
def threads_of(number: int) -> Iterator[None]:
    """As many threads as the attempt had: they decide the order of sums, and so the last bit of a score."""
    before = torch.get_num_threads()
    torch.set_num_threads(min(max(1, number), THREADS))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _compare(one: Logged, planned: Planned, family: Task, question: Question, same_stack: bool) -> Compared:
    row = one.row
    digest_equal = planned.keep_digest == row.keep_digest
    agree = PLACES if digest_equal else 0
    if row.keep_probe is not None:
        agree = agreement(row.keep_probe, keep_probe(one.shard, question, planned))
    score = family.score(row.text, question)
    needed = AGREEMENT if one.shard.model.dtype == "float32" else HALF_AGREEMENT
    wrong = [
        *_wrong_keep_set(row, planned, digest_equal, agree, same_stack),
        *_wrong_sizes(row, planned, allowed=0.0 if same_stack else (1 - needed) * planned.n_evictable),
        *wrong_score(row, family.score_name, score),
    ]
    return Compared(
        has_probe=row.keep_probe is not None,
        same_stack=same_stack,
        needed=needed,
        digest_equal=digest_equal,
        agree=agree,
        score_equal=score == row.score_value,
        wrong=f"{one.place}: {'; '.join(wrong)}" if wrong else "",
    )


def _wrong_keep_set(
    row: Generation, planned: Planned, digest_equal: bool, agree: int, same_stack: bool
) -> Iterator[str]:
    shown = "it shows no probe" if row.keep_probe is None else f"{agree} of {PLACES} places agree"
    if row.n_evictable != planned.n_evictable:
        yield f"{planned.n_evictable} tokens could be evicted, the log says {row.n_evictable}"
    if digest_equal and agree < PLACES:
        yield f"its probe is not of its own keep set ({shown})"
    elif not digest_equal and (same_stack or agree < ROW_AGREEMENT * PLACES):
        yield f"the anchor and the model give another keep set than the log has ({shown})"


def _wrong_sizes(row: Generation, planned: Planned, allowed: float) -> Iterator[str]:
    """Sizes that differ by more than the `allowed` tokens."""
    for name, value, logged in (
        ("expected_kept", planned.plan.expected, row.expected_kept),
        ("realised_kept", planned.plan.realised, row.realised_kept),
    ):
        if abs(value - logged) > allowed:
            yield f"{name} is {value:.10g}, the log says {logged:.10g}"
