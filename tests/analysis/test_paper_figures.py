"""The paper's figures: the numbers they are told, the same bytes, no words upon words, whatever there is."""

import functools
import itertools
import os
import subprocess
import sys
import warnings
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from analysis.core.estimates import Estimate
from analysis.describe.cells import Cell, cells_figure
from analysis.describe.coverage import Ranking, coverage_figure
from analysis.describe.drawing import shortened_all, styled, to_svg
from analysis.describe.rates import Rate, figure1, induced_figure
from analysis.describe.recomputation import NUMBERS, Recomputed, figure4, recomputation_figure
from analysis.describe.signals import (
    QUESTIONS,
    PanelRow,
    figure2,
    figure3,
    questions_figure,
    signal_panel_figure,
)

ROOT = Path(__file__).resolve().parents[2]
SVG = "{http://www.w3.org/2000/svg}"
SUITES = ("embedded-1k", "embedded-2k", "longbench-16k")
BUDGETS = (0.125, 0.25, 0.5)
ARMS = (
    ("poisson", "aware"),
    ("topk", "aware"),
    ("h2o", "stream"),
    ("poisson", "stream"),
    ("poisson_no_offset", "stream"),
    ("streaming_llm", "stream"),
)
ODD = Estimate(None, undefined="one class only: 0 of 9 rows are positive")


def Bar(suite, arm, condition, budget, rate):  # noqa: N802
    """The induced-failure rate of one arm at one budget of one suite, main tasks, models pooled."""
    return Rate(suite, None, arm, condition, budget, rate)


def Answered(suite, label, signal, positives, *aucs):  # noqa: N802
    """How well a signal of the arm that carries the certificate answers a question on one suite."""
    return PanelRow(suite, "main", "poisson", signal, label, positives, *aucs)


def Seen(arm, signal, suites, positives, *aucs):  # noqa: N802
    """One signal of one arm against induced failures on the main tasks of all suites that run the arm."""
    return PanelRow(", ".join(suites), "main", arm, signal, "induced_failure", positives, *aucs)


def near(value, wide=0.06, **options):
    """A share and an interval around it."""
    return Estimate(value, max(0.0, value - wide), min(1.0, value + wide), n=100, clusters=50, **options)


def spread(at, of):
    """Values from 0 to 1 that are all different, ends included."""
    return at / max(1, of - 1)


def bars(suites, budgets, arms=ARMS):
    places = list(itertools.product(suites, arms, budgets))
    return [
        Bar(suite, arm, condition, budget, near(spread(at, len(places))))
        for at, (suite, (arm, condition), budget) in enumerate(places)
    ]


def seen(suites, arms=ARMS, signals=("certificate", "output_logprob", "entropy", "evicted_mass", "margin")):
    places = list(itertools.product(dict.fromkeys(arm for arm, _ in arms), signals))
    return [
        Seen(arm, signal, tuple(suites), 40, near(spread(at, len(places))), near(0.5), Estimate(0.7, n=100))
        for at, (arm, signal) in enumerate(places)
    ]


def answered(suites):
    places = list(itertools.product(suites, QUESTIONS, ("certificate", "output_logprob")))
    return [
        Answered(suite, of, signal, 40, near(0.3 + 0.6 * spread(at, len(places))), near(0.5), Estimate(0.6))
        for at, (suite, of, signal) in enumerate(places)
    ]


def recomputed(suites, budgets, shift=0.1):
    points = {name: near(shift + at / 9) for at, name in enumerate(NUMBERS)}
    gains = {name: Estimate(0.027, 0.015, 0.039, n=100) for name in ("over_random", "over_logprob")}
    places = itertools.product(suites, budgets)
    return [Recomputed(suite, budget, None, 0.25, {**points, **gains}) for suite, budget in places]


def figure_of(draw, rows):
    with warnings.catch_warnings(), styled():
        warnings.simplefilter("error")
        return draw(rows)


def drawn(draw, rows):
    svg = to_svg(figure_of(draw, rows))
    assert "nan" not in " ".join(words(svg)).lower()
    return svg


def words(svg):
    """All text of a figure, labels and ticks."""
    return ["".join(element.itertext()).strip() for element in ET.fromstring(svg.encode()).iter(f"{SVG}text")]


