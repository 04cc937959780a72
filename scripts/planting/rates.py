"""Rates of every cell as the targets give them, and the groups of rows that they make."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from scripts.planting.targets import Rate, Suite, Targets, TargetsError, Where

# Rates of every cell, as the targets give them.


Place = tuple[str, str | None, float | None, int | None]
START = {"full": 0.6, "induced": 0.2, "rescued": 0.05, "accuracy": None, "dependent": 1.0}


@dataclass(frozen=True)
class CellRates:
    """The rates of one suite, model, task and place of an arm; see `targets.Rate`."""

    full: float
    induced: float
    rescued: float
    dependent: float  # induced failures among what the control does not answer


@dataclass(frozen=True)
class Knowledge:
    """What a control answers of one model and task."""

    full: float  # what every other suite's full cache answers
    known: float  # success on that
    guessed: float  # success on the rest

    def given(self, full: float) -> float:
        """Success on what one suite's full cache answers, which is `full` of its examples."""
        inside = min(self.full, full)
        return (inside * self.known + (full - inside) * self.guessed) / full if full else 0.0


class Rates:
    """Looks up rates."""

    def __init__(self, targets: Targets) -> None:
        """Keep the targets."""
        self._targets = targets
        self._controls = {one.suite for one in targets.control}
        self._known = dict[Any, Any]()

    def is_control(self, suite: Suite) -> bool:
        """Whether the suite answers without the context."""
        return suite.name in self._controls

    def full(self, suite: Suite, model: str, task: str) -> float:
        """Success of the full cache."""
        told = self._told(suite, model, task, ("full", None, None, None))
        ability = self._targets.ability.get(model, 0.0)
        mean = float(told["full"])
        return min(max(mean + ability * 4 * mean * (1 - mean), 0.0), 1.0)

    def knowledge(self, model: str, task: str) -> Knowledge | None:
        """What the control answers; None where no control asks the task."""
        for one in self._targets.control:
            if task in one.tasks:
                suites = [s for s in self._targets.suite if not self.is_control(s)]
                full = [self.full(s, model, task) for s in suites if task in s.tasks and model in s.models]
                return Knowledge(min(full, default=0.0), one.known, one.guessed)
        return None

    def cell(self, suite: Suite, model: str, task: str, place: Place) -> CellRates:
        """The rates of a place of an arm."""
        key = (suite.name, model, task, place)
        if key not in self._known:
            self._known[key] = self._cell(suite, model, task, place)
        found: CellRates = self._known[key]
        return found

    def _cell(self, suite: Suite, model: str, task: str, place: Place) -> CellRates:
        told = self._told(suite, model, task, place)
        full, induced = float(told["full"]), float(told["induced"])
        rescued = float(told["rescued"])
        if told["accuracy"] is not None:
            # Of the mean over models, of which it is linear.
            rescued = (told["accuracy"] - full * (1 - induced)) / (1 - full) if full < 1 else 0.0
        where = f"{suite.name} {task} {' '.join(str(part) for part in place if part is not None)}"
        if not -1e-9 <= rescued <= 1:
            raise TargetsError(
                f"{where}: accuracy, full and induced would need a rescue rate of {rescued:.3f}"
            )
        known = self.knowledge(model, task)
        dependent = induced * float(told["dependent"])
        share = known.given(self.full(suite, model, task)) if known is not None else 0.0
        if share and not 0 <= (induced - (1 - share) * dependent) / share <= 1:
            raise TargetsError(f"{where}: no rate fits what the control answers beside 'dependent'")
        return CellRates(
            full=self.full(suite, model, task),
            induced=induced,
            rescued=max(rescued, 0.0),
            dependent=dependent,
        )

    def _told(self, suite: Suite, model: str, task: str, place: Place) -> dict[str, Any]:
        axes = ("arms", "conditions", "budgets", "seeds")
        at = {"suites": suite.name, "models": model, "tasks": task, **dict(zip(axes, place, strict=True))}
        bare = {"suites": suite.name, "models": model, "tasks": task}
        told: dict[str, Any] = dict(START)
        for rate in self._targets.rate:
            if rate.full is not None and _is_bare(rate) and rate.at.has(**bare):
                told["full"] = rate.full
            if rate.at.has(**at):
                for name in ("induced", "rescued", "accuracy", "dependent"):
                    if getattr(rate, name) is not None:
                        told[name] = getattr(rate, name)
                if rate.rescued is not None:
                    told["accuracy"] = None
        return told


def _is_bare(rate: Rate) -> bool:
    return rate.at.arms is None and rate.at.conditions is None and rate.at.budgets is None


# Rows of one arm, grouped so that a signal is normal in each group: by cell and by what became of the row.
#
# Classes: `fine` and `rescued` succeed; `lasting` and `repaired` are induced failures, of which the latter
# succeed at the arm's next larger budget; `inherent` fails with the full cache too.


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


def _classes(here: CellRates, larger: CellRates) -> Iterator[tuple[str, float, float, float]]:
    """(class, share of all rows, to_next, to_full); damage of a larger budget lies inside a smaller one's."""
    full, i, j, r, s = here.full, here.induced, larger.induced, here.rescued, larger.rescued
    repaired = max(i - j, 0.0)
    yield FINE, full * (1 - i), -max(j - i, 0.0) / (1 - i) if i < 1 else 0.0, 0.0
    yield LASTING, full * (i - repaired), 0.0, 1.0
    yield REPAIRED, full * repaired, 1.0, 1.0
    yield INHERENT, (1 - full) * (1 - r), max(s - r, 0.0) / (1 - r) if r < 1 else 0.0, 0.0
    yield RESCUED, (1 - full) * r, -max(r - s, 0.0) / r if r else 0.0, -1.0
