"""The truths that a study is planted with, read from TOML: its grid, rates by cell, AUCs and gains."""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from kvexp.errors import KvexpError
from kvexp.records import SIGNALS, Condition, Count, Fraction, Id, Share

Label = Literal["own_failure", "induced_failure", "attribution"]
AXES = ("suites", "models", "tasks", "arms", "conditions", "budgets", "seeds")


class TargetsError(KvexpError):
    """Targets that cannot be planted."""


class Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base of what stands in the file."""


class Where(Strict, frozen=True):
    """Part of the grid; an axis that is left out means every value."""

    suites: list[str] | None = None
    models: list[str] | None = None
    tasks: list[str] | None = None
    arms: list[str] | None = None
    conditions: list[str] | None = None
    budgets: list[float] | None = None
    seeds: list[int] | None = None

    def has(self, **place: Any) -> bool:
        """Whether it holds a place, given by axis, for instance suites="6k"."""
        wanted = ((name, getattr(self, name)) for name in place)
        return all(values is None or place[name] in values for name, values in wanted)


class Arm(Strict, frozen=True):
    """An arm at every combination of its places; without any, the full cache."""

    arm: Id
    conditions: list[Condition] = []
    budgets: list[Fraction] = []
    seeds: list[int] = []

    def places(self) -> list[tuple[str, str | None, float | None, int | None]]:
        """(arm, condition, budget, seed), null where the arm has no such axis."""
        return [
            (self.arm, condition, budget, seed)
            for condition in self.conditions or [None]
            for budget in sorted(self.budgets) or [None]
            for seed in self.seeds or [None]
        ]


class Suite(Strict, frozen=True):
    """A suite: every model, task and example, at every place of its arms."""

    name: Id
    models: list[Id]
    tasks: list[Id]
    examples: Count
    arms: list[Arm]

    def places(self) -> list[tuple[str, str | None, float | None, int | None]]:
        """What is asked of an example, the full cache first."""
        return [place for arm in self.arms for place in arm.places()]

    @property
    def rows(self) -> int:
        """Generations of the suite."""
        return len(self.models) * len(self.tasks) * self.examples * len(self.places())


class Rate(Strict, frozen=True):
    """Rates of the cells it names; a later entry overrides an earlier one."""

    at: Where
    full: Share | None = None  # success of the full cache
    induced: Share | None = None  # failures among what the full cache answers
    rescued: Share | None = None  # successes among the rest
    accuracy: Share | None = None  # success over all; sets `rescued`
    # Induced failures among what the full cache answers and the control does not, as a multiple of `induced`.
    dependent: float | None = None


class Control(Strict, frozen=True):
    """A suite that answers without the context, and how much of what is answered with it."""

    suite: Id
    tasks: list[Id]
    known: Share  # success on what every other suite's full cache answers
    guessed: Share  # on the rest


class Auc(Strict, frozen=True):
    """The AUC of a signal for a label, pooled over the rows named."""

    signal: str
    label: Label
    at: Where
    value: Share


class Gain(Strict, frozen=True):
    """Success gained over chance where the top share q by signal moves elsewhere, rows named pooled."""

    signal: str
    to: Literal["full", "next"]  # the full cache, or the arm's next larger budget
    at: Where
    value: float
    q: Share = 0.25


class Selective(Strict, frozen=True):
    """The share of failures among the fraction of rows that the signal calls safest."""

    signal: str
    at: Where
    coverage: Share
    value: Share


class Median(Strict, frozen=True):
    """The levels of a signal above zero: its medians over failures and over successes of the rows named."""

    signal: str
    at: Where
    failures: float
    successes: float


class Spread(Strict, frozen=True):
    """How alike the rows of an example are: shares of variance, each from 0 to 1."""

    example: Share = 0.3  # of a question's difficulty and damage, shared by models and arms
    draws: Share = 0.3  # of the damage, shared by the draws of one model, example and condition, on top
    signal: Share = 0.2  # of a signal's noise, shared by all rows of an example


class Targets(Strict, frozen=True):
    """Everything a file says."""

    suite: list[Suite]
    names: dict[str, list[str]] = {}  # lists by name, that filters may use instead of their members
    scores: dict[str, str] = {}  # score of a task; others are token F1
    # By model, how much more its full cache answers where half is answered; sums to zero.
    ability: dict[str, float] = {}
    seconds: dict[str, float] = {}  # per generated token, by arm
    spread: Spread = Spread()
    rate: list[Rate] = []
    control: list[Control] = []
    auc: list[Auc] = []
    gain: list[Gain] = []
    selective: list[Selective] = []
    median: list[Median] = []

    @property
    def rows(self) -> int:
        """Generations of the study."""
        return sum(suite.rows for suite in self.suite)

    def sized(self, rows: int) -> "Targets":
        """The same truths on about so many generations: every suite has more or fewer examples."""
        times = rows / self.rows
        suites = [
            msgspec.structs.replace(one, examples=max(1, round(one.examples * times))) for one in self.suite
        ]
        return msgspec.structs.replace(self, suite=suites)


def read(path: Path) -> Targets:
    """Read a file. Raises TargetsError naming it."""
    try:
        table = tomllib.loads(path.read_text())
        targets = msgspec.convert(_expanded(table, table.get("names", {})), Targets)
    except OSError as error:
        raise TargetsError(f"{path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise TargetsError(f"{path}: {error}") from None
    if words := _wrong(targets):
        raise TargetsError(f"{path}: {words}")
    return targets


def _expanded(value: Any, names: Mapping[str, Sequence[str]]) -> Any:
    """With every list's named parts written out; scalars and tables otherwise as they are."""
    if isinstance(value, dict):
        return {key: inner if key == "names" else _expanded(inner, names) for key, inner in value.items()}
    if isinstance(value, list):
        parts = ([*names[one]] if isinstance(one, str) and one in names else [one] for one in value)
        return [_expanded(one, names) for part in parts for one in part]
    return value


def _wrong(targets: Targets) -> str:
    if not targets.suite or not targets.rows:
        return "there is no suite with rows"
    known = _known(targets)
    for one in (*targets.rate, *targets.auc, *targets.gain, *targets.selective, *targets.median):
        for axis in AXES:
            for value in getattr(one.at, axis) or ():
                if value not in known[axis]:
                    return f"a target names {axis[:-1]} '{value}', which no suite has"
        signal = getattr(one, "signal", SIGNALS[0])
        if signal not in SIGNALS:
            return f"no signal '{signal}'; there are {', '.join(SIGNALS)}"
    for one in (*targets.auc, *targets.gain, *targets.selective, *targets.median):
        if len(one.at.arms or ()) != 1:
            return f"a target of {one.signal} must name one arm"
    if abs(sum(targets.ability.values())) > 1e-9:
        return "the abilities do not sum to zero, so that rates over models would not be as they are said"
    return ""


def _known(targets: Targets) -> dict[str, set[Any]]:
    known: dict[str, set[Any]] = {axis: set() for axis in AXES}
    for suite in targets.suite:
        known["suites"].add(suite.name)
        known["models"].update(suite.models)
        known["tasks"].update(suite.tasks)
        for place in suite.places():
            for axis, value in zip(AXES[3:], place, strict=True):
                known[axis].add(value)
    return known
