"""What loading carries through, number by number, and each rule about rows at its very border."""

import hashlib
import json
import math
from pathlib import Path

import msgspec
import pytest

from analysis.core.agreement import (
    cell_contradiction,
    cell_disagreement,
    common,
    constants,
    contradiction,
    disagreement,
    settings,
    world_contradiction,
)
from analysis.core.grid import Prompts, read_grid
from analysis.core.lines import Lines
from analysis.core.problems import Problem, Same
from analysis.core.seals import Seal
from analysis.core.study import load
from analysis.describe.sizes import with_examples
from kvexp import records
from kvexp.documents.forms import SealedShard
from kvexp.records import Cell, Example, Expected, ExpectedCells, Generation, Timings, World
from scripts.planting import rows as planting
from tests import planted

SUITE, SHARD = "short", "short.m.words.000"


def expected(example="w0", arm="poisson", condition="stream", budget=0.25, seed=0):
    return Expected(
        suite=SUITE,
        shard_id=SHARD,
        model="m",
        task="words",
        example_id=example,
        arm=arm,
        condition=condition,
        budget=budget,
        seed=seed,
    )


def full(example="w0"):
    return expected(example, "full", None, None, None)


def generation(place=None, **changes):
    signals = {"certificate": 3.0, "entropy": 0.5, "evicted_mass": 0.25, "output_logprob": -1.5}
    score = changes.pop("score_value", 1.0)
    return planting.generation(place or expected(), "exact_match", score, signals, **changes)


# Generations ----------------------------------------------------------------------------------------

# Every number of a row that a column holds, all different, with the column's name.
TOLD = {
    "n_context": 601,
    "n_prompt": 702,
    "n_evictable": 803,
    "expected_kept": 204.5,
    "realised_kept": 205.25,
    "tail_kept": 106.75,
    "n_generated": 7,
    "entropy": 0.125,
    "evicted_mass": 0.375,
    "output_logprob": -0.625,
}
SECONDS = {"prefill": 1.5, "plan": 2.5, "decode": 3.5, "decode_arms": 4}


@pytest.fixture
def study(tmp_path):
    """Two questions; each arm's row says other numbers than the next."""
    places = [full("w0"), full("w1"), expected("w0"), expected("w1", seed=1), expected("w1")]
    places.append(expected("w0", seed=1))
    made = []
    for at, place in enumerate(places):
        numbers = {name: value + at for name, value in TOLD.items()}
        seconds = Timings(**{name: value + at for name, value in SECONDS.items()})
        steps = [at + 2.0, at + 6.0, at + 3.0, at + 1.0]
        changes = {**numbers, "seconds": seconds, "text": f"answer {at}", "score_value": at / 8}
        if place.arm == "full":
            changes |= {"tail_kept": None, "evicted_mass": None}
            changes["undefined"] = dict.fromkeys(("certificate", "evicted_mass", "margin"), "planted")
        else:
            changes |= {"certificate": max(steps), "certificate_steps": steps}
        made.append(generation(place, **changes))
    folder = tmp_path / "made"
    (folder / "examples").mkdir(parents=True)
    (folder / "grid.jsonl").write_bytes(planting.lines(reversed(places)))
    planting.write_shard(folder, places, made[::-1])
    (folder / "examples" / "short.m.words.jsonl").write_bytes(
        planting.lines([example("w1", 901, True, None), example("w0", 900, False, True)])
    )
    return folder


def example(name, tokens, is_cut, survives):
    return Example(
        suite=SUITE,
        model="m",
        task="words",
        example_id=name,
        question="?",
        references=["x"],
        segments={},
        needle_depths=[],
        needle_tokens=[],
        n_context_full=tokens,
        n_context=1,
        n_prompt=2,
        truncated=is_cut,
        answer_survives=survives,
        difference="",
    )


