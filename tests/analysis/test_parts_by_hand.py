"""Every part that describes, on one study of thirty answers, with its numbers worked out on paper."""

import dataclasses
import math
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest

from analysis.core import verdict_json
from analysis.core.decide import Answer, Fragile, MissingRows, Verdict, _is_drawn
from analysis.core.estimates import Estimate
from analysis.core.study import Study
from analysis.core.verdict_text import number, point, verdict_table, word
from analysis.core.verdicts import Report
from analysis.describe.anchors import against_chance, standard_error
from analysis.describe.description import attention_of
from analysis.describe.scope import Scope
from analysis.describe.two_draws import disagreements, token_f1, words
from kvexp.documents.condition import State, parse
from kvexp.records import Example
from scripts.planting import rows as planting
from tests.analysis import small_tables
from tests.analysis.part_of import (
    accuracy,
    attribution,
    budgets,
    conditions,
    contexts,
    cost,
    disagreement,
    induced,
    per_model,
    questions,
    recomputation,
    signal_panel,
)
from tests.analysis.part_of import in_cells as cells_part
from tests.analysis.part_of import of_anchors as anchors
from tests.analysis.part_of import price as tax
from tests.analysis.part_of import risk_coverage as coverage
from tests.analysis.small_tables import answer, cells, full, plan, table

NAN = math.nan
# Of each example of `words`: the full cache, H2O and two draws of Poisson.
WHOLE, H2O, FIRST, SECOND = (1, 1, 1, 0), (0, 1, 1, 1), (0, 0, 1, 0), (1, 0, 1, 0)
CERTIFICATES = {0.0: (4.0, 3.0, 2.0, 1.0), 1.0: (5.0, 1.5, 1.0, 2.0)}
LOGPROBS = {0.0: (-4.0, -1.0, -2.0, -3.0), 1.0: (-1.0, -2.0, -1.0, -2.0)}
TEXTS = {0.0: ("red cat", "blue", "one", ""), 1.0: ("red dog", "green", "the one", "x")}
# Tokens of H2O and of both draws, and the seconds of the batch that they share.
TOKENS = {"h2o": (1, 4, 2, 4), 0.0: (3, 4, 1, 2), 1.0: (2, 4, 3, 2)}
BATCH = (6.0, 8.0, 9.0, 2.0)
KEPT = {0.0: (20.0, 60.0, 25.0, 50.0), 1.0: (30.0, 40.0, 25.0, 50.0)}
SIZE = (100, 200, 100, 200)


def of_words(arm, scores, seed=NAN):
    which = "h2o" if arm == "h2o" else seed
    for at, score in enumerate(scores):
        told = {
            "seed": seed,
            "n_generated": TOKENS[which][at],
            "decode_seconds": BATCH[at],
            "decode_arms": 3,
            "plan_seconds": 0.5 + at,
            "prefill_seconds": 4.0,
            "n_evictable": SIZE[at],
            "expected_kept": SIZE[at] / 4,
            "realised_kept": SIZE[at] / 4,
            "output_logprob": -float(at),
        }
        if arm == "poisson":
            told["certificate"] = CERTIFICATES[seed][at]
            told["output_logprob"] = LOGPROBS[seed][at]
            told |= {
                "text": TEXTS[seed][at],
                "realised_kept": KEPT[seed][at],
                "tail_kept": (9.0, 23.0)[at % 2],
            }
        yield answer(f"w{at}", score, arm=arm, **told)


# Tokens of the context after and before the cut, whether there was one, and whether an answer survives it.
CUTS = [(100, 400, True, True), (200, 400, True, False), (300, 300, False, True), (500, 1000, True, None)]


def of_full():
    for at, (score, cut) in enumerate(zip(WHOLE, CUTS, strict=True)):
        sizes = {"n_context": cut[0]}
        seconds = {"decode_seconds": at + 1.0, "decode_arms": 1, "n_generated": (2, 2, 2, 4)[at]}
        yield full(f"w{at}", score, **sizes, **seconds, output_logprob=-1.0, n_evictable=SIZE[at])


@pytest.fixture(scope="module")
def study():
    needles = [
        row
        for at, (certificate, score) in enumerate([(1.0, 1), (3.0, 0), (2.0, 1), (2.0, 0)])
        for row in (
            full(f"n{at}", 1, task="needles", output_logprob=0.0),
            answer(f"n{at}", score, task="needles", seed=0.0, certificate=certificate, output_logprob=0.0),
        )
    ]
    rows = table(
        *of_full(),
        *of_words("h2o", H2O),
        *of_words("poisson", FIRST, 0.0),
        *of_words("poisson", SECOND, 1.0),
        *needles,
        *(full(f"w{at}", score, suite="bare") for at, score in enumerate((1, 0, 0, 0))),
    )
    none = cells({}).iloc[:0]
    nothing = none.assign(suite=none["suite"].cat.remove_unused_categories())
    return Study("made", rows, nothing, nothing.assign(change=""), {}, ())


