"""The standard error of an AUC by Hanley and McNeil (1982), and the z of section 5 against chance."""

import math
from dataclasses import dataclass

CHANCE = 0.5


@dataclass(frozen=True)
class Test:
    """An AUC against one half.

    Attributes:
        error: the standard error.
        z: (AUC - 1/2) / error; None if the error is 0.
        p: two-sided, from the normal distribution; None with z.
    """

    error: float
    z: float | None
    p: float | None


def standard_error(auc: float, positives: int, negatives: int) -> float:
    """Of an AUC in [0, 1] on independent rows of both classes; exponential scores are assumed."""
    q1, q2, square = auc / (2 - auc), 2 * auc * auc / (1 + auc), auc * auc
    spread = auc * (1 - auc) + (positives - 1) * (q1 - square) + (negatives - 1) * (q2 - square)
    return math.sqrt(max(spread, 0.0) / (positives * negatives))  # rounding can pass 0 at AUC 1


def against_chance(auc: float, positives: int, negatives: int) -> Test:
    """The test; both classes have rows."""
    error = standard_error(auc, positives, negatives)
    if not error:
        return Test(error, None, None)
    z = (auc - CHANCE) / error
    return Test(error, z, math.erfc(abs(z) / math.sqrt(2)))