def collisions(figure):
    """Pairs of texts that share room, and texts that leave the figure."""
    with styled():
        FigureCanvasAgg(figure).draw()
    renderer = FigureCanvasAgg(figure).get_renderer()
    texts = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip()]
    # An axis keeps ticks beyond its limits, which nobody sees.
    boxes = [(text.get_text(), text.get_window_extent(renderer)) for text in shown(figure, texts)]
    width, height = figure.canvas.get_width_height()
    for (one, box), (other, beside) in itertools.combinations(boxes, 2):
        across = min(box.x1, beside.x1) - max(box.x0, beside.x0)
        if across > 1.5 and min(box.y1, beside.y1) - max(box.y0, beside.y0) > 1.5:
            yield one, other
    for one, box in boxes:
        if box.x0 < -1 or box.y0 < -1 or box.x1 > width + 1 or box.y1 > height + 1:
            yield one, "the edge"


def shown(figure, texts):
    hidden = set()
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            for tick in axis.get_major_ticks():
                if not low - 1e-9 <= tick.get_loc() <= high + 1e-9:
                    hidden |= {tick.label1, tick.label2}
    return [text for text in texts if text not in hidden]


QUICK = {(1, 1), (2, 3), (3, 6)}  # suites with budgets or arms; the others take seconds


def counted(*pairs):
    return [pytest.param(*pair, marks=() if pair in QUICK else pytest.mark.slow) for pair in pairs]


@pytest.mark.parametrize(("suites", "budgets"), counted(*itertools.product((1, 2, 3), (1, 2, 3))))
def test_no_words_lie_upon_others_in_bars(suites, budgets):
    here = SUITES[:suites], BUDGETS[:budgets]
    for draw, rows in ((induced_figure, bars(*here)), (recomputation_figure, recomputed(*here))):
        assert list(collisions(figure_of(draw, rows))) == []


@pytest.mark.parametrize(("suites", "arms"), counted(*itertools.product((1, 2, 3), (1, 6))))
def test_no_words_lie_upon_others_in_dots(suites, arms):
    of = SUITES[:suites]
    for draw, rows in ((signal_panel_figure, seen(of, ARMS[:arms])), (questions_figure, answered(of))):
        assert list(collisions(figure_of(draw, rows))) == []


LONG = [f"{at}-a-name-of-about-forty-characters-is-{at}{at}" for at in range(20)]


def in_cells(suites, models):
    """Cells of two tasks; AUCs from 0 to 1."""
    places = list(itertools.product(("words", LONG[0]), models))
    return [
        (
            suite,
            [
                Cell(suite, model, task, "all", 5, 5, near(spread(at, len(places))), near(0.5), Estimate(0.6))
                for at, (task, model) in enumerate(places)
            ],
        )
        for suite in suites
    ]


def ranked(suites):
    """Two rankings a suite, far enough from each other for their names."""
    return [
        Ranking(
            suite, "main", signal, 90, near(low), near(0.6), near(0.1), near(0.4), np.linspace(low, 0.6, 90)
        )
        for suite in suites
        for signal, low in (("certificate", 0.1), ("output_logprob", 0.4))
    ]


LONGEST = {
    "bars": lambda: (induced_figure, bars(LONG[:3], BUDGETS[:1], [(LONG[0], "aware"), (LONG[1], "stream")])),
    "bars of one": lambda: (induced_figure, bars(LONG[:1], BUDGETS)),
    "dots": lambda: (
        signal_panel_figure,
        [*seen(LONG[:1], [(LONG[1], "aware")]), *seen(LONG[:2], [(LONG[2], "aware")]), *seen(LONG[:3])],
    ),
    "questions": lambda: (questions_figure, answered(LONG[:3])),
    "recomputation": lambda: (recomputation_figure, recomputed(LONG[:3], BUDGETS[:1])),
    "cells": lambda: (cells_figure, in_cells(LONG[:2], LONG)),
    "coverage": lambda: (coverage_figure, ranked(LONG[:3])),
}


@pytest.mark.parametrize("name", LONGEST)
def test_long_names_are_shortened_and_lie_upon_nothing(name):
    figure = figure_of(*LONGEST[name]())
    assert list(collisions(figure)) == []
    told = [text.get_text() for axes in figure.axes for text in axes.get_yticklabels()]
    told += [axes.get_title("left") for axes in figure.axes]
    assert any("..." in text for text in told) == (name != "bars of one")  # where there is room for all


