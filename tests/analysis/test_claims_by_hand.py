"""Labels, rows, estimates and every claim on tables of a few rows, with the results written down."""

import math

import numpy as np
import pandas as pd
import pytest

from analysis.core import decide, statistics
from analysis.core.data import CellData, Data, Parameters
from analysis.core.estimates import Later, Resamples
from analysis.core.populations import (
    LABELS,
    ORIENTATION,
    cell_risk,
    check,
    check_cells,
    check_scores,
    clusters,
    labelled,
    needed,
    risk,
    selected,
    strata,
    succeeded,
)
from kvexp.documents.condition import State, parse, verdict
from kvexp.documents.schema import Cells, Population
from kvexp.documents.source import RegistrationError
from tests.analysis.small_tables import (
    SUCCESS,
    answer,
    cell_data,
    cells,
    data,
    full,
    slow_multiplicities,
    table,
)

NAN = math.nan


def quantities(claim_id, rows, *, is_cells=False, **options):
    """The numbers of a claim's file."""
    given = cell_data(rows, **options) if is_cells else data(rows, **options)
    found = decide.load_claim(claim_id)(given)
    assert given.parameters.unread == []
    return found


# Labels ---------------------------------------------------------------------------------------------

# The full cache fails or succeeds, the arm fails or succeeds: FF, FS, SF, SS.
OWN, FULL = np.array([False, True, False, True]), np.array([False, False, True, True])


@pytest.mark.parametrize(
    ("label", "counts", "positive", "needs_full"),
    [
        ("success", [1, 1, 1, 1], [0, 1, 0, 1], False),
        ("own_failure", [1, 1, 1, 1], [1, 0, 1, 0], False),
        ("induced_failure", [0, 0, 1, 1], [1, 0], True),
        ("inherent_failure", [1, 1, 0, 0], [1, 0], True),
        ("rescue", [1, 1, 0, 0], [0, 1], True),
        ("attribution", [1, 0, 1, 0], [0, 1], True),
    ],
)
def test_what_a_label_counts(label, counts, positive, needs_full):
    labelling = LABELS[label]
    counted = labelling.counts(OWN, FULL)
    assert counted.astype(int).tolist() == counts
    assert labelling.positive(OWN, FULL)[counted].astype(int).tolist() == positive
    assert labelling.needs_full is needs_full
    assert len(LABELS) == 6


def test_a_success_reaches_the_threshold_of_its_score():
    scores = [
        ("token_f1", 0.5, True),
        ("token_f1", 0.4999999, False),
        ("token_f1", 1.0, True),
        ("retrieval", 1.0, True),
        ("retrieval", 0.9999999, False),
        ("exact_match", 0.5, False),
        ("exact_match", 1.0, True),
        (None, NAN, False),
        (None, 1.0, False),
    ]
    rows = table(*(answer(f"w{at}", value, score_name=name) for at, (name, value, _) in enumerate(scores)))
    assert succeeded(rows, SUCCESS).tolist() == [expected for *_, expected in scores]
    # A lower threshold for one score leaves the others alone.
    low = succeeded(rows, {"retrieval": 0.9999999, "otherwise": 0.5})
    assert low.tolist() == [True, False, True, True, True, True, True, False, False]


@pytest.fixture
def mixed():
    """Two suites; the arm's answers come before those of the full cache."""
    return table(
        answer("w1", 0, condition="aware"),
        answer("w0", 1, budget=0.5),
        answer("w2", 1, model="b", seed=1.0),
        answer("w0", 0, suite="long", arm="topk"),
        full("w0", 1),
        full("w1", 0),
        full("w0", 0, suite="long"),
    )


def test_each_row_finds_the_full_row_of_its_own_example(mixed):
    assert mixed["full_at"].tolist() == [5, 4, -1, 6, 4, 5, 6]
    rows = labelled(
        mixed, Population(suites=["short"], tasks=["words"], arms=["poisson"], label="success"), SUCCESS
    )
    assert rows["success"].tolist() == [False, True, True]
    assert rows["full_success"].tolist() == [False, True, False]  # none is no success, not the last row's
    assert rows["positive"].tolist() == [False, True, True]
    assert rows["cluster"].tolist() == [1, 0, 2]
    assert rows.index.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("axes", "expected"),
    [
        ({}, [0, 1, 2, 3]),
        ({"suites": ["short"]}, [0, 1, 2]),
        ({"models": ["b"]}, [2]),
        ({"arms": ["topk"]}, [3]),
        ({"conditions": ["aware"]}, [0]),
        ({"budgets": [0.5]}, [1]),
        ({"budgets": [0.25, 0.5], "conditions": ["stream"], "models": ["a"]}, [1, 3]),
        ({"tasks": ["facts"]}, []),
    ],
)
def test_rows_are_selected_on_every_axis(mixed, axes, expected):
    whole = {"suites": ["short", "long"], "tasks": ["words"], "arms": ["poisson", "topk"], "label": "success"}
    assert np.flatnonzero(selected(mixed, Population(**{**whole, **axes}))).tolist() == expected