@pytest.fixture(scope="module")
def registered(registrations):
    content = registrations[0].content
    details = msgspec.structs.replace(
        content.details,
        tasks=["words"],
        arm="poisson",
        signals=["certificate", "output_logprob"],
        control="bare",
    )
    changed = msgspec.structs.replace(
        content,
        suites=["short", "bare"],
        details=details,
        success={"otherwise": 1.0},
        statistics=plan(undefined_resamples_max=1.0),
    )
    return dataclasses.replace(registrations[0], content=changed)


@pytest.fixture(scope="module")
def scope(study, registered):
    return Scope(Report(study, [registered], []))


def lines(part, name, **wanted):
    """The rows of a part's table with these values, numbers without their intervals."""
    (found,) = [made for made in part.tables if made.name == name]
    keys = [column.key for column in found.columns]
    rows = [dict(zip(keys, map(bare, row), strict=True)) for row in found.rows]
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def bare(value):
    return value.value if isinstance(value, Estimate) else value


def shows(row, **expected):
    assert {key: row[key] for key in expected} == pytest.approx(expected, abs=1e-12)


def test_accuracy(scope):
    # Words: 3 of 4, 3 of 4, 3 of 8; needles: 4 of 4, 2 of 4.
    main, needles = (lines(accuracy(scope), "table5", task=task) for task in ("main tasks", "needles"))
    shows(main[0], **{"full": 3 / 4, "h2o.stream.0.25": 3 / 4})
    shows(needles[0], full=1.0)
    (row,) = lines(accuracy(scope), "rates_by_task", task="words", arm="poisson")
    shows(row, accuracy=3 / 8, induced=3 / 6, rescued=0.0)
    (row,) = lines(accuracy(scope), "rates_by_task", task="words", arm="h2o")
    shows(row, accuracy=3 / 4, induced=1 / 3, rescued=1.0)


def test_induced_failures(scope):
    (row,) = lines(induced(scope), "rates", arm="poisson", model="a")
    shows(row, rows=8, budget=0.25, induced=3 / 6, rescued=0.0, net=3 / 8)
    (row,) = lines(induced(scope), "rates", arm="h2o", model="pooled")
    shows(row, rows=4, induced=1 / 3, rescued=1.0, net=0.0)


def test_details(study, registered, details):
    found = details(study, registered)
    rows = {(row.tasks, row.label, row.signal): row for row in found.panel if row.arm == "poisson"}
    # Failures 4, 3, 1 (w3), 1.5, 2 (w3) against successes 2, 5, 1: 2 + 2 + .5 + 1 + 1.5 of 15.
    own = rows["main", "own_failure", "certificate"]
    assert (own.positives, own.pooled.n) == (5, 8)
    assert own.pooled.value == own.stratified.value == pytest.approx(7 / 15, abs=1e-15)
    # Without w3: 2 + 2 + 1 of 9.
    broken = rows["main", "induced_failure", "certificate"]
    assert (broken.positives, broken.pooled.n, broken.pooled.value) == (3, 6, pytest.approx(5 / 9))
    # Among failures 4, 3, 1.5 are the cache's fault, 1 and 2 are not: 2 + 2 + 1 of 6.
    fault = rows["main", "attribution", "certificate"]
    assert (fault.positives, fault.pooled.n, fault.pooled.value) == (3, 5, pytest.approx(5 / 6))
    # Risks of failures 4, 1, 3, 2, 2; of successes 2, 1, 1: 3 + 1 + 3 + 2.5 + 2.5 of 15.
    assert rows["main", "own_failure", "output_logprob"].pooled.value == pytest.approx(12 / 15)
    # With the needles: one place of two tasks, no pair across them. Needles: failures 3, 2; successes 1, 2.
    whole = rows["all", "own_failure", "certificate"]
    assert whole.stratified.value == pytest.approx((7 + 3.5) / (15 + 4))
    # Failures 4 3 1 1.5 2 3 2, successes 2 5 1 1 2: 4 4 1 2 3 4 3 of 35.
    assert whole.pooled.value == pytest.approx(21 / 35)
    assert whole.cell_label.value == 0.5


