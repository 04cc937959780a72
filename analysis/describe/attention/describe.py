"""Every attention suite of a study, with all its numbers or the reason why it has none."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pandas as pd

from analysis.core.data import CellData, Parameters
from analysis.core.decide import missing_rows, problems_touching
from analysis.core.study import Study
from analysis.describe.attention.budgets import ByBudget, by_budget
from analysis.describe.attention.calibration import Calibrated, calibration
from analysis.describe.attention.deployed import Deployed, deployed
from analysis.describe.attention.errors import Spread, spreads
from analysis.describe.attention.heads import Heads, by_head
from analysis.describe.attention.layers import Layer, by_layer
from analysis.describe.attention.rare import Rare, by_rare_attention
from analysis.describe.attention.worlds import Demonstration, demonstrations
from kvexp.documents.registration import Registered


@dataclass(frozen=True, kw_only=True)
class Attention:
    """One suite on one model; layers of two models are not alike, so models are never pooled.

    Attributes:
        suite: of the study.
        model: that the cells were computed with.
        name: of the files; the suite, and the model where the suite has several.
        tasks: sorted.
        scores: what pi and top-k are made from, sorted; empty where nothing is present.
        prompts: clusters of every interval.
        cells: expected ones.
        promised: 1 - delta, the coverage that the certificate is made for; None if no attempt says it.
        undefined: why there are no numbers; empty if there are. Numbers of a part are never shown.
        frame: the cells that figures show single values of; empty without numbers.
        worlds: likewise the worlds.
    """

    suite: str
    model: str
    name: str
    tasks: tuple[str, ...]
    scores: tuple[str, ...]
    prompts: int
    cells: int
    promised: float | None = None
    undefined: str = ""
    budgets: tuple[ByBudget, ...] = ()
    errors: tuple[Spread, ...] = ()
    calibration: tuple[Calibrated, ...] = ()
    layers: tuple[Layer, ...] = ()
    heads: tuple[Heads, ...] = ()
    rare: tuple[Rare, ...] = ()
    deployed: tuple[Deployed, ...] = ()
    demonstrations: tuple[Demonstration, ...] = ()
    frame: pd.DataFrame = field(default_factory=pd.DataFrame, repr=False, compare=False)
    worlds: pd.DataFrame = field(default_factory=pd.DataFrame, repr=False, compare=False)


def describe(study: Study, registrations: Iterable[Registered]) -> tuple[Attention, ...]:
    """The attention suites of a study, those of a registration together. Empty for a study without any.

    A suite that no registration keys has no plan to compute intervals by, hence no numbers.
    """
    owners = [(suite, one) for one in registrations for suite in one.content.suites]
    keyed = {suite for suite, _ in owners}
    others = [(suite, None) for suite in _names(study.cells, "suite") if suite not in keyed]
    return tuple(one for suite, owner in [*owners, *others] for one in _suite(study, owner, suite))


def _suite(study: Study, registered: Registered | None, suite: str) -> Iterator[Attention]:
    cells = study.cells[study.cells["suite"] == suite]
    worlds = study.worlds[study.worlds["suite"] == suite]
    models = sorted(set(cells["model"].astype(str)))
    for model in models:
        here, changed = cells[cells["model"] == model], worlds[worlds["model"] == model]
        one = Attention(
            suite=suite,
            model=model,
            name=suite if len(models) == 1 else f"{suite}.{model}",
            tasks=_names(here, "task"),
            scores=_names(here, "score"),
            prompts=len(here[["task", "example_id"]].drop_duplicates()),
            cells=len(here),
            promised=None if study.delta is None else 1 - study.delta,
            undefined=_reason(study, here, changed) if registered else "no registration keys the suite",
        )
        if registered is None or one.undefined:
            yield one
        else:
            with np.errstate(all="ignore"):  # what leaves the floats is undefined, with a reason
                yield _with_numbers(one, registered, here, changed, study.delta)


def _with_numbers(
    one: Attention,
    registered: Registered,
    cells: pd.DataFrame,
    worlds: pd.DataFrame,
    delta: float | None,
) -> Attention:
    data_of = partial(
        CellData,
        plan=registered.content.statistics,
        seed=registered.seed(one.name),
        parameters=Parameters(f"suite {one.suite}", {}),
    )
    data = data_of(cells)
    return replace(
        one,
        budgets=tuple(by_budget(data)),
        errors=tuple(spreads(data)),
        calibration=tuple(calibration(data)),
        layers=tuple(by_layer(data)),
        heads=tuple(by_head(data, delta)),
        rare=tuple(by_rare_attention(data)),
        deployed=tuple(deployed(cells, data_of)),
        demonstrations=tuple(demonstrations(data_of(worlds))) if len(worlds) else (),
        frame=cells,
        worlds=worlds,
    )


def _reason(study: Study, cells: pd.DataFrame, worlds: pd.DataFrame) -> str:
    """Why a suite has no numbers: a broken log comes before a missing row."""
    if any(problems_touching(study, rows) for rows in (cells, worlds)):
        return "its logs are invalid"
    missing = [part for rows in (cells, worlds) for part in missing_rows(study, rows)]
    if not missing:
        return ""
    gone = sum(part.rows for part in missing)
    first = f"{missing[0].shard_id} is {missing[0].reason}"
    return f"{gone:,} of {len(cells) + len(worlds):,} cells and worlds are missing ({first})"


def _names(rows: pd.DataFrame, column: str) -> tuple[str, ...]:
    return tuple(sorted(set(rows[column].dropna().astype(str))))
