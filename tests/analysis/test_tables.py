"""Tables: no name passes for a word of ours, budgets keep their digits, names are read as written."""

import csv
import io
import re
from pathlib import Path

import pandas as pd
import pytest

from analysis.core import decide
from analysis.core.estimates import Estimate
from analysis.core.open import Bound
from analysis.core.study import load
from analysis.core.verdicts import analyse
from analysis.describe import description
from analysis.describe.paper import Lookup, Number
from analysis.describe.table import BUDGET, MAIN, POOLED, Column, Table, Word, budget_words, exactly
from analysis.render.csv import dictionary, to_csv
from analysis.render.markdown import to_markdown
from kvexp.documents.registration import load_folder
from tests import planted

ROOT = Path(__file__).resolve().parents[2]
MODEL, TASK = Column("model", "model"), Column("task", "task")
TAKEN = ["NA", "null", "nan", "None", "N/A", "NaN", "undefined", "unknown"]  # ids that readers have plans for


def lines(table):
    return list(csv.DictReader(io.StringIO(to_csv(table))))


def test_a_name_that_is_spelt_like_a_word_of_ours_says_that_it_is_a_name():
    rows = (("pooled", "main"), (POOLED, MAIN), ("pooled-2", "all"), ("main", "pooled"))
    table = Table("one", "One", (MODEL, TASK), rows)
    written = [tuple(line.values()) for line in lines(table)]
    assert written == [
        ("pooled (a model)", "main (a task)"),
        ("pooled", "main"),
        ("pooled-2", "all (a task)"),
        ("main", "pooled"),
    ]
    assert [tuple(row) for row in table.shown()[1:]] == written
    assert "| pooled (a model) | main (a task) |" in to_markdown(table)


def test_the_paper_looks_up_the_row_of_all_models_not_a_model_of_that_name():
    columns = (MODEL, Column("value", "value", is_estimate=True))
    table = Table("one", "One", columns, (("pooled", Estimate(0.1)), (POOLED, Estimate(0.9))))
    where = {"table": "one", "column": "value", "row": {"model": "pooled"}}
    number = Number(section="1", words="one", value=0.9, **where)
    assert Lookup([table], {}, {}).ours(number).value == 0.9


BUDGETS = (0.1234561, 0.1234562)
MODELS = ("pooled", "undefined", "null")


def budgets_of(suite):
    return planted.PAPER_BUDGETS[suite] + (BUDGETS if suite == planted.SIX else ())


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    """Tables of a study by name, whose models are spelt like words and whose budgets are near each other."""
    home, folder = tmp_path_factory.mktemp("registrations"), tmp_path_factory.mktemp("planted") / "paper"
    text = (ROOT / "preregistration" / "paper" / "R.toml").read_text().replace("draws = 500", "draws = 4")
    text = re.sub(r"models = \[.*?\]", f"models = {list(MODELS)}", text, flags=re.DOTALL)
    (home / "R.toml").write_text(text)
    grid = [
        row
        for suite in (planted.SIX, planted.CONTROL)
        for model in MODELS
        for task in planted.PAPER[suite]
        for row in planted.rows(suite, model, task, 1, budgets_of(suite))
    ]
    planted.write(folder, grid, planted.forgetful)
    report = analyse(load(folder, {}), load_folder(home, decide.CLAIMS), Bound())
    return {table.name: table for part in description.described(report).parts for table in part.tables}


def test_a_model_called_pooled_has_lines_of_its_own(odd):
    for name in ("rates", "table2", "cost", "contexts", "control.known", "control.induced"):
        models = [line["model"] for line in lines(odd[name])]
        assert {"pooled (a model)", "pooled", "undefined", "null"} == set(models), name
        assert models.count("pooled") == models.count("pooled (a model)") == models.count("null"), name
    # All that people see of the tables that show all models together alone.
    for name in ("cost", "control.induced"):
        assert {row[1] for row in odd[name].excerpt} == {POOLED}
        assert all(isinstance(row[1], Word) for row in odd[name].excerpt)


def test_budgets_that_are_near_each_other_have_lines_and_columns_of_their_own(odd):
    for name in ("rates", "rates_by_task", "budgets", "tax"):
        assert {*map(repr, BUDGETS)} <= {line["budget"] for line in lines(odd[name])}, name
    heads = to_csv(odd["table5"]).splitlines()[0].split(",")
    assert len(heads) == len(set(heads))
    assert "poisson.aware.0.1234562" in heads


def test_budgets_keep_all_their_digits():
    near = (0.1234561, 0.1234562)
    table = Table("one", "One", (BUDGET,), tuple((one,) for one in (*near, 0.125, 1.0, 1 / 3)))
    assert [line["budget"] for line in lines(table)] == ["0.1234561", "0.1234562", "0.125", "1", repr(1 / 3)]
    assert [row[0] for row in table.shown()[1:4]] == ["12.34561 %", "12.34562 %", "12.5 %"]
    assert [budget_words(one) for one in (1.0, 0.3, 1e-7, 0.07)] == ["100 %", "30 %", "0.00001 %", "7 %"]
    assert (exactly(0.25), exactly(-0.0), exactly(1e-9)) == ("0.25", "0", "1e-09")


def test_names_that_readers_take_for_missing_are_kept():
    rows = tuple((name, 0.5) for name in TAKEN)
    text = to_csv(Table("one", "One", (MODEL, BUDGET), ((*rows, (POOLED, None)))))
    assert [line["model"] for line in csv.DictReader(io.StringIO(text))] == [*TAKEN, "pooled"]
    # With its defaults pandas loses some of them; columns of numbers are still numbers in what keeps them.
    assert pd.read_csv(io.StringIO(text))["model"].isna().any()
    kept = pd.read_csv(io.StringIO(text), keep_default_na=False, na_values=[""])
    assert kept["model"].tolist() == [*TAKEN, "pooled"]
    assert kept["budget"].isna().tolist() == [False] * len(TAKEN) + [True]


def test_no_meaning_merely_repeats_a_head_or_a_field(odd):
    made = dictionary(odd.values()).rows
    shipped = csv.reader((ROOT / "results" / "embedded" / "tables" / "columns.csv").read_text().splitlines())
    for _, field, words, meaning, _ in (*made, *shipped):
        last = field.rpartition(".")[2].removesuffix("[]").replace("_", " ")
        assert field == "field" or meaning.lower() not in (words.lower(), field.lower(), last.lower()), field