def test_signal_panel(scope):
    part = signal_panel(scope)
    (row,) = lines(part, "figure2", arm="poisson", signal="certificate")
    shows(row, positives=3, rows=6, pooled=5 / 9, stratified=5 / 9, baseline=0.5)
    pooled, stratified = (
        lines(part, "table3", arm="poisson", failures="own failure")
        or lines(part, "table3", arm="poisson")[:2]
    )
    shows(pooled, positives=7, rows=12, certificate=21 / 35)
    shows(stratified, certificate=10.5 / 19)


def test_per_model_cells_and_conditions(scope):
    (row, pooled) = lines(per_model(scope), "table2")
    for one in (row, pooled):
        # A cell is above .5 if its AUC, 7 / 15, is.
        shows(one, **{"auc.short": 7 / 15, "cells_above.short": 0, "cells.short": 1})
    by_task = {row["task"]: row for row in lines(cells_part(scope), "cells", condition="all")}
    shows(by_task["words"], failures=5, successes=3, auc=7 / 15)
    shows(by_task["needles"], failures=2, successes=2, auc=3.5 / 4)
    (row,) = lines(cells_part(scope), "cells.summary", by="model x task")
    shows(row, cells=1, one_class=0, with_auc=1, mean=7 / 15, lowest=7 / 15, highest=7 / 15, above=0)
    shown = {(row["label"], row["signal"]): row["auc"] for row in lines(conditions(scope), "conditions")}
    expected = {
        ("own_failure", "certificate"): 7 / 15,
        ("own_failure", "output_logprob"): 12 / 15,
        ("induced_failure", "certificate"): 5 / 9,
        # Risks 4, 1, 2 against 2, 1, 1: 3 + 1 + 2.5.
        ("induced_failure", "output_logprob"): 6.5 / 9,
        ("attribution", "certificate"): 5 / 6,
        # Risks 4, 1, 2 against 3, 2: 2 + 0 + .5.
        ("attribution", "output_logprob"): 2.5 / 6,
    }
    assert shown == pytest.approx(expected)


def test_anchors(scope):
    (row,) = lines(anchors(scope), "anchors.signals", signal="certificate")
    # AUC 7/8 of 2 and 2: q1 = 7/9, q2 = 49/60, square 49/64.
    error = math.sqrt((7 / 64 + (7 / 9 - 49 / 64) + (49 / 60 - 49 / 64)) / 4)
    shows(row, failures=2, successes=2, auc=7 / 8, median_failures=2.5, median_successes=1.5)
    shows(row, error=error, z=0.375 / error, p=math.erfc(0.375 / error / math.sqrt(2)))
    assert {row["arm"]: row["success"] for row in lines(anchors(scope), "anchors.success")} == {
        "full": 1.0,
        "poisson": 0.5,
    }


def test_hanley_and_mcneil_by_hand():
    # .75: q1 = .6, q2 = 1.125 / 1.75.
    spread = 0.1875 + 3 * (0.6 - 0.5625) + 1 * (1.125 / 1.75 - 0.5625)
    assert standard_error(0.75, 4, 2) == pytest.approx(math.sqrt(spread / 8), abs=1e-15)
    found = against_chance(0.25, 2, 4)
    assert found.z == pytest.approx(-0.25 / found.error)
    assert found.p == pytest.approx(math.erfc(0.25 / found.error / math.sqrt(2)))
    assert (against_chance(1.0, 3, 4).z, against_chance(1.0, 3, 4).error) == (None, 0.0)


def test_tax(scope):
    (row,) = lines(tax(scope), "tax", model="pooled")
    shows(row, success=3 / 4, randomised=3 / 8, tax=3 / 8)
    assert row["arm"] == "h2o"
    (row,) = lines(tax(scope), "tax.cells")
    shows(row, tax=3 / 8)


def made_of(study, registered, *rows):
    """The same study with other answers."""
    return Scope(Report(dataclasses.replace(study, table=table(*rows)), [registered], []))


