"""Descriptive parts against slow loops over the rows as they stand in the logs, and other libraries."""

import itertools
import math
import random
import shutil
from collections import defaultdict
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import roc_auc_score

from analysis.claims import s3
from analysis.core.data import Data
from analysis.core.estimates import Estimate
from analysis.core.populations import ORIENTATION
from analysis.core.verdicts import Report
from analysis.describe.anchors import against_chance, standard_error
from analysis.describe.coverage import expected_errors
from analysis.describe.scope import NO_ROWS, Scope
from analysis.describe.sizes import UNREAD
from analysis.render.csv import to_csv
from analysis.render.markdown import to_markdown
from kvexp.documents.registration import Question
from kvexp.records import Example
from tests import planted
from tests.analysis import varied
from tests.analysis.part_of import budgets, conditions, contexts, cost, disagreement
from tests.analysis.part_of import in_cells as cells
from tests.analysis.part_of import of_anchors as anchors
from tests.analysis.part_of import price as tax
from tests.analysis.part_of import risk_coverage as coverage

MAIN = ("facts", "words")


@pytest.fixture(scope="module")
def rows(varied_study):
    return varied_study.rows


def table_of(part, name):
    """The rows of a part's table as dictionaries."""
    (found,) = [table for table in part.tables if table.name == name]
    keys = [column.key for column in found.columns]
    return [dict(zip(keys, row, strict=True)) for row in found.rows]


def where(rows, **wanted):
    return [row for row in rows if all(row[name] == value for name, value in wanted.items())]


def succeeds(row):
    return row["score_value"] >= (0.5 if row["score_name"] == "token_f1" else 1.0)


def full_of(rows):
    """Whether the full cache succeeds, by question."""
    return {question(row): succeeds(row) for row in rows if row["arm"] == "full"}


def question(row):
    return row["suite"], row["model"], row["task"], row["example_id"]


def auc(rows, signal, positive):
    values = [ORIENTATION[signal] * row[signal] for row in rows]
    return roc_auc_score([positive(row) for row in rows], values)


def by_model(row):
    return {} if row["model"] == "pooled" else {"model": row["model"]}


# Cost and budgets ---------------------------------------------------------------------------------


def batches(rows):
    """Rows by batch."""
    found = defaultdict(list)
    for row in rows:
        found[(*question(row), row["budget"] or 1.0, row["seconds"]["decode"])].append(row)
    return found


def test_cost_by_arm_against_a_loop(varied_study, rows):
    part = cost(varied_study.scope)
    seconds, rates = {}, {}
    for batch in batches(rows).values():
        for row in batch:
            seconds[id(row)] = row["seconds"]["decode"] / max(one["n_generated"] for one in batch)
            rates[id(row)] = sum(one["n_generated"] for one in batch) / row["seconds"]["decode"]
    shown = table_of(part, "cost")
    assert len(shown) == sum(3 * (1 + 5 * (1 + count)) for count in (2, 3))
    for line in shown:
        here = where(rows, suite=line["suite"], arm=line["arm"], **by_model(line))
        full = where(rows, suite=line["suite"], arm="full", **by_model(line))
        here = here if line["budget"] == "all" else where(here, budget=float(line["budget"]))
        own = np.median([seconds[id(row)] for row in here])
        expected = {
            "rows": len(here),
            "seconds_per_token": own,
            "ratio_to_full": own / np.median([seconds[id(row)] for row in full]),
            "tokens_per_second": np.median([rates[id(row)] for row in here]),
            "arms_in_batch": np.median([row["seconds"]["decode_arms"] for row in here]),
            "plan_seconds": np.median([row["seconds"]["plan"] for row in here]),
            "prefill_seconds": np.median([row["seconds"]["prefill"] for row in here]),
            "tokens_median": np.median([row["n_generated"] for row in here]),
            "tokens_mean": np.mean([row["n_generated"] for row in here]),
        }
        assert {name: value_of(line[name]) for name in expected} == pytest.approx(expected, rel=1e-12)


def value_of(value):
    return value.value if isinstance(value, Estimate) else value


