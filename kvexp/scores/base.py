"""What an importance score is: attention that chosen query rows pay to every cached token.

Legend: K KV heads, N cached tokens when eviction happens, D head dimension.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch


@dataclass(frozen=True)
class Spans:
    """Positions of one prompt that a score may refer to."""

    n_evictable: int  # tokens in the cache when eviction happens; rows lie below it
    question: tuple[int, int]  # first and past-the-last position of the question's tokens


class Score(ABC):
    """Subclasses are frozen dataclasses; their fields are the parameters."""

    conditions: ClassVar[tuple[str, ...]] = ("aware", "stream")
    reads_values: ClassVar[bool] = False  # beyond attention: permuting values then changes the score

    @abstractmethod
    def rows(self, spans: Spans) -> range:
        """Query positions whose attention is summed: causal softmax rows, mean over the group's heads."""

    def finish(self, mass_KN: torch.Tensor, values_KND: torch.Tensor) -> torch.Tensor:
        """The score (K, N) of one layer from the summed attention; by default the sum itself."""
        return mass_KN