def test_every_number_of_a_row_stands_in_its_column(study):
    found = load(study, {})
    assert found.problems == ()
    rows = {row["text"]: row for row in found.table.to_dict("records")}
    for at in range(6):
        row = rows[f"answer {at}"]
        is_full = at < 2
        lost = ("tail_kept", "evicted_mass") if is_full else ()
        assert {name: row[name] for name in TOLD if name not in lost} == {
            name: value + at for name, value in TOLD.items() if name not in lost
        }
        seconds = ("prefill_seconds", "plan_seconds", "decode_seconds", "decode_arms")
        assert [row[name] for name in seconds] == [1.5 + at, 2.5 + at, 3.5 + at, 4 + at]
        assert (row["score_name"], row["score_value"], row["present"]) == ("exact_match", at / 8, True)
        derived = [row[name] for name in ("certificate", "certificate_first", "certificate_mean", "margin")]
        if is_full:
            assert all(map(math.isnan, [*derived, row["tail_kept"], row["evicted_mass"]]))
        else:
            # Steps at + 2, 6, 3, 1: the largest, the first, the mean.
            assert derived[:3] == [at + 6.0, at + 2.0, at + 3.0]
    asked = with_examples(study, SUITE, "words", found.table)
    for _, row in asked.iterrows():
        own = [row[name] for name in ("n_context_full", "truncated", "answer_survives")]
        assert own == (
            [900, 0.0, 1.0] if row["example_id"] == "w0" else pytest.approx([901, 1.0, math.nan], nan_ok=True)
        )


def test_rows_stand_in_the_order_of_their_keys(study):
    table = load(study, {}).table
    # Within an example the full cache first, then poisson by seed.
    assert table["text"].tolist() == [f"answer {at}" for at in (0, 2, 5, 1, 4, 3)]
    assert table["full_at"].tolist() == [0, 0, 0, 3, 3, 3]
    assert table["seed"].tolist() == pytest.approx([math.nan, 0, 1, math.nan, 0, 1], nan_ok=True)


@pytest.mark.parametrize("name", ["suite", "model", "task", "example_id"])
def test_the_full_row_is_that_of_the_same_question(tmp_path, name):
    value = {"suite": "long", "model": "n", "task": "facts", "example_id": "w1"}[name]
    there = [full(), expected()]
    other = [msgspec.structs.replace(row, **{name: value}) for row in (expected(seed=5), full())]
    alone = msgspec.structs.replace(expected(seed=7), **{name: "zzz"})
    (tmp_path / "grid.jsonl").write_bytes(planting.lines([alone, *other, *there]))
    table = read_grid(tmp_path / "grid.jsonl").table
    for row in table.to_dict("records"):
        if row[name] == "zzz":
            assert row["full_at"] == -1
        else:
            whole = table.iloc[row["full_at"]]
            assert (whole["arm"], whole[name]) == ("full", row[name])
    assert len(table) == 5


def test_a_row_without_steps_has_neither_first_nor_mean(study, tmp_path):
    log = study / SUITE / SHARD / "generations.jsonl"
    bare = {"certificate": None, "certificate_steps": None}
    bare["undefined"] = dict.fromkeys(("certificate", "margin"), "no step")
    lines = log.read_bytes().splitlines(keepends=True)
    at = next(at for at, line in enumerate(lines) if b"answer 2" in line)
    log.write_bytes(b"".join([*lines[:at], planted.edit(lines[at], **bare), *lines[at + 1 :]]))
    planted.close(log.parent)
    found = load(study, {})
    assert found.problems == ()
    (row,) = found.table[found.table["text"] == "answer 2"].to_dict("records")
    assert all(math.isnan(row[f"certificate{end}"]) for end in ("", "_first", "_mean"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, ""),
        ({"expected_kept": 0.0}, ""),
        ({"expected_kept": 1000.009}, ""),  # within 1e-5 of the 1000 evictable tokens
        ({"expected_kept": 1000.011}, "expected_kept 1000.011 is not between"),
        ({"realised_kept": 1000.009}, ""),
        ({"realised_kept": 1000.011}, "realised_kept 1000.011 is not between"),
        ({"tail_kept": 0.0}, ""),
        ({"tail_kept": -0.001}, "tail_kept -0.001 is not between 0 and 250.0 kept tokens"),
        ({"tail_kept": 250.002}, ""),
        ({"tail_kept": 250.003}, "tail_kept 250.003 is not between"),
        ({"certificate": 3.0, "certificate_steps": [1.0, 3.0, 2.0]}, ""),
        ({"certificate": 2.0, "certificate_steps": [1.0, 3.0, 2.0]}, "certificate 2.0 is not the largest"),
        ({"certificate_steps": []}, "certificate_steps is empty"),
    ],
)
def test_a_generation_at_the_border_of_its_rules(changes, message):
    found = contradiction(generation(**changes))
    assert found.startswith(message)
    assert bool(found) is bool(message)


