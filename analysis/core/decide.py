"""From a study and a registration to verdicts.

Order matters: contradictions in the logs come before missing rows, missing rows before numbers. So a
verdict never rests on part of its population, and a broken log never looks merely unfinished.
"""

import importlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast, get_type_hints

import pandas as pd

from analysis.core import populations
from analysis.core.data import CellData, Data
from analysis.core.estimates import Estimate
from analysis.core.study import Study
from kvexp.documents.condition import Expression, State, verdict
from kvexp.documents.registration import Question, Registered
from kvexp.documents.schema import Quantity
from kvexp.documents.source import RegistrationError

# The claims, one file each: `quantities(data)` returns the registered numbers and holds no threshold.
#
# `data` is a `Data` for claims about generations, a `CellData` for claims about attention cells.
#
# A claim `X1` of a registration is the module `x1` of analysis/claims, found by name; nothing lists them.


CLAIMS = Path(__file__).parent.parent / "claims"
Quantities = Callable[[Any], dict[str, Estimate]]


def load_claim(claim_id: str) -> Quantities:
    """The function that computes the claim's quantities from a `Data` or a `CellData`."""
    module = importlib.import_module(f"analysis.claims.{claim_id.lower()}")
    return cast(Quantities, module.quantities)


def reads(quantities: Quantities, kind: type) -> bool:
    """Whether a claim's function says that it computes from this kind of data, or does not say."""
    hints = get_type_hints(quantities)
    return hints.get("data", kind) is kind


@dataclass(frozen=True)
class MissingRows:
    """Rows of one shard that a claim needs and does not have."""

    suite: str
    shard_id: str
    rows: int
    of: int  # rows of the shard that the claim needs
    reason: str
    nouns: str = "rows"


@dataclass(frozen=True)
class Answer:
    """What the data say to one question."""

    state: State  # the verdict it would give; only a claim's own answer is a verdict
    quantities: Mapping[str, Estimate]  # by registered name; empty where rows are missing or logs are invalid
    kill: bool | None = None  # whether the kill condition holds; None is unknown
    support: bool | None = None  # whether the support holds; None is unknown or not registered
    missing: tuple[MissingRows, ...] = ()  # rows that are not there
    problems: tuple[str, ...] = ()  # contradictions that touch its rows
    # Suites it asks for that the grid does not have, so that not even their shards are known.
    unplanned: tuple[str, ...] = ()

    @property
    def is_decided(self) -> bool:
        """Whether the data settle the question."""
        return self.state not in (State.INCOMPLETE, State.INVALID)


@dataclass(frozen=True)
class Fragile:
    """How often a verdict would be another one if the bootstrap had another seed."""

    differ: int
    of: int


@dataclass(frozen=True)
class Verdict:
    """One claim, answered, with its readings and sensitivities beside it."""

    claim_id: str
    registered: Registered
    answer: Answer
    readings: Mapping[str, Answer]
    sensitivity: Mapping[str, Answer]
    fragile: Fragile | None = None  # None: not decided

    @property
    def label(self) -> str:
        """The registered words for this state."""
        return self.registered.content.claim[self.claim_id].labels.get(self.answer.state, "")

    def moves(self, name: str) -> bool:
        """Whether a sensitivity would have changed a decided verdict."""
        other = self.sensitivity[name]
        both = self.answer.is_decided and other.is_decided
        return both and other.state is not self.answer.state


def decide(study: Study, registered: Registered) -> list[Verdict]:
    """Answer every claim of a registration, in the order of its file."""
    if study.is_grid_sound:
        for name, question in registered.questions():
            _check(study, question, f"{registered.path}: {name.words}")
    return [_verdict(study, registered, claim_id) for claim_id in registered.content.claim]


def answer(study: Study, question: Question) -> Answer:
    """Answer one question."""
    rows = _needed(study, question)
    unplanned = tuple(study.unplanned(_suites(question)))
    problems = problems_touching(study, rows, unplanned)
    if problems:
        return Answer(State.INVALID, {}, problems=problems)
    missing = missing_rows(study, rows, "rows" if question.cells is None else "cells")
    if missing or unplanned:
        return Answer(State.INCOMPLETE, {}, missing=missing, unplanned=unplanned)
    quantities = _quantities(study, question)
    return Answer(state_of(question, quantities), quantities, *_held(question, quantities))


def state_of(question: Question, quantities: Mapping[str, object]) -> State:
    """What the registered conditions say to these numbers."""
    return verdict(*_held(question, quantities), question.support is not None)


def _held(question: Question, quantities: Mapping[str, object]) -> tuple[bool | None, bool | None]:
    """Whether the kill condition holds, and the support."""
    support = None if question.support is None else question.support.holds(quantities)
    return question.kill.holds(quantities), support


def data_of(study: Study, question: Question) -> Data | CellData:
    """The rows that a question asks about."""
    if question.cells is None:
        return Data.of(study.table, question)
    return CellData.of(study.cells, question)


