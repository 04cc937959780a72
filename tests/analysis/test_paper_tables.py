"""The paper's tables by name, against loops over the planted answers, scikit-learn and the details."""

import csv
import io
import itertools
import shutil
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from analysis.core import decide as claims
from analysis.core.decide import decide
from analysis.core.estimates import Estimate, Statistic, multiplicities
from analysis.core.study import load
from analysis.core.verdicts import Report
from analysis.describe import parts as pictures
from analysis.describe import verdicts as of_claims
from analysis.describe.description import details_of
from analysis.describe.parts import Picture
from analysis.describe.recomputation import NUMBERS
from analysis.describe.scope import NO_FULL, NO_ROWS, Scope, remembered
from analysis.render.csv import to_csv
from analysis.render.markdown import to_markdown
from kvexp.documents.registration import load_folder
from tests import planted
from tests.analysis.part_of import (
    accuracy,
    induced,
    maker,
    per_model,
    questions,
    recomputation,
    signal_panel,
)
from tests.planted import LONG, SHORT, World

verdicts = maker(of_claims, "verdicts")
MODELS = ("big", "small")
MAIN = ("facts", "words")
DRAWS = 20
BUILDERS = (induced, accuracy, per_model, signal_panel, questions, recomputation)


def unsteady(row):
    """Every rate differs by arm, budget, draw and model; both signals of the gate have ties."""
    world = World(
        full=0.8 if row.model == "big" else 0.6,
        rescued=0.2,
        induced=lambda row: (
            (0.6 if row.condition == "stream" else 0.2) * (1.3 - row.budget) + 0.1 * (row.seed or 0)
        ),
        blame={"certificate": 1.0, "evicted_mass": 0.6},
        difficulty={"output_logprob": 0.8},
    )
    answer = world(row)
    return answer | {name: round(answer[name], 0) for name in ("certificate", "output_logprob")}


@pytest.fixture(scope="module", autouse=True)
def undrawn():
    """Nothing is drawn here; test_paper_figures.py does it."""

    def blank(name, title, words, draw):
        return Picture(name, title, words[0], "<svg/>", more=words[1])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pictures, "picture", blank)
        yield


@pytest.fixture(scope="module")
def registered(quick):
    return load_folder(quick, claims.CLAIMS)


