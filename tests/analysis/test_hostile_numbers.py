"""What is lost is never zero, "no" or absent: lost signals, one-sided grids, stale and blind files, names."""

import csv
import hashlib
import io
import shutil

import numpy as np
import pytest

from analysis import __main__ as run
from analysis.core.estimates import Estimate
from analysis.describe.description import marked_svg, marked_table, parts_of
from analysis.describe.drawing import _numbered, shortened
from analysis.describe.paper import _picked, _words, read
from analysis.describe.rates import Rate
from analysis.describe.rates import _words as words_of_bars
from analysis.describe.scope import NO_FULL, NO_ROWS, Scope
from analysis.describe.table import Column, Table
from analysis.render import files
from analysis.render.csv import to_csv
from analysis.render.markdown import to_markdown
from tests import planted
from tests.analysis import varied
from tests.analysis.part_of import attribution, cost, per_model, questions, signal_panel
from tests.analysis.part_of import in_cells as cells
from tests.analysis.part_of import of_anchors as anchors
from tests.analysis.part_of import risk_coverage as coverage
from tests.planted import SHORT


def lines(part, name):
    (found,) = [table for table in part.tables if table.name == name]
    keys = [column.key for column in found.columns]
    return [dict(zip(keys, row, strict=True)) for row in found.rows]


@pytest.fixture(scope="module")
def without(varied_study):
    """The study with no certificate in any answer."""
    return varied_study.changed(certificate=np.nan)


@pytest.fixture(scope="module")
def no_full(varied_study, quick, tmp_path_factory):
    """A suite whose grid has no full cache."""
    grid = [row for row in planted.plan(examples=3) if row.arm != "full" and row.suite == SHORT]
    folder = planted.write(tmp_path_factory.mktemp("no_full") / "embedded", grid, varied.told)
    return varied.scope_of(folder, varied_study.registrations)


# Lost certificates --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("build", "name"),
    [
        (signal_panel, "table3"),
        (signal_panel, "figure2"),
        (questions, "figure3"),
        (attribution, "attribution"),
        (anchors, "anchors.signals"),
    ],
)
def test_a_lost_certificate_keeps_its_lines_and_says_why(without, build, name):
    rows = [line for line in lines(build(without), name) if line["arm" if "arm" in line else "suite"]]
    if name == "table3":
        found = [line["certificate"] for line in rows if line["arm"] == "poisson"]
        assert {line["certificate"].undefined for line in rows if line["arm"] == "h2o"} == {""}
    else:
        key = "auc" if "auc" in rows[0] else "pooled"
        found = [line[key] for line in rows if line["signal"] == "certificate"]
        assert {line.get("arm", "poisson") for line in rows if line["signal"] == "certificate"} == {"poisson"}
    assert found
    assert all(one.value is None and "certificate undefined in" in one.undefined for one in found)


def test_counts_of_lost_certificates_are_undefined(without):
    for line in lines(per_model(without), "table2"):
        counts = [line[f"{name}.{SHORT}"] for name in ("cells_above", "cells")]
        assert all(one.value is None and "undefined in" in one.undefined for one in counts)
    part = cells(without)
    for line in lines(part, "cells.summary"):
        assert line["with_auc"].value == 0
        names = ("mean", "lowest", "highest", "above", "interval_above")
        assert all("undefined in" in line[name].undefined for name in names)
    assert "certificate undefined in" in signal_panel(without).pictures[0].more


def test_a_signal_that_an_arm_never_has_is_no_missing_one(varied_study):
    table = varied_study.scope.report.study.table
    is_lost = (table["suite"] == SHORT) & (table.index % 7 == 0)
    scope = varied_study.changed(
        present=table["present"] & ~is_lost, margin=table["margin"].where(table["arm"] != "streaming_llm")
    )
    rows = lines(attribution(scope), "attribution")
    assert {line["auc"].undefined for line in rows if line["suite"] == SHORT} == {NO_ROWS}
    signals = {
        arm: {line["signal"] for line in rows if line["arm"] == arm} for arm in ("streaming_llm", "h2o")
    }
    assert "margin" in signals["h2o"]
    assert "margin" not in signals["streaming_llm"]


