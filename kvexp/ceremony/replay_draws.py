"""`kvexp verify --replay N`: keep sets of random rows, computed again from the anchor with the model.

Nothing is decoded. What a row says that it kept must be what the anchor, the seed and the scores of the model
give; and what it says that it scored must be what its text scores.
"""

import heapq
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import torch

from kvexp.ceremony.changes import other_words
from kvexp.ceremony.home import Home
from kvexp.ceremony.replay_rows import (
    STACK,
    Logged,
    by_shard,
    is_same_stack,
    random_rows,
    random_seed,
    refuse_unknown_shards,
    ticket,
    wrong_score,
    wrong_scores,
)
from kvexp.documents.forms import Replayed
from kvexp.errors import ConfigError, IncompleteError
from kvexp.models.folder import model_source
from kvexp.models.load import load_model
from kvexp.records import Generation
from kvexp.replay.harness import Planned
from kvexp.replay.model import Loaded
from kvexp.replay.probe import PLACES, agreement
from kvexp.run.answer import keep_probe, plans
from kvexp.study.compose import Selection
from kvexp.study.grid import shards
from kvexp.study.schema import ModelConf
from kvexp.study.shards import GenerationShard
from kvexp.tasks.base import Question, Task

# Comparing logged rows with what the anchor, the seed and the scores of the model give.


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


# What a replay says of a study: counts, agreement with its interval, and what disagrees.


SHOWN = 20
Z = 1.959964  # 97.5 % quantile of the normal distribution


def summary(found: list[Compared], rescored: list[str], of: int, seed: int) -> Replayed:
    """What a replay found: compared rows, and sentences about the scores of others.

    Raises IncompleteError if nothing can be said of the rows on this software.
    """
    abroad = [one for one in found if not one.same_stack]
    if abroad and not all(one.digest_equal for one in abroad) and not any(o.has_probe for o in abroad):
        raise IncompleteError(
            "the rows show no probe of their keep sets (they were logged before there was one), so nothing "
            f"can be said of them on other software than the attempts': replay with the {', '.join(STACK)} "
            "and device that the attempts state"
        )
    wrong = [one.wrong for one in found if one.wrong] + rescored
    for needed in sorted({one.needed for one in abroad}):
        share = _share(one for one in abroad if one.needed == needed)
        if share < needed:
            wrong.append(f"on other software {share:.5f} of the places agree, fewer than {needed}")
    share = _share(found)
    lo, hi = wilson(share, len(found))
    return Replayed(
        rows=len(found),
        of=of,
        seed=seed,
        digests_equal=sum(one.digest_equal for one in found),
        probed=PLACES * len(found),
        agree=sum(one.agree for one in found),
        agreement=share,
        lo=lo,
        hi=hi,
        scores_equal=sum(one.score_equal for one in found),
        same_stack=not abroad,
        holds=not wrong,
        disagreements=wrong[:SHOWN],
    )


def _share(rows: Iterable[Compared]) -> float:
    each = [one.agree / PLACES for one in rows]
    return math.fsum(each) / len(each)


def wilson(share: float, n: int) -> tuple[float, float]:
    """95 % score interval of a share whose `n` clusters may each agree or disagree as a whole.

    With rows as clusters it allows for rows that were forged whole and were not drawn. It is never too
    narrow, since a cluster's own share, in [0, 1], varies at most as a yes or no does.
    """
    centre = (share + Z**2 / (2 * n)) / (1 + Z**2 / n)
    half = Z / (1 + Z**2 / n) * math.sqrt(share * (1 - share) / n + Z**2 / (4 * n**2))
    # In exact arithmetic a share of 0 or 1 is an end of its own interval.
    return min(share, max(0.0, centre - half)), max(share, min(1.0, centre + half))


def replay_study(
    selection: Selection, home: Home, n: int, seed: int | None, anchors: Mapping[str, str]
) -> Replayed:
    """Replay rows of the chosen suites with the models of this machine.

    `anchors`: by suite, what its seal's time stamp gives; suites without a seal go by their attempts' word.
    """
    words = other_words(home, [one.content.id for one in home.registrations()])
    return replay(home.results, chosen_shards(selection), n, seed, loader(selection), anchors, words)


def chosen_shards(selection: Selection) -> list[GenerationShard]:
    """All shards of the chosen suites that answer."""
    made = [s for s in shards(selection, "leave_out") if s.suite in selection.chosen["suite"]]
    return [s for s in made if isinstance(s, GenerationShard)]


def loader(selection: Selection) -> Callable[[ModelConf], Loaded]:
    """Loads the models of a study on the device of its cluster."""
    device = selection.cluster.device

    def load(model: ModelConf) -> Loaded:
        loaded: Loaded = load_model(model_source(model), model.dtype, device, model.revision)
        return loaded

    return load


def replay(
    results: Path,
    made: list[GenerationShard],
    n: int,
    seed: int | None,
    load: Callable[[ModelConf], Loaded],
    anchors: Mapping[str, str] | None = None,
    words: str = "",
) -> Replayed:
    """Compare `n` rows of random designs, chosen by `seed`, with what they must be.

    A larger `n` keeps the rows of a smaller one. `made` are all shards of their suites, complete or not; the
    model is loaded once for all its rows. A `seed` of None is drawn from the operating system. `words` say in
    brackets which overrides the command lacks, if that is known.

    Raises IncompleteError if there are no such rows, or if nothing can be said of them on this software;
    IntegrityError for rows that no shard of `made` expects, or that were made under another configuration.
    """
    if n < 1:
        raise ConfigError(f"a replay needs at least 1 row, got {n}")
    seed = random_seed(seed)
    refuse_unknown_shards(results, made, words)
    chosen: list[Logged] = []
    of = 0
    for shard in made:
        here = list(random_rows(results, shard, words))
        of += len(here)
        chosen = heapq.nsmallest(n, chosen + here, key=lambda one: ticket("replay", seed, *one.row.key))
    if not chosen:
        raise IncompleteError(
            f"{results} has no rows of a random design to replay: submit the study first{words}"
        )
    compared = compare_all(chosen, made, load, anchors or {})
    done = {one.row.key for one in chosen}
    return summary(compared, list(wrong_scores(results, made, load, done)), of, seed)
