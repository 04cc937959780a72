"""Answers of one arm under two draws, side by side: what a second run tells about the first (section 6.4)."""

import re
import string
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.core.data import Data
from analysis.core.estimates import Integers
from analysis.core.populations import strata
from analysis.describe.common import data_of, lacks
from analysis.describe.scope import Scope, Suite

# How far two answers to one question differ in their words; no reference is needed.


_NO_PUNCTUATION = {ord(sign): None for sign in string.punctuation}
_ARTICLE = re.compile(r"\b(?:a|an|the)\b")


def words(text: str) -> Counter[str]:
    """The words of an answer as LongBench counts them: lower case, no ASCII punctuation, no articles."""
    return Counter(_ARTICLE.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def token_f1(one: Counter[str], other: Counter[str]) -> float:
    """F1 of two bags of words, the same either way round; two answers without words agree."""
    if one == other:
        return 1.0
    shared = sum(min(count, other[word]) for word, count in one.items() if word in other)
    return 2 * shared / (one.total() + other.total())


def disagreements(pairs: Iterable[tuple[str, str]]) -> list[float]:
    """1 - token F1 of each pair of texts, in [0, 1]."""
    known = dict[str, Counter[str]]()

    def counted(text: str) -> Counter[str]:
        if text not in known:
            known[text] = words(text)
        return known[text]

    return [0.0 if a == b else 1 - token_f1(counted(a), counted(b)) for a, b in pairs]


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
