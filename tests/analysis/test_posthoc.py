"""Post hoc parts: two draws of one question side by side, against loops and other libraries."""

import random
import string
import sys
from collections import Counter, defaultdict

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from analysis import describe
from analysis.core.estimates import Estimate
from analysis.core.verdicts import Report
from analysis.describe.description import details_of, parts_of
from analysis.describe.scope import NO_ROWS, Scope
from analysis.describe.two_draws import UNEVEN, disagreements, draws_of, partners, token_f1, words
from kvexp import scoring
from tests.analysis.part_of import attribution, disagreement
from tests.analysis.test_descriptive import full_of, question, succeeds, table_of, where

MAIN = ("facts", "words")
PIECES = [
    "The",
    "the.",
    "a",
    "an",
    "AN,",
    "theory",
    "it's",
    "x_y",
    "3.5",
    "Ünïcode",
    "«the»",
    "a-b",
    "\u2028",
    "\t",
    "--",
]


# Words --------------------------------------------------------------------------------------------


def answers(count, seed=0):
    luck = random.Random(seed)
    for _ in range(count):
        pieces = luck.choices([*PIECES, *string.punctuation], k=luck.randrange(9))
        yield luck.choice(["", " "]).join(pieces)


def test_words_are_those_of_the_scorer():
    for text in answers(2000):
        assert words(text) == Counter(scoring.normalise(text).split())


def test_token_f1_is_that_of_the_scorer_and_symmetric():
    for one, other in zip(answers(2000, 1), answers(2000, 2), strict=True):
        a, b = words(one), words(other)
        assert token_f1(a, b) == token_f1(b, a)
        if a or b:
            assert token_f1(a, b) == pytest.approx(scoring.token_f1(one, [other]), abs=1e-15)


def test_two_answers_without_words_agree():
    assert disagreements([("", "the"), ("", "x"), ("x", "x"), ("a x", "X!"), ("x y", "y z")]) == [
        0,
        1,
        0,
        0,
        0.5,
    ]


# Partners -----------------------------------------------------------------------------------------


def partner_of(rows):
    """The other seed's row, by identity."""
    by_place = defaultdict(dict)
    for row in rows:
        by_place[(*question(row), row["arm"], row["condition"], row["budget"])][row["seed"]] = row
    return {
        id(row): by_place[(*question(row), row["arm"], row["condition"], row["budget"])][1 - row["seed"]]
        for row in rows
    }


def poisson(rows, suite):
    return [row for row in where(rows, suite=suite, arm="poisson") if row["task"] in MAIN]


def test_partners_answer_the_same_question_with_the_next_seed(varied_study):
    (draws,) = draws_of(varied_study.scope, varied_study.scope.suites[0])
    assert not draws.reason
    rows = draws.rows.reset_index(drop=True)
    other = rows.iloc[partners(rows)].reset_index(drop=True)
    for name in ("model", "task", "example_id", "condition", "budget"):
        assert (rows[name] == other[name]).all()
    assert (rows["seed"] == 1 - other["seed"]).all()


def test_three_seeds_go_round_and_uneven_ones_have_no_partners(varied_study):
    rows = draws_of(varied_study.scope, varied_study.scope.suites[0])[0].rows
    one = rows[(rows["seed"] == 0)].head(4)
    three = one.loc[one.index.repeat(3)].assign(seed=[2.0, 0.0, 1.0] * 4)
    seeds = three["seed"].to_numpy()
    assert (seeds[partners(three)] == (seeds + 1) % 3).all()
    assert partners(three.iloc[1:]) is None
    assert partners(one) is None


# Attribution --------------------------------------------------------------------------------------


def test_proxies_against_sklearn(varied_study):
    rows, full = varied_study.rows, full_of(varied_study.rows)
    shown = table_of(attribution(varied_study.scope), "attribution.two-draws")
    assert {line["signal"] for line in shown} == {
        *("certificate", "output_logprob", "partner_success", "score_gap", "disagreement")
    }
    for line in shown:
        here = poisson(rows, line["suite"])
        other = partner_of(here)
        is_blamed = line["label"] == "attribution"
        here = [row for row in here if (not succeeds(row) if is_blamed else full[question(row)])]
        positive = [full[question(row)] if is_blamed else not succeeds(row) for row in here]
        scores = {
            "partner_success": lambda row: succeeds(other[id(row)]) * (1 if is_blamed else -1),  # noqa: B023
            "score_gap": lambda row: abs(row["score_value"] - other[id(row)]["score_value"]),  # noqa: B023
            "disagreement": lambda row: 1 - agreement(row["text"], other[id(row)]["text"]),  # noqa: B023
            "certificate": lambda row: row["certificate"],
            "output_logprob": lambda row: -row["output_logprob"],
        }
        expected = roc_auc_score(positive, [scores[line["signal"]](row) for row in here])
        assert (line["rows"], line["positives"]) == (len(here), sum(positive))
        assert line["auc"].value == pytest.approx(expected, abs=1e-12)


def agreement(one, other):
    if not scoring.normalise(one) and not scoring.normalise(other):
        return 1.0
    return scoring.token_f1(one, [other])