def test_what_is_paired_stands_in_one_place_of_one_model(study, registered):
    def arm(name, model, condition, *scores):
        return [
            answer(f"w{at}", score, arm=name, model=model, condition=condition, certificate=float(at))
            for at, score in enumerate(scores)
        ]

    small = made_of(
        study,
        registered,
        *arm("topk", "a", "aware", 1, 1),
        *arm("poisson", "a", "aware", 1, 0),
        *arm("poisson", "a", "stream", 0, 0),
        *arm("topk", "b", "aware", 0, 1),
        *arm("poisson", "b", "aware", 1, 1),
        *arm("poisson", "b", "stream", 1, 0),
    )
    taxes = {row["model"]: row["tax"] for row in lines(tax(small), "tax")}
    # Of the stream condition there is no other arm. Together 3/4 and 3/4.
    assert taxes == {"a": 0.5, "b": -0.5, "pooled": 0.0}
    assert {row["model"]: row["tax"] for row in lines(tax(small), "tax.cells")} == {"a": 0.5, "b": -0.5}
    by_place = {
        (row["model"], row["condition"]): (row["failures"], row["successes"], row["auc"])
        for row in lines(cells_part(small), "cells")
    }
    assert by_place == {
        ("a", "aware"): (1, 1, 1.0),
        ("a", "stream"): (2, 0, None),
        ("a", "all"): (3, 1, (1 + 0.5 + 1) / 3),
        ("b", "aware"): (0, 2, None),
        ("b", "stream"): (1, 1, 1.0),
        ("b", "all"): (1, 3, (1 + 0.5 + 1) / 3),
    }
    coarse, fine = lines(cells_part(small), "cells.summary")
    shows(coarse, cells=2, one_class=0, with_auc=2, mean=2.5 / 3, above=2)
    shows(fine, cells=4, one_class=2, with_auc=2, lowest=1.0, highest=1.0, above=2)
    by_model = {row["model"]: row for row in lines(per_model(small), "table2")}
    shows(by_model["a"], **{"auc.short": 2.5 / 3, "stratified.short": 1.0, "cells.short": 1})
    # Risks 0 a S, 1 a F, 0 1 a F F; 0 1 b S S, 0 b S, 1 b F: of 4 failures and 4 successes.
    shows(by_model["pooled"], **{"auc.short": (3.5 + 1.5 + 3.5 + 3.5) / 16, "cells_above.short": 2})


def test_cost(words_alone):
    (whole,) = lines(cost(words_alone), "cost", model="a", arm="full")
    # 1/2, 2/2, 3/2, 4/4 seconds a token.
    shows(whole, rows=4, seconds_per_token=1.0, ratio_to_full=1.0, tokens_mean=2.5, tokens_median=2.0)
    (row,) = lines(cost(words_alone), "cost", model="pooled", arm="h2o")
    # The longest answers of the batches have 3, 4, 3, 4 tokens: 2, 2, 3 and .5 seconds a step.
    shows(row, rows=4, seconds_per_token=2.0, ratio_to_full=2.0, arms_in_batch=3, plan_seconds=2.0)
    # 6, 12, 6, 8 tokens in 6, 8, 9, 2 seconds.
    shows(row, tokens_per_second=(1.0 + 1.5) / 2, prefill_seconds=4.0, tokens_mean=11 / 4, tokens_median=3.0)


def test_budgets(scope):
    (row,) = lines(budgets(scope), "budgets", arm="h2o")
    shows(row, rows=4, evictable=150.0, expected=37.5, realised=37.5, expected_share=0.25, ratio_mean=1.0)


@pytest.fixture(scope="module")
def words_alone(study, registered):
    rows = study.table[study.table["task"] == "words"].reset_index(drop=True)
    rows = small_tables.table(*rows.drop(columns=["full_at", "shard_id"]).to_dict("records"))
    return Scope(Report(dataclasses.replace(study, table=rows), [registered], []))


def test_budgets_of_a_draw(words_alone):
    (row,) = lines(budgets(words_alone), "budgets", arm="poisson")
    # Kept over expected: .8 1.2 1 1 1.2 .8 1 1; minus it: -5 10 0 0 5 -10 0 0; by chance 9 and 23.
    shows(row, rows=8, realised=37.5, ratio_mean=1.0, ratio_min=0.8, ratio_max=1.2)
    shows(row, difference_sd=math.sqrt(250 / 8), head_sd_bound=4.0, tail_kept=16.0)
    shows(row, realised_share=(0.2 + 0.3 + 0.25 + 0.25 + 0.3 + 0.2 + 0.25 + 0.25) / 8, expected_share=0.25)


