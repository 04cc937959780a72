"""What the rows of an arm say: outcomes, scores, texts and raw signals."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvexp.records import SIGNALS
from scripts.planting.draws import normals, uniforms
from scripts.planting.rates import CLASSES, FINE, INHERENT, LASTING, REPAIRED, RESCUED, Place, Rates
from scripts.planting.targets import Spread, Suite
from scripts.planting.wanted import Floats, below

# What the full cache, the control and every arm answer, drawn example by example at the cells' rates.
#
# Latent normals share parts within a question and within a model's answers to it; budgets share them
# whole, so what survives a small budget survives a larger one.


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


# What the rows of one place of an arm say: scores, texts and raw signals, column by column.


# Token F1 of a failure lies below the strict threshold, and rarely between the lenient one and it.
STRICT, LENIENT, RARELY = 0.5, 0.3, 0.02
# How often a wrong answer is in the words that all draws share: where the cache is at fault, and where not.
SHARED_WORDS = (0.1, 0.6)


@dataclass(frozen=True)
class Level:
    """A certificate is exp(location + scale * signal)."""

    location: float = -1.0
    scale: float = 0.5


@dataclass(frozen=True)
class Answers:
    """One place, (examples,) each."""

    success: Bools  # whether the arm answers
    full: Bools  # whether the full cache does
    larger: Bools | None  # whether the arm does at its next larger budget; None where there is none

    def classes(self) -> NDArray[np.int64]:
        """(examples,) numbers of `components.CLASSES`."""
        repaired = np.zeros_like(self.full) if self.larger is None else self.larger
        induced = np.where(repaired, CLASSES.index(REPAIRED), CLASSES.index(LASTING))
        at_fault = np.where(self.full, induced, CLASSES.index(INHERENT))
        succeeds = np.where(self.full, CLASSES.index(FINE), CLASSES.index(RESCUED))
        kinds: NDArray[np.int64] = np.where(self.success, succeeds, at_fault)
        return kinds


def scores(answers: Answers, key: tuple[Any, ...]) -> list[float]:
    """Token F1."""
    n = len(answers.success)
    u, near = uniforms(n, *key, "score"), uniforms(n, *key, "near") < RARELY
    wrong = np.where(near, LENIENT + (STRICT - LENIENT) * u, LENIENT * u)
    return digits(np.where(answers.success, STRICT + (1 - STRICT) * u, wrong))


def texts(answers: Answers, ids: list[str], key: tuple[Any, ...]) -> list[str]:
    """The answer, or a wrong one: in words of its own, or in those that other draws use too."""
    n = len(ids)
    is_shared = uniforms(n, *key, "shared words") < np.where(answers.full, *SHARED_WORDS)
    guess = np.where(is_shared, 0, 1 + (uniforms(n, *key, "guess") * 1000).astype(np.int64))
    return [
        f"the answer to {one}" if fine else f"perhaps {one} guess {number}"
        for one, fine, number in zip(ids, answers.success, guess.tolist(), strict=True)
    ]


def noises(share: float, n: int, seed: int, task: str, key: tuple[Any, ...]) -> dict[str, Floats]:
    """Standard normals by signal, this share of their variance common to all rows of an example."""
    return {
        signal: math.sqrt(share) * normals(n, seed, "shared noise", signal, task)
        + math.sqrt(1 - share) * normals(n, *key, "noise", signal)
        for signal in SIGNALS
    }


def raw(risks: Mapping[str, Floats], level: Level) -> dict[str, list[float]]:
    """Signals as logs have them: a large margin or log-probability is a small risk."""
    return {
        "certificate": digits(np.exp(level.location + level.scale * risks["certificate"])),
        "entropy": digits(1 / (1 + np.exp(-0.5 * risks["entropy"]))),
        "evicted_mass": digits(1 / (1 + np.exp(-0.5 * risks["evicted_mass"]))),
        "margin": digits(np.exp(-0.5 * risks["margin"] - 3)),
        "output_logprob": digits(-np.exp(0.5 * risks["output_logprob"] - 1)),
    }


def digits(values: Floats) -> list[float]:
    """With 7 digits, as a log has them."""
    return [float(f"{value:.7g}") for value in values.tolist()]