def test_the_same_thing_is_stated_twice_in_one_scope_only():
    same = Same()
    for scope, value, where, suite in (("a", "1", "x", "s"), ("b", "2", "y", "s"), ("a", "1", "z", "t")):
        same.state("differ", scope, value, where, suite)
    assert list(same.problems()) == []
    same.state("differ", "a", "3" * 20, "late", "u")
    assert list(same.problems()) == [
        Problem(f"differ: '1' in x, '{'3' * 16}' in late", suite) for suite in ("s", "t", "u")
    ]


def test_which_rows_a_problem_touches():
    own, others = {("s", "s.0"), ("t", "t.1")}, {("u", "s.0")}
    for problem, expected_own, expected_others in (
        (Problem("p"), True, True),
        (Problem("p", "s"), True, False),
        (Problem("p", "s", "s.0"), True, False),
        (Problem("p", "s", "t.1"), False, False),
        (Problem("p", "u", "s.0"), False, True),
    ):
        assert (problem.touches(own), problem.touches(others)) == (expected_own, expected_others)


# Cells ----------------------------------------------------------------------------------------------

DELTA = math.exp(-2.0)  # log(1 / delta) = 2, so that sqrt(2 V * 2) = 2 sqrt(V)


def config(**changes):
    design = changes.pop("design_params", {})
    attention = {
        "budgets": [0.5, 0.25],
        "seeds": [3, 1],
        "query_offsets": [9, 8],
        "worlds": 2,
        "world_budget": 0.25,
        "score": "window",
        "rotation_score": "value_weighted",
        "design_params": design,
    }
    return {
        "suite": "attention",
        "model": {"name": "m"},
        "task": {"name": "prose"},
        "layers": 2,
        "query_heads": 3,
        "protocol": {"delta": DELTA, "norm_floor": 1.0, "sinks": 4, "recent": 6},
        "attention": attention,
        "example_ids": ["p0", "p1"],
        "world_ids": ["p1"],
        **changes,
    }


def attempt(body, shard_id="attention.m.prose.000", **changes):
    return planting.attempt(shard_id, config=body, **changes)


def cell(**changes):
    """sqrt(V) = 3 and b = 2: the bound is 6 + 4 = 10, the certificate 10 / (|y^| + 1) = 2."""
    numbers = {
        "attempt": 1,
        "suite": "attention",
        "shard_id": "attention.m.prose.000",
        "model": "m",
        "task": "prose",
        "example_id": "p0",
        "budget": 0.25,
        "seed": 1,
        "offset": 8,
        "layer": 0,
        "head": 0,
        "score": "window",
        "evictable": 200,
        "expected_kept": 50.0,
        "kept": 48,
        "tail_kept": 12,
        "uniform_kept": 51,
        "norm": 3.0,
        "estimate_norm": 4.0,
        "hajek": 1.5,
        "no_offset": 1.7,
        "topk": 1.8,
        "uniform": 1.9,
        "variance": 9.0,
        "largest": 2.0,
        "certificate": 2.0,
        "covered": True,
        "rare_attention": 0.01,
    }
    return Cell(**{**numbers, **changes})


