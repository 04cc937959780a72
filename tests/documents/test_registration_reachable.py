"""Whether a verdict can come about: against every number of small grids."""

import itertools
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvexp.documents.condition import parse
from kvexp.documents.reachable import Purse, TooMany, fault
from kvexp.documents.schema import Quantity

GRID = [-1.0, -0.75, -0.5, -0.25, 0.0, 0.25, 0.5, 0.75, 1.0]
BOUNDS = {
    "a": Quantity(meaning="a number", range=(-1.0, 1.0)),
    "m": Quantity(meaning="a count", range=(0.0, 3.0), count=True),
}
FIELDS = ("a", "a.lo", "a.hi", "m")

constants = st.sampled_from(["0.25", "0.5", "0", "1", "-0.5", "-0.75", "2", "3"])
terms = st.one_of(
    st.sampled_from(FIELDS),
    st.tuples(st.sampled_from(["2", "0.5", "-1"]), st.sampled_from(FIELDS)).map(" * ".join),
)
# Two fields at most: as far as the search promises to find what there is.
sides = st.one_of(
    st.tuples(terms, constants),
    st.tuples(terms, terms),
    st.tuples(st.tuples(terms, terms).map(" + ".join), constants),
    st.tuples(st.tuples(terms, terms).map(" - ".join), constants),
)
comparisons = st.tuples(sides, st.sampled_from(["<", "<=", ">", ">="])).map(
    lambda parts: f"{parts[0][0]} {parts[1]} {parts[0][1]}"
)
conditions = st.recursive(
    comparisons,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map("({0[0]} {0[1]} {0[2]})".format),
        inner.map("(not {})".format),
    ),
    max_leaves=4,
)


def worlds():
    """Every admissible choice of numbers from the grid."""
    for lo, value, hi in itertools.combinations_with_replacement(GRID, 3):
        for count in range(4):
            yield {
                "a": SimpleNamespace(value=value, lo=lo, hi=hi, n=100),
                "m": SimpleNamespace(value=count, lo=None, hi=None, n=100),
            }


WORLDS = list(worlds())


@settings(max_examples=150, deadline=None)
@given(conditions, st.none() | conditions)
def test_what_some_numbers_of_a_grid_do_is_never_called_impossible(kill_text, support_text):
    kill, support = parse(kill_text), None if support_text is None else parse(support_text)
    kills = [kill.holds(world) for world in WORLDS]
    supported = support is None or any(
        support.holds(world) for world, killed in zip(WORLDS, kills, strict=True) if not killed
    )
    try:
        said = fault(kill, support, BOUNDS, Purse())
    except TooMany:
        return
    assert not (said.startswith("no number") and any(kills))
    assert not (said.startswith("every number") and not all(kills))
    assert not (said.startswith("the support") and supported)


def turns_on_the_fine_grid(text):
    """Without an interval, and where `a` stands once: its turns are eighths."""
    return "." not in text.replace("0.", "") and text.count("a") <= 1


@settings(max_examples=150, deadline=None)
@given(st.lists(comparisons.filter(turns_on_the_fine_grid), min_size=1, max_size=3))
def test_what_no_number_does_is_found(parts):
    """Comparisons of one number and one count: a fine grid that holds all turns knows the truth."""
    kill = parse(" and ".join(parts))
    fine = [n / 64 for n in range(-64, 65)]
    kills = [
        kill.holds({"a": SimpleNamespace(value=value), "m": SimpleNamespace(value=count)})
        for value in fine
        for count in range(4)
    ]
    said = fault(kill, None, BOUNDS, Purse())
    expected = "no number" if not any(kills) else "every number" if all(kills) else ""
    assert said.startswith(expected)
    assert bool(said) is bool(expected)


def test_two_lines_that_meet_are_tried_where_they_meet():
    kill = parse("a + m > 2.3 and m - 4 * a > -0.3")
    assert not fault(kill, None, BOUNDS, Purse())


def test_products_are_refused_with_the_way_out():
    said = fault(parse("a * a < 0"), None, BOUNDS, Purse())
    assert said.endswith("compare at most two fields at a time, without products")
    assert "products" not in fault(parse("a < -1"), None, BOUNDS, Purse())


def test_an_endless_search_is_refused():
    bounds = {f"q{n}": Quantity(meaning="a number", range=(-1, 1)) for n in range(12)}
    with pytest.raises(TooMany):
        fault(parse(" and ".join(f"{name} < -1" for name in bounds)), None, bounds, Purse())


def test_numbers_of_rows_alone_may_decide():
    assert not fault(parse("a.n < 100"), None, {"a": BOUNDS["a"]}, Purse())
