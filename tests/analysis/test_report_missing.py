"""Cells of the page: what is missing is marked as such, and a name that is spelt like it is a name."""

from analysis.core.estimates import Estimate
from analysis.describe.table import Column, Table
from analysis.render.html import _environment
from analysis.render.page_tables import estimate, grid, of_table, truth

LOST = Estimate(None, undefined="rows are missing")
NAMES = ("undefined", "unknown", "-", "b", "NA")


def test_a_name_is_never_missing_and_what_is_missing_is_marked():
    columns = (Column("model", "model"), Column("auc", "AUC", "share", is_estimate=True))
    found = of_table(Table("one", "One", columns, tuple((name, LOST) for name in NAMES)))
    assert [row[0].is_missing for row in found.rows] == [False] * len(NAMES)
    assert [row[1].is_missing for row in found.rows] == [True] * len(NAMES)
    assert all(cell.is_missing for cell in (estimate(None), estimate(LOST), truth(None)))
    assert not any(cell.is_missing for cell in (estimate(Estimate(0.5)), truth(False)))


def test_names_do_not_make_a_column_of_numbers():
    (head,) = grid("one", ["model"], [("undefined",), ("unknown",)]).heads
    assert not head.is_number
    (head,) = grid("one", ["number"], [(0.5,), (None,), (LOST,)]).heads
    assert head.is_number


def test_the_page_says_which_cells_are_missing():
    table = _environment().get_template("macros.html").module.table
    html = table(grid("one", ["model", "number"], [("undefined", None), ("b", 0.5)]))
    assert '<th scope="row">undefined</th><td class="number" data-none>-</td>' in html
    assert '<td class="number" data-key="0.5">' in html