def test_contexts(study, registered, tmp_path):
    (tmp_path / "examples").mkdir()
    (suite,) = set(study.table["suite"]) - {"bare"}
    place = {"suite": suite, "model": "a", "task": "words"}
    every = [
        Example(
            **place,
            example_id=f"w{at}",
            question="?",
            references=["x"],
            segments={},
            needle_depths=[],
            needle_tokens=[],
            n_context_full=before,
            n_context=after,
            n_prompt=after + 9,
            truncated=is_cut,
            answer_survives=survives,
            difference="",
        )
        for at, (after, before, is_cut, survives) in enumerate(CUTS)
    ]
    (tmp_path / "examples" / f"{suite}.a.words.jsonl").write_bytes(planting.lines(every))
    whole = {f"w{at}": cut[0] for at, cut in enumerate(CUTS)}
    after = [whole.get(name, 1.0) for name in study.table["example_id"]]
    told = dataclasses.replace(study, table=study.table.assign(n_context=after), folder=tmp_path)
    (row,) = lines(contexts(Scope(Report(told, [registered], []))), "contexts", task="words", model="a")
    # Before 400 400 300 1000, after 100 200 300 500: shares 1/4, 1/2, 1, 1/2.
    shows(row, examples=4, before=400.0, before_max=1000.0, after=250.0, after_max=500.0)
    # One answer did not stand in the whole context: two of three survive.
    shows(row, kept=0.5, truncated=3 / 4, survives=2 / 3)


def test_coverage(scope):
    # By certificate, lowest first: 1 F, 1 S, 1.5 F, 2 S, 2 F, 3 F, 4 F, 5 S; 30 % are 2.4 answers.
    certificate, logprob = lines(coverage(scope), "coverage")
    assert (certificate["signal"], logprob["signal"]) == ("certificate", "output_logprob")
    shows(certificate, rows=8, error_30=1.4 / 2.4, error_100=5 / 8, gain_30=1.4 / 2.4 - 5 / 8)
    # Risks 1 F, 1 S, 1 S, 2 S, 2 F, 2 F, 3 F, 4 F: a third of 2.4 fails.
    shows(logprob, error_30=1 / 3, gain_30=1 / 3 - 5 / 8, versus_30=1.4 / 2.4 - 1 / 3)
    # Ties share: 1/2, 2/4, 2/3, 2.5/4, 3/5, 4/6, 5/7, 5/8 of failures among the first k.
    area = (1 / 2 + 1 / 2 + 2 / 3 + 2.5 / 4 + 3 / 5 + 4 / 6 + 5 / 7 + 5 / 8) / 8
    shows(certificate, area=area)
    curve = {
        row["coverage"]: row["error"]
        for row in lines(coverage(scope), "coverage.curve", signal="certificate")
    }
    assert curve[0.25] == pytest.approx(1 / 2)
    assert curve[0.3] == pytest.approx(1.4 / 2.4)
    assert curve[0.05] == pytest.approx(1 / 2)
    assert curve[1.0] == pytest.approx(5 / 8)


# After the fact --------------------------------------------------------------------------------------


def test_attribution(scope):
    part = attribution(scope)
    (row,) = lines(part, "attribution", arm="poisson", signal="certificate")
    shows(row, failures=5, induced=3, auc=5 / 6)
    # Two draws. Failures: w0 (partner right), w1, w1 (both wrong), w3, w3 (both wrong).
    (row,) = lines(part, "attribution.two-draws", label="attribution", signal="partner_success")
    shows(row, rows=5, positives=3, auc=(2 * 1 + 2 * 0.5 + 2 * 0.5) / 6)
    (row,) = lines(part, "attribution.two-draws", label="induced_failure", signal="score_gap")
    # Gaps of failures 1, 0, 0, of successes 0 (w2), 1 (w0), 0 (w2).
    shows(row, rows=6, positives=3, auc=(2.5 + 1 + 1) / 9)
    (row,) = lines(part, "attribution.two-draws", label="induced_failure", signal="disagreement")
    # Texts differ by 1/2 (w0), 1 (w1), 0 (w2): failures .5, 1, 1 against .5, 0, 0.
    shows(row, auc=(2.5 + 3 + 3) / 9)
    (row,) = lines(part, "attribution.two-draws", label="induced_failure", signal="partner_success")
    # A success reassures: failures -1, 0, 0 against 0 (w0: its partner fails), -1, -1.
    shows(row, auc=(0 + 0.5 + 0.5 + 2.5 + 2.5) / 9)


def test_disagreement(scope):
    part = disagreement(scope)
    (row,) = lines(part, "recomputation.two-draws", seed="0", fires_on="success")
    # Only w0 differs: the first draw fails there, the full cache does not. Its certificate is the highest.
    shows(row, rows=4, fires=1 / 4, base=1 / 4, full=3 / 4, random=3 / 8, gated=2 / 4)
    shows(row, certificate=2 / 4, difference=0.0)
    (row,) = lines(part, "recomputation.two-draws", seed="1", fires_on="text")
    # w0, w1, w3 differ: 1 1 1 0. By certificate w0, w3, w1 move: the same.
    shows(row, fires=3 / 4, base=2 / 4, full=3 / 4, random=(2 + 3 * 3) / 16, gated=3 / 4, certificate=3 / 4)
    (row,) = lines(part, "recomputation.two-draws", seed="mean", fires_on="success")
    # The second draw is right on w0 anyway: 2/4 before and after, by either gate.
    shows(row, base=3 / 8, gated=2 / 4, random=(3 / 8 + (3 * 2 + 3) / 16) / 2, certificate=2 / 4)