def test_an_answer_without_tokens_has_no_cost(varied_study):
    table = varied_study.scope.report.study.table
    scope = varied_study.changed(n_generated=table["n_generated"].where(table["arm"] != "full", 0.0))
    line = table_of(cost(scope), "cost")[0]
    assert line["arm"] == "full"
    assert line["seconds_per_token"].value is None
    assert "undefined in 24 of 24 rows" in line["seconds_per_token"].undefined
    assert line["ratio_to_full"].undefined


def test_arms_that_share_the_batch_of_the_full_cache_are_not_compared_with_it(varied_study):
    table = varied_study.scope.report.study.table
    arms = table.groupby(["suite", "model", "task", "example_id"], observed=True)["arm"].transform("size")
    scope = varied_study.changed(decode_seconds=2.0, decode_arms=arms.astype(float))
    for line in table_of(cost(scope), "cost"):
        assert line["seconds_per_token"].value > 0
        assert "shares its batch" in line["ratio_to_full"].undefined


def test_kept_against_expected_tokens_against_a_loop(varied_study, rows):
    shown = table_of(budgets(varied_study.scope), "budgets")
    assert len(shown) == 6 * 2 + 6 * 3
    for line in shown:
        place = {name: line[name] for name in ("suite", "arm", "condition", "budget")}
        here = where(rows, **place)
        ratio = [row["realised_kept"] / row["expected_kept"] for row in here]
        apart = [row["realised_kept"] - row["expected_kept"] for row in here]
        assert line["rows"] == len(here) == line["realised"].n
        assert line["realised"].value == pytest.approx(np.mean([row["realised_kept"] for row in here]))
        assert line["expected"].value == pytest.approx(np.mean([row["expected_kept"] for row in here]))
        assert line["ratio_mean"].value == pytest.approx(np.mean(ratio))
        assert (line["ratio_min"].value, line["ratio_max"].value) == (min(ratio), max(ratio))
        share = np.mean([row["realised_kept"] / row["n_evictable"] for row in here])
        assert line["realised_share"].value == pytest.approx(share)
        if line["arm"] == "poisson":
            assert line["difference_sd"].value == pytest.approx(np.std(apart))
            tail = np.mean([row["tail_kept"] for row in here])
            assert line["head_sd_bound"].value == pytest.approx(math.sqrt(tail))
        else:
            assert line["tail_kept"].undefined == "nothing is drawn"


# Anchors ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "positives", "negatives", "z"),
    [(0.405, 24, 24, -1.15), (0.812, 107, 85, 10.2)],  # section 5; 11.5 % of 96 and all of 96 fail
)
def test_the_z_of_the_paper(value, positives, negatives, z):
    assert round(against_chance(value, positives, negatives).z, 2 if abs(z) < 10 else 1) == z


def test_the_standard_error_by_hand():
    # AUC 3/4 on 3 and 2 rows: Q1 = 3/5, Q2 = 9/14, squared 9/16.
    q1, q2, square = Fraction(3, 5), Fraction(9, 14), Fraction(9, 16)
    spread = (Fraction(3, 16) + 2 * (q1 - square) + (q2 - square)) / 6
    assert standard_error(0.75, 3, 2) == pytest.approx(math.sqrt(spread), rel=1e-14)
    test = against_chance(0.75, 3, 2)
    assert test.p == pytest.approx(2 * stats.norm.sf(abs(test.z)), rel=1e-12)
    assert (against_chance(1.0, 3, 2).z, against_chance(0.0, 3, 2).z) == (None, None)
    assert against_chance(0.5, 3, 2).p == 1.0


