"""Answers of one arm under two draws, side by side: what a second run tells about the first (section 6.4)."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.data import Data
from analysis.descriptive.rows import data_of, lacks
from analysis.populations import strata
from analysis.posthoc.token_f1 import disagreements
from analysis.scope import Scope, Suite
from analysis.statistics.base import Integers

PLACE = ("model", "task", "example_id", "condition", "budget")
UNEVEN = "not every answer has as many draws"


@dataclass(frozen=True)
class Draws:
    """One arm of a suite's main tasks.

    Attributes:
        data: all its rows, labelled own failure.
        rows: these with what the partner says, the answer of the next seed to the same question in the same
            place, the first seed following the last: partner_success (bool), score_gap (absolute difference
            of raw scores) and disagreement (1 - token F1 of the two texts). Undefined with `reason`.
        reason: why there are no partners; empty if there are.
    """

    suite: Suite
    arm: str
    data: Data
    rows: pd.DataFrame
    reason: str = ""


def draws_of(scope: Scope, suite: Suite) -> list[Draws]:
    """The arms of a suite that draw more than once, with partners; nothing for a suite without main tasks."""
    return scope.once(f"draws of {suite.name}", lambda: _draws(scope, suite))


def _draws(scope: Scope, suite: Suite) -> list[Draws]:
    table = scope.report.study.table
    here = table[(table["suite"] == suite.name) & table["task"].isin(suite.main)]
    arms = [arm for arm in suite.arms if here.loc[here["arm"] == arm, "seed"].nunique() > 1]
    return [_of_arm(scope, suite, arm) for arm in arms]


def _of_arm(scope: Scope, suite: Suite, arm: str) -> Draws:
    data = data_of(scope, suite, "draws", [arm], suite.main)
    if reason := lacks(scope, data.rows, "attribution"):
        return Draws(suite, arm, data, data.rows, reason)
    found = partners(data.rows)
    if found is None:
        return Draws(suite, arm, data, data.rows, UNEVEN)
    own, other = data.rows, data.rows.iloc[found]
    texts = zip(own["text"].tolist(), other["text"].tolist(), strict=True)
    score = own["score_value"].to_numpy(np.float64)
    rows = own.assign(
        partner_success=other["success"].to_numpy(bool),
        score_gap=np.abs(score - other["score_value"].to_numpy(np.float64)),
        disagreement=disagreements(texts),
    )
    return Draws(suite, arm, data, rows)


def partners(rows: pd.DataFrame) -> Integers | None:
    """Position of each row's partner, (rows,); None if places differ in their number of seeds."""
    place = strata(rows, PLACE)
    order = np.lexsort((rows["seed"].to_numpy(np.float64), place))
    sizes = np.bincount(place)
    if not len(sizes) or sizes.min() != sizes.max() or sizes[0] < 2:
        return None
    groups = order.reshape(-1, sizes[0])
    found = np.empty(len(rows), np.int64)
    found[groups] = np.roll(groups, -1, axis=1)
    return found