def test_recomputation(scope):
    part = recomputation(scope)
    first, second, mean = lines(part, "table4")
    assert (first["seed"], second["seed"], mean["seed"]) == (0, 1, "mean")
    # One of four moves. First draw: w0 by certificate and by log-probability, both gain.
    shows(first, base=1 / 4, full=3 / 4, certificate=2 / 4, logprob=2 / 4, random=3 / 8)
    shows(first, over_random=1 / 8, over_logprob=0.0)
    # Second: w0 by certificate, right before and after; w1 or w3 by log-probability, half a gain.
    shows(second, base=2 / 4, certificate=2 / 4, logprob=2.5 / 4, random=9 / 16)
    shows(second, over_random=-1 / 16, over_logprob=-1 / 8)
    shows(mean, over_random=1 / 32, over_logprob=-1 / 16)
    (half,) = [row for row in lines(part, "table4_rates") if row["rate"] == 0.5]
    # First: w0, w1: 1 1 1 0; second: w0, w3: 1 0 1 0.
    shows(half, certificate=(3 / 4 + 2 / 4) / 2)


def test_questions(scope):
    found = {(row["label"], row["signal"]): row["pooled"] for row in lines(questions(scope), "figure3")}
    assert len(found) == 6
    assert found["own_failure", "certificate"] == pytest.approx(7 / 15)
    assert found["attribution", "output_logprob"] == pytest.approx(2.5 / 6)


def test_words_that_two_answers_share():
    assert words("The cat, a CAT's an hat!") == {"cat": 1, "cats": 1, "hat": 1}
    # Counts: two of a word share two with three of it. 2 * (2 + 1) / (4 + 5).
    assert token_f1(words("x x y z"), words("x x x y w")) == pytest.approx(6 / 9)
    assert token_f1(words("x"), words("y")) == token_f1(words("x"), words("")) == 0.0
    assert token_f1(words("the"), words("")) == 1.0
    pairs = [("a b", "a b"), ("b", "B."), ("red cat", "red dog"), ("x x", "x"), ("", "x")]
    assert disagreements(pairs) == pytest.approx([0.0, 0.0, 0.5, 1 - 2 / 3, 1.0])


def test_the_control(study, registered, details):
    (found,) = details(study, registered).control
    known = next(row for row in found.known if (row.model, row.task) == ("a", "words"))
    # Without context w0 is known; of w0, w1, w2 two need it.
    assert (known.accuracy.value, known.accuracy.n) == (1 / 4, 4)
    assert (known.dependent.value, known.dependent.n) == (pytest.approx(2 / 3), 3)
    arms = {row.arm: row for row in found.induced if row.model is None}
    # Poisson on w0, w1, w2: F F S, S F S; on w1, w2: F S, F S. H2O: F S S; S S.
    for arm, every, dependent, rows in (("poisson", 3 / 6, 2 / 4, 4), ("h2o", 1 / 3, 0.0, 2)):
        row = arms[arm]
        assert (row.every.value, row.dependent.value) == pytest.approx((every, dependent))
        assert (row.dependent.n, row.shift.value) == (rows, pytest.approx(dependent - every))


# Verdicts as pages -----------------------------------------------------------------------------------


def test_numbers_for_machines():
    given = (1 / 3, 123456.7, 1234567.0, -0.0, 1e-9 / 3, 0.5, math.inf, NAN, None)
    assert [verdict_json.rounded(value) for value in given] == [
        *(0.333333, 123457.0, 1234570.0, 0.0, 3.33333e-10, 0.5),
        *(None, None, None),
    ]
    assert str(verdict_json.rounded(-1e-400)) == "0.0"
    found = Estimate(2 / 3, 0.1234567, None, 7, 3, "why", "beside")
    assert verdict_json.estimate(found) == {
        **{"value": 0.666667, "lo": 0.123457, "hi": None, "n": 7, "clusters": 3},
        **{"undefined": "why", "note": "beside"},
    }
    assert verdict_json.dumped({"b": 1, "a": "é"}) == '{\n "a": "é",\n "b": 1\n}\n'