FOLLOWS = "does not follow from variance, largest and estimate_norm"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, ""),
        ({"certificate": 2.0000199}, ""),  # 1e-5 above what follows
        ({"certificate": 2.00003}, FOLLOWS),
        ({"certificate": 1.99997}, FOLLOWS),
        ({"variance": 9.01}, FOLLOWS),
        ({"largest": 2.001}, FOLLOWS),
        ({"estimate_norm": 3.999}, FOLLOWS),
        # |y^ - y| = hajek * (|y| + 1), the radius 2 * (4 + 1) = 10: the border is 2.5.
        ({"norm": 6.5, "hajek": 10 / 7.5, "covered": True}, ""),
        ({"norm": 6.5, "hajek": 10 / 7.5, "covered": False}, ""),
        ({"norm": 6.5, "hajek": 1.334, "covered": True}, "it is called covered"),
        ({"norm": 6.5, "hajek": 1.332, "covered": False}, "it is called not covered"),
        # The error lies between |4 - 3| and 4 + 3: hajek between 1 / 4 and 7 / 4.
        ({"hajek": 0.25}, ""),
        ({"hajek": 0.249}, "no estimate of norm 4.0 is 0.996 away from an output of norm 3.0"),
        ({"hajek": 1.75}, ""),
        ({"hajek": 1.751}, "no estimate of norm 4.0 is 7.004 away"),
        # One term of the variance is at most all of it, and as many as there are kept by chance add up to it.
        ({"largest": 3.0, "certificate": 2.4}, ""),
        ({"largest": 3.00001, "certificate": 2.4}, ""),  # the last written digit
        ({"largest": 3.01, "certificate": 2.404}, "squared exceeds the variance"),
        ({"tail_kept": 3}, ""),  # 9 <= 3 * 4
        ({"tail_kept": 2}, "variance 9.0 exceeds 2 terms of which the largest is 4"),
        ({"kept": 12}, ""),
        ({"kept": 11}, "tail_kept 12 exceeds kept 11"),
        ({"uniform_kept": 10}, ""),  # 4 sinks and 6 recent tokens
        ({"uniform_kept": 9}, "uniform_kept 9 is not between 10 protected and 200 evictable tokens"),
        ({"uniform_kept": 200}, ""),
        ({"uniform_kept": 201}, "uniform_kept 201 is not between"),
        ({"kept": 200}, ""),
        ({"kept": 201}, "kept 201 is not between"),
        ({"expected_kept": 49.9996}, ""),
        ({"expected_kept": 49.999}, "expected_kept 49.999 is less than the 50"),
        ({"expected_kept": 50.0006}, ""),  # .0002 of the floor of pi, .0005 of the digits
        ({"expected_kept": 50.001}, "expected_kept 50.001 exceeds the budget 0.25 of 200 tokens"),
        ({"score": "question"}, "score question is not that of its attempt, window"),
    ],
)
def test_a_cell_at_the_border_of_its_rules(changes, message):
    found = cell_contradiction(cell(**changes), settings(attempt(config())))
    assert message in found
    assert bool(found) is bool(message)


def test_an_allocation_that_saves_may_spend_less_and_a_floor_more():
    saves = settings(attempt(config(design_params={"allocation": "single_clip", "floor": 0.01})))
    assert cell_contradiction(cell(expected_kept=10.0), saves) == ""
    assert "is not between 10 protected" in cell_contradiction(cell(expected_kept=9.9), saves)
    assert cell_contradiction(cell(expected_kept=52.0), saves) == ""  # .01 of 200 on top
    assert "exceeds the budget" in cell_contradiction(cell(expected_kept=52.001), saves)


def world(**changes):
    numbers = {
        "attempt": 1,
        **{name: getattr(cell(), name) for name in ("suite", "shard_id", "model", "task", "budget")},
        "example_id": "p1",
        "seed": 3,
        "offset": 9,
        "change": "permutation",
        "world": 1,
        "layer": 1,
        "score": "window",
        "statistics": "a" * 64,
        "norm": [3.0, 3.0],
        "estimate_norm": [4.0, 4.0],
        "topk": [0.5, 0.6],
        "hajek": [1.5, 1.6],
        "certificate": [2.0, 2.0],
        "covered": [True, True],
    }
    return World(**{**numbers, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, ""),
        ({"change": "rotation", "score": "value_weighted"}, ""),
        ({"change": "rotation"}, "its budget, seed, offset or score is not that of its attempt"),
        ({"budget": 0.5}, "its budget, seed, offset or score is not"),
        ({"seed": 1}, "its budget, seed, offset or score is not"),
        ({"offset": 8}, "its budget, seed, offset or score is not"),
        ({"norm": [3.0]}, "norm has 1 numbers for 2 heads"),
        ({"estimate_norm": [4.0] * 3}, "estimate_norm has 3 numbers for 2 heads"),
        ({"topk": [0.5]}, "topk has 1 numbers for 2 heads"),
        ({"hajek": [1.5]}, "hajek has 1 numbers for 2 heads"),
        ({"certificate": [2.0]}, "certificate has 1 numbers for 2 heads"),
        ({"covered": [True] * 3}, "covered has 3 numbers for 2 heads"),
        ({"hajek": [1.5, 1.751]}, "head 1: no estimate of norm 4.0"),
        ({"covered": [False, True]}, "head 0: it is called not covered"),
        ({"certificate": [2.0, 1.2]}, "head 1: it is called covered"),
    ],
)
def test_a_world_at_the_border_of_its_rules(changes, message):
    found = world_contradiction(world(**changes), 2, settings(attempt(config())))
    assert message in found
    assert bool(found) is bool(message)