def test_anchors_are_the_tasks_that_are_not_main(varied_study, rows):
    part = anchors(varied_study.scope)
    success, signals = table_of(part, "anchors.success"), table_of(part, "anchors.signals")
    assert {line["task"] for line in success + signals} == {"passcodes"}
    for line in success:
        place = {"condition": line["condition"] or None, "budget": float(line["budget"] or 0) or None}
        here = where(rows, suite=line["suite"], task="passcodes", arm=line["arm"], **place)
        assert line["rows"] == len(here) > 0
        assert line["success"].value == pytest.approx(np.mean([succeeds(row) for row in here]))
    assert {(line["arm"], line["signal"]) for line in signals if line["signal"] == "certificate"} == {
        ("poisson", "certificate")
    }
    for line in signals:
        here = where(rows, suite=line["suite"], task="passcodes", arm=line["arm"])
        failed = [row for row in here if not succeeds(row)]
        passed = [row for row in here if succeeds(row)]
        assert (line["failures"], line["successes"]) == (len(failed), len(passed))
        expected = auc(here, line["signal"], lambda row: not succeeds(row))
        assert line["auc"].value == pytest.approx(expected, abs=1e-12)
        for name, these in (("median_failures", failed), ("median_successes", passed)):
            assert line[name].value == np.median([row[line["signal"]] for row in these])
        assert line["z"].value == pytest.approx((expected - 0.5) / line["error"].value)


def test_an_anchor_that_the_full_cache_fails_keeps_its_lines(varied_study):
    table = varied_study.scope.report.study.table
    is_lost = (table["task"] == "passcodes") & (table["arm"] == "full")
    scope = varied_study.changed(score_value=table["score_value"].mask(is_lost, 0.0))
    lines = table_of(anchors(scope), "anchors.success")
    assert len(lines) == len(table_of(anchors(varied_study.scope), "anchors.success"))
    assert {line["success"].value for line in lines if line["arm"] == "full"} == {0.0}


# Cells --------------------------------------------------------------------------------------------


def test_cells_against_a_loop(varied_study, rows):
    part = cells(varied_study.scope)
    found = defaultdict(list)
    for line in table_of(part, "cells"):
        here = where(rows, suite=line["suite"], model=line["model"], task=line["task"], arm="poisson")
        if line["condition"] != "all":
            here = where(here, condition=line["condition"])
        expected = auc(here, "certificate", lambda row: not succeeds(row))
        assert line["auc"].value == pytest.approx(expected, abs=1e-12)
        assert line["failures"] + line["successes"] == len(here)
        is_fine = line["condition"] != "all"
        if line["task"] in MAIN:
            found[line["suite"], is_fine].append(expected)
    for line in table_of(part, "cells.summary"):
        aucs = found[line["suite"], line["by"].endswith("condition")]
        assert line["cells"] == line["with_auc"].value == len(aucs) == (8 if "condition" in line["by"] else 4)
        numbers = [line[name].value for name in ("mean", "lowest", "highest", "above")]
        above = sum(value > 0.5 for value in aucs)
        assert numbers == pytest.approx([np.mean(aucs), min(aucs), max(aucs), above])
        assert line["interval_above"].value is None  # eight clusters give no cell an interval
        assert line["interval_above"].undefined.startswith(f"{len(aucs)} of {len(aucs)} cells without")
        assert line["one_class"].value == 0


def test_the_picture_of_cells_counts_them(varied_study):
    part = cells(varied_study.scope)
    line = table_of(part, "cells.summary")[0]
    (picture,) = part.pictures
    assert f"embedded-1k {line['above'].value:.0f} of " in picture.sentence
    assert "With the whole interval: embedded-1k undefined (4 of 4" in picture.more
    assert "facts, model-a" in picture.svg
    assert "passcodes" not in picture.svg
    assert picture.svg == cells(varied_study.scope).pictures[0].svg


def test_cells_of_one_class_are_counted_and_not_averaged(varied_study):
    table = varied_study.scope.report.study.table
    lost = (table["task"] == "words") & (table["model"] == "model-a") & (table["condition"] == "stream")
    scope = varied_study.changed(score_value=table["score_value"].mask(lost, 0.0))
    line = next(one for one in table_of(cells(scope), "cells.summary") if "condition" in one["by"])
    assert (line["cells"], line["one_class"].value, line["with_auc"].value) == (8, 1, 7)


# Risk-coverage ------------------------------------------------------------------------------------


def orders(score):
    """Every order by rising score, ties in every order."""
    groups = [
        list(itertools.permutations([at for at in range(len(score)) if score[at] == value]))
        for value in sorted(set(score))
    ]
    for parts in itertools.product(*groups):
        yield [at for part in parts for at in part]