def test_numbers_for_people():
    assert number(Estimate(2.0, n=4)) == "2"
    assert number(Estimate(0.5, 0.25, 0.75, 4, 2)) == "0.500 [0.250, 0.750]"
    assert number(Estimate(None)) == "undefined"
    assert (point(Estimate(0.12345, 0.1, 0.2)), point(Estimate(None)), point(None)) == ("0.123", "-", "-")
    assert [word(truth) for truth in (True, False, None)] == ["true", "false", "unknown"]


def test_the_verdict_table(study, registrations):
    registered = registrations[0]
    kill, support = (getattr(registered.content.claim["R3"], name) for name in ("kill", "support"))
    gain = Estimate(0.25, 0.125, 0.375, 40, 12, note="beside")
    answered = Answer(State.NOT_MET, {"gain": gain}, False, False)
    verdict = Verdict("R3", registered, answered, {}, {}, Fragile(3, 20))
    text = " ".join(" ".join(verdict_table(Report(study, [registered], [verdict]))).split())
    assert "R3 PREVIEW NOT_MET" in text
    assert f"kill: {kill}: false" in text
    assert support is None or "support: " in text
    assert "gain 0.250 [0.125, 0.375] (beside)" in text
    assert "fragile 3/20" in text
    sure = dataclasses.replace(verdict, fragile=Fragile(0, 20))
    assert "fragile" not in " ".join(verdict_table(Report(study, [registered], [sure])))
    missing = tuple(MissingRows("s", f"shard{at}", at + 1, 1000 * (at + 1), "not started") for at in range(6))
    lost = dataclasses.replace(
        verdict, answer=Answer(State.INCOMPLETE, {}, missing=missing, problems=("p", "q"))
    )
    text = "\n".join(verdict_table(Report(study, [registered], [lost])))
    assert "s/shard3: 4 of 4,000 rows missing, not started" in text
    assert "shard4" not in text
    assert "and 11 rows in 2 more shards" in text
    assert "2 of the integrity problems touch its rows" in text


@pytest.mark.parametrize(
    ("kill", "support", "truth", "expected"),
    [
        ("x < 1", None, False, False),
        ("x.lo < 1", None, True, True),
        ("x.hi < 1", None, False, True),
        ("counted < 1", None, False, True),
        ("x < 1", "x.lo > 0", False, True),
        ("x < 1", "x.lo > 0", True, False),  # killed by its value, whatever the support says
        ("x.lo < 1", "x.hi > 0", True, True),
        ("x < 1", "x > 0", False, False),
        ("x.n < 1", "x.n > 0", False, False),
        ("x < 1", "counted > 0", None, True),
    ],
)
def test_what_a_verdict_can_hang_on(kill, support, truth, expected):
    declared = {"x": SimpleNamespace(count=False), "counted": SimpleNamespace(count=True)}
    question = SimpleNamespace(
        kill=parse(kill), support=None if support is None else parse(support), quantities=declared
    )
    assert _is_drawn(question, truth) is expected


@pytest.mark.parametrize(
    ("own", "other", "moves"),
    [
        (State.KILLED, State.SURVIVED, True),
        (State.KILLED, State.KILLED, False),
        (State.INCOMPLETE, State.KILLED, False),
        (State.KILLED, State.INVALID, False),
        (State.NOT_MET, State.SURVIVED, True),
    ],
)
def test_when_a_sensitivity_moves_a_verdict(registrations, own, other, moves):
    verdict = Verdict("R3", registrations[0], Answer(own, {}), {}, {"q": Answer(other, {})})
    assert verdict.moves("q") is moves
    assert Answer(own, {}).is_decided is (own not in (State.INCOMPLETE, State.INVALID))


# Attention -------------------------------------------------------------------------------------------


