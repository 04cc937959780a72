"""How far an answer on other software may lie from the logged one, as measured with the embedded model."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Tolerance:
    """Allowed differences, over max(1, size of the number), and shares.

    Attributes:
        evicting: of signals that exist when tokens are evicted.
        deciding: of signals read while the same answer is decoded, from equal keep sets.
        tie: of logits: the gap between the two largest within which the choice may turn.
        parted: share of all rows whose texts may part.
    """

    evicting: float
    deciding: float
    tie: float
    parted: float


TOLERANCES = {
    "float32": Tolerance(evicting=1e-3, deciding=1e-3, tie=1e-3, parted=0.05),
    "bfloat16": Tolerance(evicting=0.1, deciding=0.5, tie=0.5, parted=0.5),
}


def tolerance(dtype: str) -> Tolerance:
    """Of a model's dtype; float16 has more digits than bfloat16, and its tolerance."""
    return TOLERANCES.get(dtype, TOLERANCES["bfloat16"])