def prompt(name, **changes):
    axes = {"budgets": [0.5, 0.25], "seeds": [3, 1], "offsets": [9, 8], "layers": 2, "heads": 3}
    place = {"suite": "attention", "shard_id": "attention.m.prose.000", "model": "m", "task": "prose"}
    return ExpectedCells(**{**place, "example_id": name, **axes, "worlds": 0, **changes})


def test_where_cells_and_worlds_stand():
    """Two prompts of 2 * 2 * 2 * 2 * 3 = 48 cells; the second carries 2 * 3 * 2 * 3 = 36 heads of worlds."""
    prompts = Prompts([prompt("p1", worlds=2), prompt("p0")])
    assert (prompts.n_cells, prompts.n_worlds) == (96, 36)
    assert [one.example_id for one in prompts] == ["p0", "p1"]
    for changes, expected_at in (
        ({}, 0),
        ({"head": 2}, 2),
        ({"layer": 1}, 3),
        ({"offset": 9}, 6),
        ({"seed": 3}, 12),
        ({"budget": 0.5}, 24),
        ({"budget": 0.5, "seed": 3, "offset": 9, "layer": 1, "head": 2}, 47),
        ({"example_id": "p1"}, 48),
        ({"head": 3}, None),
        ({"layer": 2}, None),
        ({"seed": 2}, None),
        ({"offset": 10}, None),
        ({"budget": 0.125}, None),
    ):
        assert prompts.at(cell(**changes)) == expected_at, changes
    for changes, at, cells_at in (
        ({"world": 0, "layer": 0}, 0, 48 + 18),
        ({"layer": 1, "world": 0}, 3, 48 + 21),
        ({"world": 2, "layer": 0}, 12, 48 + 18),
        ({"change": "rotation", "world": 0, "layer": 0}, 18, 48 + 18),
        ({"change": "rotation", "world": 2, "layer": 1}, 33, 48 + 21),
        ({"budget": 0.5}, 9, 48 + 45),
        ({"world": 3}, None, 48 + 21),
        ({"layer": 2}, None, None),
        ({"world": 0, "layer": 0, "seed": 7}, 0, None),
        ({"example_id": "p0", "world": 0}, None, 21),
    ):
        assert (prompts.at(world(**changes)), prompts.cells_of(world(**changes))) == (at, cells_at)
    assert prompts.heads(cell()) == 3
    assert prompts.at(cell(shard_id="attention.m.prose.001")) is None
    assert prompts.at(world(shard_id="attention.m.prose.001")) is None
    assert prompts.at(cell(example_id="p2")) is None


NUMBERS = (
    *("evictable", "expected_kept", "kept", "tail_kept", "uniform_kept", "norm", "estimate_norm", "hajek"),
    *("no_offset", "topk", "uniform", "variance", "largest", "certificate", "covered", "rare_attention"),
)


