"""Statistics on tables small enough to work out on paper, with the results written down."""

import itertools
import math

import numpy as np
import pytest

from analysis.core import statistics
from analysis.core.estimates import Estimate, Later, Resamples, Statistic, multiplicities
from tests.analysis.small_tables import slow_multiplicities

NAN = math.nan


def array(*values):
    return np.array(values, np.float64)


def codes(*values):
    return np.array(values, np.int64)


def truths(word):
    return np.array([letter == "T" for letter in word])


def of(statistic, *weights):
    """The statistic's values, one for each tuple of cluster multiplicities."""
    return statistic.of(np.array(weights, np.float64)).tolist()


def told(*values, undefined="", note=""):
    """A statistic that gives these values one after another: first that of the rows, then the resamples'."""
    left = iter(values)
    return Statistic(
        lambda weights: array(*itertools.islice(left, len(weights))), codes(0, 1), undefined, note
    )


def resamples(cluster=(0, 1), stratum=(0, 0), **changes):
    plan = {"draws": 21, "level": 0.9, "min_clusters": 2, "undefined_max": 0.0, "seed": 1}
    return Resamples(codes(*cluster), codes(*stratum), **{**plan, **changes})


# AUC ------------------------------------------------------------------------------------------------


def test_an_auc_of_four_rows():
    # .9 beats .8 and .3; .8 ties with .8 and beats .3: 3.5 of 4 pairs.
    auc = statistics.auc(array(0.9, 0.8, 0.8, 0.3), truths("TFTF"), codes(0, 0, 1, 1), np.arange(4))
    # Twice cluster 0: pairs 3 * 3; won 2 * (2 + 1) by .9, 2 * .5 + 1 by .8.
    assert of(auc, (1, 1), (2, 1), (0, 3), (3, 0)) == [3.5 / 4, 8 / 9, 1.0, 1.0]
    assert of(auc, (0, 0)) == pytest.approx([NAN], nan_ok=True)


def test_strata_weigh_by_their_pairs():
    score, positive = array(0.9, 0.8, 0.1, 0.2, 0.5, 0.5), truths("FTFTFT")
    cluster, stratum = codes(0, 1, 1, 0, 0, 1), codes(0, 0, 0, 1, 1, 1)
    auc = statistics.auc(score, positive, cluster, np.arange(6), stratum)
    # Stratum 0 wins 1 of 2 pairs, stratum 1 half a pair of 2; then 1 of 4 and 1.5 of 12.
    assert of(auc, (1, 1), (3, 1)) == [1.5 / 4, 2.5 / 16]
    # Without strata .8 also beats .5 (8 pairs, not of one stratum), and .2 and .5 beat .1.
    assert of(statistics.auc(score, positive, cluster, np.arange(6)), (1, 1)) == [(2 + 1 + 1.5) / 9]


def test_a_stratum_of_one_class_adds_no_pairs():
    score, positive, stratum = array(1, 2, 3, 4), truths("TFTT"), codes(0, 0, 1, 1)
    auc = statistics.auc(score, positive, np.arange(4), np.arange(4), stratum)
    assert of(auc, (1, 1, 1, 1)) == [0.0]
    apart = statistics.auc(score, positive, np.arange(4), np.arange(4), codes(0, 1, 0, 2))
    assert apart.undefined == "one class only: 3 of 4 rows are positive"
    assert apart.rows.tolist() == [0, 1, 2, 3]


# Gating, medians, ranks, rates ----------------------------------------------------------------------

GATED = {
    "score": array(3, 2, 2, 1),
    "before": array(0, 0, 1, 1),
    "after": array(1, 1, 1, 0),
    "cluster": codes(0, 0, 1, 1),
    "rows": np.arange(4),
}


@pytest.mark.parametrize(
    ("q", "expected"),
    [
        (0.0, 2 / 4),
        (0.125, 2.5 / 4),  # half of the first row
        (0.25, 3 / 4),  # the first row, none of the two that tie behind it
        (0.5, 3.5 / 4),  # one place for the two of them: each moves half
        (0.75, 4 / 4),
        (0.875, 3.5 / 4),  # half of the last, which loses
        (1.0, 3 / 4),
    ],
)
def test_gating_four_rows_of_which_two_tie(q, expected):
    gate = statistics.gated(q=q, **GATED)
    assert of(gate, (1, 1)) == pytest.approx([expected], abs=1e-15)
    without = {name: GATED[name] for name in ("before", "after", "cluster", "rows")}
    random = statistics.random_gate(q=q, **without)
    assert of(random, (1, 1)) == pytest.approx([0.5 + 0.25 * q], abs=1e-15)


