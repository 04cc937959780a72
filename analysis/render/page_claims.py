"""What the page says of each claim: verdict, conditions, population, numbers, variants, missing rows."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from analysis.core import decide, populations
from analysis.core.data import Data
from analysis.core.decide import Answer, Verdict, not_planned
from analysis.core.estimates import Estimate, Statistic
from analysis.core.study import Study
from analysis.core.verdicts import ANEW, Report
from analysis.describe.table import LABEL_MEANS, POOLED_MEANS, STRATIFIED_MEANS, budget_words
from analysis.render.page_tables import NONE, Cell, Grid, code, estimate, grid, truth
from kvexp.documents.registration import Question
from kvexp.documents.schema import Claim as Written
from kvexp.documents.schema import Population

# What stands beside a claim's pooled AUC: the stratified one, and that of the bare label.
#
# A pooled AUC mixes conditions, budgets and models. Which AUCs a claim rests on its own file says: it is run
# once more and each AUC that it asks for is noted, so that this works for any claim. No verdict reads it.


MOST = 4  # AUCs of a claim none of whose quantities is one; a claim of more is about a panel


@dataclass(frozen=True)
class Beside:
    """One pooled AUC of a claim."""

    quantity: str  # of the claim that it is; empty: a claim about several AUCs, such as their difference
    signal: str  # that is to foretell the label
    pooled: Estimate  # all pairs, as the claim's file asks for it, without an interval
    stratified: Estimate  # pairs within model, task, condition and budget
    label: Estimate  # the condition x budget label alone

    @property
    def numbers(self) -> tuple[Estimate, Estimate, Estimate]:
        """As tables show them."""
        return self.pooled, self.stratified, self.label


class _Watched(Data):
    """Data that notes which AUCs are asked of it."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.asked = dict[tuple[int, str], tuple[pd.DataFrame, str]]()  # rows are kept, so ids stay theirs

    def auc(self, rows: pd.DataFrame, signal: str, *, within: bool = False) -> Statistic:
        if not within:
            self.asked.setdefault((id(rows), signal), (rows, signal))
        return super().auc(rows, signal, within=within)

    def paired_aucs(self, rows: pd.DataFrame, *signals: str) -> list[Statistic]:
        shared = rows[rows[list(signals)].notna().all(axis=1)]
        for signal in signals:
            self.asked.setdefault((id(shared), signal), (shared, signal))
        return super().paired_aucs(rows, *signals)


def beside_of(study: Study, verdict: Verdict) -> tuple[Beside, ...]:
    """For each quantity that is a pooled AUC; if none is, for the AUCs that the claim's quantities are of.

    Nothing for a claim about attention cells, about rates, or without numbers.
    """
    question = verdict.registered.question(verdict.claim_id)
    if question.cells is not None or not verdict.answer.is_decided:
        return ()
    data = _asked(study, question)
    values = {
        found.value: name
        for name, found in verdict.answer.quantities.items()
        if found.value is not None and not question.quantities[name].count
    }
    every = sorted(_beside_one(data, values), key=lambda one: -one.pooled.n)
    known = {one.quantity: one for one in reversed(every) if one.quantity}  # the most rows, if several fit
    if known:
        return tuple(known[name] for name in verdict.answer.quantities if name in known)
    return tuple(every if len(every) <= MOST else ())


def _asked(study: Study, question: Question) -> _Watched:
    """The data of a question after its claim's file has read it; intervals are made if it reads them."""
    data = _Watched.of(study.table, question).redrawn(question.seed)
    assert isinstance(data, _Watched)
    decide.load_claim(question.claim_id)(data)
    return data


def _beside_one(data: _Watched, values: dict[float, str]) -> Iterator[Beside]:
    for rows, signal in list(data.asked.values()):
        pooled = data.point(data.auc(rows, signal))
        if pooled.value is not None:
            yield Beside(
                values.get(pooled.value, ""),
                signal,
                pooled,
                _now(data.estimate(data.auc(rows, signal, within=True))),
                data.point(data.cell_auc(rows)),
            )


def _now(found: Estimate) -> Estimate:
    """An estimate whose interval has been computed."""
    return Estimate(found.value, found.lo, found.hi, found.n, found.clusters, found.undefined)


ALL = "all"
EVERY_SUITE = "all suites"  # no name: those have no spaces


@dataclass(frozen=True)
class Observed:
    """One quantity as the verdict table shows it; with what stands beside it if it is a pooled AUC."""

    name: str
    text: str
    beside: Beside | None = None