def test_expected_errors_are_the_mean_over_all_orders_of_ties():
    score, failed = [2.0, 1.0, 2.0, 3.0, 1.0, 2.0], [1, 0, 0, 1, 1, 0]
    every = [np.cumsum([failed[at] for at in order]) / np.arange(1, 7) for order in orders(score)]
    assert len(every) == 12
    found = expected_errors(np.array(score), np.array(failed, bool))
    assert found == pytest.approx(np.mean(every, axis=0), abs=1e-12)


def error_among(rows, signal, share):
    """Failures among the share of least risk, by a walk that shares out the tie at the cut."""
    by_risk = defaultdict(list)
    for row in rows:
        by_risk[ORIENTATION[signal] * row[signal]].append(not succeeds(row))
    left, wrong = share * len(rows), 0.0
    for value in sorted(by_risk):
        here = by_risk[value]
        taken = min(left, len(here))
        wrong += taken * np.mean(here)
        left -= taken
    return wrong / (share * len(rows))


def test_coverage_against_a_walk(varied_study, rows):
    part = coverage(varied_study.scope)
    by_place = {}
    for line in table_of(part, "coverage"):
        here = [row for row in where(rows, suite=line["suite"], arm="poisson") if row["task"] in MAIN]
        assert (line["tasks"], line["rows"]) == ("main", len(here))
        error = by_place[line["suite"], line["signal"]] = error_among(here, line["signal"], 0.3)
        assert line["error_30"].value == pytest.approx(error, abs=1e-12)
        everything = error_among(here, line["signal"], 1.0)
        assert line["error_100"].value == pytest.approx(everything, abs=1e-12)
        assert line["gain_30"].value == pytest.approx(error - everything, abs=1e-12)
        assert line["error_30"].lo <= line["error_30"].value <= line["error_30"].hi
    area = np.mean([error_among(here, "output_logprob", k / len(here)) for k in range(1, len(here) + 1)])
    assert table_of(part, "coverage")[-1]["area"].value == pytest.approx(area, abs=1e-12)
    for line in table_of(part, "coverage"):
        apart = by_place[line["suite"], "certificate"] - by_place[line["suite"], "output_logprob"]
        assert line["versus_30"].value == pytest.approx(apart, abs=1e-12)
    for line in table_of(part, "coverage.curve"):
        here = [row for row in where(rows, suite=line["suite"], arm="poisson") if row["task"] in MAIN]
        expected = error_among(here, line["signal"], line["coverage"])
        assert line["error"].value == pytest.approx(expected, abs=1e-12)


def test_a_signal_that_is_often_undefined_has_no_curve(varied_study):
    table = varied_study.scope.report.study.table
    part = coverage(varied_study.changed(certificate=table["certificate"].where(table["seed"] == 0)))
    by_signal = {line["signal"]: line for line in table_of(part, "coverage")}
    assert "certificate undefined in" in by_signal["certificate"]["error_30"].undefined
    assert by_signal["output_logprob"]["error_30"].value is not None
    assert "certificate undefined in" in by_signal["output_logprob"]["versus_30"].undefined


def test_a_few_undefined_rows_are_left_out_of_both(varied_study, rows):
    table = varied_study.scope.report.study.table
    at = table.index[(table["arm"] == "poisson") & (table["task"] == "facts")][0]
    part = coverage(varied_study.changed(certificate=table["certificate"].where(table.index != at)))
    line = table_of(part, "coverage")[0]
    assert (
        line["rows"]
        == len([row for row in where(rows, suite=line["suite"], arm="poisson") if row["task"] in MAIN]) - 1
    )
    assert line["versus_30"].value is not None


def test_the_picture_says_its_numbers(varied_study):
    part = coverage(varied_study.scope)
    (picture,), first = part.pictures, table_of(part, "coverage")[0]
    assert f"embedded-1k {first['error_30'].value:.3f} by certificate, " in picture.sentence
    assert f"embedded-1k {first['error_100'].value:.3f}" in picture.more
    assert "log-probability" in picture.svg
    assert picture.svg == coverage(varied_study.scope).pictures[0].svg