def test_every_number_of_a_cell_stands_in_its_column(tmp_path):
    whole = prompt("p0", budgets=[0.25], seeds=[1], offsets=[8], layers=1, heads=1)
    body = config(example_ids=["p0"], world_ids=[], layers=1, query_heads=1)
    body["attention"] |= {"budgets": [0.25], "seeds": [1], "query_offsets": [8]}
    shard = tmp_path / "made" / "attention" / "attention.m.prose.000"
    shard.mkdir(parents=True)
    (tmp_path / "made" / "grid.jsonl").write_bytes(planting.lines([whole]))
    (shard / "attempt-001.json").write_bytes(records.encode(attempt(body)))
    (shard / "cells.jsonl").write_bytes(planting.lines([cell()]))
    planted.close(shard)
    found = load(tmp_path / "made", {})
    assert (found.problems, found.delta) == ((), DELTA)
    (row,) = found.cells.to_dict("records")
    assert [row[name] for name in NUMBERS] == [
        *(200, 50.0, 48, 12, 51, 3.0, 4.0, 1.5),
        *(1.7, 1.8, 1.9, 9.0, 2.0, 2.0, 1.0, 0.01),
    ]
    place = ("example_id", "budget", "seed", "offset", "layer", "head", "score")
    assert [row[name] for name in place] == ["p0", 0.25, 1, 8, 0, 0, "window"]


@pytest.fixture
def of_worlds(tmp_path):
    """A function that loads one prompt of two heads, with an unchanged and a changed world of each kind."""
    place = {"budgets": [0.25], "seeds": [1], "offsets": [8], "layers": 1, "heads": 2}
    body = config(example_ids=["p1"], world_ids=["p1"], layers=1, query_heads=2)
    body["attention"] |= {"budgets": [0.25], "seeds": [1], "query_offsets": [8], "worlds": 1}
    shard = tmp_path / "made" / "attention" / "attention.m.prose.000"
    shard.mkdir(parents=True)
    (tmp_path / "made" / "grid.jsonl").write_bytes(planting.lines([prompt("p1", worlds=1, **place)]))
    (shard / "attempt-001.json").write_bytes(records.encode(attempt(body)))

    def written(**changes):
        made = [cell(example_id="p1"), cell(example_id="p1", head=1, topk=1.85)]
        for at, (change, number) in enumerate([(c, n) for c in ("permutation", "rotation") for n in (0, 1)]):
            told = {
                "topk": [1.8 + at, 1.85 + at],
                "hajek": [1.5, 1.5 + at / 16],
                "statistics": str(at) * 64,
                "score": "value_weighted" if change == "rotation" else "window",
            }
            told |= changes if not at else {}
            made.append(world(change=change, world=number, layer=0, seed=1, offset=8, **told))
        (shard / "cells.jsonl").write_bytes(planting.lines(made))
        planted.close(shard)
        return load(tmp_path / "made", {})

    return written


def test_every_number_of_a_world_stands_in_its_column(of_worlds):
    found = of_worlds()
    assert found.problems == ()
    place = {"budget": 0.25, "seed": 1.0, "offset": 8.0, "certificate": 2.0, "covered": 1.0, "layer": 0}
    for at, row in enumerate(found.worlds.to_dict("records")):
        number, head = divmod(at, 2)
        assert {name: row[name] for name in place} == place
        assert (row["change"], row["world"], row["head"]) == (
            "rotation" if number > 1 else "permutation",
            number % 2,
            head,
        )
        assert row["topk"] == pytest.approx(1.8 + 0.05 * head + number)
        assert row["hajek"] == 1.5 + head * number / 16
        assert row["statistics"] == str(number) * 64
        assert row["score"] == ("value_weighted" if number > 1 else "window")
    assert len(found.worlds) == 8


@pytest.mark.parametrize(
    "changes",
    [
        {"topk": [1.8, 1.8500001]},
        {"hajek": [1.5, 1.25]},
        {"norm": [3.0, 3.1]},
        {"estimate_norm": [4.0, 4.1]},
        {"certificate": [2.0, 2.1]},
    ],
)
def test_the_unchanged_world_says_what_its_cells_say(of_worlds, changes):
    (problem,) = of_worlds(**changes).problems
    assert "its numbers are not those of the cells that it shows unchanged" in problem.message
    assert "permutation, world 0, layer 0" in problem.message