@dataclass(frozen=True)
class Claim:
    """One claim as the page shows it."""

    verdict: Verdict  # what was decided
    written: Written  # the claim as registered
    state: str  # the verdict without marks, in the words of the analysis
    icon: str  # name of its sign
    label: str  # registered words for this state, where they are others
    marks: tuple[str, ...]  # what its verdict is told with: RE-ANALYSED, PREVIEW
    history: tuple[str, ...]  # how the claim came to be registered as it stands
    provisional: tuple[str, ...]  # why the verdict is a preview
    observed: tuple[Observed, ...]  # its quantities
    beside: tuple[Beside, ...]  # the pooled AUCs that it rests on and that are none of its quantities
    is_tried: bool  # whether it was decided with other bootstrap seeds
    population: tuple[tuple[str, str], ...]  # what it is about, name and value
    tables: tuple[Grid, ...]  # counts, quantities, readings and sensitivities, what is missing
    commands: tuple[str, ...]  # what to type to get the missing rows

    @property
    def id(self) -> str:
        """As registered."""
        return self.verdict.claim_id

    @property
    def has_beside(self) -> bool:
        """Whether it rests on a pooled AUC."""
        return bool(self.beside) or any(one.beside is not None for one in self.observed)


def claims_of(report: Report) -> Iterator[Claim]:
    """Every claim, in the order of the verdict table."""
    for verdict in report.verdicts:
        yield _claim(report, verdict)


def _claim(report: Report, verdict: Verdict) -> Claim:
    question = verdict.registered.question(verdict.claim_id)
    state = report.state(verdict)
    provisional = () if report.is_blind else tuple(report.provisional(verdict))
    beside = beside_of(report.study, verdict)
    label = report.label(verdict)
    told = state.replace("_", " ")
    return Claim(
        verdict,
        verdict.registered.content.claim[verdict.claim_id],
        state=told,
        icon=state.lower().replace("_", "-"),
        label="" if label.casefold() == told.casefold() else label,
        history=tuple(report.history(verdict)),
        marks=(*((ANEW,) if report.is_anew else ()), *(("PREVIEW",) if provisional else ())),
        provisional=provisional,
        observed=tuple(_observed(question, verdict.answer, beside)),
        beside=tuple(one for one in beside if not one.quantity),
        is_tried=verdict.fragile is not None and not report.is_blind,
        population=tuple(_population(question)),
        tables=tuple(_tables(report, verdict, question, beside)),
        commands=tuple(report.commands(verdict.answer)),
    )


def _observed(question: Question, answer: Answer, beside: Sequence[Beside]) -> Iterator[Observed]:
    by_name = {one.quantity: one for one in beside}
    for name, found in answer.quantities.items():
        text = estimate(found, is_count=question.quantities[name].count).text
        yield Observed(name, text, by_name.get(name))


def _population(question: Question) -> Iterator[tuple[str, str]]:
    rows = question.population if question.cells is None else question.cells
    assert rows is not None
    if isinstance(rows, Population):
        yield "positive", rows.label.replace("_", " ")
    yield "suites", ", ".join(rows.suites)
    yield "models", _listed(rows.models)
    yield "tasks", ", ".join(rows.tasks)
    if isinstance(rows, Population):
        yield "arms", ", ".join(rows.arms)
        yield "conditions", _listed(rows.conditions)
    yield "budgets", ALL if rows.budgets is None else ", ".join(map(budget_words, rows.budgets))


def _listed(values: Sequence[str] | None) -> str:
    return ALL if values is None else ", ".join(values)


def _tables(report: Report, verdict: Verdict, question: Question, beside: Sequence[Beside]) -> Iterator[Grid]:
    name, answer = verdict.claim_id, verdict.answer
    counts = _cell_counts if question.cells is not None else _row_counts
    heads = ["suite", "rows needed", "rows present", "rows that count", "positive", "clusters"]
    remarks = [
        "rows needed: those that the claim names, and those of the full cache where its label asks for them.",
        "rows that count: those that the label judges. clusters: examples, across models and arms.",
    ]
    if question.cells is not None:
        heads = ["suite", "cells needed", "cells present", "prompts"]
        remarks = []
    yield grid(f"{name}: population", heads, counts(report, question, answer), remarks, is_open=True)
    if answer.quantities:
        yield _quantities(name, question, answer)
    if beside:
        yield _beside(name, beside)
    if len(_variants(verdict)) > 1:
        yield _variant_table(verdict, question)
    if answer.missing or answer.unplanned:
        yield _missing(name, answer)


