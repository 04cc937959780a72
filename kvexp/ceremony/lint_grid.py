"""Do registrations fit the grid? Asked when a registration is sealed, on axes of suites and never on rows."""

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from kvexp.ceremony.lint import placed
from kvexp.documents.registration import Question, QuestionName, Registered
from kvexp.documents.schema import OTHERWISE, Cells, Label, Population, Variant
from kvexp.documents.source import Unfit, Where
from kvexp.errors import suggest
from kvexp.records import SIGNALS
from kvexp.study.plugins import family_of
from kvexp.study.shards import AttentionShard, GenerationShard, Shard

# The certificate by its first step and by the mean of its steps: what a sensitivity may read instead.
KNOWN_SIGNALS = (*SIGNALS, "certificate_first", "certificate_mean")
# Labels that compare with what the full cache answers.
NEED_FULL: tuple[Label, ...] = ("induced_failure", "inherent_failure", "rescue", "attribution")
SHOWN = 8  # values of an axis in a message
Cell = Mapping[str, Any]  # by axis: suite, model, task and, of generations, arm, condition; budget


@dataclass
class _Suite:
    """The axes of one suite. A cell stands for its rows of all examples and seeds."""

    cells: list[Cell] = field(default_factory=list)
    full: set[tuple[str, str]] = field(default_factory=set)  # (model, task) that the full cache answers
    scores: dict[str, str] = field(default_factory=dict)  # task -> name of its score
    is_control: bool = False
    has_answers: bool = False


class _Grid:
    def __init__(self, shards: Iterable[Shard]) -> None:
        self.suites: dict[str, _Suite] = {}
        seen: set[tuple[str, str, str]] = set()
        for shard in shards:
            key = (shard.suite, shard.model.name, shard.task.name)
            if key not in seen:  # chunks of examples differ in nothing that is asked here
                seen.add(key)
                self._add(shard, self.suites.setdefault(shard.suite, _Suite()))

    def _add(self, shard: Shard, suite: _Suite) -> None:
        own = {"suite": shard.suite, "model": shard.model.name, "task": shard.task.name}
        if isinstance(shard, AttentionShard):
            suite.cells += [{**own, "budget": budget} for budget in shard.attention.budgets]
        if isinstance(shard, GenerationShard):
            suite.has_answers, suite.is_control = True, shard.no_context
            suite.scores[shard.task.name] = family_of(shard.task).score_name
            for conf, entry in shard.arms:
                conditions: list[str | None] = [*entry.conditions] or [None]
                budgets: list[float | None] = [*entry.budgets] or [None]
                for condition, budget in itertools.product(conditions, budgets):
                    suite.cells.append({**own, "arm": conf.name, "condition": condition, "budget": budget})
                if not entry.conditions:
                    suite.full.add((shard.model.name, shard.task.name))

    def cells(self, suites: Iterable[str], *, with_answers: bool) -> list[Cell]:
        return [
            cell
            for name in suites
            if name in self.suites and self.suites[name].has_answers is with_answers
            for cell in self.suites[name].cells
        ]


def check(
    registrations: list[Registered], shards: list[Shard], suites: Collection[str] | None = None
) -> None:
    """Refuse a registration that asks for what the grid does not have.

    A question about a suite that no registration here lists and that has no shards here (of an addendum, or
    not fetched yet) cannot be known to be wrong, so it passes, unless `suites` is given, the names of all
    suites of the study, and does not have it.

    Raises RegistrationError with path, line, claim and reason.
    """
    grid = _Grid(shards)
    listed = {suite for one in registrations for suite in one.content.suites}
    with placed():
        for one in registrations:
            for number, suite in enumerate(one.content.suites):
                if suite not in grid.suites:
                    _no_suite(one.source.at("suites", number), "", suite, grid, suites)
            _check_details(one, grid)
            _check_success(one, grid)
            for (name, question), (_, variant) in zip(one.questions(), one.variants(), strict=True):
                _check_question(_Check(one, name, question, variant), grid, listed, suites)


@dataclass(frozen=True)
class _Check:
    """A question with the place of everything that may be wrong with it."""

    registered: Registered
    name: QuestionName
    question: Question
    variant: Variant

    @property
    def rows(self) -> Population | Cells:
        found = self.question.population if self.question.cells is None else self.question.cells
        assert found is not None
        return found

    @property
    def noun(self) -> str:
        return "population" if self.question.cells is None else "cells"

    @property
    def words(self) -> str:
        return self.name.words

    def at(self, *keys: str) -> Where:
        """Where it is written: in the variant if that changes the table, else in its claim."""
        is_own = not self.name.kind or getattr(self.variant, keys[0])
        return self.registered.source.at(*(self.name.keys if is_own else self.name.keys[:2]), *keys)


def _no_suite(where: Where, words: str, suite: str, grid: _Grid, suites: Collection[str] | None) -> NoReturn:
    known = sorted(grid.suites if suites is None else suites)
    raise Unfit(where, f"{words}the grid has no suite '{suite}'; {suggest(suite, known)}")


