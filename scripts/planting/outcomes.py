"""What the full cache, the control and every arm answer, drawn example by example at the cells' rates.

Latent normals share parts within a question and within a model's answers to it; budgets share them
whole, so what survives a small budget survives a larger one.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scripts.planting.draws import normals
from scripts.planting.rates import Place, Rates
from scripts.planting.targets import Spread, Suite
from scripts.planting.wanted import Floats, below

Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Questions:
    """The examples of one model and task in one suite, and what decides their answers.

    Attributes:
        suite, model, task: whose they are.
        full: (examples,) whether the full cache answers.
        control: (examples,) whether the control does; None where none asks the task.
    """

    suite: Suite
    model: str
    task: str
    full: Bools
    control: Bools | None


class Outcomes:
    """Draws."""

    def __init__(self, rates: Rates, spread: Spread, seed: int) -> None:
        """Any seed gives a study of the same truths."""
        self._rates, self._spread, self._seed = rates, spread, seed

    def questions(self, suite: Suite, model: str, task: str) -> Questions:
        """Ask the full cache, or the control."""
        n = suite.examples
        # Suites share the latent: the same examples are easy in all of them.
        ease = self._mixed(n, [(self._spread.example, ("ease", task))], ("ease", model, task))
        known = self._rates.knowledge(model, task)
        control = None
        if known is not None:
            luck = self._mixed(n, [(self._spread.example, ("luck", task))], ("luck", model, task))
            control = luck < np.where(ease < known.full, known.known, known.guessed)
        if self._rates.is_control(suite):
            assert control is not None
            return Questions(suite, model, task, control, control)
        return Questions(suite, model, task, ease < self._rates.full(suite, model, task), control)

    def success(self, asked: Questions, place: Place) -> Bools:
        """(examples,) of one arm at one place."""
        arm, condition, _, seed = place
        if arm == "full":
            return asked.full
        suite, model, task = asked.suite, asked.model, asked.task
        cell = self._rates.cell(suite, model, task, place)
        shares = [(self._spread.example, ("harm", task, condition))]
        shares += [(self._spread.draws, ("harm", model, task, condition, suite.name, arm))]
        own = (suite.name, model, task, arm, condition, seed)
        harm = self._mixed(suite.examples, shares, ("harm", *own))
        luck = self._mixed(suite.examples, [(self._spread.example, ("save", task))], ("save", *own))
        induced = np.full(suite.examples, cell.induced)
        if asked.control is not None:
            known = self._rates.knowledge(model, task)
            assert known is not None
            share = known.given(self._rates.full(suite, model, task))
            rest = (cell.induced - (1 - share) * cell.dependent) / share if share else cell.induced
            induced = np.where(asked.control, rest, cell.dependent)
        success: Bools = np.where(asked.full, harm >= induced, luck < cell.rescued)
        return success

    def _mixed(
        self, n: int, shares: Sequence[tuple[float, tuple[object, ...]]], own: tuple[object, ...]
    ) -> Floats:
        """(n,) uniforms whose normals share these parts of their variance by key."""
        total = math.sqrt(1 - sum(share for share, _ in shares)) * normals(n, self._seed, *own)
        for share, key in shares:
            total = total + math.sqrt(share) * normals(n, self._seed, "shared", *key)
        return below(total)