def test_attention_by_hand(registered):
    from tests import cell_frames

    content = msgspec.structs.replace(registered.content, suites=["attention"], statistics=plan())
    keyed = dataclasses.replace(registered, content=content)
    told = {
        # hajek, certificate, topk, no_offset, uniform, norm, variance, largest, kept, rare
        "hajek": (0.1, 0.2, 0.4, 0.5),
        "certificate": (0.3, 0.2, 0.3, 1.0),
        "topk": (0.5, 0.3, 0.7, 0.9),
        "no_offset": (0.3, 0.4, 0.2, 0.6),
        "uniform": (1.0, 2.0, 3.0, 6.0),
        "norm": (1.0, 2.0, 1.0, 1.0),
        "variance": (0.01, 0.0, 0.04, 0.0),
        "largest": (0.05, 0.0, 0.2, 0.3),
        "kept": (24.0, 24.0, 26.0, 100.0),
        "expected_kept": (25.0, 20.0, 25.0, 30.0),
        "evictable": (100.0,) * 4,
        "rare_attention": (0.0, 1e-3, 0.05, 1.0),
        "layer": (0, 0, 0, 1),
        "covered": (1.0, 1.0, 0.0, 1.0),
        "offset": (0,) * 4,
    }
    rows = cells(*({name: values[at] for name, values in told.items()} for at in range(4)))
    (told,) = attention_of(cell_frames.study(rows), [keyed])
    found = SimpleNamespace(**told.numbers)
    (row,) = found.budgets
    assert row.coverage.value == 3 / 4
    assert row.hajek.value == pytest.approx(0.3)
    assert row.ratio.value == pytest.approx(0.3 / 0.3)
    # Medians .35 without the offset, .6 of top-k: (.35 - .3) / (.6 - .3).
    assert row.lost.value == pytest.approx(0.05 / 0.3)
    assert row.spent == pytest.approx((1 + 0.8 + 1 + 1.2) / 4)
    assert row.silent == 1 / 4  # the second; the fourth evicted nothing
    # Ranks 1 2 3 4 against 2.5 1 2.5 4: 3 / sqrt(5 * 4.5).
    assert row.spearman.value == pytest.approx(3 / math.sqrt(5 * 4.5))
    # Layer 0 alone: 1 2 3 against 2.5 1 2.5 is 0; layer 1 has one cell.
    assert (row.within.median, row.within.groups, row.within.undefined) == (pytest.approx(0.0), 2, 1)
    spread = {one.estimator: one for one in found.errors}["uniform"]
    assert (spread.q25, spread.q50, spread.q75) == pytest.approx((1.75, 2.5, 3.75))
    assert (spread.q05, spread.q95) == pytest.approx((1.15, 5.55))
    shares = {one.delta: (one.coverage.value, one.without_b.value) for one in found.calibration}
    # delta .5, log 2 = .693: roots .118, 0, .235, 0; errors .1, .4, .4, .5; with b .152, 0, .374, .208.
    assert shares[0.5] == (1 / 4, 1 / 4)
    # delta .1, log 10 = 2.303: roots .215, 0, .429, 0; with b .330, 0, .890, .691.
    assert shares[0.1] == (3 / 4, 2 / 4)
    bins = {one.low: (one.high, one.cells, one.coverage.value) for one in found.rare if one.cells}
    assert bins == {0.0: (1e-6, 1, 1.0), 1e-3: (1e-2, 1, 1.0), 1e-2: (0.1, 1, 0.0), 0.1: (1.0, 1, 1.0)}
    assert [(one.layer, one.coverage.value) for one in found.layers] == [(0, pytest.approx(2 / 3)), (1, 1.0)]
    assert found.layers[0].certificate.value == 0.3
    (heads,) = found.heads
    assert (heads.heads, heads.below_line, heads.below_promise) == (2, 1, 1)
    assert [(one.layer, one.cells, one.hajek) for one in heads.least] == [(0, 3, 0.2), (1, 1, 0.5)]
    (whole,) = [one for one in found.deployed if one.stride == 1]
    assert (whole.steps, whole.queries) == (1, 1)
    assert whole.certificate == pytest.approx((0.3 + 0.2 + 0.3 + 1.0) / 4)


def test_the_demonstration_by_hand(registered):
    from analysis.describe.attention.worlds import demonstrations

    topk = {0: (0.5, 0.2), 1: (1.0, 0.1), 2: (0.25, 0.4)}
    rows = [
        {
            "example_id": "p0",
            "head": head,
            "world": world,
            "change": "permutation",
            "topk": error,
            "hajek": error / 2,
            "certificate": 0.2,
            "statistics": "same",
        }
        for world, errors in topk.items()
        for head, error in enumerate(errors)
    ]
    (found,) = demonstrations(small_tables.cell_data(cells(*rows)))
    assert (found.changed, found.prompts, found.cells, found.identical, found.compared) == (2, 1, 2, 1, 1)
    assert (found.smallest, found.largest) == (0.1, 1.0)
    # Spans 1 / .25 and .4 / .1; rises 1 / .5 and .4 / .2; means .625 / .5 and .25 / .2.
    assert (found.median_span, found.largest_span, found.without_span) == (4.0, 4.0, 0)
    assert (found.median_rise, found.largest_rise, found.median_mean_rise) == (2.0, 2.0, 1.25)
    # Errors .25 .1; .5 .05; .125 .2 against .2.
    assert [one.coverage.value for one in found.worlds] == [0.5, 0.5, 1.0]
    assert [one.exceeds for one in found.worlds] == [True, False, True]
    assert np.allclose([one.topk for one in found.worlds], [0.35, 0.55, 0.325])