def test_full_rows_are_needed_where_the_label_reads_them(mixed):
    axes = {"suites": ["short", "long"], "tasks": ["words"], "arms": ["poisson"]}
    for label, expected in (("own_failure", [0, 1, 2]), ("rescue", [0, 1, 2, 4, 5])):
        assert np.flatnonzero(needed(mixed, Population(**axes, label=label))).tolist() == expected


def test_the_first_row_of_a_table_can_be_a_full_row():
    rows = table(full("w0", 1), answer("w0", 0))
    wanted = Population(suites=["short"], tasks=["words"], arms=["poisson"], label="induced_failure")
    assert needed(rows, wanted).tolist() == [True, True]
    assert labelled(rows, wanted, SUCCESS)["full_success"].tolist() == [True]
    check(rows, wanted, "here")


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ({}, "label induced_failure needs the full cache's rows, which short lacks"),
        ({"label": "own_failure"}, ""),
        ({"suites": ["long"], "arms": ["topk"]}, ""),  # whose one row has its full row
        ({"models": ["c"]}, "selects no row of the grid: it asks for models c, the grid has a, b"),
        ({"budgets": [0.125]}, "asks for budgets 0.125, the grid has 0.25, 0.5"),
        ({"suites": ["short", "wide"]}, "no selected row of the grid has suite 'wide', only short"),
        ({"arms": ["topk"]}, "asks for arms topk, the grid has full, poisson"),
        (
            {"conditions": ["stream"], "models": ["a"], "budgets": [0.25]},
            "asks for budgets 0.25, the grid has 0.5",
        ),
    ],
)
def test_a_population_that_the_grid_does_not_have(mixed, axes, message):
    whole = {"suites": ["short"], "tasks": ["words"], "arms": ["poisson"], "label": "induced_failure"}
    wanted = Population(**{**whole, **axes})
    if message:
        with pytest.raises(RegistrationError, match=f"here: .*{message}"):
            check(mixed, wanted, "here")
    else:
        check(mixed, wanted, "here")


def test_cells_that_the_grid_does_not_have():
    rows = cells({"budget": 0.5}, *({"budget": at / 64} for at in range(1, 11)))
    check_cells(rows, Cells(suites=["attention"], tasks=["prose"], budgets=[0.5]), "here")
    with pytest.raises(RegistrationError, match=r"selects no cell of .* 0\.125 and 3 more\. "):
        check_cells(rows, Cells(suites=["attention"], tasks=["prose"], budgets=[0.75]), "here")
    with pytest.raises(RegistrationError, match="no selected cell of the grid has task 'lists', only prose"):
        check_cells(rows, Cells(suites=["attention"], tasks=["prose", "lists"]), "here")


def test_a_threshold_for_a_score_that_no_row_has():
    thresholds = {"rouge": 0.5, "otherwise": 1.0}
    rows = table(answer("w0", 1, score_name="token_f1"), answer("f0", 1, task="facts"))
    with pytest.raises(RegistrationError, match=r"the score 'rouge', .*; there are exact_match, token_f1"):
        check_scores(rows, thresholds, "here")
    check_scores(rows, SUCCESS, "here")
    # While a task has no answer yet, nobody knows its score.
    check_scores(table(answer("w0", 1), answer("f0", NAN, task="facts", score_name=None)), thresholds, "here")


def test_cells_are_selected_by_budget_and_model():
    rows = cells({"budget": 0.5}, {"budget": 0.25}, {"budget": 0.25, "model": "large"})
    wanted = Cells(suites=["attention"], tasks=["prose"], budgets=[0.25], models=["small"])
    assert selected(rows, wanted).tolist() == [False, True, False]


def test_codes_rise_with_the_values_of_their_columns():
    rows = pd.DataFrame(
        {
            "task": pd.Categorical(["b", "a", "b", "a", None]),
            "example_id": ["x", "y", "x", "x", "x"],
            "budget": [0.5, 0.25, 0.25, 0.5, 0.5],
        }
    )
    assert strata(rows, ["task"]).tolist() == [1, 0, 1, 0, 2]
    assert strata(rows, ["task", "budget"]).tolist() == [3, 0, 2, 1, 4]
    assert strata(rows, ["budget", "task"]).tolist() == [3, 0, 1, 2, 4]
    assert clusters(rows).tolist() == [2, 1, 2, 0, 3]
    assert strata(rows, []).tolist() == [0] * 5


# Signals and estimates ------------------------------------------------------------------------------