# The price of randomness, and conditions ----------------------------------------------------------


def test_the_tax_against_a_loop(varied_study, rows):
    part = tax(varied_study.scope)
    pooled, by_cell = table_of(part, "tax"), table_of(part, "tax.cells")
    assert len(pooled) == 3 * 4 * (2 + 3)
    assert len(by_cell) == 2 * 3 * 4 * (2 + 3)
    for line in pooled + by_cell:
        place = {"suite": line["suite"], "condition": line["condition"], "budget": float(line["budget"])}
        here = where(rows, **place, **by_model(line))
        tasks = MAIN if line["task"] == "main" else (line["task"],)
        success = {
            arm: np.mean([succeeds(row) for row in where(here, arm=arm) if row["task"] in tasks])
            for arm in (line["arm"], "poisson")
        }
        assert line["success"].value == pytest.approx(success[line["arm"]])
        assert line["tax"].value == pytest.approx(success[line["arm"]] - success["poisson"])


def test_the_tax_is_that_of_the_claim(varied_study):
    study = varied_study.scope.report.study
    registered = varied_study.registrations[1]
    question: Question = registered.question("S3")
    claimed = s3.quantities(Data.of(study.table, question))["tax"].value
    (line,) = [
        one
        for one in table_of(tax(varied_study.scope), "tax")
        if (one["suite"], one["model"], one["arm"], one["budget"]) == (planted.LONG, "pooled", "topk", 0.125)
    ]
    assert line["tax"].value == pytest.approx(claimed, abs=1e-12)


def test_conditions_against_sklearn(varied_study, rows):
    full = full_of(rows)
    counts = {
        "own_failure": lambda row: True,
        "induced_failure": lambda row: full[question(row)],
        "attribution": lambda row: not succeeds(row),
    }
    shown = table_of(conditions(varied_study.scope), "conditions")
    assert len(shown) == 2 * 2 * 3 * 2
    for line in shown:
        here = where(rows, suite=line["suite"], condition=line["condition"], arm="poisson")
        here = [row for row in here if row["task"] in MAIN and counts[line["label"]](row)]
        is_blamed = line["label"] == "attribution"
        expected = auc(
            here, line["signal"], lambda row, b=is_blamed: full[question(row)] if b else not succeeds(row)
        )
        assert line["rows"] == len(here)
        assert line["auc"].value == pytest.approx(expected, abs=1e-12)


# Contexts -----------------------------------------------------------------------------------------


def ask(rows, suite, model, task):
    """One example for each question; every third has no reference in its context."""
    luck = random.Random(f"{suite} {model} {task}")
    for row in where(rows, suite=suite, model=model, task=task, arm="full"):
        longer = luck.choice([0, 0, luck.randrange(1, 3000)])
        yield Example(
            suite=suite,
            model=model,
            task=task,
            example_id=row["example_id"],
            question="Where?",
            references=["there"],
            segments={},
            needle_depths=[],
            needle_tokens=[],
            n_context_full=row["n_context"] + longer,
            n_context=row["n_context"],
            n_prompt=row["n_prompt"],
            truncated=longer > 0,
            answer_survives=luck.choice([None, True, False]),
            difference="",
        )


def test_contexts_against_a_loop(varied_study, rows, tmp_path):
    folder = shutil.copytree(varied_study.folder, tmp_path / "embedded")
    (folder / "examples").mkdir()
    asked = {}
    for place in {question(row)[:3] for row in rows}:
        asked[place] = list(ask(rows, *place))
        (folder / "examples" / f"{'.'.join(place)}.jsonl").write_bytes(planted.lines(asked[place]))
    shown = table_of(contexts(varied.scope_of(folder, varied_study.registrations)), "contexts")
    assert len(shown) == 2 * 3 * 3
    for line in shown:
        models = varied.MODELS if line["model"] == "pooled" else [line["model"]]
        here = [one for model in models for one in asked[line["suite"], model, line["task"]]]
        stood = [one.answer_survives for one in here if one.answer_survives is not None]
        expected = {
            "examples": len(here),
            "before": np.median([one.n_context_full for one in here]),
            "before_max": max(one.n_context_full for one in here),
            "after": np.median([one.n_context for one in here]),
            "kept": np.median([one.n_context / one.n_context_full for one in here]),
            "truncated": np.mean([one.truncated for one in here]),
            "survives": np.mean(stood),
        }
        assert {name: value_of(line[name]) for name in expected} == pytest.approx(expected, rel=1e-12)
        assert line["survives"].n == len(stood)


