"""Value-aware score (VATP, Guo et al., 2024): attention of an observation window times the value's norm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from kvexp.errors import ConfigError
from kvexp.scores.base import Layer, Score, Spans

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class ValueWeighted(Score):
    """Reads one summary of every value, its L1 norm; what keeps the norm is invisible to it (Remark 1)."""

    reads_values: ClassVar[bool] = True
    window: int = 64

    def __post_init__(self) -> None:
        if self.window < 1:
            raise ConfigError(f"the window is at least 1, got {self.window}")

    def rows(self, spans: Spans) -> range:
        return range(max(0, spans.n_evictable - self.window), spans.n_evictable)

    def finish(self, layer: Layer) -> torch.Tensor:
        return layer.mass_KN * layer.values_KND.float().abs().sum(-1)