def test_which_way_signals_point():
    assert {
        **dict.fromkeys(
            ("certificate", "certificate_first", "certificate_mean", "entropy", "evicted_mass"), 1
        ),
        **dict.fromkeys(("margin", "output_logprob"), -1),
    } == ORIENTATION
    rows = table(answer("w0", 1, margin=0.5, entropy=0.5), answer("w1", 1, margin=-2.0))
    assert risk(rows, "margin").tolist() == [-0.5, 2.0]
    assert risk(rows, "entropy").tolist() == pytest.approx([0.5, NAN], nan_ok=True)
    rows = table(*(answer("w0", 1, condition=c, budget=b) for c in ("aware", "stream") for b in (1.0, 0.125)))
    assert cell_risk(rows).tolist() == [-1.0, -0.125, 1.0, 1.875]


def two_places():
    """Pooled, the signal is right in 3.5 of 6 pairs; inside the places in 1 of 2; the label in 4 of 6."""
    return table(
        answer("w0", 0, certificate=1.0),
        answer("w1", 1, certificate=2.0),
        answer("w2", 0, certificate=5.0, budget=0.5),
        answer("w3", 0, certificate=7.0),
        answer("w4", 1, certificate=5.0, budget=0.5, condition="aware"),
    )


def test_an_auc_pooled_within_and_of_the_label_alone():
    made = data(two_places())
    rows = made.counted
    # Failures 1, 5, 7; successes 2, 5: lost, lost; won, tied; won, won.
    assert made.point(made.auc(rows, "certificate")).value == 3.5 / 6
    # Only w1 stands in a place with failures, w0 and w3.
    assert made.point(made.auc(rows, "certificate", within=True)).value == 1 / 2
    # Risks: 1.75, 1.5, 1.75 against 1.75, -.5.
    assert made.point(made.cell_auc(rows)).value == (0.5 + 1 + 0 + 1 + 0.5 + 1) / 6
    assert made.auc_beside(rows, "certificate") == "stratified 0.500, condition x budget alone 0.667"
    assert made.redrawn(5).auc_beside(rows, "certificate") == ""


@pytest.mark.parametrize("column", ["model", "task", "condition", "budget"])
def test_no_pair_crosses_a_model_task_condition_or_budget(column):
    other = {"model": "b", "task": "facts", "condition": "aware", "budget": 0.5}[column]
    rows = table(answer("w0", 0, certificate=1.0), answer("w1", 1, certificate=2.0, **{column: other}))
    made = data(rows)
    assert made.point(made.auc(made.counted, "certificate")).value == 0.0
    assert "one class only" in made.auc(made.counted, "certificate", within=True).undefined


def test_as_many_rows_as_registered_may_lack_a_signal():
    rows = table(
        *(answer(f"w{at}", at % 2, certificate=float(at)) for at in range(3)),
        answer("w3", 1, certificate=NAN),
    )
    enough = data(rows, undefined_rows_max=0.25)
    found = enough.point(enough.auc(enough.counted, "certificate"))
    # Failures 0 and 2 against the one success 1.
    assert (found.value, found.n, found.clusters) == (0.5, 3, 3)
    assert found.note == "1 rows without certificate left out"
    few = data(rows, undefined_rows_max=0.2499)
    lost = few.point(few.auc(few.counted, "certificate"))
    assert (lost.value, lost.undefined, lost.n) == (None, "certificate undefined in 1 of 4 rows", 4)


def test_intervals_are_on_the_registered_seed_and_within_tasks():
    """Four examples of two tasks, one row each, so that the words' rate is a mean of two draws of two."""
    rows = table(
        answer("x0", 1, task="facts"),
        answer("x0", 0),
        answer("x1", 0, task="facts"),
        answer("x1", 1),
    )
    made = data(rows, "success", seed=11, draws=25, level=0.5)
    assert made.rows["cluster"].tolist() == [0, 2, 1, 3]
    words = made.rows[made.rows["task"] == "words"]
    bits = np.random.PCG64(11)
    for _ in range(25 * 2):  # those of the facts come first
        bits.random_raw()
    shares = sorted(sum((int(bits.random_raw()) >> 11) * 2 >> 53 for _ in range(2)) / 2 for _ in range(25))
    found = made.estimate(made.rate(words))
    assert (found.lo, found.value, found.hi) == (shares[6], 0.5, shares[18])
    assert found.n == found.clusters == 2
    later = made.redrawn(12).estimate(made.rate(words))
    assert isinstance(later, Later)
    again = data(rows, "success", seed=12, draws=25, level=0.5)
    assert (later.value, later.lo, later.hi) == (
        0.5,
        again.estimate(again.rate(words)).lo,
        again.estimate(again.rate(words)).hi,
    )


