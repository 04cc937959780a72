"""`kvexp verify --replay N`: keep sets of random rows, computed again from the anchor with the model.

Nothing is decoded. What a row says that it kept must be what the anchor, the seed and the scores of the model
give; and what it says that it scored must be what its text scores.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kvexp.ceremony.replay_source import STACK, Logged, Source, Together, random_seed, wrong_score
from kvexp.documents.forms import Replayed
from kvexp.errors import ConfigError, IncompleteError
from kvexp.records import Generation
from kvexp.replay.harness import Planned
from kvexp.replay.probe import PLACES, agreement
from kvexp.run.answer import keep_probe, plans

ROW_AGREEMENT = 0.96  # of one row, 20 of 512 places: a row drawn otherwise does not hide among many
SHOWN = 20
Z = 1.959964  # 97.5 % quantile of the normal distribution


def least_agreement(dtype: str) -> float:
    """The least on another stack, over the probed places of all rows.

    Measured with the embedded model between instruction sets: .999999 in float32, .9965 in bfloat16; under
    another anchor .76 to .83.
    """
    return 0.999 if dtype == "float32" else 0.99


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


def replay(source: Source, n: int, seed: int | None) -> Replayed:
    """Compare `n` rows of random designs, chosen by `seed`, with what they must be.

    A larger `n` keeps the rows of a smaller one. A `seed` of None is drawn from the operating system.

    Raises IncompleteError if there are no such rows, or if nothing can be said of them on this software;
    IntegrityError for rows that no shard expects, or that were made under another configuration.
    """
    if n < 1:
        raise ConfigError(f"a replay needs at least 1 row, got {n}")
    seed = random_seed(seed)
    chosen, of = source.draw(
        "replay", n, seed, lambda shard: [one for one in source.logged(shard)[0] if one.is_drawn]
    )
    if not chosen:
        raise IncompleteError(
            f"{source.results} has no rows of a random design to replay: submit the study first{source.words}"
        )
    found = [one for same in source.together(chosen) for one in _compare_prompt(same)]
    return _summary(found, list(source.wrong_scores({one.key for one in chosen})), of, seed)


def _compare_prompt(same: Together) -> Iterator[Compared]:
    with same.threads():
        arms = [one.arm for one in same.rows]
        planned = plans(same.shard, same.anchor, same.family, same.question, arms, same.loaded)
    for one, plan in zip(same.rows, planned, strict=True):
        yield _compare(one, plan, same)


def _compare(one: Logged, planned: Planned, same: Together) -> Compared:
    row, same_stack = one.row, same.same_stack
    digest_equal = planned.keep_digest == row.keep_digest
    agree = PLACES if digest_equal else 0
    if row.keep_probe is not None:
        agree = agreement(row.keep_probe, keep_probe(one.shard, same.question, planned))
    score = same.family.score(row.text, same.question)
    needed = least_agreement(one.shard.model.dtype)
    wrong = [
        *_wrong_keep_set(row, planned, digest_equal, agree, same_stack),
        *_wrong_sizes(row, planned, allowed=0.0 if same_stack else (1 - needed) * planned.n_evictable),
        *wrong_score(row, same.family.score_name, score),
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


def _summary(found: list[Compared], rescored: list[str], of: int, seed: int) -> Replayed:
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
