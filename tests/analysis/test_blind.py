"""A blind run moves outcomes and errors inside their model, task and budget, and nowhere else."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pandas as pd

from analysis.core.blind import ERRORS, blinded
from analysis.core.study import load

GROUP = ["model", "task", "budget"]


def by_group(rows: pd.DataFrame, columns: list[str], within: list[str]) -> dict[object, Counter[float]]:
    """How often each value stands in each group, whichever column and row it stands in."""
    groups = rows.groupby(within, observed=True)
    return {key: Counter(group[columns].to_numpy().ravel().tolist()) for key, group in groups}


def test_errors_of_cells_stay_in_their_model_task_and_budget(measured, owners, of_cells):
    study = load(measured, owners)
    cells = study.cells
    # Two models and two tasks, each with values of its own.
    prompt = cells["example_id"].cat.codes.to_numpy()
    split = {"model": np.where(prompt % 2, "one", "two"), "task": np.where(prompt // 2 % 2, "a", "b")}
    errors = np.arange(4.0 * len(cells)).reshape(-1, 4) / len(cells)
    cells = cells.assign(**split, **dict(zip(ERRORS, errors.T, strict=True)))
    moved = blinded(replace(study, cells=cells), [of_cells]).cells
    assert by_group(moved, [*ERRORS], GROUP) == by_group(cells, [*ERRORS], GROUP)
    assert len(by_group(cells, [*ERRORS], GROUP)) == 4 * cells["budget"].nunique()
    assert (moved["hajek"] != cells["hajek"]).mean() > 0.9
    assert moved["covered"].tolist() == (moved["hajek"] <= cells["certificate"]).astype(float).tolist()


def test_outcomes_of_generations_stay_in_their_model_and_task(whole, owners, registrations):
    study = load(whole, owners)
    table = study.table.assign(score_value=np.arange(float(len(study.table))))
    moved = blinded(replace(study, table=table), registrations).table
    within = ["model", "task"]
    assert by_group(moved, ["score_value"], within) == by_group(table, ["score_value"], within)
    assert (moved["score_value"] != table["score_value"]).mean() > 0.9