def test_a_gate_matches_rows_on_all_but_the_budget():
    def rows(budget, *scores):
        places = [("w0", 0.0, "a"), ("w0", 1.0, "a"), ("w1", 0.0, "a"), ("w1", 0.0, "b")]
        return [
            answer(name, score, seed=seed, model=model, budget=budget, certificate=float(at))
            for at, ((name, seed, model), score) in enumerate(zip(places, scores, strict=True))
        ]

    made = data(table(*rows(0.25, 0, 0, 1, 0), *reversed(rows(0.5, 0, 1, 0, 1))), "success")
    small, large = (made.rows[made.rows["budget"] == budget] for budget in (0.25, 0.5))
    gated = [made.point(one).value for one in made.gate(small, large, "certificate", 0.25)]
    # The highest certificate stands on model b: 0 becomes 1. At random: .75 * 1/4 + .25 * 2/4.
    assert gated == [2 / 4, 0.75 / 4 + 0.5 / 4]
    assert made.point(made.gate(small, large, "certificate", 0.5)[0]).value == 1 / 4
    assert made.point(made.gate(small, large, "certificate", 0.75)[0]).value == 2 / 4
    lost = made.gate(small, large.iloc[1:], "certificate", 0.25)
    assert lost[0].undefined == lost[1].undefined == "a row has no partner to escalate to"


def test_a_missing_value_is_a_group_like_any_other():
    rows = table(
        answer("w0", 1, seed=1.0), answer("w1", 1), answer("w2", 1, seed=0.0), answer("w3", 1, model="b")
    )
    made = data(rows)
    by_seed = made.split(made.rows, "seed")
    assert [list(one["example_id"]) for one in by_seed.values()] == [["w2"], ["w0"], ["w1", "w3"]]
    assert [list(one["example_id"]) for one in made.split(made.rows[:3], "model", "seed").values()] == [
        ["w2"],
        ["w0"],
        ["w1"],
    ]
    assert list(made.split(made.rows[:3], "model")) == ["a"]  # no empty group of another model


def test_redrawn_data_make_a_statistic_once():
    made = data(two_places()).redrawn(3)
    first = made.auc(made.counted, "certificate")
    assert made.auc(made.counted, "certificate") is first
    assert made.point(first).value == 3.5 / 6
    assert made.point(made.auc(made.counted, "certificate", within=True)).value == 1 / 2
    assert made.point(made.auc(made.counted[:2], "certificate")).value == 0.0
    chosen = made.chosen("budget", 0.5)
    assert made.chosen("budget", 0.5) is chosen
    assert chosen["example_id"].tolist() == ["w2", "w4"]
    with pytest.raises(RegistrationError, match=r"no rows with budget '0\.75'"):
        made.chosen("budget", 0.75)


def test_parameters_lie_between_their_limits():
    read = Parameters("claim X1", {"q": 0.5, "zero": 0, "one": 1, "yes": True, "name": "entropy"})
    assert [read.number(name, 0, 1) for name in ("q", "zero", "one")] == [0.5, 0.0, 1.0]
    for low, high in ((0.6, 1), (0, 0.4)):
        with pytest.raises(RegistrationError, match="must lie between"):
            read.number("q", low, high)
    with pytest.raises(RegistrationError, match="must be a number"):
        read.number("yes", 0, 1)
    assert read.unread == ["name"]
    assert (read.flag("yes"), read.signal("name"), read.unread) == (True, "entropy", [])


# Claims ---------------------------------------------------------------------------------------------


def both(example, failed, passed, *, signal="certificate", **place):
    """An example that fails under one seed and succeeds under the other, so that every resample has both."""
    return (
        answer(example, 0, **{"seed": 0.0, signal: failed, **place}),
        answer(example, 1, **{"seed": 1.0, signal: passed, **place}),
    )


def test_r1_by_hand():
    rows = table(
        *both("w0", 4.0, 2.0),
        *both("w1", 4.0, 2.0),
        *both("w0", 3.0, 3.0, model="b"),  # chance itself in every resample, which is not above it
        *both("w1", 3.0, 3.0, model="b"),
    )
    found = quantities("R1", rows, parameters={"signal": "certificate", "chance": 0.5})
    # 4, 4 win all of 8 pairs; 3, 3 win 2 and tie 2 each.
    assert found["auc_pooled"].value == (8 + 2 * 3) / 16
    assert (found["auc_pooled"].lo, found["auc_pooled"].hi) == (14 / 16, 14 / 16)
    assert (found["auc_pooled"].n, found["auc_pooled"].clusters) == (8, 2)
    assert found["auc_pooled"].note == "stratified 0.750, condition x budget alone 0.500"
    assert (found["models_above"].value, found["models_above"].n) == (1.0, 2)
    assert found["models_above"].note == "a 1.000 [1.000, 1.000], b 0.500 [0.500, 0.500]"
    unsure = table(*both("w0", 2.0, 1.0), *both("w1", 1.5, 1.75))  # 3 of 4 pairs, from 0 to 1
    found = quantities("R1", unsure, parameters={"signal": "certificate", "chance": 0.5})
    assert found["models_above"].note == "a 0.750 [0.000, 1.000]"
    assert found["models_above"].value == 0.0
    lower = quantities("R1", rows, parameters={"signal": "certificate", "chance": 0.499})
    assert lower["models_above"].value == 2.0


R2 = {
    "visible_from": 0.75,
    "chance": 0.5,
    "certificate_arm": "poisson",
    "certificate": "certificate",
    "panel": {"h2o": ["entropy", "margin"], "topk": ["entropy"]},
}


