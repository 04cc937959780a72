"""StreamingLLM (Xiao et al., 2024): attention sinks and the most recent tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from kvexp.design.base import Design

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Recency(Design):
    """Fills the budget with the newest unprotected tokens; original positions are kept."""

    uses_score: ClassVar[bool] = False

    def inclusion(self, score_LKN: torch.Tensor, protected_N: torch.Tensor, slots: int) -> torch.Tensor:
        free = (~protected_N).nonzero().flatten()
        pi_N = protected_N.double()
        pi_N[free[len(free) - (slots - int(protected_N.sum())) :]] = 1.0
        return pi_N.expand(score_LKN.shape)
