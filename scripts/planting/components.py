"""Rows of one arm, grouped so that a signal is normal in each group: by cell and by what became of the row.

Classes: `fine` and `rescued` succeed; `lasting` and `repaired` are induced failures, of which the latter
succeed at the arm's next larger budget; `inherent` fails with the full cache too.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from scripts.planting.rates import Cell, Place, Rates
from scripts.planting.targets import Suite, Targets, Where

FINE, LASTING, REPAIRED, INHERENT, RESCUED = CLASSES = ("fine", "lasting", "repaired", "inherent", "rescued")
FULL_CORRECT = (FINE, LASTING, REPAIRED)
FAILURES = (LASTING, REPAIRED, INHERENT)
INDUCED = (LASTING, REPAIRED)


@dataclass(frozen=True)
class Component:
    """One group.

    Attributes:
        suite, model, task, place: its cell.
        kind: its class.
        count: rows expected in it.
        to_next: change of success, 1 or -1 a row, at the next larger budget; 0 where there is none.
        to_full: the same with the full cache.
    """

    suite: str
    model: str
    task: str
    place: Place
    kind: str
    count: float
    to_next: float
    to_full: float

    def inside(self, where: Where) -> bool:
        """Whether the rows are among those named."""
        arm, condition, budget, seed = self.place
        return where.has(
            suites=self.suite,
            models=self.model,
            tasks=self.task,
            arms=arm,
            conditions=condition,
            budgets=budget,
            seeds=seed,
        )


def components(targets: Targets, rates: Rates, arm: str) -> list[Component]:
    """All groups of an arm that are not empty."""
    return [one for suite in targets.suite for one in _of_suite(suite, rates, arm) if one.count > 0]


def _of_suite(suite: Suite, rates: Rates, arm: str) -> Iterator[Component]:
    places = suite.places()
    for place in places:
        if place[0] == arm and not rates.is_control(suite):
            larger = next_budget(place, places)
            for model in suite.models:
                for task in suite.tasks:
                    cells = [rates.cell(suite, model, task, one) for one in (place, larger or place)]
                    for kind, share, to_next, to_full in _classes(*cells):
                        count = share * suite.examples
                        yield Component(suite.name, model, task, place, kind, count, to_next, to_full)


def next_budget(place: Place, places: list[Place]) -> Place | None:
    """The same arm, condition and seed at the next larger budget."""
    arm, condition, budget, seed = place
    larger = [
        one
        for one in places
        if (one[0], one[1], one[3]) == (arm, condition, seed) and (one[2] or 0) > (budget or 0)
    ]
    return min(larger, key=lambda one: one[2] or 0, default=None)


def _classes(here: Cell, larger: Cell) -> Iterator[tuple[str, float, float, float]]:
    """(class, share of all rows, to_next, to_full); damage of a larger budget lies inside a smaller one's."""
    full, i, j, r, s = here.full, here.induced, larger.induced, here.rescued, larger.rescued
    repaired = max(i - j, 0.0)
    yield FINE, full * (1 - i), -max(j - i, 0.0) / (1 - i) if i < 1 else 0.0, 0.0
    yield LASTING, full * (i - repaired), 0.0, 1.0
    yield REPAIRED, full * repaired, 1.0, 1.0
    yield INHERENT, (1 - full) * (1 - r), max(s - r, 0.0) / (1 - r) if r < 1 else 0.0, 0.0
    yield RESCUED, (1 - full) * r, -max(r - s, 0.0) / r if r else 0.0, -1.0