def _check_question(
    check: _Check, grid: _Grid, listed: Collection[str], suites: Collection[str] | None
) -> None:
    absent = [suite for suite in check.rows.suites if suite not in grid.suites]
    for suite in absent:
        if suite in listed or (suites is not None and suite not in suites):
            _no_suite(check.at(check.noun, "suites"), f"{check.words}: ", suite, grid, suites)
    if absent:
        return
    cells = grid.cells(check.rows.suites, with_answers=check.noun == "population")
    chosen = _selected(check, cells)
    _check_full(check, chosen, grid)
    _check_parameters(check, chosen)
    scores = {grid.suites[str(cell["suite"])].scores.get(str(cell["task"]), "") for cell in chosen}
    _check_scores(check.variant.success, scores, check.words, lambda name: check.at("success", name))


def _axes(rows: Population | Cells) -> Iterator[tuple[str, list[Any] | None]]:
    """By axis of the grid, what is asked for; None: everything."""
    for name in rows.__struct_fields__:
        if name != "label":
            yield name, getattr(rows, name)


def _selected(check: _Check, cells: list[Cell]) -> list[Cell]:
    """The cells that are asked for, if there are any and every listed value is among them."""
    chosen = cells
    for axis, values in _axes(check.rows):
        if values is None:
            continue
        before, one = chosen, axis[:-1]
        chosen = [cell for cell in before if cell[one] in values]
        if not chosen:
            raise Unfit(
                check.at(check.noun, axis),
                f"{check.words}: the {check.noun} selects nothing: it asks for {axis} {_listed(values)}, the "
                f"grid has {_listed(cell[one] for cell in before)} there",
            )
    for axis, values in _axes(check.rows):
        there = {cell[axis[:-1]] for cell in chosen}
        for value in values or ():
            if value not in there:
                raise Unfit(
                    check.at(check.noun, axis),
                    f"{check.words}: the {check.noun} asks for {axis[:-1]} {_listed([value])}, which selects "
                    f"nothing: with the rest of it the grid has {_listed(there)}",
                )
    return chosen


def _check_full(check: _Check, chosen: list[Cell], grid: _Grid) -> None:
    population = check.question.population
    if population is None or population.label not in NEED_FULL:
        return
    for cell in chosen:
        suite, model, task = (str(cell[axis]) for axis in ("suite", "model", "task"))
        if (model, task) not in grid.suites[suite].full:
            raise Unfit(
                check.at("population", "label"),
                f"{check.words}: the label {population.label} needs the full cache's rows, which suite "
                f"{suite} lacks for {model} and {task}",
            )


def _check_parameters(check: _Check, chosen: list[Cell]) -> None:
    """A parameter called `<something>_<axis>` names a value of that axis, for instance `to_budget`."""
    for name, value in check.question.parameters.items():
        axis = name.rpartition("_")[2]
        if name == axis or axis not in chosen[0] or isinstance(value, dict | list):
            continue
        there = {cell[axis] for cell in chosen}
        if value not in there:
            raise Unfit(
                check.at("parameters", name),
                f"{check.words}: the parameter {name} is {_listed([value])}, but the {check.noun} has {axis} "
                f"{_listed(there)}",
            )


def _check_success(one: Registered, grid: _Grid) -> None:
    own = [grid.suites[suite] for suite in one.content.suites]
    scores = {score for suite in own for score in suite.scores.values()}
    _check_scores(one.content.success, scores, "[success]", lambda name: one.source.at("success", name))


def _check_scores(names: Iterable[str], known: set[str], words: str, where: Callable[[str], Where]) -> None:
    for name in names:
        if name != OTHERWISE and name not in known:
            raise Unfit(
                where(name),
                f"{words} names the score '{name}', which none of its tasks gives; they give "
                f"{_listed(known)}",
            )


def _check_details(one: Registered, grid: _Grid) -> None:
    details = one.content.details
    if details is None:
        return
    names = [*one.content.suites, *([details.control] if details.control else [])]
    own = [grid.suites[name] for name in names if name in grid.suites and grid.suites[name].has_answers]
    if not own:
        raise Unfit(one.source.at("details"), "[details] describes answers, but no suite has any")
    is_whole = all(name in grid.suites for name in names)  # else the control may have the rest
    there = {axis: {str(cell[axis]) for suite in own for cell in suite.cells} for axis in ("task", "arm")}
    known = {"tasks": there["task"], "signals": set(KNOWN_SIGNALS)}
    for key, values in known.items():
        for number, name in enumerate(getattr(details, key)):
            if name not in values and (is_whole or key == "signals"):
                _no_name(one, ("details", key, number), f"there is no {key[:-1]} '{name}'", name, values)
    if details.arm not in there["arm"]:
        words = f"there is no arm '{details.arm}'"
        _no_name(one, ("details", "arm"), words, details.arm, there["arm"])
    if details.control in grid.suites and not grid.suites[details.control].is_control:
        raise Unfit(
            one.source.at("details", "control"),
            f"[details] control '{details.control}' shows the context: name a suite with no_context: true",
        )


def _no_name(
    one: Registered, keys: tuple[str | int, ...], words: str, name: str, known: Iterable[str]
) -> None:
    raise Unfit(one.source.at(*keys), f"[details] {words}; {suggest(name, sorted(known))}")


def _listed(values: Iterable[Any]) -> str:
    """Names or numbers in order; of a long list the first."""
    every = sorted({f"{one:g}" if isinstance(one, float) else str(one) for one in values if one is not None})
    more = f" and {len(every) - SHOWN} more" if len(every) > SHOWN else ""
    return (", ".join(every[:SHOWN]) or "none") + more