def test_names_that_shortening_makes_alike_are_numbered():
    assert shortened_all(["one", "one"]) == ["one", "one"]
    alike = [f"aaaaaaaaaaaa{middle}bbbbbbbbbbbb" for middle in "xyx"]
    assert shortened_all(alike, 14) == ["aaaaa...bb (1)", "aaaaa...bb (2)", "aaaaa...bb (1)"]


FIGURES = {
    "figure1": (induced_figure, bars(SUITES[:2], BUDGETS)),
    "figure2": (signal_panel_figure, seen(SUITES[:2])),
    "figure3": (questions_figure, answered(SUITES[:2])),
    "figure4": (recomputation_figure, recomputed(SUITES[:2], BUDGETS[1:])),
}


@functools.cache
def svg_of(name):
    return drawn(*FIGURES[name])


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_of_readme_width_light_and_the_same_twice(name):
    svg = svg_of(name)
    root = ET.fromstring(svg.encode())
    assert float(root.attrib["width"].removesuffix("pt")) * 96 / 72 == pytest.approx(800, abs=1)
    assert not [*root.iter(f"{SVG}script"), *root.iter(f"{SVG}image")]
    assert len(svg) < 150_000
    assert drawn(*FIGURES[name]) == svg


def test_bars_say_their_numbers():
    found = words(svg_of("figure1"))
    for bar in FIGURES["figure1"][1]:
        assert f"{100 * bar.estimate.value:.1f}" in found
    assert {"poisson   12.5 %", "aware (question known)", "stream (question unknown)", *SUITES[:2]} <= set(
        found
    )
    found = words(svg_of("figure4"))
    assert {"by certificate", "at random", "embedded-1k, budget 25 %"} <= set(found)
    assert "gain over random +2.7 [+1.5, +3.9]" in found


def test_dots_name_their_lines():
    assert {"poisson   certificate", "h2o   margin", "chance"} <= set(words(svg_of("figure2")))
    found = words(svg_of("figure3"))
    assert {"embedded-1k   certificate", *QUESTIONS.values()} <= set(found)


def test_a_budget_of_some_suites_is_not_run_in_the_others():
    rows = [*bars(SUITES[:1], (0.5,)), *bars(SUITES[1:2], (0.25, 0.5))]
    assert words(drawn(induced_figure, rows)).count("not run") == len(ARMS)


def test_an_arm_of_some_suites_says_which():
    rows = [*seen(SUITES[:2], ARMS[:1]), *seen(SUITES[1:2], ARMS[4:5])]
    assert "poisson_no_offset   entropy (embedded-2k)" in words(drawn(signal_panel_figure, rows))


def test_numbers_without_intervals_or_values_are_drawn_without_a_warning():
    bare = Estimate(0.4, n=9, clusters=4, undefined="no interval under 10 clusters, here 4")
    flat = [Bar("one", "poisson", "aware", 0.25, value) for value in (bare,)]
    assert "40.0" in words(drawn(induced_figure, flat))
    flat.append(Bar("one", "poisson", "aware", 0.5, ODD))
    assert "undefined" in words(drawn(induced_figure, flat))
    zero = near(0.0, 0.0)
    drawn(induced_figure, [Bar("one", "poisson", "aware", 0.25, zero)])
    rows = [Seen("poisson", "certificate", ("one",), 3, bare, ODD, ODD)]
    drawn(signal_panel_figure, rows)
    rows = [
        Answered("one", of, "certificate", 3, bare if of == "own_failure" else ODD, ODD, ODD)
        for of in QUESTIONS
    ]
    assert words(drawn(questions_figure, rows)).count("undefined") == 2
    lost = {name: bare if name == "certificate" else ODD for name in NUMBERS}
    svg = drawn(recomputation_figure, [Recomputed("one", 0.25, None, 0.25, lost)])
    assert "gain over random undefined" in words(svg)
    nothing = dict.fromkeys(NUMBERS, zero)
    drawn(recomputation_figure, [Recomputed("one", 0.25, None, 0.25, nothing)])


# Sentences ------------------------------------------------------------------------------------------


