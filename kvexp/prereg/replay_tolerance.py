"""How far an answer on other software may lie from the logged one, as measured with the embedded model."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

HALF = "bfloat16"


@dataclass(frozen=True)
class Tolerance:
    """Allowed differences, over max(1, size of the number).

    Attributes:
        evicting: of signals that exist when tokens are evicted.
        deciding: of signals read while the same answer is decoded.
        tie: of logits: the gap between the two largest within which the choice may turn, and how far the
            smallest gap that a row states may lie from the one here.
    """

    evicting: float
    deciding: float
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