def of_r2():
    def one(arm, entropy, margin):
        made = []
        for at, (values, others) in enumerate(zip(entropy, margin, strict=True)):
            first, second = both(f"w{at}", *values, signal="entropy", arm=arm)
            made += [{**first, "margin": others[0]}, {**second, "margin": others[1]}]
        return made

    return table(
        *one("h2o", [(1.0, 2.0), (2.0, 2.0)], [(-1.0, 3.0), (-1.0, 3.0)]),
        *one("topk", [(1.0, 9.0), (1.0, 9.0)], [(NAN, NAN), (NAN, NAN)]),
        *both("w0", 1.0, 2.0),
        *both("w1", 1.0, 0.0),
    )


@pytest.mark.parametrize(
    ("is_folded", "visible_from", "strongest", "visible", "certificate"),
    [
        # h2o entropy .25 (0 to .5), h2o margin 1, topk entropy 0, which is off chance and below .75.
        (False, 0.75, (1.0, "h2o margin"), 1.0, 0.5),
        (False, 1.0, (1.0, "h2o margin"), 1.0, 0.5),
        (True, 0.75, (1.0, "h2o margin"), 2.0, 0.5),
        (False, 0.0, (1.0, "h2o margin"), 2.0, 0.5),
    ],
)
def test_r2_by_hand(is_folded, visible_from, strongest, visible, certificate):
    parameters = {**R2, "folded": is_folded, "visible_from": visible_from}
    found = quantities("R2", of_r2(), parameters=parameters)
    assert (found["strongest"].value, found["strongest"].note) == strongest
    # h2o entropy reaches .75 when folded, but its unfolded interval ends at .5: it is not off chance.
    assert (found["visible"].value, found["visible"].n) == (visible, 3)
    assert found["certificate"].value == certificate
    assert (found["certificate"].lo, found["certificate"].hi) == ((0.5 if is_folded else 0.0), 1.0)


def test_r3_by_hand():
    def one(name, score, certificate, logprob, budget=0.25):  # pairs cross budgets
        told = {"certificate": certificate, "output_logprob": logprob, "budget": budget}
        return full(name, 1), answer(name, score, **told)

    rows = table(
        *one("w0", 0, 3.0, -5.0),
        *one("w1", 0, 1.0, -1.0),
        *one("w2", 1, 2.0, -2.0),
        *one("w3", 1, 0.0, -3.0, budget=0.5),
        *one("w4", 1, 9.0, NAN),  # left out of both AUCs
        full("w5", 0),
        answer("w5", 0, certificate=0.0, output_logprob=0.0),  # nothing that the full cache answers
    )
    names = {"signal": "certificate", "rival": "output_logprob"}
    options = {"label": "induced_failure", "undefined_rows_max": 0.2, "undefined_resamples_max": 1.0}
    found = quantities("R3", rows, parameters=names, **options)["gain"]
    # 3 of 4 pairs by certificate, 2 of 4 by log-probability.
    assert (found.value, found.n, found.clusters) == (0.25, 4, 4)
    assert found.lo < 0.25 < found.hi
    assert found.note.startswith("1 rows without certificate and output_logprob left out; ")
    assert "certificate 0.750, output_logprob 0.500" in found.note
    turned = {"signal": "output_logprob", "rival": "certificate"}
    assert quantities("R3", rows, parameters=turned, **options)["gain"].value == -0.25


def of_r4():
    def arm(condition, seed, certificates, before, after):
        return [
            answer(
                f"w{at}", score, condition=condition, seed=seed, budget=budget, certificate=certificates[at]
            )
            for budget, scores in ((0.25, before), (0.5, after))
            for at, score in enumerate(scores)
        ]

    return table(
        *arm("aware", 0.0, (4.0, 3.0, 2.0, 1.0), (0, 1, 1, 0), (1, 0, 1, 1)),
        *arm("aware", 1.0, (1.0, 2.0, 3.0, 4.0), (0, 1, 1, 0), (1, 0, 1, 0)),
        *arm("stream", 0.0, (9.0, 1.0, 1.0, 1.0), (1, 0, 0, 0), (0, 1, 1, 1)),
        *arm("stream", 1.0, (5.0, 5.0, 5.0, 5.0), (1, 0, 0, 0), (0, 1, 1, 1)),
    )


@pytest.mark.parametrize(
    ("q", "aware", "stream"),
    [
        # Aware, seed 0: (1 1 1 0) 3/4 against .75 * 1/2 + .25 * 3/4; seed 1: 1/2 against 1/2.
        # Stream, seed 0: 0 against .75 * 1/4 + .25 * 3/4; seed 1: ties are chance itself.
        (0.25, (3 / 16 + 0) / 2, (-3 / 8 + 0) / 2),
        # Aware, seed 0: (1 0 1 0) against .5 * 1/2 + .5 * 3/4; seed 1: (0 1 1 0). Stream: 1/4 against 1/2.
        (0.5, (-1 / 8 + 0) / 2, (-1 / 4 + 0) / 2),
    ],
)
def test_r4_by_hand(q, aware, stream):
    parameters = {"signal": "certificate", "q": q, "from_budget": 0.25, "to_budget": 0.5}
    found = quantities("R4", of_r4(), label="success", parameters=parameters)
    assert (found["aware"].value, found["stream"].value) == pytest.approx((aware, stream), abs=1e-15)
    assert (found["aware"].n, found["aware"].clusters) == (8, 4)
    assert all(one.lo < one.hi for one in found.values())