# A grid without the full cache --------------------------------------------------------------------


def test_a_grid_without_the_full_cache_says_so(no_full):
    assert {line["auc"].undefined for line in lines(attribution(no_full), "attribution")} == {NO_FULL}
    tables = [table for part in parts_of(no_full) for table in part.tables]
    reasons = {
        value.undefined for t in tables for row in t.rows for value in row if isinstance(value, Estimate)
    }
    assert NO_FULL in reasons
    assert NO_ROWS not in reasons


def test_anchors_of_a_grid_without_the_full_cache_keep_their_lines(no_full):
    rows = lines(anchors(no_full), "anchors.success")
    assert [line["success"].undefined for line in rows if line["arm"] == "full"] == [NO_FULL]
    assert all(line["success"].value is not None for line in rows if line["arm"] != "full")


# Files --------------------------------------------------------------------------------------------


def test_files_that_are_no_longer_made_go_and_those_of_others_stay(tmp_path):
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "mine.csv").write_text("mine")
    first = {"tables/a.csv": "a", "tables/b.csv": "b", "tables/c.csv": "c", "report.html": "page"}
    files.tidy(tmp_path, first)
    (tmp_path / "tables" / "c.csv").write_text("edited")
    files.tidy(tmp_path, {"tables/a.csv": "new", "report.html": "page"})
    assert sorted(path.name for path in (tmp_path / "tables").iterdir()) == ["a.csv", "c.csv", "mine.csv"]
    digest = hashlib.sha256(b"new").hexdigest()
    assert f"{digest}  tables/a.csv\n" in (tmp_path / files.INDEX).read_text()
    files.forget(tmp_path)
    assert not (tmp_path / "report.html").exists()
    assert (tmp_path / "tables" / "mine.csv").exists()


def test_an_index_that_names_other_places_removes_nothing(tmp_path):
    out, other = tmp_path / "out", tmp_path / "other.csv"
    (out / "tables").mkdir(parents=True)
    other.write_text("x")
    digest = hashlib.sha256(b"x").hexdigest()
    (out / "tables" / "link.csv").symlink_to(other)
    names = ("../other.csv", "tables/../../other.csv", "tables/link.csv", str(other))
    (out / files.INDEX).write_text("".join(f"{digest}  {name}\n" for name in names))
    files.forget(out)
    assert other.exists()
    assert (out / "tables" / "link.csv").is_symlink()


def test_every_file_of_a_blind_run_says_so(tmp_path, whole, home, capsys):
    out = tmp_path / "out"
    shutil.rmtree(out, ignore_errors=True)
    run.main([str(whole), "--registration", str(home), "--blind", "--out", str(out)])
    capsys.readouterr()
    made = [path for folder in ("tables", "figures") for path in (out / folder).iterdir()]
    assert len(made) > 30
    for path in made:
        assert ".blind." in path.name
        assert path.suffix == ".csv" or "BLIND" in path.read_text()
    assert not (out / "tables" / "table3.csv").exists()


def test_blind_marks_of_an_attention_suite_and_of_a_drawing():
    brief = Table("", "In brief", (), ())
    made = marked_table(Table("attention.budgets", "Coverage", (), (), brief=(brief,)))
    assert (made.name, made.title) == ("attention.budgets.blind", "BLIND: Coverage")
    assert made.caution.startswith("BLIND: outcomes are permuted")
    assert [one.title for one in made.brief] == ["BLIND: In brief"]
    assert 'x="796" text-anchor="end"' in marked_svg('<svg viewBox="0 0 800 200"><g/></svg>\n')


