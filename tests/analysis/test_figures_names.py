"""Figures: shortened names differ and have a key, what is missing says why, the blind mark lies alone."""

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from analysis.describe.cells import Cell, cells_figure
from analysis.describe.coverage import Ranking, _picture, coverage_figure
from analysis.describe.description import MARK, STRIP, marked_svg
from analysis.describe.drawing import keyed, shortened_all, to_svg
from analysis.describe.rates import induced_figure
from analysis.describe.recomputation import recomputation_figure
from analysis.describe.signals import questions_figure, signal_panel_figure
from tests.analysis.test_paper_figures import (
    BUDGETS,
    ODD,
    SVG,
    answered,
    bars,
    collisions,
    figure_of,
    in_cells,
    near,
    ranked,
    recomputed,
    seen,
    words,
)

# Sixty characters each; those of a kind differ in one letter of the middle, or in the last.
ALIKE = [f"a-name-of-sixty-letters-that-is-{c}-in-its-middle-and-nowhere-else"[:60] for c in "abc"]
LAST = [f"{'a-name-of-sixty-letters-that-differs-from-others-in-its-last-one'[:59]}{c}" for c in "abc"]
WIDE = ["W" * 59 + c for c in "ab"]
SHORTENED = re.compile(r"[^\s,(]+\.\.\.[^\s,)]+(?: \(\d+\))?")
DRAWN = {
    "cells": (cells_figure, lambda names: in_cells(names, names)),
    "coverage": (coverage_figure, ranked),
    "figure1": (induced_figure, lambda names: bars(names, BUDGETS[:1], [(name, "aware") for name in names])),
    "figure2": (
        signal_panel_figure,
        lambda names: [*seen(names[:1], [(n, "aware") for n in names]), *seen(names)],
    ),
    "figure3": (questions_figure, answered),
    "figure4": (recomputation_figure, lambda names: recomputed(names, BUDGETS[:2])),
}


@pytest.mark.parametrize(
    ("name", "names"),
    [
        *((name, names) for name in DRAWN for names in (ALIKE, LAST)),
        *((name, WIDE) for name in ("cells", "coverage", "figure1", "figure4")),
    ],
)
def test_names_that_differ_look_different_and_every_shortened_one_is_in_the_key(name, names):
    draw, rows = DRAWN[name]
    figure = figure_of(draw, rows(names))
    assert list(collisions(figure)) == []
    heads = [axes.get_title("left") for axes in figure.axes]
    told = [*heads, *(text.get_text() for axes in figure.axes for text in axes.get_yticklabels())]
    short = {found for text in told for found in SHORTENED.findall(text)}
    key = " ".join(figure.get_supxlabel().split())
    assert [one for one in short if f" {one}: " not in key] == []
    assert {full for full in names if f": {full}" in key} == set(names if short else [])
    if name in ("cells", "coverage", "figure1", "figure4"):
        assert len({head.partition(",")[0] for head in heads}) == len(names)


def test_numbers_do_not_make_names_alike():
    names = [f"aaaaaaa{middle}bbbb" for middle in ("x" * 9, "y" * 9)] + ["aaaaa...bb (1)"]
    assert shortened_all(names, 14) == ["aaaaa...bb (2)", "aaaaa...bb (3)", "aaaaa...bb (1)"]
    many = [f"aaaaaa{middle:09d}bbbbbb" for middle in range(120)]
    assert len(set(shortened_all(many, 14))) == 120
    # Two groups that the numbers' room would make one.
    groups = [f"{head}{middle}bbbbbb" for head in ("aaaaaax", "aaaaaay") for middle in ("1" * 9, "2" * 9)]
    assert len(set(shortened_all(groups, 15))) == 4
    assert keyed("suite", ["one", "two"], ["one", "t...o"]) == ["suite t...o: two"]


def test_budgets_beyond_six_digits_have_names_of_their_own():
    near_each_other = (0.1234561, 0.1234562)
    told = words(to_svg(figure_of(induced_figure, bars(["one"], near_each_other))))
    assert {"poisson   12.34561 %", "12.34562 %"} <= set(told)
    told = words(to_svg(figure_of(recomputation_figure, recomputed(["one"], near_each_other))))
    assert {"one, budget 12.34561 %", "one, budget 12.34562 %"} <= set(told)


# What is missing ------------------------------------------------------------------------------------


def flat(suite, level):
    share = near(level, 0.0)
    return [
        Ranking(suite, "main", signal, 90, share, share, near(0.0), share, np.full(90, level))
        for signal in ("certificate", "output_logprob")
    ]


def test_a_suite_of_one_class_says_that_there_is_nothing_to_rank():
    rankings = [*flat("one", 0.0), *flat("two", 1.0), *ranked(["three"])]
    lost = Ranking("four", "main", "certificate", 90, ODD, ODD, ODD, ODD, None, "rows are missing")
    figure = figure_of(coverage_figure, rankings)
    assert list(collisions(figure)) == []
    told = [" ".join(text.get_text().split()) for axes in figure.axes for text in axes.texts]
    assert told[:2] == [f"{what} answer fails, so there is nothing to rank" for what in ("no", "every")]
    assert sorted(told[2:]) == ["certificate", "log-probability"]
    more = _picture([*rankings, lost]).more
    assert "one: no answer fails, so there is nothing to rank." in more
    assert "two: every answer fails, so there is nothing to rank." in more
    assert more.endswith("Undefined: four by certificate (rows are missing).")
    assert list(collisions(figure_of(coverage_figure, flat("one", 0.0)))) == []


def test_an_empty_line_of_cells_says_why():
    place = ("t", "all")
    found = [
        Cell("one", "a", *place, 0, 5, ODD, ODD, ODD),
        Cell("one", "b", *place, 5, 0, ODD, ODD, ODD),
        Cell("one", "c", *place, None, None, ODD, ODD, ODD),
        Cell("one", "d", *place, 3, 4, near(0.6), near(0.5), near(0.5)),
    ]
    figure = figure_of(cells_figure, [("one", found)])
    told = [text.get_text() for text in figure.axes[0].texts]
    assert told == ["none fails", "all fail", "undefined", "chance"]
    assert list(collisions(figure)) == []


# The blind mark -------------------------------------------------------------------------------------


def test_the_blind_mark_lies_above_all_words():
    plain = to_svg(figure_of(cells_figure, in_cells(["one"], ["m"])))
    before, after = (ET.fromstring(svg.encode()) for svg in (plain, marked_svg(plain)))
    _, top, width, height = map(float, after.attrib["viewBox"].split())
    assert (top, height) == (-STRIP, float(before.attrib["viewBox"].split()[3]) + STRIP)
    # A unit of the drawing is as large as before.
    size = [float(one.attrib["height"].removesuffix("pt")) for one in (before, after)]
    assert size[1] / height == pytest.approx(size[0] / (height - STRIP))
    (mark,) = [one for one in after.iter(f"{SVG}text") if one.text == MARK]
    assert top < float(mark.attrib["y"]) - 7 < float(mark.attrib["y"]) < 0
    assert float(mark.attrib["x"]) < width


def test_a_drawing_without_a_size_is_marked_too():
    assert f">{MARK}</text>" in marked_svg("<svg><g/></svg>")
