"""`kvexp verify --replay N`: keep sets of random rows, computed again from the anchor with the model.

Nothing is decoded. What a row says that it kept must be what the anchor, the seed and the scores of the model
give; and what it says that it scored must be what its text scores.
"""

import hashlib
import heapq
import json
import math
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import torch

from kvexp import provenance
from kvexp.answering import keep_probe, plans
from kvexp.compose import Selection
from kvexp.config import ModelConf
from kvexp.errors import ConfigError, IncompleteError, IntegrityError
from kvexp.families import family_of
from kvexp.grid import shards
from kvexp.launch import load_model, model_source
from kvexp.prereg.forms import Replayed
from kvexp.prereg.home import Home
from kvexp.prompting import counter
from kvexp.records import Attempt, Generation
from kvexp.replay.arm import Arm
from kvexp.replay.harness import Planned
from kvexp.replay.model import Loaded
from kvexp.replay.probe import PLACES, agreement
from kvexp.resolved import GenerationShard
from kvexp.shard_log import GENERATIONS, read_state
from kvexp.tasks import Question, Task

STACK = ("torch", "transformers", "tokenizers", "numpy", "platform")
# The least agreement on another stack, over the probed places of all rows. Measured with the embedded
# model between instruction sets: .999999 in float32, .9965 in bfloat16; under another anchor .76 to .83.
AGREEMENT, HALF_AGREEMENT = 0.999, 0.99
ROW_AGREEMENT = 0.96  # of one row, 20 of 512 places: a row drawn otherwise does not hide among many
SHOWN = 20
THREADS = 256  # the most that a log's word is taken for
Z = 1.959964  # 97.5 % quantile of the normal distribution


def replay_study(
    selection: Selection, home: Home, n: int, seed: int | None, anchors: Mapping[str, str]
) -> Replayed:
    """Replay rows of the chosen suites with the models of this machine.

    `anchors`: by suite, what its seal's time stamp gives; suites without a seal go by their attempts' word.
    """
    device = selection.cluster.device

    def load(model: ModelConf) -> Loaded:
        loaded: Loaded = load_model(model_source(model), model.dtype, device, model.revision)
        return loaded

    made = [s for s in shards(selection, "leave_out") if s.suite in selection.chosen["suite"]]
    return replay(home.results, [s for s in made if isinstance(s, GenerationShard)], n, seed, load, anchors)


def replay(
    results: Path,
    made: list[GenerationShard],
    n: int,
    seed: int | None,
    load: Callable[[ModelConf], Loaded],
    anchors: Mapping[str, str] | None = None,
) -> Replayed:
    """Compare `n` rows of random designs, chosen by `seed`, with what they must be.

    A larger `n` keeps the rows of a smaller one. `made` are all shards of their suites, complete or not; the
    model is loaded once for all its rows. A `seed` of None is drawn from the operating system.

    Raises IncompleteError if there are no such rows, or if nothing can be said of them on this software;
    IntegrityError for rows that no shard of `made` expects, or that were made under another configuration.
    """
    if n < 1:
        raise ConfigError(f"a replay needs at least 1 row, got {n}")
    if seed is not None and seed < 0:
        raise ConfigError(f"the seed of a replay is at least 0, got {seed}")
    if seed is None:
        seed = int.from_bytes(os.urandom(6), "big")
    _refuse_unknown_shards(results, made)
    chosen: list[_Logged] = []
    of = 0
    for shard in made:
        here = list(_random_rows(results, shard))
        of += len(here)
        chosen = heapq.nsmallest(n, chosen + here, key=lambda one: _ticket(seed, one.row))
    if not chosen:
        raise IncompleteError(f"{results} has no rows of a random design to replay: run kvexp submit first")
    compared = _compare_all(chosen, made, load, anchors or {})
    done = {one.row.key for one in chosen}
    return _summary(compared, list(_wrong_scores(results, made, load, done)), of, seed)