def test_gating_a_resample_by_hand():
    # Cluster 0 twice: 6 rows, 3 places; the first row takes 2, the tie of 3 rows shares 1.
    assert of(statistics.gated(q=0.5, **GATED), (2, 1)) == pytest.approx([(2 + 2 + 2 / 3) / 6], abs=1e-15)
    assert of(statistics.gated(q=0.5, **GATED), (0, 2)) == pytest.approx([(2 + 0) / 4 + 2 / 4], abs=1e-15)
    without = {name: GATED[name] for name in ("before", "after", "cluster", "rows")}
    # Before: 2 of 6; after: 5 of 6.
    assert of(statistics.random_gate(q=0.25, **without), (2, 1)) == pytest.approx(
        [0.75 * 2 / 6 + 0.25 * 5 / 6]
    )


def test_each_row_takes_what_it_gains_itself():
    score, before, after = array(3, 2, 2, 1), array(0, 0, 0, 0), array(8, 1, 3, 16)
    gate = statistics.gated(score, before, after, 0.5, codes(0, 1, 2, 3), np.arange(4))
    # The first gains 8, a tie of two shares one place: (1 + 3) / 2. Without the first: 1.5 of 3 places.
    assert of(gate, (1, 1, 1, 1)) == pytest.approx([(8 + 2) / 4], abs=1e-14)
    assert of(gate, (0, 1, 1, 1)) == pytest.approx([0.75 * 4 / 3], abs=1e-14)
    # The first twice: 2.5 places of 5, two for it and half a place for the tie.
    assert of(gate, (2, 1, 1, 1)) == pytest.approx([(16 + 0.25 * 4) / 5], abs=1e-14)


def test_untied_scores_move_from_the_highest_down():
    gate = statistics.gated(
        array(0.1, 0.3, 0.2), array(0, 0, 0), array(4, 1, 2), 0.5, np.arange(3), np.arange(3)
    )
    # One and a half rows: .3 whole, .2 half.
    assert of(gate, (1, 1, 1)) == pytest.approx([(1 + 1) / 3], abs=1e-15)


def test_medians_by_hand():
    median = statistics.median(array(10, 1, 2), np.arange(3), np.arange(3))
    weights = [(1, 1, 1), (2, 1, 1), (1, 2, 2), (0, 1, 1), (0, 0, 4), (3, 0, 1)]
    assert of(median, *weights) == [2.0, 6.0, 2.0, 1.5, 2.0, 10.0]
    assert (
        statistics.median(array(1, NAN, NAN), np.arange(3), np.arange(3)).undefined
        == "undefined in 2 of 3 rows"
    )


def test_rank_correlations_by_hand():
    rows = np.arange(4)
    # One swap of neighbours: 1 - 6 * 2 / (4 * 15).
    assert of(statistics.spearman(array(1, 2, 3, 4), array(1, 3, 2, 4), rows, rows), (1, 1, 1, 1)) == (
        pytest.approx([0.8], abs=1e-15)
    )
    three = np.arange(3)
    # Midranks 1.5, 1.5, 3 against 1, 2, 3: 1.5 / sqrt(1.5 * 2). Then the last row twice.
    tied = statistics.spearman(array(5, 5, 9), array(-1, 0, 7), three, three)
    assert of(tied, (1, 1, 1)) == pytest.approx([1.5 / math.sqrt(3)], abs=1e-15)
    # Ranks 1.5 1.5 3.5 3.5 and 1 2 3.5 3.5: 4 / sqrt(4 * 4.5).
    assert of(tied, (1, 1, 2)) == pytest.approx([4 / math.sqrt(18)], abs=1e-15)
    assert of(statistics.spearman(array(5, 5, 9), array(3, 2, 1), three, three), (0, 1, 1)) == pytest.approx(
        [-1.0]
    )


def test_rates_by_hand():
    rate = statistics.rate(truths("TFFT"), codes(0, 0, 0, 1), np.arange(4))
    assert of(rate, (1, 1), (1, 2), (3, 0), (0, 1)) == [0.5, 3 / 5, 1 / 3, 1.0]
    assert of(rate, (0, 0)) == pytest.approx([NAN], nan_ok=True)


