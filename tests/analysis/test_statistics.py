"""AUC, intervals, gating, ranks and medians against slow, independent ways to compute them."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import spearmanr
from sklearn.metrics import roc_auc_score

from analysis.core import statistics
from analysis.core.estimates import Estimate, Resamples, Statistic, multiplicities, uniform_indices

DRAWS = 40


def resamples(cluster, stratum, **changes):
    plan = {"draws": DRAWS, "level": 0.9, "min_clusters": 2, "undefined_max": 1.0, "seed": 7}
    return Resamples(np.asarray(cluster), np.asarray(stratum), **{**plan, **changes})


def ids(rows):
    return np.arange(len(rows))


def point(statistic, cluster):
    weights = np.ones((1, int(np.max(cluster)) + 1))
    return float(statistic.of(weights)[0])


# Few distinct scores, so that ties are the rule.
tied = st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=2, max_size=60)
untied = st.lists(st.tuples(st.floats(-1e6, 1e6), st.booleans()), min_size=2, max_size=60)


@given(st.one_of(tied, untied))
def test_auc_equals_scikit_learn_with_ties(rows):
    score = np.array([score for score, _ in rows], float)
    positive = np.array([label for _, label in rows])
    cluster = ids(rows)
    auc = statistics.auc(score, positive, cluster, cluster)
    if positive.all() or not positive.any():
        assert "one class only" in auc.undefined
        return
    assert point(auc, cluster) == pytest.approx(roc_auc_score(positive, score), abs=1e-12)


@given(tied, st.data())
def test_weights_count_rows_as_copies(rows, data):
    score = np.array([score for score, _ in rows], float)
    positive = np.array([label for _, label in rows])
    copies = np.array(data.draw(st.lists(st.integers(0, 3), min_size=len(rows), max_size=len(rows))))
    auc = statistics.auc(score, positive, ids(rows), ids(rows))
    weighted = auc.of(copies[None, :].astype(float))[0]
    kept = np.repeat(positive, copies)
    if auc.undefined or kept.all() or not kept.any():
        assert math.isnan(weighted)
    else:
        assert weighted == pytest.approx(roc_auc_score(kept, np.repeat(score, copies)), abs=1e-12)


def brute_auc(score, positive, stratum):
    """Doubled wins and pairs, counted one pair at a time."""
    won, pairs = 0, 0
    for i, j in itertools.product(range(len(score)), repeat=2):
        if positive[i] and not positive[j] and stratum[i] == stratum[j]:
            pairs += 1
            won += 2 * (score[i] > score[j]) + (score[i] == score[j])
    return won / 2 / pairs if pairs else math.nan


clustered = st.lists(
    st.tuples(st.integers(0, 4), st.booleans(), st.integers(0, 7), st.integers(0, 2)),
    min_size=8,
    max_size=30,
)


@settings(deadline=None, max_examples=15)
@given(clustered, st.booleans(), st.integers(0, 2**64))
def test_the_interval_equals_a_naive_loop_over_the_same_indices(rows, is_stratified, seed):
    score, positive, cluster, stratum = (np.array(column) for column in zip(*rows, strict=True))
    cluster = np.unique(cluster, return_inverse=True)[1]
    stratum = stratum if is_stratified else np.zeros(len(rows), int)
    tasks = np.arange(cluster.max() + 1) % 2
    auc = statistics.auc(score.astype(float), positive, cluster, ids(rows), stratum)
    got = resamples(cluster, tasks, seed=seed).values(auc)

    bits = np.random.PCG64(seed)
    chosen = [[] for _ in range(DRAWS)]
    for task in np.unique(tasks):
        members = np.flatnonzero(tasks == task)
        for draw, indices in enumerate(uniform_indices(bits, DRAWS, len(members))):
            chosen[draw] += members[indices].tolist()
    slow = []
    for clusters in chosen:
        taken = np.array([row for one in clusters for row in np.flatnonzero(cluster == one)], int)
        slow.append(brute_auc(score[taken], positive[taken], stratum[taken]))
    assert np.array_equal(got, slow, equal_nan=True)
    found = resamples(cluster, tasks, seed=seed).estimate(auc)
    defined = np.array(slow)[~np.isnan(slow)]
    if found.lo is not None:
        assert [found.lo, found.hi] == np.quantile(defined, [0.05, 0.95], method="linear").tolist()
    else:
        assert found.undefined


def test_the_interval_is_the_linear_quantile_of_the_resamples():
    rng = np.random.default_rng(3)
    cluster = rng.integers(0, 20, 200)
    outcome = rng.random(200) < 0.3
    rate = statistics.rate(outcome, cluster, ids(outcome))
    sampler = resamples(cluster, np.zeros(20, int), draws=500, level=0.95)
    values, estimate = sorted(sampler.values(rate)), sampler.estimate(rate)
    # 0.025 * 499 = 12.475: between the 13th and 14th smallest.
    assert estimate.lo == pytest.approx(values[12] + 0.475 * (values[13] - values[12]), abs=1e-15)
    assert estimate.hi == pytest.approx(values[486] + 0.525 * (values[487] - values[486]), abs=1e-15)
    assert (estimate.value, estimate.n, estimate.clusters) == (outcome.mean(), 200, 20)


def test_raw_bits_are_what_they_were():
    # NumPy guarantees PCG64's stream; if this moves, every interval moves.
    assert uniform_indices(np.random.PCG64(2026), 2, 5).tolist() == EXPECTED_INDICES


EXPECTED_INDICES = [[0, 3, 2, 1, 1], [3, 4, 0, 3, 1]]


def test_every_task_keeps_its_number_of_clusters():
    stratum = np.array([0, 0, 0, 1, 1, 2])
    weights = multiplicities(stratum, 200, seed=1)
    for task, size in ((0, 3), (1, 2), (2, 1)):
        assert (weights[:, stratum == task].sum(axis=1) == size).all()
    assert set(np.unique(weights)) == {0, 1, 2, 3}


def test_bootstrap_indices_are_uniform():
    counts = np.bincount(uniform_indices(np.random.PCG64(5), 4000, 8).ravel(), minlength=8)
    expected = 4000.0
    assert ((counts - expected) ** 2 / expected).sum() < 24.3  # chi2(7) at 0.001


def test_a_difference_is_paired():
    rng = np.random.default_rng(0)
    cluster = rng.integers(0, 30, 300)
    outcome = rng.random(300) < 0.5
    rate = statistics.rate(outcome, cluster, ids(outcome))
    same = resamples(cluster, np.zeros(30, int)).estimate(statistics.difference(rate, rate))
    assert (same.value, same.lo, same.hi) == (0.0, 0.0, 0.0)
    assert (same.n, same.clusters) == (300, 30)


def test_few_clusters_have_a_value_and_no_interval():
    cluster = np.arange(27) % 9
    rate = statistics.rate(cluster > 4, cluster, ids(cluster))
    estimate = resamples(cluster, np.zeros(9, int), min_clusters=10).estimate(rate)
    assert estimate.value == pytest.approx(4 / 9)
    assert (estimate.lo, estimate.hi) == (None, None)
    assert estimate.undefined == "no interval under 10 clusters, here 9"


@pytest.mark.parametrize(("allowed", "has_interval"), [(0.0, False), (1.0, True)])
def test_undefined_resamples_are_counted(allowed, has_interval):
    # One positive row among twelve clusters: a third of the resamples has no positive.
    cluster = np.arange(12)
    auc = statistics.auc(cluster.astype(float), cluster == 5, cluster, cluster)
    sampler = resamples(cluster, np.zeros(12, int), undefined_max=allowed)
    gaps = int(np.isnan(sampler.values(auc)).sum())
    estimate = sampler.estimate(auc)
    assert 5 < gaps < 25
    assert estimate.value == 5 / 11
    assert (estimate.lo is not None) is has_interval
    assert f"in {gaps} of {DRAWS} resamples" in estimate.undefined + estimate.note


def test_missing_is_never_zero():
    cluster = np.arange(12)
    sampler = resamples(cluster, np.zeros(12, int))
    none = np.zeros(0)
    for statistic in (
        statistics.rate(none.astype(bool), none.astype(int), none.astype(int)),
        statistics.auc(cluster.astype(float), cluster > -1, cluster, cluster),
        statistics.auc(none, none.astype(bool), none.astype(int), none.astype(int)),
        statistics.gated(none, none, none, 0.25, none.astype(int), none.astype(int)),
        statistics.mean([]),
        statistics.spearman(none, none, none.astype(int), none.astype(int)),
        statistics.spearman(cluster * 1.0, np.ones(12), cluster, cluster),
        statistics.spearman(cluster * 1.0, np.full(12, np.nan), cluster, cluster),
        statistics.median(none, none.astype(int), none.astype(int)),
        statistics.median(np.full(12, np.nan), cluster, cluster),
        statistics.smallest([]),
        statistics.largest([]),
    ):
        estimate = sampler.estimate(statistic)
        assert (estimate.value, estimate.lo, estimate.hi) == (None, None, None)
        assert estimate.undefined


def test_a_count_of_something_unknown_is_unknown():
    known, unknown = Estimate(0.7, 0.6, 0.8), Estimate(0.7, undefined="no interval")
    assert statistics.count([known, known], lambda auc: auc.lo > 0.5).value == 2
    lost = statistics.count([known, unknown], lambda auc: auc.lo > 0.5)
    assert (lost.value, lost.n, lost.clusters) == (None, 0, 0)


def test_folding_takes_the_better_direction():
    values = np.array([0.2, 0.5, 0.9])
    folded = statistics.folded(Statistic(lambda weights: values, np.arange(1)))
    assert folded.of(np.ones((3, 1))).tolist() == [0.8, 0.5, 0.9]


# ------------------------------------------------------------------ gating

outcomes = st.lists(st.tuples(st.integers(0, 2), st.booleans(), st.booleans()), min_size=1, max_size=6)


@given(outcomes, st.data())
def test_random_gating_is_the_mean_over_all_subsets(rows, data):
    _, before, after = (np.array(column, float) for column in zip(*rows, strict=True))
    size = data.draw(st.integers(0, len(rows)))
    means = []
    for subset in itertools.combinations(range(len(rows)), size):
        moved = np.isin(np.arange(len(rows)), subset)
        means.append(np.where(moved, after, before).mean())
    gate = statistics.random_gate(before, after, size / len(rows), ids(rows), ids(rows))
    assert point(gate, ids(rows)) == pytest.approx(np.mean(means), abs=1e-12)


@given(outcomes, st.data())
def test_ties_at_the_cut_share_the_quota(rows, data):
    score, before, after = (np.array(column, float) for column in zip(*rows, strict=True))
    size = data.draw(st.integers(0, len(rows)))
    means = []
    # Every order that respects the scores, by breaking ties in every possible way.
    for order in itertools.permutations(range(len(rows))):
        if all(score[a] >= score[b] for a, b in itertools.pairwise(order)):
            moved = np.isin(np.arange(len(rows)), order[:size])
            means.append(np.where(moved, after, before).mean())
    gate = statistics.gated(score, before, after, size / len(rows), ids(rows), ids(rows))
    assert point(gate, ids(rows)) == pytest.approx(np.mean(means), abs=1e-12)


@given(outcomes, st.floats(0, 1), st.data())
def test_ranks_and_cut_are_those_of_the_resample(rows, q, data):
    score, before, after = (np.array(column, float) for column in zip(*rows, strict=True))
    copies = np.array(data.draw(st.lists(st.integers(0, 3), min_size=len(rows), max_size=len(rows))))
    if not copies.sum():
        return
    gate = statistics.gated(score, before, after, q, ids(rows), ids(rows))
    again = np.repeat(np.arange(len(rows)), copies)
    written_out = statistics.gated(score[again], before[again], after[again], q, ids(again), ids(again))
    resampled = gate.of(copies[None, :].astype(float))[0]
    assert resampled == pytest.approx(point(written_out, ids(again)), abs=1e-12)


def test_gating_on_the_truth_gains_and_on_its_opposite_loses():
    before = np.array([0.0, 0, 0, 1, 1, 1, 1, 1])
    after = np.ones(8)
    gain = [
        point(
            statistics.difference(
                statistics.gated(sign * before, before, after, 0.25, ids(before), ids(before)),
                statistics.random_gate(before, after, 0.25, ids(before), ids(before)),
            ),
            ids(before),
        )
        for sign in (-1, 1)
    ]
    assert gain == pytest.approx([2 / 8 - 0.25 * 3 / 8, -0.25 * 3 / 8])


# ------------------------------------------------------------------ ranks, medians, extremes


def expanded(cluster, weights):
    """Row numbers of a resample, written out."""
    return np.repeat(np.arange(len(cluster)), np.asarray(weights, int)[cluster])


# Few distinct values, so that ties are the rule; and many.
pairs = st.one_of(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 4)), min_size=1, max_size=40),
    st.lists(
        st.tuples(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6), st.integers(0, 4)), min_size=1, max_size=40
    ),
)
copies_of = st.lists(st.integers(0, 3), min_size=5, max_size=5)


@given(pairs, copies_of)
def test_spearman_equals_scipy_on_the_resample_written_out(rows, copies):
    x, y, cluster = (np.array(column) for column in zip(*rows, strict=True))
    statistic = statistics.spearman(x.astype(float), y.astype(float), cluster, ids(rows))
    again = expanded(cluster, copies)
    got = statistic.of(np.array([copies], float))[0]
    if len(np.unique(x[again])) < 2 or len(np.unique(y[again])) < 2:
        assert math.isnan(got)
    else:
        assert got == pytest.approx(spearmanr(x[again], y[again]).statistic, abs=1e-12)


@given(pairs, copies_of)
def test_a_median_equals_numpy_on_the_resample_written_out(rows, copies):
    values, _, cluster = (np.array(column) for column in zip(*rows, strict=True))
    got = statistics.median(values.astype(float), cluster, ids(rows)).of(np.array([copies], float))[0]
    again = expanded(cluster, copies)
    if not len(again):
        assert math.isnan(got)
    else:
        assert got == np.median(values[again])


def test_ranks_and_medians_of_many_resamples_at_once():
    rng = np.random.default_rng(8)
    cluster = rng.integers(0, 15, 300)
    x = rng.integers(0, 40, 300).astype(float)
    y = x + rng.normal(0, 20, 300)
    sampler = resamples(cluster, np.arange(15) % 2)
    weights = multiplicities(np.arange(15) % 2, DRAWS, 7)
    parts = {
        "spearman": (statistics.spearman(x, y, cluster, ids(x)), lambda at: spearmanr(x[at], y[at])[0]),
        "median": (statistics.median(y, cluster, ids(y)), lambda at: np.median(y[at])),
    }
    for name, (statistic, slow) in parts.items():
        expected = [slow(expanded(cluster, one)) for one in weights]
        assert sampler.values(statistic) == pytest.approx(expected, abs=1e-12), name


def test_a_median_near_the_largest_float_stays_one():
    statistic = statistics.median(np.array([1.7e308, 1.7e308]), np.arange(2), np.arange(2))
    assert point(statistic, np.arange(2)) == 1.7e308


def fixed(*values, undefined=""):
    return Statistic(lambda weights: np.array(values), np.arange(1), undefined)


def test_extremes_are_taken_in_each_resample():
    parts = [fixed(0.1, 0.9, 0.4), fixed(0.3, 0.2, np.nan)]
    smallest, largest = statistics.smallest(parts), statistics.largest(parts)
    assert smallest.of(np.ones((3, 1)))[:2].tolist() == [0.1, 0.2]
    assert largest.of(np.ones((3, 1)))[:2].tolist() == [0.3, 0.9]
    for found in (smallest, largest):
        assert math.isnan(found.of(np.ones((3, 1)))[2])
        assert not found.undefined
    assert statistics.smallest([*parts, fixed(0, 0, 0, undefined="unheard of")]).undefined == "unheard of"


def test_a_ratio_has_no_value_where_its_denominator_is_not_above_zero():
    found = statistics.ratio(fixed(1.0, 1.0, 1.0, 1e300), fixed(4.0, 0.0, -1.0, 1e-300))
    values = found.of(np.ones((4, 1)))
    assert values[0] == 0.25
    assert np.isnan(values[1:]).all()
    assert statistics.ratio(fixed(1.0), fixed(1.0, undefined="unheard of")).undefined == "unheard of"
