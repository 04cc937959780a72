"""What stands beside a claim's pooled AUC: the stratified one, and that of the bare label.

A pooled AUC mixes conditions, budgets and models. Which AUCs a claim rests on its own file says: it is run
once more and each AUC that it asks for is noted, so that this works for any claim. No verdict reads it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd

from analysis import claims
from analysis.data import Data
from analysis.decide import Verdict
from analysis.load import Study
from analysis.statistics import Estimate, Statistic
from kvexp.prereg.registration import Question

MOST = 4  # AUCs of a claim none of whose quantities is one; a claim of more is about a panel


@dataclass(frozen=True)
class Beside:
    """One pooled AUC of a claim.

    Attributes:
        quantity: of the claim that it is; empty: a claim about several AUCs, such as their difference.
        signal: that is to foretell the label.
        pooled: all pairs, as the claim's file asks for it, without an interval.
        stratified: pairs within model, task, condition and budget.
        label: the condition x budget label alone.
    """

    quantity: str
    signal: str
    pooled: Estimate
    stratified: Estimate
    label: Estimate

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
    every = sorted(_beside(data, values), key=lambda one: -one.pooled.n)
    known = {one.quantity: one for one in reversed(every) if one.quantity}  # the most rows, if several fit
    if known:
        return tuple(known[name] for name in verdict.answer.quantities if name in known)
    return tuple(every if len(every) <= MOST else ())


def _asked(study: Study, question: Question) -> _Watched:
    """The data of a question after its claim's file has read it; intervals are made if it reads them."""
    data = _Watched.of(study.table, question).redrawn(question.seed)
    assert isinstance(data, _Watched)
    claims.load(question.claim_id)(data)
    return data


def _beside(data: _Watched, values: dict[float, str]) -> Iterator[Beside]:
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
