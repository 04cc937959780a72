"""SnapKV (Li et al., 2024): attention of an observation window at the end, pooled over neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvexp.errors import ConfigError
from kvexp.scores.base import Layer, Score, Spans

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Window(Score):
    """`window` last positions, then average pooling of odd width `pool` (1: none)."""

    window: int = 64
    pool: int = 5

    def __post_init__(self) -> None:
        if self.window < 1 or self.pool < 1 or self.pool % 2 == 0:
            raise ConfigError("the window is at least 1 and the pool an odd number")

    def rows(self, spans: Spans) -> range:
        return range(max(0, spans.n_evictable - self.window), spans.n_evictable)

    def finish(self, layer: Layer) -> torch.Tensor:
        import torch

        return torch.nn.functional.avg_pool1d(
            layer.mass_KN, self.pool, stride=1, padding=self.pool // 2, count_include_pad=False
        )
