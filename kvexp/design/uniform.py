"""Uniform Poisson sampling: every unprotected token has the same inclusion probability."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from kvexp.design.base import Design

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Uniform(Design):
    """The design of an evictor that knows nothing: the baseline of section 4."""

    uses_score: ClassVar[bool] = False
    is_random: ClassVar[bool] = True

    def inclusion(self, score_LKN: torch.Tensor, protected_N: torch.Tensor, slots: int) -> torch.Tensor:
        import torch

        free = ~protected_N
        pi = torch.ones(score_LKN.shape, dtype=torch.float64, device=score_LKN.device)
        pi[..., free] = (slots - int(protected_N.sum())) / int(free.sum())
        return pi
