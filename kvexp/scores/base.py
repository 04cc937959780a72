"""What an importance score is: one number for every cached token, from what the prefill holds of a layer.

Legend: K KV heads, N cached tokens when eviction happens, D head dimension.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Spans:
    """Positions of one prompt that a score may refer to."""

    n_evictable: int  # tokens in the cache when eviction happens; rows lie below it
    question: tuple[int, int]  # first and past-the-last position of the question's tokens


@dataclass(frozen=True)
class Layer:
    """What the prefill holds of one layer when eviction happens; a score reads it and changes nothing."""

    keys_KND: torch.Tensor  # after RoPE, in the cache's dtype
    values_KND: torch.Tensor  # in the cache's dtype
    position_N: torch.Tensor  # int64, of each cached token in the prompt
    mass_KN: torch.Tensor  # float32, attention summed over the score's query rows, mean over a group's heads


class Score:
    """Subclasses are frozen dataclasses; their fields are the parameters."""

    conditions: ClassVar[tuple[str, ...]] = ("aware", "stream")
    reads_attention: ClassVar[bool] = True  # False: `rows` stays empty and the mass is zero
    reads_values: ClassVar[bool] = False  # beyond attention: permuting values then changes the score

    def rows(self, spans: Spans) -> range:
        """Query positions whose attention is summed: causal softmax rows, mean over the group's heads."""
        return range(0)

    def finish(self, layer: Layer) -> torch.Tensor:
        """The score (K, N) of one layer, float32; by default the attention mass."""
        return layer.mass_KN