@pytest.mark.parametrize("changes", [{"model": "n"}, {"task": "lists"}])
@pytest.mark.parametrize("kind", ["generations", "cells"])
def test_a_shard_is_of_one_model_and_task(tmp_path, kind, changes):
    first = full("w0") if kind == "generations" else prompt("p0")
    name = "w1" if kind == "generations" else "p1"
    grid = [first, msgspec.structs.replace(first, example_id=name, **changes)]
    shard = tmp_path / "made" / first.suite / first.shard_id
    shard.mkdir(parents=True)
    (tmp_path / "made" / "grid.jsonl").write_bytes(planting.lines(grid))
    (shard / "attempt-001.json").write_bytes(records.encode(attempt({}, shard_id=first.shard_id)))
    found = [one.message for one in load(tmp_path / "made", {}).problems]
    assert f"made/{first.suite}/{shard.name}: the grid mixes models or tasks in this shard" in found
    (tmp_path / "made" / "grid.jsonl").write_bytes(planting.lines(grid[:1]))
    assert not any("mixes" in one.message for one in load(tmp_path / "made", {}).problems)


# Plans, seals, grids --------------------------------------------------------------------------------


def test_the_rows_that_a_config_means():
    body = {
        "example_ids": ["w0", "w1"],
        "arms": [
            [{"name": "full"}, {"conditions": [], "budgets": [], "seeds": []}],
            [{"name": "topk"}, {"conditions": ["aware"], "budgets": [0.25, 0.5], "seeds": []}],
            [{"name": "poisson"}, {"conditions": ["aware", "stream"], "budgets": [0.25], "seeds": [0, 1]}],
        ],
    }
    places = [
        ("full", None, None, None),
        ("topk", "aware", 0.25, None),
        ("topk", "aware", 0.5, None),
        ("poisson", "aware", 0.25, 0),
        ("poisson", "aware", 0.25, 1),
        ("poisson", "stream", 0.25, 0),
        ("poisson", "stream", 0.25, 1),
    ]
    rows = {(name, *place) for name in ("w0", "w1") for place in places}
    assert disagreement(attempt(body), rows) == ""
    other = {*rows, ("w2", *places[0])} - {("w0", *places[1]), ("w0", *places[2])}
    assert disagreement(attempt(body), other) == (
        "its config has 2 rows that the grid lacks and lacks 1 of it"
    )
    assert disagreement(attempt(body), set()) == "the grid has no such shard"
    assert "does not have the shard digest" in disagreement(attempt(body, shard_digest="f" * 64), rows)
    assert "names no examples and arms" in disagreement(attempt({"arms": []}), rows)


@pytest.mark.parametrize(
    "changes",
    [
        {"example_id": "p2"},
        {"budgets": [0.5, 0.125]},
        {"seeds": [3]},
        {"offsets": [9, 8, 7]},
        {"layers": 3},
        {"heads": 2},
        {"worlds": 1},
        {"model": "n"},
        {"task": "lists"},
        {"suite": "detention"},
    ],
)
def test_the_prompts_that_a_config_means(changes):
    from analysis.core.agreement import PlannedPrompt as Prompt

    grid = {
        Prompt.of(prompt("p0", budgets=[0.25, 0.5], seeds=[1, 3])),
        Prompt.of(prompt("p1", worlds=2)),
    }
    assert cell_disagreement(attempt(config()), grid) == ""
    other = {Prompt.of(prompt("p0")), Prompt.of(prompt("p1", **{"worlds": 2, **changes}))}
    expected_words = "its config has 1 prompts that the grid lacks and lacks 1 of it"
    assert cell_disagreement(attempt(config()), other) == expected_words


def test_what_shards_and_studies_share():
    body = {**config(), "chunk": 4}
    other = {**body, "chunk": 5, "example_ids": ["p9"], "world_ids": []}
    assert common(attempt(body)) == common(attempt(other)) != common(attempt({**other, "layers": 3}))
    assert constants(attempt(body)) == constants(attempt({"protocol": body["protocol"]}))
    assert constants(attempt(body)) != constants(attempt({"protocol": {**body["protocol"], "sinks": 5}}))
    digest = hashlib.sha256(json.dumps({"protocol": {"sinks": 4}}).encode()).hexdigest()
    assert constants(attempt({"protocol": {"sinks": 4}, "layers": 1})) == digest
    assert settings(attempt({"layers": 1})) is None