def _check(study: Study, question: Question, where: str) -> None:
    """Refuse a question about what the planned suites do not have.

    What is asked of a suite that is not planned yet, or whose grid is in doubt, cannot be known to be wrong.
    """
    suites = _suites(question)
    if study.unplanned(suites) or any(one.suite in suites and not one.shard_id for one in study.problems):
        return
    if question.cells is not None:
        populations.check_cells(study.cells, question.cells, where)
    if question.population is not None:
        populations.check(study.table, question.population, where)
        populations.check_scores(study.table, question.success, where)


def _suites(question: Question) -> list[str]:
    rows = question.population if question.cells is None else question.cells
    assert rows is not None
    return rows.suites


def _needed(study: Study, question: Question) -> pd.DataFrame:
    if question.cells is not None:
        return study.cells[populations.selected(study.cells, question.cells)]
    assert question.population is not None
    return study.table[populations.needed(study.table, question.population)]


def problems_touching(study: Study, rows: pd.DataFrame, suites: Collection[str] = ()) -> tuple[str, ...]:
    """Contradictions in the shards that these rows of a table of the study belong to, or in whole suites."""
    if not study.problems:
        return ()
    pairs = rows[["suite", "shard_id"]].drop_duplicates()
    shards = set(zip(pairs["suite"], pairs["shard_id"], strict=True))
    return tuple(one.message for one in study.problems if one.touches(shards) or one.suite in suites)


def not_planned(suite: str) -> str:
    """Why nothing is known of a suite, for instance because its data are not fetched yet."""
    return f"suite {suite} is not in the grid yet"


def missing_rows(study: Study, rows: pd.DataFrame, nouns: str = "rows") -> tuple[MissingRows, ...]:
    """Which of these rows of a table of the study are not there, by shard."""
    if rows["present"].all():
        return ()
    by_shard = rows.groupby(["suite", "shard_id"], observed=True, sort=True)["present"]
    counts = by_shard.agg(["size", "sum"])
    return tuple(
        MissingRows(suite, shard, int(size - there), int(size), _reason(study, suite, shard), nouns)
        for (suite, shard), size, there in zip(counts.index, *counts.to_numpy().T, strict=True)
        if there < size
    )


def _reason(study: Study, suite: str, shard_id: str) -> str:
    reason = study.absences.get((suite, shard_id), "not started")
    return "; ".join([reason, *([study.remarks[suite]] if suite in study.remarks else [])])


def _verdict(study: Study, registered: Registered, claim_id: str) -> Verdict:
    claim = registered.content.claim[claim_id]
    readings, sensitivity = (
        {name: answer(study, registered.question(claim_id, change)) for name, change in group.items()}
        for group in (claim.readings, claim.sensitivity)
    )
    own = answer(study, registered.question(claim_id))
    return Verdict(claim_id, registered, own, readings, sensitivity)


def _quantities(study: Study, question: Question) -> Mapping[str, Estimate]:
    where = f"claim {question.claim_id}"
    compute = load_claim(question.claim_id)
    if not reads(compute, Data if question.cells is None else CellData):
        raise RegistrationError(f"{where}: its file computes from another kind of row: population or cells")
    data = data_of(study, question)
    found = compute(data)
    if found.keys() != question.quantities.keys():
        declared, returned = sorted(question.quantities), sorted(found)
        raise RegistrationError(f"{where} declares {declared}, but its file returns {returned}")
    if data.parameters.unread:
        raise RegistrationError(f"{where}: its file has no use for {data.parameters.unread}")
    for name, quantity in question.quantities.items():
        low, high = quantity.range
        numbers = [found[name].value, found[name].lo, found[name].hi]
        known = [number for number in numbers if number is not None]
        if not all(low <= number <= high for number in known):
            raise RegistrationError(f"{where}: {name} = {found[name]} lies outside its range")
    return found


# How much a verdict hangs on the bootstrap's seed: it is decided again with other seeds.


SEEDS = 20


def fragile(study: Study, decided: Verdict) -> Fragile | None:
    """How many of SEEDS other seeds give another state; None for a claim that is not decided.

    Whether an interval exists at all is taken from the registered seed.
    """
    registered, claim_id = decided.registered, decided.claim_id
    if not decided.answer.is_decided:
        return None
    question = registered.question(claim_id)
    if not _is_drawn(question, decided.answer.kill):
        return Fragile(0, SEEDS)
    compute = load_claim(claim_id)
    data = data_of(study, question)
    states = [
        state_of(question, compute(data.redrawn(registered.seed(f"{claim_id} {number}"))))
        for number in range(1, SEEDS + 1)
    ]
    return Fragile(sum(state is not decided.answer.state for state in states), SEEDS)


def _is_drawn(question: Question, kill: bool | None) -> bool:
    """Whether the state can depend on the resamples: values do not, interval ends and counts of them do."""
    conditions = [question.kill]
    if not kill or _reads_draws(question.kill, question.quantities):
        conditions += [question.support] if question.support is not None else []
    return any(_reads_draws(condition, question.quantities) for condition in conditions)


def _reads_draws(condition: Expression, quantities: Mapping[str, Quantity]) -> bool:
    return any(field in ("lo", "hi") or quantities[name].count for name, field in condition.fields)