def _wrong_scores(
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
        questions = _questions(shard, family, load(shard.model))
        for row in rows:
            if row.key in done:
                continue
            value = family.score(row.text, questions[row.example_id])
            if wrong := "; ".join(_wrong_score(row, family.score_name, value)):
                yield f"{' '.join(map(str, row.key))}: {wrong}"


@dataclass(frozen=True)
class _Logged:
    """A row, and what it was made with."""

    shard: GenerationShard
    attempt: Attempt
    arm: Arm
    row: Generation

    @property
    def place(self) -> str:
        row = self.row
        where = f"{row.suite} {row.model} {row.task} {row.example_id}"
        return f"{where} {row.arm} {row.condition} {row.budget:g} seed {row.seed}"


def _ticket(seed: int, row: Generation) -> bytes:
    """The rows with the smallest tickets are chosen: a random sample that no order of files changes."""
    return hashlib.sha256(json.dumps(["replay", seed, *row.key]).encode()).digest()


def _refuse_unknown_shards(results: Path, made: list[GenerationShard]) -> None:
    known = {(shard.suite, shard.shard_id) for shard in made}
    for suite in sorted({shard.suite for shard in made}):
        for log in sorted((results / suite).glob(f"*/{GENERATIONS}")):
            if (suite, log.parent.name) not in known:
                raise IntegrityError(
                    f"{log} belongs to no shard of the study: replay under the overrides that it was run "
                    "with, or move its folder away"
                )


def _random_rows(results: Path, shard: GenerationShard) -> Iterator[_Logged]:
    folder = results / shard.suite / shard.shard_id
    state = read_state(folder, shard.log)
    attempts = {attempt.number: attempt for attempt in state.attempts}
    for attempt in attempts.values():
        if _without_protocol(attempt.config) != _without_protocol(json.loads(json.dumps(shard.resolved()))):
            raise IntegrityError(
                f"attempt {attempt.number} of {folder} was made under another configuration than the study "
                "has now: replay under the overrides that it was run with"
            )
    expected = set(shard.keys())
    arms = {(a.name, a.condition, a.budget, a.seed): a for a in shard.places()}
    for key, row in state.rows.items():
        if not isinstance(row, Generation) or key not in expected:
            raise IntegrityError(
                f"{folder / shard.log} holds a row that its shard does not expect "
                f"({' '.join(map(str, key))}): restore the log"
            )
        arm = arms[row.arm, row.condition, row.budget, row.seed]
        if _is_drawn(arm):
            yield _Logged(shard, attempts[row.attempt], arm, row)


def _is_drawn(arm: Arm) -> bool:
    """Whether its keep sets depend on the anchor; where the whole cache is the budget none does."""
    return arm.design.is_random and arm.budget is not None and arm.budget < 1


def _without_protocol(config: dict[str, Any]) -> dict[str, Any]:
    """Code may have been amended since; what a row was asked to be may not."""
    return {name: value for name, value in config.items() if name != "protocol_digest"}


# Comparing ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Compared:
    """One row against its replay."""

    has_probe: bool
    same_stack: bool
    needed: float  # agreement on another stack
    digest_equal: bool
    agree: int  # places; without a probe none that an equal digest does not vouch for
    score_equal: bool
    wrong: str  # a sentence; empty: nothing


def _compare_all(
    chosen: list[_Logged],
    made: list[GenerationShard],
    load: Callable[[ModelConf], Loaded],
    anchors: Mapping[str, str],
) -> list[_Compared]:
    """By model, then shard, example and attempt: one prefill serves what they share."""
    order = {shard.shard_id: at for at, shard in enumerate(made)}
    models = list(dict.fromkeys(shard.model.name for shard in made))

    def place(one: _Logged) -> tuple[int, int]:
        return models.index(one.shard.model.name), order[one.shard.shard_id]

    def prompt(one: _Logged) -> tuple[str, int]:
        return one.row.example_id, one.attempt.number

    found: list[_Compared] = []
    for _, of_shard in groupby(sorted(chosen, key=lambda one: (place(one), prompt(one))), key=place):
        rows = list(of_shard)
        shard = rows[0].shard
        loaded = load(shard.model)
        family = family_of(shard.task)
        questions = _questions(shard, family, loaded)
        for (example_id, _), together in groupby(rows, key=prompt):
            found += _compare_prompt(list(together), family, questions[example_id], loaded, anchors)
    return found


def _questions(shard: GenerationShard, family: Task, loaded: Loaded) -> dict[str, Question]:
    count = counter(loaded.tokenizer)
    asked = family.load(shard.n_examples, shard.example_seed, shard.context_tokens, count)
    return {question.example_id: question for question in asked}


def _compare_prompt(
    rows: list[_Logged], family: Task, question: Question, loaded: Loaded, anchors: Mapping[str, str]
) -> Iterator[_Compared]:
    shard, attempt = rows[0].shard, rows[0].attempt
    anchor = anchors.get(shard.suite, attempt.anchor)
    with _threads(attempt.threads):
        planned = plans(shard, anchor, family, question, [one.arm for one in rows], loaded)
    same_stack = _is_same_stack(shard, attempt, loaded)
    for one, plan in zip(rows, planned, strict=True):
        yield _compare(one, plan, family, question, same_stack)


@contextmanager
def _threads(number: int) -> Iterator[None]:
    """As many threads as the attempt had: they decide the order of sums, and so the last bit of a score."""
    before = torch.get_num_threads()
    torch.set_num_threads(min(max(1, number), THREADS))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _is_same_stack(shard: GenerationShard, attempt: Attempt, loaded: Loaded) -> bool:
    """Whether the attempt says that it ran on what runs here, so that every bit must come again."""
    here = provenance.versions()
    return (
        all(attempt.versions.get(name) == here[name] for name in STACK)
        and attempt.device.partition(":")[0] == loaded.device.type
        and f"torch.{attempt.dtype}" == str(loaded.model.dtype)
        and attempt.protocol_digest == shard.protocol_digest
    )


def _compare(one: _Logged, planned: Planned, family: Task, question: Question, same_stack: bool) -> _Compared:
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
        *_wrong_score(row, family.score_name, score),
    ]
    return _Compared(
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


def _wrong_score(row: Generation, name: str, value: float) -> Iterator[str]:
    if row.score_name != name:
        yield f"it is scored by {name}, the log says {row.score_name[:40]!r}"
    if row.score_value != value:
        yield f"the logged text scores {value:.10g}, the log says {row.score_value:.10g}"


# Summing up -----------------------------------------------------------------------------------------


def _summary(found: list[_Compared], wrong_scores: list[str], of: int, seed: int) -> Replayed:
    abroad = [one for one in found if not one.same_stack]
    if abroad and not all(one.digest_equal for one in abroad) and not any(o.has_probe for o in abroad):
        raise IncompleteError(
            "the rows show no probe of their keep sets (they were logged before there was one), so nothing "
            f"can be said of them on other software than the attempts': replay with the {', '.join(STACK)} "
            "and device that the attempts state"
        )
    wrong = [one.wrong for one in found if one.wrong] + wrong_scores
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


def _share(rows: Iterable[_Compared]) -> float:
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