def test_sentences_are_made_of_the_numbers():
    rows = [
        Bar("one", "poisson", "aware", 0.25, near(0.04)),
        Bar("one", "topk", "aware", 0.5, near(0.021)),
        Bar("one", "h2o", "stream", 0.25, near(0.438)),
        Bar("two", "h2o", "stream", 0.25, ODD),
    ]
    picture = figure1([*rows, Bar("one", "floor", "stream", 1.0, near(0.0))])
    assert picture.sentence == (
        "Of what the full cache answers arms that evict lose, at their budgets: aware 2.1 % to 4.0 %, "
        "stream 43.8 % to 43.8 %."
    )
    assert picture.more == (
        "one: aware 2.1 % (topk at 50 %) to 4.0 % (poisson at 25 %), stream 43.8 % (h2o at 25 %) to 43.8 % "
        f"(h2o at 25 %). Undefined: two stream h2o ({ODD.undefined})."
    )
    picture = figure4(recomputed(("one",), (0.125,)))
    assert picture.sentence == (
        "Choosing by certificate gains, in points of accuracy, +2.7 over random choice and +2.7 over "
        "log-probability."
    )
    assert picture.more.endswith("above 0: 1 of 1 over random choice, 1 of 1 over log-probability.")
    rows = [
        Answered("one", "attribution", "certificate", 3, near(0.749), near(0.4), near(0.6)),
        Answered("one", "attribution", "output_logprob", 3, near(0.542), near(0.5), ODD),
        Answered("one", "own_failure", "certificate", 3, ODD, ODD, ODD),
    ]
    picture = figure3(rows)
    assert picture.sentence == (
        "Suites in which the pooled AUC of certificate is larger than that of output_logprob: 1 of 1 (Wrong: "
        "is eviction to blame?)."
    )
    assert picture.more == (
        "Of stratified pairs: 0 of 1. Larger than the AUC of the bare condition x budget label: 1 of 1. "
        f"Undefined: one own_failure certificate ({ODD.undefined})."
    )
    rows = [
        Seen("poisson", "certificate", ("one",), 9, near(0.855), near(0.6), near(0.7)),
        Seen("h2o", "entropy", ("one",), 9, near(0.5), near(0.5), near(0.6)),
        Seen("h2o", "evicted_mass", ("one",), 9, near(0.66), near(0.5), near(0.6)),
        Seen("h2o", "output_logprob", ("one",), 9, near(0.831), near(0.5), near(0.6)),
        Seen("poisson", "output_logprob", ("one",), 9, near(0.848), near(0.5), near(0.6)),
    ]
    picture = figure2(rows, ["poisson"])
    assert picture.sentence == (
        "AUC for induced failures, pooled: poisson certificate 0.855 [0.795, 0.915] (stratified 0.600, label "
        "alone 0.700)."
    )
    assert picture.more == (
        "Highest retained-set signal of another arm: h2o evicted_mass 0.660 [0.600, 0.720] (stratified "
        "0.500, label alone 0.600). output_logprob: 0.831 (h2o) to 0.848 (poisson)."
    )


@pytest.mark.parametrize(
    "picture",
    [
        figure1([Bar("one", "h2o", "stream", 0.25, ODD)]),
        figure3([Answered("one", "attribution", "certificate", 0, ODD, ODD, ODD)]),
        figure4([Recomputed("one", 0.25, None, 0.25, dict.fromkeys(NUMBERS, ODD))]),
        figure2([Seen("h2o", "entropy", ("one",), 0, ODD, ODD, ODD)], ["poisson"]),
    ],
)
def test_a_figure_without_numbers_is_none_and_says_why(picture):
    assert (picture.svg, picture.undefined) == (None, ODD.undefined)


BYTES = """
import hashlib
from tests.analysis.test_paper_figures import FIGURES, bars, svg_of, drawn, induced_figure, SUITES
for name in FIGURES:
    print(hashlib.sha256(svg_of(name).encode()).hexdigest())
some = [*bars(SUITES[:1], (0.5,)), *bars(SUITES[1:2], (0.125, 0.25, 0.5))]
print(hashlib.sha256(drawn(induced_figure, some).encode()).hexdigest())
"""


@pytest.mark.slow
def test_bytes_do_not_depend_on_the_process():
    runs = [
        subprocess.run(
            [sys.executable, "-c", BYTES],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hashes},
            capture_output=True,
            check=True,
        ).stdout
        for hashes in ("0", "7")
    ]
    assert runs[0] == runs[1]
    assert runs[0].count(b"\n") == 5


SCRIPT = """
import sys
from analysis import __main__
assert not [name for name in sys.modules if name.startswith(("matplotlib", "jinja2"))]
"""


def test_what_decides_does_not_wait_for_what_draws():
    subprocess.run([sys.executable, "-c", SCRIPT], cwd=ROOT, check=True)
