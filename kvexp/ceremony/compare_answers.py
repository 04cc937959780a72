"""One logged generation against the one that its model gives now: every field, or what other software allows.

Logs hold numbers as the shortest decimals that give the same float64, so on the same software every
digit must come again; of other software, see `Tolerance`.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from kvexp.ceremony.replay_draws import ROW_AGREEMENT, least_agreement
from kvexp.ceremony.replay_source import Logged
from kvexp.errors import first
from kvexp.records import Generation, Key
from kvexp.replay.probe import PLACES, agreement

# Where two answers to one prompt part, and whether a near-tie of two tokens explains it.
#
# Greedy decoding takes the likelier token. Where two are nearly as likely, the last bit of a logit decides,
# and from there on two machines may answer differently; elsewhere they may not.


BROKEN = "\ufffd"  # what stands for a part of a character


def parting(tokens: Sequence[int], text: str, decode: Callable[[Sequence[int]], str]) -> int:
    """The first of `tokens`, counted from 0, that does not continue towards `text`; their number if all do.

    Where they part within a character of several tokens, the last of these: none alone can be seen.
    """
    most = len(tokens)
    agreed = max(n for n in range(most + 1) if text.startswith(decode(tokens[:n])))
    if agreed == most:
        return most
    seen = (n for n in range(agreed + 1, most) if not decode(tokens[:n]).endswith(BROKEN))
    return next(seen, most) - 1


def is_near_tie(gaps: Sequence[float], until: int, logged_gap: float, tolerance: float) -> bool:
    """Whether both answers came by a choice that a difference of `tolerance` in logits can turn.

    `gaps` are between the two largest logits, by token of the answer here, and `until` is the token where
    the texts part: a token before it may have been another one with the same beginning. `logged_gap` is
    the smallest gap that the log states.
    """
    return logged_gap <= tolerance and min(gaps[: until + 1]) <= tolerance


# How far an answer on other software may lie from the logged one, as measured with the embedded model.


HALF = "bfloat16"


@dataclass(frozen=True)
class Tolerance:
    """Allowed differences, over max(1, size of the number)."""

    evicting: float  # of signals that exist when tokens are evicted
    deciding: float  # of signals read while the same answer is decoded
    # Of logits: the gap between the two largest within which the choice may turn, and how far the smallest
    # gap that a row states may lie from the one here.
    tie: float


# By dtype, with equal keep sets; docs/replay.md has what was measured between instruction sets.
EQUAL = {
    "float32": Tolerance(evicting=1e-4, deciding=1e-3, tie=1e-3),
    HALF: Tolerance(evicting=0.02, deciding=0.25, tie=1.0),
}
# Where rounding of scores moved single tokens of the keep set, one of which may weigh much.
MOVED = {
    "float32": Tolerance(evicting=1e-3, deciding=0.02, tie=0.05),
    HALF: Tolerance(evicting=0.05, deciding=0.25, tie=2.5),
}
PARTED = {"float32": 0.05, HALF: 0.7}  # the largest share of rows whose texts part at near-ties
# The largest chance that a token of a layer and KV head moves: in float32 ten times what was measured (2 rows
# of 152 with 92,160 places each); in half precision most keep sets move.
MOVES = {"float32": 1.5e-6, HALF: 1.0}


def tolerance(dtype: str, keep_sets_equal: bool) -> Tolerance:
    """Of a row; float16 has more digits than bfloat16, and its tolerance."""
    by_dtype = EQUAL if keep_sets_equal else MOVED
    return by_dtype.get(dtype, by_dtype[HALF])


def most_parted(dtype: str, rows: int) -> float:
    """How many of `rows` texts may part at near-ties; one always may."""
    return max(1.0, PARTED.get(dtype, PARTED[HALF]) * rows)


def most_moved(dtype: str, places: Iterable[int]) -> float:
    """How many keep sets, of so many places each, may have moved; one always may."""
    chance = MOVES.get(dtype, MOVES[HALF])
    return max(1.0, sum(-math.expm1(-chance * each) for each in places))


FREE = ("attempt", "seconds")  # which start wrote it, and its clock
FIELDS = tuple(name for name in Generation.__struct_fields__ if name not in (*FREE, "shard_id", *Key._fields))
PROMPT = ("n_context", "n_prompt", "n_evictable", "score_name")
SIZES = ("expected_kept", "realised_kept", "tail_kept", "first_step_cached")
EVICTING = ("evicted_mass", "margin")
DECIDING = ("certificate", "entropy", "output_logprob", "min_logit_gap")
SHOWN = 3  # fields of one row
MANY = float("inf")  # a number against none


@dataclass(frozen=True)
class Made:
    """A generation as it comes out now, and what its row does not say."""

    row: Generation
    tokens: Sequence[int]  # without the stop token
    gaps: Sequence[float]  # between the two largest logits, by token, that of the stop token included
    score_of_logged: float  # what the logged text scores
    decoded: Any  # tokens -> text
    places: int  # tokens that could be evicted, over layers and KV heads


@dataclass(frozen=True)
class Matched:
    """What came out of it."""

    same_stack: bool
    dtype: str
    equal: bool
    keep_set_equal: bool
    text_equal: bool
    near_tie: bool
    places: int
    largest: dict[str, float] = field(default_factory=dict)  # by signal
    wrong: str = ""  # a sentence; empty: nothing


def matched(one: Logged, made: Made, same_stack: bool) -> Matched:
    """A row against its generation here."""
    row, now = one.row, made.row
    differ = [name for name in FIELDS if _differ(row, now, name)]
    dtype = one.shard.model.dtype
    allowed = tolerance(dtype, row.keep_digest == now.keep_digest)
    near_tie = _has_other_answer(row, now) and _is_turned(row, made, allowed)
    wrong = list(_said(row, now, differ)) if same_stack else list(_abroad(one, made, allowed, near_tie))
    if (arms := now.seconds.decode_arms) != row.seconds.decode_arms:
        wrong.insert(0, f"{arms} arms decode together, the log says {row.seconds.decode_arms}")
    return Matched(
        same_stack=same_stack,
        dtype=dtype,
        equal=not differ,
        keep_set_equal=row.keep_digest == now.keep_digest,
        text_equal=row.text == now.text,
        near_tie=near_tie and not same_stack,
        places=made.places,
        largest=_differences(row, now, _comparable(row, now)),
        wrong=f"{one.place}: {'; '.join(first(wrong, SHOWN))}" if wrong else "",
    )


def _differ(row: Generation, now: Generation, name: str) -> bool:
    if name == "keep_probe" and row.keep_probe is None:
        return False  # logged before there was one; its digest is compared
    return bool(getattr(row, name) != getattr(now, name))


def _said(row: Generation, now: Generation, names: Sequence[str]) -> Iterator[str]:
    for name in names:
        yield f"{name} is {_short(getattr(now, name))}, the log says {_short(getattr(row, name))}"


def _short(value: Any) -> str:
    return f"{value!r:.48}"


# Other software -------------------------------------------------------------------------------------


def _abroad(one: Logged, made: Made, allowed: Tolerance, near_tie: bool) -> Iterator[str]:
    """What no rounding explains."""
    row, now = one.row, made.row
    yield from _said(row, now, [name for name in PROMPT if _differ(row, now, name)])
    if row.score_value != made.score_of_logged:
        yield f"the logged text scores {made.score_of_logged:.10g}, the log says {row.score_value:.10g}"
    yield from _keep_set(row, now)
    places = (1 - least_agreement(one.shard.model.dtype)) * now.n_evictable
    yield from _said(row, now, [n for n in SIZES if _gap(getattr(row, n), getattr(now, n)) > places])
    if not _has_other_answer(row, now):
        yield from _said(row, now, [name for name in ("undefined",) if _differ(row, now, name)])
    elif not near_tie:
        yield f"it answers {_short(now.text)}, the log says {_short(row.text)}, and no near-tie explains it"
    for name, difference in _differences(row, now, _comparable(row, now)).items():
        if difference > _allowed(name, allowed):
            yield from _said(row, now, [name])


def _allowed(name: str, allowed: Tolerance) -> float:
    if name == "min_logit_gap":
        return allowed.tie
    return allowed.evicting if name in EVICTING else allowed.deciding


def _keep_set(row: Generation, now: Generation) -> Iterator[str]:
    if row.keep_digest == now.keep_digest:
        return
    if row.keep_digest is None or now.keep_digest is None:
        yield from _said(row, now, ["keep_digest"])
        return
    agree = 0
    if row.keep_probe is not None and now.keep_probe is not None:
        agree = agreement(row.keep_probe, now.keep_probe)
    if agree < ROW_AGREEMENT * PLACES:
        shown = f"{agree} of {PLACES} places agree"
        yield f"the anchor and the model give another keep set than the log has ({shown})"


def _has_other_answer(row: Generation, now: Generation) -> bool:
    """Whether it stopped elsewhere or reads otherwise."""
    return any(_differ(row, now, name) for name in ("text", "n_generated", "stopped_by"))


def _is_turned(row: Generation, made: Made, allowed: Tolerance) -> bool:
    until = parting(made.tokens, row.text, made.decoded)
    return is_near_tie(made.gaps, until, row.min_logit_gap, allowed.tie)


def _comparable(row: Generation, now: Generation) -> tuple[str, ...]:
    """Signals that must come out alike: those of decoding are of the answer that was decoded."""
    return EVICTING if _has_other_answer(row, now) else (*EVICTING, *DECIDING, "certificate_steps")


def _differences(row: Generation, now: Generation, names: Sequence[str]) -> dict[str, float]:
    found = {name: _difference(getattr(row, name), getattr(now, name)) for name in names}
    return {name: value for name, value in found.items() if value is not None}


def _difference(logged: Any, now: Any) -> float | None:
    """Over max(1, size); of lists the largest; None where both are undefined."""
    if isinstance(logged, list) and isinstance(now, list) and len(logged) == len(now):
        return max((_gap(a, b) / max(1.0, abs(b)) for a, b in zip(logged, now, strict=True)), default=None)
    if isinstance(logged, list) or isinstance(now, list):
        return MANY
    return None if logged is None and now is None else _gap(logged, now) / max(1.0, abs(now or 0.0))


def _gap(logged: float | None, now: float | None) -> float:
    if logged is None or now is None:
        return 0.0 if logged is now else MANY
    return abs(logged - now)