@pytest.mark.parametrize(
    "changes", [{"q": 0.0}, {"q": 1.0}, {"to_budget": 0.25}, {"from_budget": 0.5, "to_budget": 0.25}]
)
def test_r4_moves_some_rows_to_a_larger_budget(changes):
    parameters = {"signal": "certificate", "q": 0.25, "from_budget": 0.25, "to_budget": 0.5, **changes}
    with pytest.raises(RegistrationError, match="some rows but not all, and to a larger budget"):
        quantities("R4", of_r4(), label="success", parameters=parameters)


def test_s1_by_hand():
    def suite(name, pairs):
        made = []
        for at, (whole, own) in enumerate(pairs):
            made += [full(f"w{at}", whole, suite=name), answer(f"w{at}", own, suite=name)]
        return made

    rows = table(
        *suite("long", [(1, 0), (1, 0), (1, 1), (1, 0), (0, 0), (0, 1)]),
        *suite("short", [(1, 0), (1, 1), (1, 1), (1, 1), (1, 1), (0, 0)]),
    )
    options = {"label": "induced_failure", "undefined_resamples_max": 1.0}
    found = quantities("S1", rows, parameters={"longer": "long", "shorter": "short"}, **options)["rise"]
    assert found.value == pytest.approx(3 / 4 - 1 / 5, abs=1e-15)
    assert (found.n, found.clusters, found.note) == (9, 5, "long 0.750, short 0.200")
    assert found.lo < found.value < found.hi


def test_s2_by_hand():
    rows = table(*both("w0", 1.0, 2.0), *both("w1", 3.0, 1.0))
    found = quantities("S2", rows, parameters={"signal": "certificate"})["auc_pooled"]
    # Failures 1, 3 against successes 2, 1: lost, tied, won, won.
    assert (found.value, found.n) == (2.5 / 4, 4)
    assert (found.lo, found.hi) == (0.0, 1.0)  # w0 twice, w1 twice
    assert found.note == "stratified 0.625, condition x budget alone 0.500"


def test_s3_by_hand():
    def arm(name, seed, scores):
        return [answer(f"w{at}", score, arm=name, seed=seed) for at, score in enumerate(scores)]

    rows = table(
        *arm("topk", NAN, (1, 1, 1, 0)),
        *arm("poisson", 0.0, (1, 0, 0, 0)),
        *arm("poisson", 1.0, (1, 1, 0)),  # a seed counts once, however many rows it has
        *arm("h2o", NAN, (0, 0, 0, 0)),
    )
    parameters = {"deterministic": "topk", "randomised": "poisson"}
    options = {"label": "success", "undefined_resamples_max": 1.0}
    found = quantities("S3", rows, parameters=parameters, **options)["tax"]
    assert found.value == pytest.approx(3 / 4 - (1 / 4 + 2 / 3) / 2, abs=1e-15)
    assert (found.n, found.clusters) == (11, 4)
    assert found.note.endswith("deterministic 0.750, randomised 0.458")
    assert found.lo < found.value < found.hi


def of_cells():
    """Four prompts at a small budget, five at a larger one."""
    small = [(1.0, 1.0, 2.0), (2.0, 3.0, 1.0), (3.0, 2.0, 4.0), (4.0, 5.0, 1.0)]
    large = [(4.0, 1.0, 1.0), (3.0, 2.0, 2.0), (2.0, 3.0, 3.0), (1.0, 0.5, 0.25), (5.0, 0.25, 9.0)]
    return cells(
        *(
            {"example_id": f"p{at}", "budget": budget, "certificate": c, "hajek": h, "topk": t}
            for budget, told in ((0.5, large), (0.125, small))
            for at, (c, h, t) in enumerate(told)
        )
    )


def ends(of):
    """The interval of a number on resamples of the five prompts, written out: the value at `level` .9."""
    values = []
    for counts in slow_multiplicities([0] * 5, 40, 1):
        again = [at for at, times in enumerate(counts) for _ in range(times)]
        values.append(of(again))
    known = [value for value in values if not math.isnan(value)]
    return pytest.approx(np.quantile(known, [0.05, 0.95], method="linear").tolist(), abs=1e-12)


def ranked(rows):
    """Pearson's correlation of midranks; none where one of the two does not vary."""
    one, other = (rows[name].rank().to_numpy() for name in ("certificate", "hajek"))
    spread = one.std() * other.std()
    return ((one - one.mean()) * (other - other.mean())).mean() / spread if spread else NAN