def _quantities(name: str, question: Question, answer: Answer) -> Grid:
    rows = [
        (
            code(key),
            question.quantities[key].meaning,
            estimate(found, is_count=question.quantities[key].count),
            found.n or None,
            found.clusters or None,
            "; ".join(part for part in (found.undefined, found.note) if part),
        )
        for key, found in answer.quantities.items()
    ]
    level = f"{100 * question.statistics.level:g} %"
    remark = f"Intervals: {level}, {question.statistics.draws} resamples of clusters."
    heads = ["quantity", "meaning", "estimate", "rows", "clusters", "remark"]
    return grid(f"{name}: quantities", heads, rows, [remark], is_open=True)


def _beside(name: str, beside: Sequence[Beside]) -> Grid:
    rows = [
        (code(one.quantity) if one.quantity else NONE, one.signal, one.pooled.n, *one.numbers)
        for one in beside
    ]
    heads = ["quantity", "signal", "rows", "pooled", "stratified", "label alone"]
    title = f"{name}: the pooled AUC and what stands beside it"
    return grid(title, heads, rows, [POOLED_MEANS, STRATIFIED_MEANS, LABEL_MEANS], is_open=True)


def _variants(verdict: Verdict) -> list[tuple[str, str, Answer]]:
    return [
        ("claim", "as registered", verdict.answer),
        *(("reading", name, one) for name, one in verdict.readings.items()),
        *(("sensitivity", name, one) for name, one in verdict.sensitivity.items()),
    ]


def _variant_table(verdict: Verdict, question: Question) -> Grid:
    names = list(question.quantities)
    rows = []
    for kind, name, answer in _variants(verdict):
        numbers = [
            estimate(answer.quantities.get(key), is_count=question.quantities[key].count)
            if answer.quantities
            else Cell(str(answer.state.value).lower())
            for key in names
        ]
        moves = kind == "sensitivity" and verdict.moves(name)
        told = [truth(answer.kill), truth(answer.support)] if question.support else [truth(answer.kill)]
        rows.append((name, kind, *told, *numbers, "moves" if moves else ""))
    heads = ["choice", "kind", "kill", *(["support"] if question.support else []), *names, "verdict"]
    remarks = [
        "A reading is the claim under another population or label, a sensitivity under another choice; "
        "neither returns a verdict.",
    ]
    if any(verdict.moves(name) for name in verdict.sensitivity):
        remarks.append("moves: the claim's verdict would be another one.")
    return grid(f"{verdict.claim_id}: readings and sensitivities", heads, rows, remarks, is_open=True)


def _missing(name: str, answer: Answer) -> Grid:
    rows: list[tuple[Cell | str | int | float | bool | Estimate | None, ...]] = [
        (suite, None, None, None, not_planned(suite)) for suite in answer.unplanned
    ]
    rows += [(one.suite, one.shard_id, one.rows, one.of, one.reason) for one in answer.missing]
    nouns = answer.missing[0].nouns if answer.missing else "rows"
    heads = ["suite", "shard", f"{nouns} missing", "of", "reason"]
    return grid(f"{name}: what is missing", heads, rows)


_Counts = Iterator[tuple[str | int | None, ...]]


def _row_counts(report: Report, question: Question, answer: Answer) -> _Counts:
    """Suite by suite and, of several, all together; what is missing leaves positives unknown."""
    population = question.population
    assert population is not None
    table = report.study.table
    needed = populations.needed(table, population)
    suites, present = table["suite"].astype(str).to_numpy(), table["present"].to_numpy(bool)
    rows = populations.labelled(table, population, question.success) if answer.is_decided else None
    for suite in [*population.suites, *([EVERY_SUITE] if len(population.suites) > 1 else [])]:
        here = needed if suite == EVERY_SUITE else needed & (suites == suite)
        counts = (int(here.sum()), int((here & present).sum()))
        if rows is None:
            yield suite, *counts, None, None, None
            continue
        counted = rows[rows["counts"] & ((rows["suite"] == suite) | (suite == EVERY_SUITE))]
        yield suite, *counts, len(counted), int(counted["positive"].sum()), counted["cluster"].nunique()


def _cell_counts(report: Report, question: Question, answer: Answer) -> _Counts:
    cells, table = question.cells, report.study.cells
    assert cells is not None
    rows = table[populations.selected(table, cells)]
    for suite in [*cells.suites, *([EVERY_SUITE] if len(cells.suites) > 1 else [])]:
        here = rows if suite == EVERY_SUITE else rows[rows["suite"] == suite]
        prompts = len(np.unique(populations.clusters(here))) if len(here) else 0
        yield suite, len(here), int(here["present"].sum()), prompts
