"""The full cache: nothing is evicted."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from kvexp.design.base import Design


@dataclass(frozen=True)
class Full(Design):
    """Keeps everything, whatever the budget."""

    uses_score: ClassVar[bool] = False
    keeps_all: ClassVar[bool] = True

    def inclusion(self, score_LKN: torch.Tensor, protected_N: torch.Tensor, slots: int) -> torch.Tensor:
        return torch.ones_like(score_LKN, dtype=torch.float64)