def by_prompt(of):
    """The smallest over both budgets of a number of the cells of some prompts, which may repeat."""
    rows = of_cells()
    parts = [rows[rows["budget"] == budget].set_index("example_id") for budget in (0.125, 0.5)]

    def smallest(again):
        names = [f"p{at}" for at in again]
        return np.min([of(part.loc[[name for name in names if name in part.index]]) for part in parts])

    return smallest


def test_intervals_of_cells_are_those_of_prompts_drawn_again():
    options = {"is_cells": True, "undefined_resamples_max": 1.0}
    covered = by_prompt(lambda rows: (rows["hajek"] <= rows["certificate"]).mean())
    gain = by_prompt(lambda rows: rows["topk"].median() - rows["hajek"].median())
    rho = by_prompt(ranked)
    for claim_id, name, of in (("A1", "coverage", covered), ("A2", "rho", rho)):
        found = quantities(claim_id, of_cells(), **options)[name]
        assert [found.lo, found.hi] == ends(of)
    found = quantities("A3", of_cells(), **options)["difference"]
    assert [-found.hi, -found.lo] == ends(gain)


def test_a1_by_hand():
    found = quantities("A1", of_cells(), is_cells=True)["coverage"]
    # Small: 1 <= 1 and 2 <= 3 hold, two do not; large: only 3 <= 2 fails.
    assert (found.value, found.n, found.clusters) == (2 / 4, 9, 5)
    assert found.note == "0.125: 0.500, 0.5: 0.800"


def test_a2_by_hand():
    found = quantities("A2", of_cells(), is_cells=True)["rho"]
    # Small: ranks 1 2 3 4 against 1 3 2 4. Large: 4 3 2 1 5 against 3 4 5 2 1, squares 1 1 9 1 16.
    assert found.value == pytest.approx(1 - 6 * 28 / (5 * 24), abs=1e-12)
    assert found.note == "0.125: 0.800, 0.5: -0.400"


def test_a3_by_hand():
    found = quantities("A3", of_cells(), is_cells=True)["difference"]
    # Small: medians 2.5 and 1.5. Large: 1 and 2.
    assert found.value == 1.0
    assert found.note == "0.125: 1.000, 0.5: -1.000"


def test_a_cell_is_covered_by_its_flag_alone():
    made = cell_data(cells({"covered": 1.0, "hajek": 9.0}, {"covered": 0.0, "hajek": 0.0}, {"covered": 1.0}))
    assert made.point(made.coverage(made.rows)).value == 2 / 3
    assert list(made.by_budget()) == [0.25]
    assert made.point(made.share(made.rows, np.array([True, False, False]))).value == 1 / 3
    assert made.rows["cluster"].tolist() == [0, 1, 2]


# Verdicts -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kill", "support", "has_support", "state"),
    [
        (True, True, True, State.KILLED),
        (True, False, True, State.KILLED),
        (True, None, True, State.KILLED),
        (True, None, False, State.KILLED),
        (False, True, True, State.SURVIVED),
        (False, False, True, State.NOT_MET),
        (False, None, True, State.INCOMPLETE),
        (False, None, False, State.SURVIVED),
        (None, True, True, State.INCOMPLETE),
        (None, False, True, State.INCOMPLETE),
        (None, None, True, State.INCOMPLETE),
        (None, None, False, State.INCOMPLETE),
    ],
)
def test_the_state_of_every_pair_of_truths(kill, support, has_support, state):
    assert verdict(kill, support, has_support) is state


HALF = statistics.Estimate(0.5, 0.4, 0.6, n=7)
BARE = statistics.Estimate(0.5, n=7, undefined="no interval")
LOST = statistics.Estimate(None, undefined="no rows")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x < 0.5", False),
        ("x <= 0.5", True),
        ("x > 0.5", False),
        ("x >= 0.5", True),
        ("x.lo < 0.4", False),
        ("x.hi <= 0.6", True),
        ("x.n >= 7 and x.n < 8", True),
        ("2 * x - 1 >= 0", True),
        ("x.hi - x.lo > 0.21", False),
        ("not x < 0.5", True),
        ("bare >= 0.5", True),
        ("bare.lo > 0", None),
        ("not bare.lo > 0", None),
        ("bare.lo > 0 and x > 0.5", False),
        ("bare.lo > 0 and x >= 0.5", None),
        ("bare.lo > 0 or x >= 0.5", True),
        ("bare.lo > 0 or x > 0.5", None),
        ("lost < 1", None),
        ("lost < 1 or x < 1", True),
        ("lost + x < 9", None),
        ("absent > 0", None),
    ],
)
def test_a_condition_in_three_values(text, expected):
    assert parse(text).holds({"x": HALF, "bare": BARE, "lost": LOST}) is expected