@pytest.fixture(scope="module")
def answers():
    return {row.key: unsteady(row) for row in planted.plan(models=MODELS, examples=12)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    grid = planted.plan(models=MODELS, examples=12)
    return planted.write(tmp_path_factory.mktemp("tables") / "embedded", grid, unsteady)


@pytest.fixture(scope="module")
def described(folder, registered, owners):
    """All tables by name, and the scope they were made of."""
    return tables_of(Scope(Report(load(folder, owners), registered, [])))


def tables_of(scope):
    parts = [part for build in BUILDERS if (part := build(scope))]
    return {table.name: table for part in parts for table in part.tables}, scope


def lines(table, **place):
    """Rows as dictionaries, those of a place alone."""
    keys = [column.key for column in table.columns]
    rows = [dict(zip(keys, row, strict=True)) for row in table.rows]
    return [row for row in rows if all(row[key] == value for key, value in place.items())]


def line(table, **place):
    (row,) = lines(table, **place)
    return row


def close(value):
    return pytest.approx(value, abs=1e-12)


def full_of(answers, key):
    return answers[key._replace(arm="full", condition=None, budget=None, seed=None)]["success"]


def keys_of(answers, suites, arm, tasks=MAIN, **place):
    return [
        key
        for key in answers
        if key.suite in suites and key.arm == arm and key.task in tasks
        if all(getattr(key, name) == value for name, value in place.items())
    ]


def labelled(answers, keys, label):
    """The keys that a label counts, and which of them are positive."""
    if label == "induced_failure":
        keys = [key for key in keys if full_of(answers, key)]
    if label == "attribution":
        keys = [key for key in keys if not answers[key]["success"]]
        return keys, [full_of(answers, key) for key in keys]
    return keys, [not answers[key]["success"] for key in keys]


def auc(answers, keys, label, signal):
    keys, positive = labelled(answers, keys, label)
    return roc_auc_score(positive, [answers[key][signal] for key in keys])


def stratified(answers, keys, label, signal):
    """Mean of the AUCs within suite, model, task, condition and budget, by their pairs."""
    strata = {}
    for key in keys:
        strata.setdefault((key.suite, key.model, key.task, key.condition, key.budget), []).append(key)
    won, pairs = 0.0, 0
    for here in strata.values():
        _, positive = labelled(answers, here, label)
        size = sum(positive) * (len(positive) - sum(positive))
        won += size * auc(answers, here, label, signal) if size else 0.0
        pairs += size
    return won / pairs


def decided(study, registered):
    """A report without the bootstrap of other seeds, which takes most of its time."""
    return Report(study, registered, [verdict for one in registered for verdict in decide(study, one)])


# Table 1 --------------------------------------------------------------------------------------------


def test_table_1_says_what_the_report_says(whole, registered, owners):
    report = decided(load(whole, owners), registered)
    part = verdicts(Scope(report))
    table, numbers = part.tables
    assert table.name == "table1"
    assert table.title.endswith("of study embedded, UNWITNESSED")
    for verdict in report.verdicts:
        row, claim = line(table, claim=verdict.claim_id), verdict.registered.content.claim[verdict.claim_id]
        assert (row["statement"], row["kill"], row["condition"]) == (
            claim.statement,
            claim.kill_prose,
            claim.kill,
        )
        assert row["verdict"] == report.word(verdict) == f"PREVIEW {verdict.answer.state.value}"
        assert row["label"] == report.label(verdict)
        found = lines(numbers, claim=verdict.claim_id)
        assert {one["quantity"]: one["value"] for one in found} == dict(verdict.answer.quantities)
    later = {row["claim"] for row in lines(table) if "addendum to R" in row["remarks"]}
    assert later == {"S1", "S2", "S3"}
    text = to_markdown(table)
    assert "no verdict reads them" not in text
    assert "registration R is not sealed" in text


def test_table_1_of_an_unfinished_study_has_no_numbers_and_says_what_to_run(whole, registered, owners):
    shutil.rmtree(whole / LONG / f"{LONG}.smollm2-135m.words.000")
    report = decided(load(whole, owners), registered)
    table, numbers = verdicts(Scope(report)).tables
    row = line(table, claim="S2")
    assert (row["verdict"], row["observed"]) == ("PREVIEW INCOMPLETE", "")
    assert row["remarks"] == (
        "addendum to R; 144 rows missing, of 144 in 1 unfinished shards; "
        f"run: kvexp submit study=embedded suite={LONG}"
    )
    assert not lines(numbers, claim="S2")
    assert lines(numbers, claim="R1")


# Tables 2 and 3, figures 2 and 3 --------------------------------------------------------------------


@pytest.mark.parametrize("suite", [SHORT, LONG])
def test_table_2_by_model_and_its_cells(described, answers, suite):
    table = described[0]["table2"]
    above, of = 0, 0
    for model in MODELS:
        row, keys = line(table, model=model), keys_of(answers, [suite], "poisson", model=model)
        assert row[f"auc.{suite}"].value == close(auc(answers, keys, "own_failure", "certificate"))
        assert row[f"stratified.{suite}"].value == close(
            stratified(answers, keys, "own_failure", "certificate")
        )
        label = [2 * (key.condition == "stream") - key.budget for key in keys]
        failed = [not answers[key]["success"] for key in keys]
        assert row[f"baseline.{suite}"].value == close(roc_auc_score(failed, label))
        cells = []
        for task, condition in itertools.product(MAIN, ("aware", "stream")):
            here = [key for key in keys if (key.task, key.condition) == (task, condition)]
            if 0 < sum(labelled(answers, here, "own_failure")[1]) < len(here):
                cells.append(auc(answers, here, "own_failure", "certificate"))
        counts = [row[f"{name}.{suite}"].value for name in ("cells_above", "cells")]
        assert counts == [sum(c > 0.5 for c in cells), len(cells)]
        above, of = above + counts[0], of + counts[1]
    pooled = line(table, model="pooled")
    every = keys_of(answers, [suite], "poisson")
    assert pooled[f"auc.{suite}"].value == close(auc(answers, every, "own_failure", "certificate"))
    assert [pooled[f"{name}.{suite}"].value for name in ("cells_above", "cells")] == [above, of]


@pytest.mark.parametrize(("words", "label"), [("own", "own_failure"), ("induced", "induced_failure")])
@pytest.mark.parametrize("arm", ["h2o", "poisson"])
def test_table_3_is_about_the_whole_suite(described, answers, words, label, arm):
    table = described[0]["table3"]
    keys = keys_of(answers, [SHORT], arm, tasks=(*MAIN, "passcodes"))
    positive = labelled(answers, keys, label)[1]
    pooled, within = (
        line(table, suite=SHORT, failures=words, arm=arm, pairs=pairs) for pairs in ("pooled", "stratified")
    )
    assert (pooled["positives"], pooled["rows"]) == (sum(positive), len(positive))
    for signal in ("output_logprob", "entropy"):
        assert pooled[signal].value == close(auc(answers, keys, label, signal))
        assert within[signal].value == close(stratified(answers, keys, label, signal))
    if arm == "poisson":
        assert pooled["certificate"].value == close(auc(answers, keys, label, "certificate"))
    else:
        assert (pooled["certificate"].value, pooled["certificate"].undefined) == (None, "")
        text = next(part for part in to_markdown(table).splitlines() if f"own | {arm} | pooled" in part)
        assert " | - | " in text


@pytest.mark.parametrize(("arm", "signal"), [("poisson", "certificate"), ("topk", "entropy")])
def test_figure_2_pools_the_suites(described, answers, arm, signal):
    row = line(described[0]["figure2"], arm=arm, signal=signal)
    keys = keys_of(answers, [SHORT, LONG], arm)
    counted, positive = labelled(answers, keys, "induced_failure")
    assert (row["positives"], row["rows"]) == (sum(positive), len(positive))
    assert row["suites"] == f"{SHORT}, {LONG}"
    assert row["pooled"].value == close(auc(answers, keys, "induced_failure", signal))
    assert row["stratified"].value == close(stratified(answers, keys, "induced_failure", signal))
    label = [2 * (key.condition == "stream") - key.budget for key in counted]
    assert row["baseline"].value == close(roc_auc_score(positive, label))
    assert row["pooled"].clusters == len({(key.task, key.example_id) for key in counted})


@pytest.mark.parametrize("label", ["own_failure", "induced_failure", "attribution"])
@pytest.mark.parametrize("signal", ["certificate", "output_logprob"])
def test_figure_3_asks_three_questions(described, answers, label, signal):
    row = line(described[0]["figure3"], suite=LONG, label=label, signal=signal)
    keys = keys_of(answers, [LONG], "poisson")
    assert row["pooled"].value == close(auc(answers, keys, label, signal))
    assert row["pooled"].lo < row["pooled"].value < row["pooled"].hi


# Table 4 --------------------------------------------------------------------------------------------


def gate(members, q):
    """Accuracy by a slow loop: (danger, own, full) of each query; ties at the cut share what is left."""
    left, total = q * len(members), 0.0
    for danger in sorted({member[0] for member in members}, reverse=True):
        tied = [member for member in members if member[0] == danger]
        share = min(1.0, max(0.0, left / len(tied)))
        left -= len(tied)
        total += sum(share * full + (1 - share) * own for _, own, full in tied)
    return total / len(members)


def queries(answers, suite, budget, draw):
    """Queries of one line of table 4, by the certificate and by log-probability."""
    keys = keys_of(answers, [suite], "poisson", condition="stream", budget=budget, seed=draw)
    return with_signals(answers, keys)


def with_signals(answers, keys):
    return [
        [(answers[key][name], answers[key]["success"], full_of(answers, key)) for key in keys]
        for name in ("certificate", "output_logprob")
    ]


def recomputed(by_certificate, by_logprob, q):
    """The numbers of a line of table 4, of queries with either signal."""
    base, full = (np.mean([query[at] for query in by_certificate]) for at in (1, 2))
    chosen, rival = gate(by_certificate, q), gate(by_logprob, q)
    chance = q * full + (1 - q) * base
    values = (base, full, chosen, rival, chance, chosen - chance, chosen - rival)
    return dict(zip(NUMBERS, values, strict=True))


@pytest.mark.parametrize(("suite", "budget"), [(SHORT, 0.25), (LONG, 0.125), (LONG, 0.5)])
def test_table_4_by_seed_and_their_mean(described, answers, suite, budget):
    table = described[0]["table4"]
    by_seed = [recomputed(*queries(answers, suite, budget, draw), 0.25) for draw in (0, 1)]
    for draw, expected in enumerate(by_seed):
        row = line(table, suite=suite, budget=budget, seed=draw)
        assert {name: row[name].value for name in NUMBERS} == {n: close(v) for n, v in expected.items()}
        assert row["rows"] == 2 * 2 * 12
    mean = line(table, suite=suite, budget=budget, seed="mean")
    assert {name: mean[name].value for name in NUMBERS} == {
        name: close((by_seed[0][name] + by_seed[1][name]) / 2) for name in NUMBERS
    }


@pytest.mark.parametrize("q", [0.1, 0.5, 0.9])
def test_other_rates(described, answers, q):
    row = line(described[0]["table4_rates"], suite=SHORT, budget=0.5, rate=q)
    by_seed = [recomputed(*queries(answers, SHORT, 0.5, draw), q) for draw in (0, 1)]
    for name in NUMBERS:
        assert row[name].value == close((by_seed[0][name] + by_seed[1][name]) / 2)


def test_the_intervals_of_table_4_rank_and_cut_again_in_every_resample(described, answers, registered):
    keys = keys_of(answers, [SHORT], "poisson", condition="stream", budget=0.25, seed=1)
    clusters = sorted({(key.task, key.example_id) for key in keys})
    tasks = np.array([MAIN.index(task) for task, _ in clusters])
    weights = multiplicities(tasks, DRAWS, registered[0].seed("recomputation"))
    drawn = []
    for times in weights.astype(int):
        # Every query stands as often as its example was drawn.
        here = [key for key in keys for _ in range(times[clusters.index((key.task, key.example_id))])]
        drawn.append(recomputed(*with_signals(answers, here), 0.25))
    row = line(described[0]["table4"], suite=SHORT, budget=0.25, seed=1)
    for name in NUMBERS:
        ends = np.quantile([one[name] for one in drawn], [0.025, 0.975])
        assert (row[name].lo, row[name].hi) == (close(ends[0]), close(ends[1])), name


def test_what_is_remembered_is_what_would_be_computed():
    calls = []

    def of(weights):
        calls.append(len(weights))
        return weights.sum(axis=1)

    statistic = remembered(Statistic(of, np.arange(3)))
    weights = np.arange(12.0).reshape(4, 3)[:]  # a part of an array, as the batches of resamples are
    for _ in range(2):
        for start in (0, 2):
            part = weights[start : start + 2]
            assert statistic.of(part).tolist() == part.sum(axis=1).tolist()
    assert calls == [2, 2]
    for value in (1.0, 2.0):
        assert statistic.of(np.full((1, 3), value)).tolist() == [3 * value]  # stands alone


def test_queries_without_a_signal_are_left_out_or_leave_nothing(tmp_path, registered, owners):
    def world(row):
        answer = unsteady(row)
        lost = row.seed == 0 and row.budget == 0.25 and row.example_id.endswith("01")
        return answer | ({"certificate": None} if lost else {})

    grid = planted.plan(examples=12)
    study = load(planted.write(tmp_path / "embedded", grid, world), owners)
    table = recomputation(Scope(Report(study, registered, []))).tables[0]
    lost, kept = (line(table, suite=SHORT, budget=0.25, seed=draw) for draw in (0, 1))
    reason = "certificate and output_logprob undefined in 2 of 24 rows"
    assert {lost[name].undefined for name in NUMBERS} == {reason}
    assert kept["certificate"].value is not None
    content = registered[0].content
    plan = msgspec.structs.replace(content.statistics, undefined_rows_max=0.1)
    lenient = [
        replace(one, content=msgspec.structs.replace(one.content, statistics=plan)) for one in registered
    ]
    table = recomputation(Scope(Report(study, lenient, []))).tables[0]
    row = line(table, suite=SHORT, budget=0.25, seed=0)
    assert {row[name].n for name in NUMBERS} == {22}
    assert row["certificate"].note == "2 rows without certificate and output_logprob left out"


# Table 5 and rates ----------------------------------------------------------------------------------


def test_table_5_is_accuracy_by_task(described, answers):
    table = described[0]["table5"]
    keys = [column.key for column in table.columns][2:]
    assert keys == [
        "full",
        *(
            f"{arm}.{budget}"
            for arm in ("h2o.stream", "topk.aware", "poisson.aware")
            for budget in (0.125, 0.25, 0.5)
        ),
    ]
    for suite, task in itertools.product((SHORT, LONG), (*MAIN, "passcodes")):
        row = line(table, suite=suite, task=task)
        for key in keys[1:]:
            arm, condition, budget = key.split(".", 2)
            place = {"condition": condition, "budget": float(budget)}
            hits = [answers[one]["success"] for one in keys_of(answers, [suite], arm, (task,), **place)]
            assert row[key].value == (close(np.mean(hits)) if hits else None)
            assert row[key].undefined == ""
        assert row["full"].value == close(
            np.mean([answers[one]["success"] for one in keys_of(answers, [suite], "full", (task,))])
        )


@pytest.mark.parametrize("model", [*MODELS, "pooled"])
def test_induced_failures_rescues_and_net(described, answers, model):
    rows = lines(described[0]["rates"], suite=SHORT, model=model)
    assert len(rows) == 2 * 6
    for row in rows:
        place = {"condition": row["condition"], "budget": row["budget"]}
        keys = keys_of(answers, [SHORT], row["arm"], **place)
        keys = [key for key in keys if model in (key.model, "pooled")]
        induced = rescued = answerable = 0
        for key in keys:
            own, full = answers[key]["success"], full_of(answers, key)
            answerable += full
            induced += full and not own
            rescued += own and not full
        assert row["rows"] == len(keys)
        assert row["induced"].value == close(induced / answerable)
        assert row["rescued"].value == close(rescued / (len(keys) - answerable))
        assert row["net"].value == close((induced - rescued) / len(keys))


def test_what_is_pooled_is_what_the_details_say(described):
    tables, scope = described
    for suite in scope.suites:
        for which in ("induced", "rescued"):
            for rate in details_of(scope)[which]:
                if rate.suite == suite.name and rate.task is None:
                    place = {"arm": rate.arm, "condition": rate.condition, "budget": rate.budget}
                    row = line(tables["rates"], suite=suite.name, model="pooled", **place)
                    assert row[which] == rate.estimate


def test_every_table_can_be_written(described):
    assert set(described[0]) == {
        *("table2", "table3", "table4", "table4_rates", "table5"),
        *("figure2", "figure3", "rates", "rates_by_task", "signals"),
    }
    for table in described[0].values():
        rows = list(csv.DictReader(io.StringIO(to_csv(table))))
        assert len(rows) == len(table.rows)
        assert to_markdown(table).count("\n|") == len(table.rows) + 2


def estimates(rows):
    return [value for row in rows for value in row.values() if isinstance(value, Estimate)]


# What is not there ----------------------------------------------------------------------------------


def test_a_missing_model_leaves_the_others_and_takes_what_is_pooled(tmp_path, folder, registered, owners):
    part = shutil.copytree(folder, tmp_path / "embedded")
    (part / SHORT / f"{SHORT}.small.words.000" / "footer.json").unlink()
    tables, _ = tables_of(Scope(Report(load(part, owners), registered, [])))
    for model, known in (("big", True), ("small", False), ("pooled", False)):
        row = line(tables["table2"], model=model)
        assert (row[f"auc.{SHORT}"].undefined == "") is known
        assert (row[f"cells.{SHORT}"].value is not None) is known
        assert row[f"auc.{LONG}"].undefined == ""
        (rate,) = lines(tables["rates"], suite=SHORT, model=model, arm="h2o", budget=0.5)
        assert (rate["net"].undefined == "") is known
    for name in ("table3", "table4", "table4_rates", "figure3"):
        here = lines(tables[name], suite=SHORT)
        assert here
        assert {value.value for value in estimates(here)} == {None}
        assert NO_ROWS in {value.undefined for value in estimates(here)} <= {NO_ROWS, ""}
        assert any(value.value is not None for value in estimates(lines(tables[name], suite=LONG)))
    assert {row["pooled"].undefined for row in lines(tables["figure2"])} == {NO_ROWS}


@pytest.mark.parametrize(
    "arms",
    [
        ("full", "poisson"),
        ("full", "h2o", "streaming_llm"),
        ("h2o", "poisson"),
        ("full",),
    ],
)
def test_a_study_with_some_of_the_arms(tmp_path, registered, owners, arms):
    grid = [row for row in planted.plan(examples=10) if row.arm in arms and row.suite == SHORT]
    study = load(planted.write(tmp_path / "embedded", grid, unsteady), owners)
    tables, _ = tables_of(Scope(Report(study, registered, [])))
    for table in tables.values():
        assert table.rows
        to_csv(table)
        to_markdown(table)
    assert ("table4" in tables) == ("table2" in tables) == ("poisson" in arms)
    if "poisson" in arms and "full" not in arms:
        assert {row["base"].undefined for row in lines(tables["table4"])} == {NO_FULL}
        assert line(tables["table2"], model="pooled")[f"auc.{SHORT}"].value is not None
    if arms == ("full",):
        assert tables == {}