def test_combinations_by_hand():
    def parts():
        return told(0.2, 0.5, note="a"), told(0.6, 0.1, note="b"), told(0.7, 0.6, note="a")

    twice = ((1, 1), (1, 1))
    assert of(statistics.mean(parts()), *twice) == pytest.approx([0.5, 0.4], abs=1e-15)
    assert of(statistics.difference(*parts()[:2]), *twice) == pytest.approx([-0.4, 0.4], abs=1e-15)
    assert of(statistics.ratio(*parts()[:2]), *twice) == pytest.approx([1 / 3, 5.0], abs=1e-15)
    assert of(statistics.smallest(parts()), *twice) == [0.2, 0.1]
    assert of(statistics.largest(parts()), *twice) == [0.7, 0.6]
    assert of(statistics.folded(told(0.2, 0.5)), *twice) == [0.8, 0.5]
    assert statistics.mean(parts()).note == "a; b"
    assert statistics.mean([told(1), told(1, undefined="no"), told(1, undefined="nor")]).undefined == "no"
    assert statistics.difference(told(1), Statistic(told(1).of, codes(7, 1))).rows.tolist() == [0, 1, 7]


def test_a_count_is_of_those_that_hold():
    made = [Estimate(0.4), Estimate(0.6), Estimate(0.7)]
    found = statistics.count(made, lambda one: one.value > 0.5)
    assert (found.value, found.lo, found.n, found.clusters, found.undefined) == (2.0, None, 3, 0, "")
    lost = statistics.count([*made, Estimate(None, undefined="no rows")], bool)
    assert (lost.value, lost.undefined) == (None, "cannot be counted: no rows")


# Intervals ------------------------------------------------------------------------------------------


def mixed(values):
    """An order that is not sorted."""
    values = list(values)
    return values[1::2] + values[0::2][::-1]


@pytest.mark.parametrize(
    ("draws", "level", "lo", "hi"),
    [
        (21, 0.9, 2.0, 20.0),  # .05 * 20 = 1: the second smallest itself
        (21, 0.95, 1.5, 20.5),  # .025 * 20 = .5: halfway from the smallest to the second
        (41, 0.95, 2.0, 40.0),
        (11, 0.8, 2.0, 10.0),
        (5, 0.5, 2.0, 4.0),
        (4, 0.9, 1.15, 3.85),  # .05 * 3 = .15
    ],
)
def test_ends_of_an_interval_by_hand(draws, level, lo, hi):
    found = resamples(draws=draws, level=level).estimate(told(7.0, *mixed(range(1, draws + 1))))
    assert (found.value, found.n, found.clusters, found.undefined, found.note) == (7.0, 2, 2, "", "")
    assert (found.lo, found.hi) == pytest.approx((lo, hi), abs=1e-12)


@pytest.mark.parametrize(
    ("gaps", "has_interval"),
    [(0, True), (1, True), (2, False)],
)
def test_as_many_resamples_as_registered_may_be_undefined(gaps, has_interval):
    values = mixed([NAN] * gaps + list(range(gaps + 1, 21)))
    found = resamples(draws=20, undefined_max=0.05).estimate(told(7.0, *values, note="beside"))
    assert found.value == 7.0
    said = f"undefined in {gaps} of 20 resamples"
    if has_interval:
        # .05 of the 19 or 20 that are left, from the smallest of them.
        assert found.lo == pytest.approx(gaps + 1 + 0.05 * (19 - gaps), abs=1e-12)
        assert found.hi == pytest.approx(20 - 0.05 * (19 - gaps), abs=1e-12)
        assert found.note == ("beside; " + said if gaps else "beside")
    else:
        assert (found.lo, found.hi, found.undefined) == (None, None, f"no interval: {said}")


@pytest.mark.parametrize(("least", "has_interval"), [(1, True), (2, True), (3, False)])
def test_as_many_clusters_as_registered_suffice(least, has_interval):
    found = resamples(cluster=(0, 1), min_clusters=least).estimate(told(7.0, *range(1, 22)))
    assert (found.lo is not None, found.clusters) == (has_interval, 2)
    assert found.undefined == ("" if has_interval else "no interval under 3 clusters, here 2")


def test_clusters_are_those_of_the_rows_that_are_read():
    sampler = resamples(cluster=(0, 0, 1, 2, 2), stratum=(0, 0, 0))
    found = sampler.point(Statistic(lambda weights: array(0.5), codes(0, 1, 3)))
    assert (found.value, found.n, found.clusters) == (0.5, 3, 2)
    lost = sampler.point(Statistic(lambda weights: array(NAN), codes(0, 1, 3)))
    assert (lost.value, lost.n, lost.undefined) == (None, 3, "it has no value on these rows")


