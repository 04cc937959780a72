"""columns.csv has every column of every table and every field of the JSON files, each with a meaning."""

import csv
import json
import re
from pathlib import Path

import pytest

from analysis.core import decide, verdict_json
from analysis.core.estimates import Estimate
from analysis.core.open import Bound
from analysis.core.study import load
from analysis.core.verdicts import analyse
from analysis.describe import description
from analysis.describe.parts import Part
from analysis.describe.table import MEANINGS, Column, Table
from analysis.render import json as details_json
from analysis.render.csv import dictionary, to_csv
from analysis.render.files import outputs
from kvexp.documents.registration import load_folder
from tests import planted

ROOT = Path(__file__).resolve().parents[2]


def described(folder, registrations):
    """The CSV files of a study by name, as lists of lines, and its JSON files."""
    report = analyse(load(folder, {}), registrations, Bound())
    found = description.described(report)
    tables = [table for part in found.parts for table in part.tables]
    tables.append(dictionary(tables))
    documents = {
        "verdicts.json": verdict_json.to_json(report),
        "details.json": details_json.to_json(found),
    }
    return (
        {f"{table.name}.csv": list(csv.reader(to_csv(table).splitlines())) for table in tables},
        {name: json.loads(text) for name, text in documents.items()},
        tables,
    )


@pytest.fixture(scope="module")
def of_generations(tmp_path_factory):
    """The paper's real tasks, with their control; few draws, for the names alone are looked at."""
    home, folder = tmp_path_factory.mktemp("registrations"), tmp_path_factory.mktemp("planted") / "paper"
    for name in ("R.toml", "S.toml"):
        text = (ROOT / "preregistration" / "paper" / name).read_text().replace("draws = 500", "draws = 4")
        text = re.sub(r"models = \[.*?\]", f"models = ['{planted.INSTRUCT[0]}']", text, flags=re.DOTALL)
        lines = [line for line in text.splitlines() if not line.startswith('"q = ')]
        (home / name).write_text("\n".join(lines) + "\n")
    planted.write(folder, planted.paper(models=planted.INSTRUCT[:1], examples=1), planted.forgetful)
    return described(folder, load_folder(home, decide.CLAIMS))


@pytest.fixture(scope="module")
def of_cells_alone(cells_template, of_cells):
    return described(cells_template, [of_cells])


def test_every_column_of_every_table_has_a_meaning_of_its_own(of_generations, of_cells_alone):
    for tables, _, made in (of_generations, of_cells_alone):
        explained = {(file, field): meaning for file, field, _, meaning, _ in tables["columns.csv"][1:]}
        for name, lines in tables.items():
            assert [head for head in lines[0] if not explained.get((name, head))] == []
        for table in made:
            unsaid = [one.key for one in table.columns if not one.meaning and one.key not in MEANINGS]
            assert (table.name, unsaid) == (table.name, [])


def test_nothing_is_explained_that_no_table_has(of_generations, of_cells_alone):
    keys = {
        one.key for *_, made in (of_generations, of_cells_alone) for table in made for one in table.columns
    }
    assert MEANINGS.keys() - keys == set()


def paths(value, path=()):
    """Path and value of every leaf; a part that ends in [] is a list."""
    if isinstance(value, dict):
        for key, one in value.items():
            yield from paths(one, (*path, key))
    elif isinstance(value, list):
        for one in value:
            yield from paths(one, (*path[:-1], f"{path[-1]}[]"))
        if not value:
            yield (*path[:-1], f"{path[-1]}[]"), None
    else:
        yield path, value


def fits(pattern, path):
    parts = pattern.split(".")
    if parts[-1] == "**":
        parts, path = parts[:-1], path[: len(parts) - 1]
    return len(parts) == len(path) and all(
        one in (part, "*") or (one == "*[]" and part.endswith("[]"))
        for one, part in zip(parts, path, strict=True)
    )


def starts(pattern, path):
    """Whether fields of what is null or empty here have lines of their own."""
    return len(pattern.split(".")) > len(path) and fits(".".join(pattern.split(".")[: len(path)]), path)


def test_every_field_of_the_json_files_has_a_meaning(of_generations, of_cells_alone):
    committed = {"verdicts.json": json.loads((ROOT / "results" / "embedded" / "verdicts.json").read_bytes())}
    for documents in (of_generations[1], of_cells_alone[1], committed):
        for file, body in documents.items():
            lines = of_generations[0]["columns.csv"][1:]
            patterns = [field for name, field, *_ in lines if name == file]
            lost = [
                path
                for path, value in dict(paths(body)).items()
                if not any(fits(pattern, path) for pattern in patterns)
                if value is not None or not any(starts(pattern, path) for pattern in patterns)
            ]
            assert lost == [], file


def test_a_table_of_a_stranger_says_what_its_heads_say():
    columns = (Column("suite", "suite"), Column("mine", "my number", "share", is_estimate=True))
    rows = dictionary([Table("own", "", columns, (("s", Estimate(1.0)),))]).rows
    assert rows[0] == ("own.csv", "suite", "suite", "suite of the study", "name")
    assert rows[1] == ("own.csv", "mine", "my number", "my number", "share")
    assert [row[1] for row in rows[2:5]] == ["mine_lo", "mine_hi", "mine_undefined"]


def test_columns_whose_names_are_those_of_suites_arms_and_signals_say_them(of_generations):
    explained = {
        (file, field): (meaning, unit) for file, field, _, meaning, unit in of_generations[0]["columns.csv"]
    }
    assert explained["table2.csv", "auc.6k"][0].startswith(
        "AUC of the certificate for own failure in suite 6k"
    )
    assert explained["table3.csv", "entropy"] == ("AUC of entropy for these failures", "AUC, 0 to 1")
    assert explained["table5.csv", "full"][0] == "accuracy of the full cache"
    assert explained["table5.csv", "topk.aware.0.25"][0] == (
        "accuracy of arm topk.aware.0.25: arm, condition, budget"
    )


def test_it_is_written_beside_the_tables_that_it_is_about():
    part = Part("mine", "Mine", tables=(Table("own", "", (Column("suite", "suite"),), (("s",),)),))
    files = dict(outputs([part]))
    assert "own.csv,suite,suite,suite of the study,name" in files["tables/columns.csv"].splitlines()
    assert "tables/columns.blind.csv" in dict(outputs([part], is_blind=True))


def test_it_is_a_table_like_the_others(of_generations):
    heads, *lines = of_generations[0]["columns.csv"]
    assert heads == ["file", "field", "words", "meaning", "unit"]
    assert len({(file, field) for file, field, *_ in lines}) == len(lines)
    assert all(not meaning.startswith("'") for _, _, _, meaning, _ in lines)
    assert to_csv(dictionary([])).count("columns.csv") == len(heads)
