"""Top-k: the highest scores stay, the rest is deleted (H2O, SnapKV and their kin)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvexp.design.base import Design

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class TopK(Design):
    """Ties go to the earlier token, on every device."""

    def inclusion(self, score_LKN: torch.Tensor, protected_N: torch.Tensor, slots: int) -> torch.Tensor:
        # Protection is a set union, never a boosted score: a boosted score can tie and be evicted.
        pi = protected_N.double().repeat(*score_LKN.shape[:2], 1)
        free = (~protected_N).nonzero().flatten()
        order = score_LKN[..., free].sort(dim=-1, descending=True, stable=True).indices
        chosen = free[order[..., : slots - int(protected_N.sum())]]
        return pi.scatter_(-1, chosen, 1.0)
