"""What a selection design is: the inclusion probability pi of every cached token, known and chosen by us.

Fixed designs choose 0 or 1 and leave nothing to chance; random ones are drawn by Poisson sampling.
Legend: L layers, K KV heads, N cached tokens when eviction happens.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from kvexp.errors import InputError

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class KeepPlan:
    """What stays in the cache, and with which probability it did."""

    kept_LKN: torch.Tensor  # bool
    pi_LKN: torch.Tensor  # float64

    @property
    def expected(self) -> float:
        """Expected tokens kept, mean over layers and KV heads."""
        return float(self.pi_LKN.sum(-1).mean())

    @property
    def realised(self) -> float:
        """Tokens kept, mean over layers and KV heads."""
        return float(self.kept_LKN.sum(-1).double().mean())

    @property
    def tail_kept(self) -> float:
        """Kept tokens that could have been evicted (pi < 1), mean over layers and KV heads."""
        return float((self.kept_LKN & (self.pi_LKN < 1)).sum(-1).double().mean())


class Design(ABC):
    """Subclasses are frozen dataclasses; their fields are the parameters."""

    uses_score: ClassVar[bool] = True
    is_random: ClassVar[bool] = False
    keeps_all: ClassVar[bool] = False

    @abstractmethod
    def inclusion(self, score_LKN: torch.Tensor, protected_N: torch.Tensor, slots: int) -> torch.Tensor:
        """pi (L, K, N), float64, that adds up to `slots` tokens with pi = 1 on protected ones.

        A design without a score reads only the shape and the device of `score_LKN`.
        """


def fixed_plan(pi_LKN: torch.Tensor) -> KeepPlan:
    """The plan of probabilities that are all 0 or 1."""
    return KeepPlan(pi_LKN > 0, pi_LKN)


def drawn_plan(pi_LKN: torch.Tensor, uniform_LKN: torch.Tensor) -> KeepPlan:
    """Independent Bernoulli(pi) draws (Poisson sampling): token i stays where u_i < pi_i."""
    return KeepPlan(uniform_LKN < pi_LKN, pi_LKN)


# The budget rule: one for all arms, protected tokens included.


class TooShort(InputError):
    """A cache or a budget that the protected tokens fill up."""


def slots(budget: float, n: int, protected: int) -> int:
    """B = round(budget * n) tokens of a cache of n. Raises TooShort if only protected ones would fit."""
    kept = round(budget * n)
    if min(kept, n) <= protected:
        raise TooShort(
            f"a budget of {budget:g} keeps {kept} of {n} cached tokens, but {protected} are protected: "
            "use a longer context or a larger budget"
        )
    return kept


def protected_mask(n: int, sinks: int, recent: int, device: torch.device | None = None) -> torch.Tensor:
    """Bool (n,): the first `sinks` and the last `recent` tokens, which no design evicts."""
    import torch  # here: who only lists a study's rows needs no tensor

    position = torch.arange(n, device=device)
    return (position < sinks) | (position >= n - recent)
