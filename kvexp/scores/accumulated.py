"""H2O (Zhang et al., 2023): attention accumulated over the prefill queries, at a stride."""

from dataclasses import dataclass

from kvexp.errors import ConfigError
from kvexp.scores.base import Score, Spans


@dataclass(frozen=True)
class Accumulated(Score):
    """The sum, not the mean, over queries: early tokens are seen by more queries, as in H2O."""

    stride: int = 16

    def __post_init__(self) -> None:
        if self.stride < 1:
            raise ConfigError(f"the stride is at least 1, got {self.stride}")

    def rows(self, spans: Spans) -> range:
        return range(self.stride - 1, spans.n_evictable, self.stride)