def test_every_draw_is_read_once_and_the_rows_as_observed_have_weight_one():
    seen = []

    def keep(weights):
        seen.append(weights.copy())
        return np.zeros(len(weights))

    stratum = (0, 0, 0, 1)
    sampler = resamples(cluster=(0, 1, 2, 3), stratum=stratum, draws=45, seed=9)
    sampler.estimate(Statistic(keep, np.arange(4)))
    assert seen[0].tolist() == [[1, 1, 1, 1]]
    assert np.concatenate(seen[1:]).tolist() == multiplicities(codes(*stratum), 45, 9).tolist()
    assert max(map(len, seen)) <= 45


@pytest.mark.parametrize("seed", [0, 2026, 2**127 + 5])
def test_resamples_from_whole_numbers(seed):
    stratum = [1, 0, 1, 0, 0, 2]
    assert multiplicities(codes(*stratum), 30, seed).tolist() == slow_multiplicities(stratum, 30, seed)


def test_resamples_of_one_seed_are_these():
    expected = [[1, 1, 1, 2, 0], [0, 0, 2, 2, 1], [0, 1, 2, 1, 1]]
    assert multiplicities(codes(1, 0, 1, 0, 0), 3, 2026).tolist() == expected
    assert multiplicities(codes(1, 0, 1, 0, 0), 3, 2027).tolist() != expected


# Estimates as words ---------------------------------------------------------------------------------


def test_estimates_as_words():
    assert str(Estimate(0.55549, 0.5, 0.6789)) == "0.555 [0.500, 0.679]"
    assert str(Estimate(0.5)) == "0.500"
    assert str(Estimate(0.5, 0.1, None)) == str(Estimate(0.5, None, 0.9)) == "0.500"
    assert str(Estimate(None, 0.1, 0.9)) == "undefined"
    assert Estimate(0.5).noted("a").noted("").noted("b").note == "a; b"


def test_a_later_interval_is_made_once_and_when_it_is_read():
    made = []

    def whole():
        made.append(1)
        return Estimate(0.5, 0.4, 0.7)

    later = Later(Estimate(0.5, n=3, clusters=2, undefined="", note="beside"), whole)
    assert (later.value, later.n, later.clusters, later.undefined, later.note, made) == (
        0.5,
        3,
        2,
        "",
        "",
        [],
    )
    assert (later.lo, later.hi, later.lo, len(made)) == (0.4, 0.7, 0.4, 1)


@pytest.mark.parametrize(
    ("x", "y", "reason"),
    [
        ((1, NAN, 2), (1, 2, 3), "x is undefined in 1 of 3 rows"),
        ((1, 2, 3), (NAN, NAN, 3), "y is undefined in 2 of 3 rows"),
        ((4, 4, 4), (1, 2, 3), "nothing to rank: all 3 rows have one value"),
        ((1, 2, 3), (4, 4, 4), "nothing to rank: all 3 rows have one value"),
        ((1, 2, 2), (4, 4, 3), ""),
        ((), (), "no rows to rank"),
    ],
)
def test_why_there_is_no_rank_correlation(x, y, reason):
    rows = np.arange(len(x))
    found = statistics.spearman(array(*x), array(*y), rows, rows)
    assert (found.undefined, found.rows.tolist()) == (reason, rows.tolist())


def test_why_other_numbers_have_no_value():
    none, no_codes = array(), codes()
    assert statistics.rate(truths(""), no_codes, no_codes).undefined == "no rows to take a rate of"
    assert statistics.median(none, no_codes, no_codes).undefined == "no rows to take a median of"
    assert statistics.gated(none, none, none, 0.5, no_codes, no_codes).undefined == "no rows to gate"
    assert statistics.random_gate(none, none, 0.5, no_codes, no_codes).undefined == "no rows to gate"
    assert statistics.mean([]).undefined == "there is nothing to average"
    assert (
        statistics.largest([]).undefined
        == statistics.smallest([]).undefined
        == "there is nothing to choose from"
    )
    lost = statistics.undefined("no rows", codes(4))
    assert (of(lost, (1, 1), (1, 1)), lost.rows.tolist()) == (pytest.approx([NAN, NAN], nan_ok=True), [4])
