"""The descriptive numbers against a second way to compute them, straight from the planted rows."""

import itertools

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from analysis.core.study import load
from tests import planted
from tests.planted import SHORT, World


@pytest.fixture(scope="module")
def told(tmp_path_factory, registrations, owners, details):
    """The details of the first suite, and the planted answers by key."""
    grid = planted.plan(examples=12)
    world = World(
        induced=lambda row: 0.6 if row.condition == "stream" else 0.2 + (row.budget == 0.25) / 5,
        blame={"certificate": 1.0},
        difficulty={"output_logprob": 0.7},
    )
    answers = {row.key: world(row) for row in grid}
    folder = planted.write(tmp_path_factory.mktemp("told") / "embedded", grid, world)
    return details(load(folder, owners), registrations[0]), answers


def full_of(answers, key):
    return answers[key._replace(arm="full", condition=None, budget=None, seed=None)]["success"]


def chosen(answers, label, arm="poisson", tasks=("words", "facts")):
    """Keys that a label counts, and which are positive."""
    keys = [k for k in answers if k.suite == SHORT and k.arm == arm and k.task in tasks]
    if label == "induced_failure":
        keys = [k for k in keys if full_of(answers, k)]
        return keys, [not answers[k]["success"] for k in keys]
    if label == "attribution":
        keys = [k for k in keys if not answers[k]["success"]]
        return keys, [full_of(answers, k) for k in keys]
    return keys, [not answers[k]["success"] for k in keys]


def panel_row(details, label, signal):
    (row,) = [
        row
        for row in details.panel
        if (row.suite, row.tasks, row.arm, row.label, row.signal) == (SHORT, "main", "poisson", label, signal)
    ]
    return row


@pytest.mark.parametrize("label", ["own_failure", "induced_failure", "attribution"])
@pytest.mark.parametrize("signal", ["certificate", "output_logprob", "entropy"])
def test_the_panel(told, label, signal):
    details, answers = told
    row = panel_row(details, label, signal)
    keys, positive = chosen(answers, label)
    score = [answers[k][signal] for k in keys]
    assert (row.pooled.n, row.positives) == (len(keys), sum(positive))
    assert row.pooled.value == pytest.approx(roc_auc_score(positive, score), abs=1e-12)
    assert row.pooled.lo < row.pooled.value < row.pooled.hi

    won, pairs = 0.0, 0
    strata = {}
    for key, label_, value in zip(keys, positive, score, strict=True):
        strata.setdefault((key.model, key.task, key.condition, key.budget), []).append((label_, value))
    for members in strata.values():
        labels, values = zip(*members, strict=True)
        size = sum(labels) * (len(labels) - sum(labels))
        won += size * roc_auc_score(labels, values) if size else 0.0
        pairs += size
    assert row.stratified.value == pytest.approx(won / pairs, abs=1e-12)

    cells = [2 * (k.condition == "stream") - k.budget for k in keys]
    assert row.cell_label.value == pytest.approx(roc_auc_score(positive, cells), abs=1e-12)


def test_accuracy_induced_failures_and_rescues_by_cell(told):
    details, answers = told
    labels = ("accuracy", "induced", "rescued")
    labelled = [(label, rate) for label in labels for rate in getattr(details, label)]
    for label, rate in labelled:
        tasks = ("words", "facts") if rate.task is None else (rate.task,)
        keys = [
            k
            for k in answers
            if (k.suite, k.arm, k.condition, k.budget) == (rate.suite, rate.arm, rate.condition, rate.budget)
            and k.task in tasks
            and label in ("accuracy", "induced" if full_of(answers, k) else "rescued")
        ]
        hits = [answers[k]["success"] is (label != "induced") for k in keys]
        assert rate.estimate.n == len(keys)
        assert rate.estimate.value == pytest.approx(np.mean(hits), abs=1e-12)
    cells = {(r.arm, r.condition, r.budget, r.task) for r in details.accuracy}
    arms = {(k.arm, k.condition, k.budget) for k in answers if k.suite == SHORT}
    tasks = ("passcodes", "words", "facts", None)
    assert cells == {(*arm, task) for arm, task in itertools.product(arms, tasks)}


def test_details_of_missing_rows_are_left_out(whole, registrations, owners, details):
    (whole / SHORT / f"{SHORT}.smollm2-135m.words.000" / "footer.json").unlink()
    found = details(load(whole, owners), registrations[0])
    assert all(row.pooled.value is None for row in found.panel)
    known = {rate.task for rate in found.accuracy if rate.estimate.value is not None}
    assert known == {"passcodes", "facts"}


def test_a_missing_full_row_leaves_out_what_needs_it(whole, registrations, owners, details):
    log = whole / SHORT / f"{SHORT}.smollm2-135m.words.000" / "generations.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    gone = next(line for line in lines if b'"arm":"full"' in line)
    log.write_bytes(b"".join(line for line in lines if line is not gone))
    planted.close(log.parent)
    found = details(load(whole, owners), registrations[0])
    known = {rate.task for rate in found.induced if rate.estimate.value is not None}
    assert known == {"passcodes", "facts"}
    unknown = {(r.arm, r.task) for r in found.accuracy if r.estimate.value is None}
    assert unknown == {("full", "words"), ("full", None)}
    defined = {row.label for row in found.panel if row.pooled.value is not None}
    assert defined == {"own_failure"}
