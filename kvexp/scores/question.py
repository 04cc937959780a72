"""Question-aware score: attention that the question's tokens pay to everything before them."""

from dataclasses import dataclass
from typing import ClassVar

from kvexp.scores.base import Score, Spans


@dataclass(frozen=True)
class Question(Score):
    """Defined only where the question is there before eviction."""

    conditions: ClassVar[tuple[str, ...]] = ("aware",)

    def rows(self, spans: Spans) -> range:
        start, end = spans.question
        return range(start, min(end, spans.n_evictable))