def test_the_grid_of_a_seal(tmp_path):
    rows = [full("w0"), full("w1")]
    other = msgspec.structs.replace(full("w2"), shard_id="short.m.words.001")
    data = planting.lines([rows[0], other, rows[1]])
    lines = data.splitlines(keepends=True)
    first, second = (hashlib.sha256(body).hexdigest() for body in (lines[0] + lines[2], lines[1]))
    (tmp_path / "grid.jsonl").write_bytes(data)

    def problems(suite="short", **digests):
        return read_grid(tmp_path / "grid.jsonl", {suite: sealed(suite, **digests)}).problems

    assert read_grid(tmp_path / "grid.jsonl").problems == []
    both = {SHARD: first, "short.m.words.001": second}
    assert problems(**both) == []
    assert problems("long", **both) == []  # a suite that is not planned yet
    head = "suite short is not as seal R has it: it "
    for digests, words in (
        ({SHARD: first, "short.m.words.001": first}, "has other rows in the shard short.m.words.001"),
        ({SHARD: second, "short.m.words.001": first}, f"has other rows in the shard {SHARD} and 1 more"),
        ({**both, "b": first, "c": first}, "lacks the shard b and 1 more"),
        ({SHARD: first}, "has the shard short.m.words.001"),
    ):
        (problem,) = problems(**digests)
        assert problem.message.endswith(head + words)
        assert problem.suite == "short"


def sealed(suite, **digests):
    """A seal of a suite whose shards have these digests of their lines in the grid."""
    shards = {
        name: SealedShard(
            suite=suite,
            shard_id=name,
            shard_digest="0" * 64,
            protocol_digest="0" * 64,
            rows=1,
            grid_sha256=digest,
            questions_sha256="0" * 64,
            model_digest=None,
            config={},
        )
        for name, digest in digests.items()
    }
    return Seal("a" * 64, "R", None, Path(), "", "study", (), (), {"a" * 64: shards}, False)


def test_a_grid_that_cannot_be_meant(tmp_path):
    def problems(*rows):
        (tmp_path / "grid.jsonl").write_bytes(planting.lines(rows))
        return [
            one.message.split("grid.jsonl:")[1].strip() for one in read_grid(tmp_path / "grid.jsonl").problems
        ]

    assert problems(full(), expected(), prompt("p0")) == []
    assert problems(full(), full()) == ["short m words w0 full is expected 2 times"]
    assert problems(expected(), expected(), expected()) == [
        "short m words w0 poisson, condition stream, budget 0.25, seed 0 is expected 3 times"
    ]
    assert problems(prompt("p0"), prompt("p0")) == ["attention m prose p0 is expected 2 times"]
    assert problems(full(), expected(arm="full")) == ["2: the full cache has no condition, budget or seed"]
    assert problems(expected(condition=None)) == ["1: arm poisson needs a condition and a budget"]
    assert problems(expected(seed=None)) == []
    for name in ("budgets", "seeds", "offsets"):
        assert problems(prompt("p0", **{name: []})) == [f"1: no {name}, so that no cell is expected"]
    assert problems(prompt("p0", seeds=[1, 2, 1])) == ["1: seeds lists a value twice"]
    assert problems(prompt("p0", layers=0)) == ["1: no layers or heads, so that no cell is expected"]
    assert problems(prompt("p0", heads=0)) == ["1: no layers or heads, so that no cell is expected"]
    # 1,000 heads of 2,500 layers are 5,000,000 cells with both budgets; a head more is too much.
    many = {"budgets": [0.5, 0.25], "seeds": [1], "offsets": [8], "layers": 2500}
    assert problems(prompt("p0", heads=1001, **many)) == [
        "1: more than 5,000,000 attention cells are expected up to here"
    ]
    assert problems(msgspec.structs.replace(prompt("p0"), suite="short"), full()) == [
        "2: suite short has both generations and attention cells"
    ]


def test_a_last_line_may_be_torn_while_a_shard_is_running(tmp_path):
    read = Lines[Generation](Generation)
    data = planting.lines([generation(), generation(full())])
    assert len(list(read(data, tmp_path))) == 2
    assert len(list(read(data[:-1], tmp_path, may_be_torn=True))) == 1
    with pytest.raises(ValueError, match=":2: the last line is cut off"):
        list(read(data[:-1], tmp_path))
