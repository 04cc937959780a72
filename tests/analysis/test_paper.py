"""The paper's registrations against the grid that conf/ plans: every claim selects its rows alone."""

import itertools
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest

from analysis.core.decide import decide
from analysis.core.study import load
from kvexp.documents.condition import State
from kvexp.run.prepare import grid_bytes
from kvexp.study.compose import select
from kvexp.study.grid import shards
from scripts.make_planted_logs import PAPER as PAPER_TARGETS
from scripts.planting.targets import read
from tests import planted
from tests.planted import INSTRUCT, PAPER, SIX, SIXTEEN

ROOT = Path(__file__).resolve().parents[2]
# Rows that a claim reads, written out: models x tasks x examples x rows of an example, full rows included
# where the label asks for them.
ROWS = {
    "R1": 4 * 4 * 100 * 8,
    "R2": 4 * 5 * 100 * 16,
    "R3": 4 * 4 * 100 * (8 + 1),
    "R4": 4 * 5 * 100 * 8,
    "S1": 2 * 4 * 2 * 100 * (2 + 1),
    "S2": 4 * 4 * 100 * 12,
    "S3": 4 * 4 * 100 * (1 + 2),
}
READINGS = {
    ("R2", "induced failure"): 4 * 5 * 100 * 17,
    ("R2", "stream with stream"): 4 * 5 * 100 * (3 * 2 + 4),
    ("R2", "aware with aware"): 4 * 5 * 100 * (2 + 4),
    ("R3", "16k"): 4 * 4 * 100 * (12 + 1),
    ("R3", "both suites"): 4 * 4 * 100 * (8 + 1) + 4 * 4 * 100 * (12 + 1),
    ("R4", "LongBench only"): 4 * 4 * 100 * 8,
}


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """Planned and not begun; ids of data that are not on this machine are assumed."""
    folder = tmp_path_factory.mktemp("planned") / "paper"
    folder.mkdir()
    (folder / "grid.jsonl").write_bytes(grid_bytes(shards(select(["study=paper"], ROOT), "assume")))
    return load(folder, {})


@pytest.fixture(scope="module")
def verdicts(study, of_paper):
    return {verdict.claim_id: verdict for one in of_paper for verdict in decide(study, one)}


def rows(answer):
    assert answer.state is State.INCOMPLETE
    assert answer.unplanned == ()
    assert {part.reason for part in answer.missing} == {"not started"}
    assert all(part.rows == part.of for part in answer.missing)
    return sum(part.rows for part in answer.missing)


def test_every_claim_and_variant_selects_its_rows(study, verdicts):
    assert len(study.table) == 98_412
    assert {claim: rows(verdicts[claim].answer) for claim in ROWS} == ROWS
    for (claim_id, name), count in READINGS.items():
        verdict = verdicts[claim_id]
        assert rows({**verdict.readings, **verdict.sensitivity}[name]) == count, name
    for claim_id in ("A1", "A2", "A3"):
        assert rows(verdicts[claim_id].answer) == 3 * 12_096
        assert {rows(answer) for answer in verdicts[claim_id].readings.values()} == {12_096}
    assert {verdict.answer.state for verdict in verdicts.values()} == {State.INCOMPLETE}


def test_the_control_asks_every_example_of_the_main_tasks(study, of_paper, details):
    found = details(study, *of_paper).control
    assert [one.suite for one in found] == [SIX, SIXTEEN]
    for one in found:
        tasks = set(PAPER[one.suite]) - {"passcodes"}
        assert {row.task for row in one.known} == {*tasks, None}
        assert {row.model for row in one.known} == {*INSTRUCT, None}
        # Nothing has run, but nothing is absent from the control either.
        reason = "1,600 of 1,600 answers of the full cache in no-context are missing"
        assert one.known[-1].accuracy.undefined == reason
        places = {(row.arm, row.condition, row.budget) for row in one.induced}
        assert len(places) == (2 if one.suite == SIX else 3) * 6
        assert len(one.induced) == len(places) * 5


def test_the_paper_is_planted_on_its_whole_grid(study):
    """Rows of every place of the grid, but for the attention suite's cells."""
    axes = ["suite", "model", "task", "arm", "condition", "budget", "seed"]
    planned = study.table[axes].astype(object).fillna("").value_counts()
    made = Counter()
    for suite in read(PAPER_TARGETS).suite:
        for model, task, place in itertools.product(suite.models, suite.tasks, suite.places()):
            made[suite.name, model, task, *("" if part is None else part for part in place)] += suite.examples
    assert made == planned.to_dict()


def test_the_planted_grid_is_the_planned_one_in_small(study):
    """Tests of the analysis plant what conf/ plans: tasks, models, arms, budgets and draws of every suite."""
    axes = ["suite", "model", "task", "arm", "condition", "budget", "seed"]
    grid = study.table.loc[study.table["suite"].isin(PAPER), axes].drop_duplicates()
    made = pd.DataFrame([{axis: getattr(row, axis) for axis in axes} for row in planted.paper(examples=1)])
    as_text = [{tuple(row) for row in table.astype(object).fillna("").to_numpy()} for table in (grid, made)]
    assert as_text[0] == as_text[1]
    assert len(made) == len(grid) == 4 * (5 * 17 + 4 * 25 + 6)