def test_cells_of_a_question_read_its_seed_and_plan(of_cells):
    question = of_cells.question("A1")
    wanted = question.cells
    model = {} if wanted.models is None else {"model": wanted.models[0]}
    rows = cells(
        *(
            {"suite": suite, "task": wanted.tasks[0], "budget": budget, "covered": at % 2, **model}
            for at, (suite, budget) in enumerate(
                [(wanted.suites[0], 0.25)] * 15 + [("other", 0.25)] + [(wanted.suites[0], 0.25)] * 4
            )
        )
    )
    made = CellData.of(rows, question)
    assert made.rows["example_id"].tolist() == [f"prose-{at:04d}" for at in range(20) if at != 15]
    found = made.estimate(made.coverage(made.rows))
    sampler = Resamples(
        np.arange(19),
        np.zeros(19, np.int64),
        draws=question.statistics.draws,
        level=question.statistics.level,
        min_clusters=2,
        undefined_max=0.0,
        seed=question.seed,
    )
    again = sampler.estimate(made.coverage(made.rows))
    assert (found.value, found.lo, found.hi) == (9 / 19, again.lo, again.hi)
    other = made.redrawn(question.seed + 1)
    assert isinstance(other.estimate(made.coverage(made.rows)), Later)
    assert (
        other._resamples.values(made.coverage(made.rows)).tolist()
        != sampler.values(made.coverage(made.rows)).tolist()
    )


def test_data_of_a_question_reads_its_seed_and_plan(registrations):
    question = registrations[0].question("R1")
    rows = table(
        *(
            answer(name, at % 2, suite=question.population.suites[0], task=task, certificate=float(at))
            for task in question.population.tasks
            for at, name in enumerate(("w0", "w1", "w2"))
        )
    )
    made = Data.of(rows, question)
    by_hand = Data(
        rows,
        question.population,
        question.success,
        question.statistics,
        question.seed,
        Parameters("claim R1", question.parameters),
    )
    mean = made.rate(made.counted)
    assert made._resamples.values(mean).tolist() == by_hand._resamples.values(mean).tolist()
    assert len(made._resamples.values(mean)) == question.statistics.draws


@pytest.mark.parametrize(
    ("claim_id", "name"),
    [
        ("R1", "chance"),
        ("R2", "chance"),
        ("R2", "visible_from"),
        ("R4", "q"),
        ("R4", "from_budget"),
        ("R4", "to_budget"),
    ],
)
@pytest.mark.parametrize("value", [-0.001, 1.001])
def test_shares_of_a_claim_lie_between_0_and_1(claim_id, name, value):
    parameters = {
        "R1": {"signal": "certificate", "chance": 0.5},
        "R2": {**R2, "folded": False},
        "R4": {"signal": "certificate", "q": 0.25, "from_budget": 0.25, "to_budget": 0.5},
    }[claim_id]
    rows = of_r4() if claim_id == "R4" else of_r2()
    with pytest.raises(RegistrationError, match=f"parameter '{name}' must lie between 0 and 1"):
        quantities(claim_id, rows, label="own_failure", parameters={**parameters, name: value})


@pytest.mark.parametrize(("claim_id", "more"), [("R1", {"chance": 0.5}), ("S2", {})])
def test_a_pooled_auc_reads_what_the_label_counts(claim_id, more):
    rows = table(
        *(full(f"w{at}", at < 2) for at in range(3)),
        *both("w0", 4.0, 2.0),
        *both("w1", 3.0, 3.0),
        *both("w2", 0.0, 9.0, budget=0.5),  # which the full cache does not answer
    )
    options = {"label": "induced_failure", "undefined_resamples_max": 1.0}
    found = quantities(claim_id, rows, parameters={"signal": "certificate", **more}, **options)["auc_pooled"]
    # Failures 4, 3 against successes 2, 3.
    assert (found.value, found.n) == (3.5 / 4, 4)
    assert found.note.endswith("stratified 0.875, condition x budget alone 0.500")


@pytest.mark.parametrize(
    ("is_folded", "visible_from", "visible"),
    [
        (True, 0.625, 1.0),
        (True, 0.626, 0.0),
        (False, 0.375, 1.0),
        (False, 0.376, 0.0),
    ],
)
def test_a_signal_below_chance_is_visible_from_its_own_side(is_folded, visible_from, visible):
    made = [
        answer(f"w{at}", score, arm="h2o", seed=float(seed), entropy=entropy, certificate=entropy)
        for at in range(2)
        for seed, (score, entropy) in enumerate([(0, 1.0), (0, 3.0), (1, 2.0), (1, 3.0)])
    ]
    parameters = {**R2, "panel": {"h2o": ["entropy"]}, "certificate_arm": "h2o"}
    parameters |= {"folded": is_folded, "visible_from": visible_from}
    found = quantities("R2", table(*made), parameters=parameters)
    # 1 loses twice; 3 wins and ties: .375 in every resample.
    assert found["strongest"].value == found["certificate"].value == (0.625 if is_folded else 0.375)
    assert found["strongest"].lo == found["strongest"].hi == found["strongest"].value
    assert found["visible"].value == visible