def test_every_signal_of_every_arm_is_that_of_the_details(varied_study):
    rows, full = varied_study.rows, full_of(varied_study.rows)
    shown = table_of(attribution(varied_study.scope), "attribution")
    assert {line["arm"] for line in shown} == {"h2o", "poisson", "snapkv", "streaming_llm", "topk"}
    for line in shown:
        here = [row for row in where(rows, suite=line["suite"], arm=line["arm"]) if row["task"] in MAIN]
        here = [row for row in here if not succeeds(row)]
        positive = [full[question(row)] for row in here]
        if len(set(positive)) == 1:
            assert "one class only" in line["auc"].undefined
            continue
        sign = -1 if line["signal"] in ("output_logprob", "margin") else 1
        expected = roc_auc_score(positive, [sign * row[line["signal"]] for row in here])
        assert (line["failures"], line["induced"]) == (len(here), sum(positive))
        assert line["auc"].value == pytest.approx(expected, abs=1e-12)
    assert attribution(varied_study.scope).is_posthoc


# Disagreement -------------------------------------------------------------------------------------


def by_certificate(rows, full, share):
    """Accuracy when the share of highest certificates takes the full cache's outcome, ties shared."""
    groups = defaultdict(list)
    for row in rows:
        groups[row["certificate"]].append(row)
    left, right = share * len(rows), 0.0
    for value in sorted(groups, reverse=True):
        here = groups[value]
        part = min(left, len(here)) / len(here)
        left -= part * len(here)
        right += sum(part * full[question(row)] + (1 - part) * succeeds(row) for row in here)
    return right / len(rows)


def test_gates_against_a_walk(varied_study):
    rows, full = varied_study.rows, full_of(varied_study.rows)
    part = disagreement(varied_study.scope)
    assert part.is_posthoc
    shown = table_of(part, "recomputation.two-draws")
    assert len(shown) == 2 * (2 + 3) * 2 * 3
    by_seed = defaultdict(list)
    for line in shown:
        other = partner_of(poisson(rows, line["suite"]))
        here = where(poisson(rows, line["suite"]), condition=line["condition"], budget=float(line["budget"]))
        place = (line["suite"], line["condition"], line["budget"], line["fires_on"])
        if line["seed"] == "mean":
            assert numbers(line) == pytest.approx(np.mean(by_seed[place], axis=0), abs=1e-12)
            continue
        here = where(here, seed=int(line["seed"]))
        apart = {
            "success": lambda row: succeeds(row) != succeeds(other[id(row)]),  # noqa: B023
            "text": lambda row: agreement(row["text"], other[id(row)]["text"]) < 1,  # noqa: B023
        }
        fires = [apart[line["fires_on"]](row) for row in here]
        own, whole = ([f(row) for row in here] for f in (succeeds, lambda row: full[question(row)]))
        share = np.mean(fires)
        gated = np.mean([w if f else o for o, w, f in zip(own, whole, fires, strict=True)])
        certified = by_certificate(here, full, share)
        random_gate = (1 - share) * np.mean(own) + share * np.mean(whole)
        expected = [share, np.mean(own), np.mean(whole), random_gate, gated, certified, gated - certified]
        assert numbers(line) == pytest.approx(expected, abs=1e-12)
        by_seed[place].append(expected)


def numbers(line):
    return [value.value for value in line.values() if isinstance(value, Estimate)]


def test_draws_that_lack_rows_say_so(varied_study):
    table = varied_study.scope.report.study.table
    gone = (table["suite"] == "embedded-1k") & (table["arm"] == "full") & (table["task"] == "words")
    scope = varied_study.changed(present=table["present"] & ~gone)
    for line in table_of(disagreement(scope), "recomputation.two-draws"):
        lost = [value.undefined for value in line.values() if isinstance(value, Estimate)]
        assert all(words == NO_ROWS for words in lost) == (line["suite"] == "embedded-1k")
    lines = table_of(attribution(scope), "attribution.two-draws")
    assert {line["auc"].undefined for line in lines if line["suite"] == "embedded-1k"} == {NO_ROWS}


def test_uneven_seeds_say_so(varied_study):
    table = varied_study.scope.report.study.table
    is_odd = (table["arm"] == "poisson") & (table["seed"] == 1) & (table["budget"] == 0.25)
    moved = table["task"].mask(is_odd, "passcodes")
    scope = varied_study.changed(task=moved)
    assert {draws.reason for suite in scope.suites for draws in draws_of(scope, suite)} == {UNEVEN}


def test_nothing_without_main_tasks(varied_study):
    report = varied_study.scope.report
    assert attribution(Scope(Report(report.study, [], []))) is None
    assert disagreement(Scope(Report(report.study, [], []))) is None
    assert details_of(varied_study.scope)["panel"]


# A part of one's own ------------------------------------------------------------------------------

MINE = """
from analysis.describe.parts import Part
from analysis.describe.table import Table, columns

ORDER = 2.5


def describe(scope):
    rows = tuple((suite.name,) for suite in scope.suites)
    yield Part("mine", "Mine", tables=(Table("mine", "Mine", columns("suite"), rows),), is_posthoc=True)
"""


def test_a_part_takes_part_by_being_there(varied_study, tmp_path, monkeypatch):
    (tmp_path / "a_part_of_mine.py").write_text(MINE)
    (tmp_path / "no_part.py").write_text("raise_ = 1\n")
    monkeypatch.setattr(describe, "__path__", [*describe.__path__, str(tmp_path)])
    keys = [part.key for part in parts_of(varied_study.scope)]
    at = keys.index("mine")
    assert keys.index("accuracy") < at < keys.index("signal-panel")
    assert keys == list(dict.fromkeys(keys))
    for name in ("a_part_of_mine", "no_part"):
        monkeypatch.delitem(sys.modules, f"analysis.describe.{name}")