@pytest.mark.parametrize(
    "data", [None, b"not a record", b'{"kind":"example/1","suite":"embedded-1k"}\n', "of another task"]
)
def test_examples_that_cannot_be_read_are_unknown_and_no_problem(varied_study, rows, tmp_path, data):
    folder = shutil.copytree(varied_study.folder, tmp_path / "embedded")
    (folder / "examples").mkdir()
    if data == "of another task":
        data = planted.lines(ask(rows, planted.SHORT, "model-a", "words"))
    if data is not None:
        (folder / "examples" / f"{planted.SHORT}.model-a.facts.jsonl").write_bytes(data)
    line = table_of(contexts(varied.scope_of(folder, varied_study.registrations)), "contexts")[0]
    assert (line["task"], line["model"], line["after"].value) == ("facts", "model-a", 900)
    assert {line[name].undefined for name in ("before", "kept", "truncated", "survives")} == {UNREAD}


# Whatever is missing ------------------------------------------------------------------------------

BUILDERS = (anchors, budgets, cells, conditions, contexts, cost, coverage, tax, disagreement)


def everything(scope):
    """The rows of every table by name; all of them can be written."""
    parts = [part for build in BUILDERS if (part := build(scope)) is not None]
    tables = [table for part in parts for table in part.tables]
    assert all(to_csv(table) and to_markdown(table) for table in tables)
    return {table.name: table_of(part, table.name) for part in parts for table in part.tables}


def test_a_missing_shard_takes_its_numbers_and_no_others(varied_study, tmp_path):
    folder = shutil.copytree(varied_study.folder, tmp_path / "embedded")
    shutil.rmtree(folder / planted.SHORT / f"{planted.SHORT}.model-a.words.000")
    found = everything(varied.scope_of(folder, varied_study.registrations))
    assert {"cost", "budgets", "cells", "coverage", "tax", "recomputation.two-draws"} <= found.keys()
    for line in found["cells"]:
        is_lost = (line["suite"], line["model"], line["task"]) == (planted.SHORT, "model-a", "words")
        assert (line["auc"].undefined == NO_ROWS) == is_lost
    assert [line["mean"].undefined for line in found["cells.summary"]] == [NO_ROWS, NO_ROWS, "", ""]
    curves = {line["suite"]: line for line in found["coverage"]}
    assert curves[planted.SHORT]["error_30"].undefined == NO_ROWS
    assert curves[planted.LONG]["error_30"].value is not None


def test_nothing_is_there_yet(varied_study, tmp_path):
    shutil.copy(varied_study.folder / "grid.jsonl", tmp_path / "grid.jsonl")
    scope = varied.scope_of(tmp_path, varied_study.registrations)
    found = everything(scope)
    for line in found["cost"] + found["budgets"]:
        values = [value for value in line.values() if isinstance(value, Estimate)]
        assert all(value.value is None and value.undefined for value in values)
    for (picture,) in (coverage(scope).pictures, cells(scope).pictures):
        assert (picture.svg, picture.undefined) == (None, NO_ROWS)


def test_a_study_of_one_plain_arm(varied_study, tmp_path):
    grid = [row for row in planted.plan(examples=4) if row.arm in ("full", "h2o")]
    planted.write(tmp_path / "embedded", grid, planted.World())
    scope = varied.scope_of(tmp_path / "embedded", varied_study.registrations)
    names = set(everything(scope))
    assert {"cost", "budgets", "anchors.success"} <= names
    assert not names & {"cells", "coverage", "tax", "conditions", "recomputation.two-draws"}


def test_a_study_without_suites_of_generations(varied_study):
    report = varied_study.scope.report
    assert not everything(Scope(Report(report.study, [], [])))
