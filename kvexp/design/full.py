"""The full cache: nothing is evicted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from kvexp.design.base import Design

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Full(Design):
    """Keeps everything, whatever the budget."""

    uses_score: ClassVar[bool] = False
    keeps_all: ClassVar[bool] = True

    def inclusion(self, score_LKN: torch.Tensor, protected_N: torch.Tensor, slots: int) -> torch.Tensor:
        import torch

        return torch.ones_like(score_LKN, dtype=torch.float64)