@pytest.mark.parametrize("text", ["=1+1", "+x", "-x", "@x", "  =1"])
def test_text_of_a_csv_starts_no_formula_and_numbers_stay(text):
    columns = (Column("what", "what"), Column("x", "x", is_estimate=True))
    found = to_csv(Table("t", "t", columns, ((text, Estimate(-0.5, undefined=text)),)))
    _, row = csv.reader(io.StringIO(found))
    assert row == [f"'{text}", "-0.5", "", "", f"'{text}"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("![a](http://x.y)", "![a\\](http<!-- -->://x.y)"),
        ("[y](javascript:f)", "[y\\](javascript<!-- -->:f)"),
        ("www.x.org a@b.org", "www<!-- -->.x.org a<!-- -->@b.org"),
        ("~~s~~ $a$", "\\~\\~s\\~\\~ \\$a\\$"),
        ("0.5 [0.4, 0.6]", "0.5 [0.4, 0.6]"),
    ],
)
def test_text_of_markdown_is_no_link(text, shown):
    assert shown in to_markdown(Table("t", "t", (Column("what", "what"),), ((text,),)))


# Single numbers -----------------------------------------------------------------------------------


def test_answers_that_state_the_same_seconds_are_no_batch_by_that(varied_study):
    table = varied_study.scope.report.study.table
    alone = varied_study.changed(decode_seconds=2.0, decode_arms=1.0, n_generated=10.0)
    assert {line["tokens_per_second"].value for line in lines(cost(alone), "cost")} == {5.0}
    few = varied_study.changed(decode_seconds=2.0, decode_arms=table["decode_arms"].clip(upper=3))
    found = [line["tokens_per_second"] for line in lines(cost(few), "cost") if line["arm"] == "h2o"]
    assert all("undefined in" in one.undefined for one in found)


def test_the_largest_size_has_no_sign_and_what_is_not_asked_takes_no_part():
    found = _picked([Estimate(-0.3, -0.4, -0.1), Estimate(0.2, 0.1, 0.3), Estimate(None)], "largest size")
    assert (found.value, found.lo, found.hi) == (0.3, 0.1, 0.4)
    assert _picked([Estimate(0.2), Estimate(None, undefined="lost")], "largest").undefined == "lost"
    assert _picked([Estimate(None)], "largest").undefined == "no row has such a number"


def test_the_same_grid_is_told_by_models_and_counts():
    numbers = read()
    own = {role: names[0] for role, names in numbers.roles.items()}
    assert _words(numbers, own, numbers.grid, numbers.models).startswith("The same grid")
    assert sum(numbers.grid.values()) - numbers.grid["attention"] == 98_412
    fewer = {**numbers.grid, "6k": 100}
    assert "6k 100 of 34,000" in _words(numbers, own, fewer, numbers.models)
    assert "Beside the paper's models: x." in _words(numbers, own, numbers.grid, [*numbers.models, "x"])
    assert _words(numbers, own, numbers.grid, ["x"]).startswith("Another model")


def test_ties_of_figure_1_name_every_arm():
    bars = [Rate("s", None, arm, "aware", 0.25, Estimate(0.5)) for arm in ("a", "b")]
    assert "50.0 % (a at 25 %, b at 25 %)" in words_of_bars(bars)[1]


def test_names_are_shortened_in_the_middle():
    assert shortened("short", 12) == "short"
    assert shortened("a" * 30 + "-1k", 12) == "aaaaaa...-1k"


def test_equal_errors_differ_by_nothing(varied_study):
    scope: Scope = varied_study.changed(certificate=1.0)
    for line in lines(coverage(scope), "coverage"):
        if line["signal"] == "certificate":
            assert line["gain_30"].value == 0.0


def test_clip_paths_have_no_names_made_of_floats():
    one, other = (
        _numbered(f'<clipPath id="{name}"><rect/></clipPath><g clip-path="url(#{name})"/>')
        for name in ("pddc1d71a5c", "p9bef9b178c")
    )
    assert one == other == '<clipPath id="clip0"><rect/></clipPath><g clip-path="url(#clip0)"/>'
