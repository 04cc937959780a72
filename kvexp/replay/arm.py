"""An arm is a composition: score x design x estimator, at one place of the grid."""

from dataclasses import dataclass

from kvexp.design.base import Design
from kvexp.scores.base import Score


@dataclass(frozen=True)
class Arm:
    """One arm under one condition, budget and draw; null where an axis does not apply."""

    name: str
    score: Score | None
    design: Design
    estimator: str  # plain | hajek
    condition: str | None = None
    budget: float | None = None
    seed: int | None = None

    @property
    def certified(self) -> bool:
        """The certificate is defined for a drawn tail under the Hajek estimator."""
        return self.design.is_random and self.estimator == "hajek"
