"""Means of a signal's groups under which every target has its value, found from zero by shortest steps."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from scripts.planting.rates import FAILURES, FULL_CORRECT, INDUCED, INHERENT, Component
from scripts.planting.targets import Auc, Gain, Selective, Targets, TargetsError
from scripts.planting.wanted import Floats, Kept, PooledAuc, TopShare, Wanted

STEPS, RIDGE, ENOUGH, TOLERANCE = 40, 1e-9, 1e-5, 0.002
DIGITS = 4  # of a mean: what remains of the linear algebra of one machine or another is rounded away


@dataclass(frozen=True)
class Planted:
    """A target, in words and numbers, and what the rows have in expectation."""

    words: str
    target: float
    value: float


def solve(
    targets: Targets, signal: str, groups: Sequence[Component]
) -> tuple[dict[Component, float], list[Planted]]:
    """The mean of each group, and what the targets of this signal are under them.

    Raises TargetsError where targets cannot be had together.
    """
    if not groups:
        return {}, []
    told = [(words, one) for words, one in _wanted(targets, signal, groups) if one is not None]
    design = _design(groups)
    means = np.round(_smallest(design, [one for _, one in told]), DIGITS)
    planted = [Planted(words, one.target, float(one.at(means)[0])) for words, one in told]
    for one in planted:
        if abs(one.value - one.target) > TOLERANCE:
            raise TargetsError(
                f"{one.words}: {one.target:.3f} cannot be had beside the other targets, only {one.value:.3f}"
            )
    return dict(zip(groups, map(float, means), strict=True)), planted


def _wanted(
    targets: Targets, signal: str, groups: Sequence[Component]
) -> Iterator[tuple[str, Wanted | None]]:
    arm = groups[0].place[0]
    for one in (*targets.auc, *targets.gain, *targets.selective):
        if one.signal != signal or one.at.arms != [arm]:
            continue
        count = np.array([group.count * group.inside(one.at) for group in groups])
        place = " ".join(
            f"{value}"
            for axis in ("suites", "models", "tasks", "arms", "conditions", "budgets", "seeds")
            for value in getattr(one.at, axis) or ()
        )
        yield _words(one, place), _functional(one, count, groups)


def _words(one: Auc | Gain | Selective, place: str) -> str:
    if isinstance(one, Auc):
        return f"AUC of {one.signal} for {one.label}: {place}"
    if isinstance(one, Gain):
        return f"gain by {one.signal} to {one.to}: {place}"
    return f"error at {one.coverage:g} coverage by {one.signal}: {place}"


def _functional(one: Auc | Gain | Selective, count: Floats, groups: Sequence[Component]) -> Wanted:
    def of(kinds: Sequence[str]) -> Floats:
        return count * np.array([group.kind in kinds for group in groups])

    if isinstance(one, Gain):
        change = [group.to_full if one.to == "full" else group.to_next for group in groups]
        return TopShare(one.value, count, np.array(change), one.q)
    if isinstance(one, Selective):
        failed = np.array([float(group.kind in FAILURES) for group in groups])
        return Kept(one.value, count, failed, one.coverage)
    if one.label == "own_failure":
        positive = of(FAILURES)
        return PooledAuc(one.value, positive, count - positive)
    if one.label == "induced_failure":
        positive = of(INDUCED)
        return PooledAuc(one.value, positive, of(FULL_CORRECT) - positive)
    return PooledAuc(one.value, of(INDUCED), of([INHERENT]))


def _design(groups: Sequence[Component]) -> Floats:
    """(groups, effects): 1 where an effect is one of the group's."""
    found = dict[tuple[object, ...], int]()
    rows = []
    for group in groups:
        _, condition, budget, _ = group.place
        effects = [
            ("class", group.suite, condition, group.kind),
            ("budget", group.suite, condition, budget),
            ("class at budget", group.suite, condition, budget, group.kind),
            ("model", group.suite, group.model),
            ("class by model", group.suite, group.model, group.kind),
            ("task", group.suite, group.task, condition),
            ("cell", group.suite, group.model, group.task, condition),
            ("class by cell", group.suite, group.model, group.task, group.kind),
        ]
        rows.append([found.setdefault(effect, len(found)) for effect in effects])
    design = np.zeros((len(groups), len(found)))
    for at, row in enumerate(rows):
        design[at, row] = 1.0
    return design


def _smallest(design: Floats, wanted: Sequence[Wanted]) -> Floats:
    """Gauss-Newton from zero by shortest steps, in the space of the targets, fewer than the effects."""
    effects = np.zeros(design.shape[1])
    target = np.array([one.target for one in wanted])
    for _ in range(STEPS if wanted else 0):
        told = [one.at(design @ effects) for one in wanted]
        missed = target - np.array([value for value, _ in told])
        if np.abs(missed).max() < ENOUGH:
            break
        jacobian = np.stack([gradient for _, gradient in told]) @ design
        square = jacobian @ jacobian.T + RIDGE * np.eye(len(wanted))
        step = jacobian.T @ np.linalg.solve(square, missed)
        effects = effects + _length(design, wanted, effects, step, float(missed @ missed)) * step
    return design @ effects


def _length(design: Floats, wanted: Sequence[Wanted], effects: Floats, step: Floats, before: float) -> float:
    """The first of 1, 1/2, 1/4, ... at which the targets are missed by less than before; 0 if none is."""
    for halvings in range(12):
        means = design @ (effects + step / 2**halvings)
        if sum((one.target - one.at(means)[0]) ** 2 for one in wanted) < before:
            return 0.5**halvings
    return 0.0
