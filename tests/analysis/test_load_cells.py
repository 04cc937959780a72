"""Reading attention suites: where every cell and world lands, and every contradiction in one sentence."""

import hashlib
import json
import math
import re
import shutil

import numpy as np
import pandas as pd
import pytest

from analysis.core.agreement import DesignParams, PlannedPrompt, cell_disagreement
from analysis.core.study import load
from kvexp import records
from tests import planted
from tests.planted import ATTENTION, DELTA, FLOOR, SHORT, Heads, World, compact, edit, restate

SHARD = "attention.smollm2-135m.prose.000"
KEY = records.CellKey._fields
NUMBERS = ("norm", "estimate_norm", "hajek", "topk", "variance", "largest", "certificate", "rare_attention")


@pytest.fixture
def shard(measured):
    return measured / ATTENTION / SHARD


def rewrite(shard, change):
    """Pass the log's lines through a function and close the shard over the result."""
    log = shard / "cells.jsonl"
    log.write_bytes(b"".join(change(log.read_bytes().splitlines(keepends=True))))
    planted.close(shard)


def reconfigure(shard, **changes):
    """Say in the attempt that the shard was configured otherwise, and close the shard over it."""
    path = shard / "attempt-001.json"
    config = {**json.loads(path.read_bytes())["config"], **changes}
    body = json.dumps(config, sort_keys=True)
    restate(path, config=config, shard_digest=hashlib.sha256(body.encode()).hexdigest())
    planted.close(shard)


# ------------------------------------------------------------------ the tables


@pytest.fixture(scope="module")
def unsorted():
    """A grid whose axes stand in no order, on two models, with worlds on two prompts of each."""
    return planted.prompts(
        models=("zeta", "alpha"), examples=4, budgets=(0.5, 0.125), offsets=(16, 3), layers=3, heads=2
    )


def test_every_cell_lands_in_its_row(tmp_path, unsorted, shuffled):
    study = load(planted.write(tmp_path / "s", unsorted, World(), order=shuffled), {})
    assert study.problems == ()
    keys = [key for prompt in unsorted for key in prompt.cell_keys()]
    found = [records.CellKey(*row) for row in study.cells[list(KEY)].itertuples(index=False)]
    assert found == sorted(keys)
    assert study.cells["present"].all()
    assert (study.cells["score"] == "window").all()
    heads = Heads()
    for row, key in zip(study.cells.itertuples(), found, strict=True):
        told = heads(key)
        assert [getattr(row, name) for name in NUMBERS] == [told[name] for name in NUMBERS]
        assert row.covered == float(told["covered"])
        assert (row.evictable, row.kept) == (1000, round(1000 * key.budget) + 3)
        assert row.shard_id == f"{ATTENTION}.{key.model}.prose.000"


def test_every_world_lands_in_its_rows(tmp_path, unsorted, shuffled):
    study = load(planted.write(tmp_path / "s", unsorted, World(), order=shuffled), {})
    prompts = {(prompt.model, prompt.example_id): prompt for prompt in unsorted}
    keys = [(*key, head) for prompt in unsorted for key in prompt.world_keys() for head in range(2)]
    names = [*records.WorldKey._fields, "head"]
    found = [tuple(row) for row in study.worlds[names].itertuples(index=False)]
    assert len(found) == 2 * 2 * 2 * 3 * 3 * 2  # models, prompts, changes, worlds, layers, heads
    assert found == sorted(keys)
    assert study.worlds["present"].all()
    for row, key in zip(study.worlds.itertuples(), found, strict=True):
        world = planted.layer_of_world(
            prompts[row.model, row.example_id], records.WorldKey(*key[:-1]), Heads()
        )
        assert (row.budget, row.seed, row.offset) == (0.125, 0, 16)
        assert (row.score, row.statistics) == (world.score, world.statistics)
        told = (world.topk, world.hajek, world.certificate)
        assert (row.topk, row.hajek, row.certificate) == tuple(one[row.head] for one in told)


def test_the_columns_have_their_types(measured, tmp_path):
    empty = load(planted.write(tmp_path / "none" / "embedded", planted.plan(examples=1), World()), {})
    full = load(measured, {})
    for frame, other in ((full.cells, empty.cells), (full.worlds, empty.worlds)):
        assert len(frame)
        assert not len(other)
        assert list(frame.columns) == list(other.columns)
        assert list(map(str, frame.dtypes)) == list(map(str, other.dtypes))
    whole = {name for name, kind in full.cells.dtypes.items() if kind == np.int64}
    assert whole == {"seed", "offset", "layer", "head"}
    assert {name for name, kind in full.worlds.dtypes.items() if kind == np.int64} == {
        "world",
        "layer",
        "head",
    }
    assert full.worlds["statistics"].dtype == object
    assert (full.cell_suites, empty.cell_suites) == ([ATTENTION], [])
    assert not len(full.table)


def test_the_tables_do_not_know_the_order_of_the_files(measured, tmp_path, shuffled):
    other = planted.write(tmp_path / "b" / "embedded", planted.prompts(), World(), order=shuffled)
    for name in ("cells", "worlds"):
        pd.testing.assert_frame_equal(getattr(load(measured, {}), name), getattr(load(other, {}), name))


@pytest.mark.parametrize("is_closed", [True, False])
def test_rows_count_when_their_shard_is_closed(shard, measured, is_closed):
    if not is_closed:
        (shard / "footer.json").unlink()
        log = shard / "cells.jsonl"
        log.write_bytes(log.read_bytes()[:-40])  # torn by a kill
    study = load(measured, {})
    assert study.problems == ()
    for frame in (study.cells, study.worlds):
        here = frame[frame["shard_id"] == SHARD]
        assert (here["present"] == is_closed).all()
        for name in ("hajek", "certificate", "covered"):
            assert (here[name].notna() == is_closed).all()
        assert (here["score"].notna() == is_closed).all()
    here = study.worlds[study.worlds["shard_id"] == SHARD]
    assert here["statistics"].map(lambda digest: isinstance(digest, str)).eq(is_closed).all()
    assert study.cells["present"].sum() == (216 if is_closed else 108)
    assert study.absences[ATTENTION, SHARD].startswith("absent" if is_closed else "not complete")


def test_failed_prompts_are_missing_until_a_later_success(shard, measured):
    failed = records.Failed(
        attempt=1,
        suite=ATTENTION,
        shard_id=SHARD,
        model="smollm2-135m",
        task="prose",
        example_id="prose-0003",
        category="out_of_memory",
        message="planted",
    )
    rewrite(shard, lambda lines: [records.encode(failed) + b"\n", *lines])
    study = load(measured, {})
    assert (study.problems, study.cells["present"].all()) == ((), True)
    rewrite(shard, lambda lines: [line for line in lines if b"0003" not in line or b"failed" in line])
    study = load(measured, {})
    assert study.problems == ()
    assert (~study.cells["present"]).sum() == 18
    assert study.absences[ATTENTION, SHARD] == "absent from a closed log, examples failed: 1 out_of_memory"


# ------------------------------------------------------------------ contradictions

SILENT = {"variance": 0.0, "largest": 0.0, "certificate": 0.0, "covered": False}
CELL = "attention smollm2-135m prose prose-0000, budget 0.125, seed 0, offset 16, layer 1, head 1"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layer": 2}, "layer 2, head 1 is not in the grid of this shard"),
        ({"head": 3}, "layer 1, head 3 is not in the grid of this shard"),
        ({"seed": 1}, "seed 1, offset 16, layer 1, head 1 is not in the grid"),
        ({"offset": 15}, "offset 15, layer 1, head 1 is not in the grid"),
        ({"budget": 0.12500000000000003}, "budget 0.12500000000000003, seed 0"),
        ({"example_id": "prose-0006"}, "prose-0006, budget 0.125, .* is not in the grid of this shard"),
        ({"model": "other"}, "attention other prose prose-0000, .* is not in the grid of this shard"),
        ({"head": 0}, "layer 1, head 0 was measured before"),
        (
            {"shard_id": SHARD.replace("000", "001")},
            r"a row of attention/attention.*\.001 in the wrong folder",
        ),
        ({"suite": "detention"}, "a row of detention/attention.* in the wrong folder"),
        ({"attempt": 2}, "written by an attempt without its attempt-002.json"),
        ({"kind": "cell/2"}, "a record of kind 'cell/2', which this version"),
        ({"kind": "generation/1"}, "a record of kind 'generation/1', which this version"),
        ({"mood": 1}, r"not a valid cell/1 record \(.*mood"),
        ({"hajek": -0.1}, "not a valid cell/1 record"),
        ({"kept": 1.5}, "not a valid cell/1 record"),
        ({"tail_kept": 129}, f"{CELL}: tail_kept 129 exceeds kept 128"),
        ({"kept": 1001}, f"{CELL}: kept 1001 is not between 36 protected and 1000 evictable tokens"),
        ({"uniform_kept": 1001}, f"{CELL}: uniform_kept 1001 is not between 36 protected and 1000 evictable"),
        ({"expected_kept": 1001.0}, f"{CELL}: expected_kept 1001.0 is not between 36 protected and 1000"),
        ({"kept": 0, "tail_kept": 0, **SILENT}, f"{CELL}: kept 0 is not between 36 protected and 1000"),
        ({"uniform_kept": 35}, f"{CELL}: uniform_kept 35 is not between 36 protected and 1000"),
        ({"expected_kept": 35.9}, f"{CELL}: expected_kept 35.9 is not between 36 protected and 1000"),
        ({"expected_kept": 125.1}, f"{CELL}: expected_kept 125.1 exceeds the budget 0.125 of 1000 tokens"),
        ({"tail_kept": 0}, rf"{CELL}: variance \S+ exceeds 0 terms of which the largest is "),
        ({"tail_kept": 6}, rf"{CELL}: variance \S+ exceeds 6 terms of which the largest is "),
        (
            {"hajek": 0.0, "covered": True},
            rf"{CELL}: no estimate of norm \S+ is 0 away from an output of norm",
        ),
        ({"norm": 1e308}, r"not a valid cell/1 record \(.*<= 1e\+30"),
        ({"topk": 1e308}, r"not a valid cell/1 record \(.*<= 1e\+30"),
        ({"variance": 1e31}, r"not a valid cell/1 record \(.*<= 1e\+30"),
    ],
)
def test_a_bad_line_is_named(shard, measured, changes, message):
    rewrite(shard, lambda lines: [*lines[:4], edit(lines[4], **changes), *lines[5:]])
    (problem,) = load(measured, {}).problems
    assert re.search(rf"embedded/attention/{SHARD}/cells\.jsonl:5: .*{message}", problem.message)
    assert (problem.suite, problem.shard_id) == (ATTENTION, SHARD)


def told(shard, at=4):
    return json.loads((shard / "cells.jsonl").read_bytes().splitlines()[at])


def spoilt(cell, name, by):
    """A cell with one number off by a relative amount."""
    return {name: cell[name] * (1 + by)}


@pytest.mark.parametrize("name", ["variance", "largest", "certificate", "estimate_norm"])
@pytest.mark.parametrize("sign", [-1, 1])
def test_a_certificate_must_follow_from_its_parts(shard, measured, name, sign):
    change = spoilt(told(shard), name, sign * 1e-3)
    rewrite(shard, lambda lines: [*lines[:4], edit(lines[4], **change), *lines[5:]])
    (problem,) = load(measured, {}).problems
    assert "does not follow from variance, largest and estimate_norm" in problem.message


def test_digits_beyond_those_written_are_no_contradiction(shard, measured):
    def jitter(line):
        cell = json.loads(line)
        if cell["kind"] != "cell/1":
            return line
        return edit(
            line, certificate=cell["certificate"] * (1 + 2e-7), variance=cell["variance"] * (1 - 2e-7)
        )

    rewrite(shard, lambda lines: [jitter(line) for line in lines if b"world/1" not in line])
    assert load(measured, {}).problems == ()


@pytest.mark.parametrize(("delta", "norm_floor"), [(0.05, FLOOR), (DELTA, 0.5)])
def test_the_constants_are_those_of_the_attempt(shard, measured, delta, norm_floor):
    """The same numbers under other constants contradict themselves; recomputed, they do not."""
    protocol = {**planted.PROTOCOL, "delta": delta, "norm_floor": norm_floor}
    shutil.rmtree(measured / ATTENTION / SHARD.replace("000", "001"))
    reconfigure(shard, protocol=protocol)
    problems = [problem.message for problem in load(measured, {}).problems]
    assert len(problems) == 6  # five and how many more there are
    assert "does not follow from variance, largest and estimate_norm" in problems[0]

    def again(line):
        row = json.loads(line)
        level = math.log(1 / delta)
        if row["kind"] == "world/1":  # the norms shrink under a larger floor, so errors and flags may not
            return None
        bound = math.sqrt(2 * row["variance"] * level) + row["largest"] * level
        error = row["hajek"] * (row["norm"] + FLOOR)
        radius = bound / (row["estimate_norm"] + norm_floor)
        hajek = error / (row["norm"] + norm_floor)
        return edit(
            line, certificate=float(f"{radius:.7g}"), hajek=float(f"{hajek:.7g}"), covered=error <= bound
        )

    rewrite(shard, lambda lines: [new for new in map(again, lines) if new is not None])
    assert load(measured, {}).problems == ()


@pytest.mark.parametrize("is_covered", [True, False])
def test_covered_must_agree_with_error_and_certificate(shard, measured, is_covered):
    heads = Heads(coverage=lambda budget: float(is_covered))
    planted_again = planted.write(
        measured.parent / "again" / "embedded", planted.prompts(), World(), heads=heads
    )
    again = planted_again / ATTENTION / SHARD
    cell = told(again)
    assert cell["covered"] is is_covered
    bound = cell["certificate"] * (cell["estimate_norm"] + FLOOR) / (cell["norm"] + FLOOR)
    for error in (bound * (1 + 1e-6), bound * (1 - 1e-6)):  # either side of the line, within its digits
        rewrite(again, lambda lines, error=error: [*lines[:4], edit(lines[4], hajek=error), *lines[5:]])
        assert load(planted_again, {}).problems == ()
    error = bound * (1 + 1e-3 if is_covered else 1 - 1e-3)
    rewrite(again, lambda lines: [*lines[:4], edit(lines[4], hajek=error), *lines[5:]])
    (problem,) = load(planted_again, {}).problems
    assert f"it is called {'covered' if is_covered else 'not covered'}, against its" in problem.message


def test_the_largest_term_is_one_of_the_variance(shard, measured):
    cell = told(shard)
    bound = cell["certificate"] * (cell["estimate_norm"] + FLOOR)
    largest = bound / (math.sqrt(2 * math.log(10)) / 1.01 + math.log(10))  # squared 2 % above the variance
    change = {"variance": (largest / 1.01) ** 2, "largest": largest}
    rewrite(shard, lambda lines: [*lines[:4], edit(lines[4], **change), *lines[5:]])
    (problem,) = load(measured, {}).problems
    assert "squared exceeds the variance" in problem.message


@pytest.mark.parametrize(
    "numbers",
    [
        {"variance": 0.0, "largest": 0.0, "certificate": 0.0, "hajek": 0.0, "covered": True},
        {"variance": 0.0, "largest": 0.0, "certificate": 0.0, "hajek": 0.5, "covered": False},
        {"norm": 0.0, "estimate_norm": 0.0, "hajek": 0.0},
        {"norm": 0.0, "estimate_norm": 1.0, "hajek": 1e9, "covered": False},
    ],
)
def test_nothing_is_a_sound_number(shard, measured, numbers):
    cell = {**told(shard), **numbers}
    if "norm" not in numbers and not cell["hajek"]:
        numbers = {**numbers, "norm": cell["estimate_norm"]}
    if "norm" in numbers and "certificate" not in numbers:
        scale = (told(shard)["estimate_norm"] + FLOOR) / (cell["estimate_norm"] + FLOOR)
        numbers = {"covered": True, **numbers, "certificate": cell["certificate"] * scale}
    rewrite(shard, lambda lines: [*lines[:4], edit(lines[4], **numbers), *lines[5:]])
    assert load(measured, {}).problems == ()


WORLD = "attention smollm2-135m prose prose-0000, permutation, world 0, layer 0"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"topk": [0.1, 0.2]}, f"{WORLD}: topk has 2 numbers for 3 heads"),
        ({"covered": [True] * 4}, f"{WORLD}: covered has 4 numbers for 3 heads"),
        ({"hajek": []}, f"{WORLD}: hajek has 0 numbers for 3 heads"),
        ({"certificate": [0.1]}, f"{WORLD}: certificate has 1 numbers for 3 heads"),
        ({"world": 3}, "permutation, world 3, layer 0 is not in the grid"),
        ({"layer": 2}, "permutation, world 0, layer 2 is not in the grid"),
        ({"example_id": "prose-0002"}, "prose-0002, permutation, world 0, layer 0 is not in the grid"),
        ({"world": 1}, "permutation, world 1, layer 0 was measured before"),
        ({"change": "reflection"}, "not a valid world/1 record"),
        ({"statistics": "abc"}, "not a valid world/1 record"),
    ],
)
def test_a_bad_world_is_named(shard, measured, changes, message):
    lines = (shard / "cells.jsonl").read_bytes().splitlines()
    at = next(at for at, line in enumerate(lines) if b"world/1" in line)
    rewrite(shard, lambda lines: [*lines[:at], edit(lines[at], **changes), *lines[at + 1 :]])
    problems = load(measured, {}).problems
    assert re.search(rf"cells\.jsonl:\d+: .*{message}", problems[0].message), problems
    assert (problems[0].suite, problems[0].shard_id) == (ATTENTION, SHARD)


PLACE = "its budget, seed, offset or score is not that of its attempt"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"score": "window"}, PLACE),
        ({"budget": 0.125}, PLACE),
        ({"seed": 1}, PLACE),
        ({"offset": 3}, PLACE),
        ({"covered": [True, False, True]}, "head 1: it is called not covered, against its certificate "),
        ({"certificate": [0.3, 0.0, 0.3]}, "head 1: it is called covered, against its certificate 0.0 and"),
        ({"estimate_norm": [1.0, 1.0, 9.0]}, "head 2: no estimate of norm "),
        ({"estimate_norm": [1.0, 1.0]}, "estimate_norm has 2 numbers for 3 heads"),
        ({"norm": [1.0] * 4}, "norm has 4 numbers for 3 heads"),
        ({"topk": [1.0, 1e308, 1.0]}, "not a valid world/1 record "),
    ],
)
def test_a_world_must_agree_with_itself_and_its_attempt(shard, measured, changes, message):
    lines = (shard / "cells.jsonl").read_bytes().splitlines()
    at = [at for at, line in enumerate(lines) if b'"rotation"' in line][4]
    plain = {"hajek": [0.05] * 3, "certificate": [0.3] * 3, "norm": [1.0] * 3, "estimate_norm": [1.0] * 3}
    rewrite(shard, lambda lines: [*lines[:at], edit(lines[at], **plain), *lines[at + 1 :]])
    assert load(measured, {}).problems == ()
    rewrite(shard, lambda lines: [*lines[:at], edit(lines[at], **changes), *lines[at + 1 :]])
    (problem,) = load(measured, {}).problems
    assert f"cells.jsonl:{at + 1}: " in problem.message
    assert message in problem.message
    assert problem.suite == ATTENTION


@pytest.mark.parametrize("name", ["norm", "estimate_norm", "topk", "hajek", "certificate"])
def test_the_unchanged_world_is_that_of_the_cells(shard, measured, name):
    lines = (shard / "cells.jsonl").read_bytes().splitlines()
    at = [at for at, line in enumerate(lines) if b'"permutation","world":0' in line][1]
    before = json.loads(lines[at])[name]
    change = {name: [before[0], float(f"{before[1] * 1.000001:.7g}"), before[2]]}  # the last digit
    rewrite(shard, lambda lines: [*lines[:at], edit(lines[at], **change), *lines[at + 1 :]])
    (problem,) = load(measured, {}).problems
    place = "prose-0000, permutation, world 0, layer 1"
    assert f"{place}: its numbers are not those of the cells that it shows unchanged" in problem.message


def test_an_unchanged_world_without_its_cells_is_only_incomplete(shard, measured):
    rewrite(
        shard, lambda lines: [line for line in lines if b'"budget":0.25,' not in line or b"world" in line]
    )
    study = load(measured, {})
    assert study.problems == ()
    assert not study.cells["present"].all()
    assert study.worlds["present"].all()


def test_cells_of_one_suite_and_task_carry_one_score(shard, measured):
    rewrite(shard, lambda lines: [*lines[:4], edit(lines[4], score="accumulated"), *lines[5:]])
    whole, own = load(measured, {}).problems
    assert "cells of task prose carry different scores: 'window' in " in whole.message
    assert f"{CELL}: score accumulated is not that of its attempt, window" in own.message


def test_cells_of_one_prompt_were_evicted_from_one_cache(shard, measured):
    rewrite(shard, lambda lines: [*lines[:4], edit(lines[4], evictable=1001), *lines[5:]])
    (problem,) = load(measured, {}).problems
    words = "cells of one prompt had different numbers of tokens to evict from: '1000' in "
    assert words in problem.message


def test_another_suite_may_use_another_score(tmp_path):
    both = [*planted.prompts(worlds=0), *planted.prompts("other", worlds=0)]
    folder = planted.write(tmp_path / "both", both, World())
    conf = planted.resolved_cells(planted.prompts(worlds=0))["attention"]
    for other in (folder / "other").iterdir():
        rewrite(other, lambda lines: [edit(line, score="accumulated") for line in lines])
        reconfigure(other, attention={**conf, "score": "accumulated"})
    assert load(folder, {}).problems == ()


CONFIGURED = "attempts of one suite, model and task were configured differently: "
CONSTANTS = "attempts were made under different protocol constants: "


@pytest.mark.parametrize(
    ("part", "changes", "messages"),
    [
        ("attention", {"score_params": {"pool": 7}}, [CONFIGURED]),
        ("attention", {"design_params": {"allocation": "single_clip"}}, [CONFIGURED]),
        ("attention", {"world_budget": 0.5}, [CONFIGURED]),
        ("protocol", {"sinks": 3}, [CONFIGURED, CONSTANTS]),
        ("protocol", {"delta": 0.1000001}, [CONFIGURED, CONSTANTS]),
    ],
)
def test_shards_of_one_suite_were_configured_alike(shard, measured, part, changes, messages):
    """The second shard has no worlds, so its rows say nothing against it."""
    other = shard.with_name(SHARD.replace("000", "001"))
    conf = json.loads((other / "attempt-001.json").read_bytes())["config"][part]
    reconfigure(other, **{part: {**conf, **changes}})
    found = [problem.message for problem in load(measured, {}).problems]
    assert len(found) == len(messages)
    for message, words in zip(sorted(found), messages, strict=True):
        assert message.startswith(words)


def test_one_set_of_constants_serves_a_study_of_both_kinds(tmp_path):
    folder = planted.write(
        tmp_path / "embedded", [*planted.plan(examples=1), *planted.prompts(examples=6)], World()
    )
    assert load(folder, {}).problems == ()
    reconfigure(folder / ATTENTION / SHARD, protocol={**planted.PROTOCOL, "steps": 7})
    (problem,) = load(folder, {}).problems
    assert problem.message.startswith(CONSTANTS)
    assert problem.suite == ""


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("score", "accumulated", "score window is not that of its attempt, accumulated"),
        ("world_budget", 0.5, PLACE),
        ("rotation_score", "window", PLACE),
        ("seeds", [], "its config names no prompts and cells "),
        ("query_offsets", [], "its config names no prompts and cells "),
        ("design_params", {"floor": 2.0}, "its config names no prompts and cells "),
    ],
)
def test_a_config_changed_alone_is_named(shard, measured, name, value, message):
    for one in shard.parent.iterdir():
        conf = json.loads((one / "attempt-001.json").read_bytes())["config"]["attention"]
        reconfigure(one, attention={**conf, name: value})
    assert message in load(measured, {}).problems[0].message


def test_only_an_allocation_that_saves_spends_less_than_the_budget(shard, measured):
    rewrite(shard, lambda lines: [*lines[:4], edit(lines[4], expected_kept=124.9), *lines[5:]])
    (problem,) = load(measured, {}).problems
    assert "expected_kept 124.9 is less than the 125 that an iterated allocation spends" in problem.message
    for one in shard.parent.iterdir():
        conf = json.loads((one / "attempt-001.json").read_bytes())["config"]["attention"]
        reconfigure(one, attention={**conf, "design_params": {"allocation": "single_clip"}})
    assert load(measured, {}).problems == ()


def test_what_a_config_leaves_out_is_what_the_design_does():
    from kvexp.study.plugins import build_design

    poisson, assumed = build_design("poisson"), DesignParams()
    assert (assumed.allocation, assumed.floor) == (poisson.allocation, poisson.floor)


def test_a_floor_of_pi_may_spend_more_than_the_budget(shard, measured):
    change = {"expected_kept": 134.9}  # 125, and 10 tokens' worth for a floor of 0.01
    rewrite(shard, lambda lines: [*lines[:4], edit(lines[4], **change), *lines[5:]])
    assert "exceeds the budget" in load(measured, {}).problems[0].message
    for one in shard.parent.iterdir():
        conf = json.loads((one / "attempt-001.json").read_bytes())["config"]["attention"]
        reconfigure(one, attention={**conf, "design_params": {"floor": 0.01}})
    assert load(measured, {}).problems == ()


def test_a_line_that_is_no_record_leaves_nothing_of_its_shard(shard, measured):
    rewrite(shard, lambda lines: [lines[0], lines[0], *lines[1:], b"{}\n"])
    (problem,) = load(measured, {}).problems
    assert "not a log record" in problem.message
    study = load(measured, {})
    assert not study.cells.loc[study.cells["shard_id"] == SHARD, "present"].any()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rows": 5}, "132 cells and worlds, but footer.json counts 5"),  # 6 x 18 cells, 24 layers of worlds
        ({"sha256": "f" * 64}, "its sha256 is not the one in footer.json: the log was changed"),
        ({"shard_digest": "f" * 64}, "its shard digest is not that of attempt 1"),
    ],
)
def test_a_footer_must_fit(shard, measured, changes, message):
    path = shard / "footer.json"
    path.write_bytes(compact({**json.loads(path.read_bytes()), **changes}))
    (problem,) = load(measured, {}).problems
    assert message in problem.message


def test_a_log_of_the_other_kind_is_named(shard, measured):
    (shard / "generations.jsonl").write_bytes(b"")
    (problem,) = load(measured, {}).problems
    assert "generations.jsonl: a log of cells and worlds is expected here, cells.jsonl" in problem.message
    (shard / "generations.jsonl").unlink()
    (shard / "cells.jsonl").unlink()
    (problem,) = load(measured, {}).problems
    assert "cells.jsonl is not there, although the shard is closed" in problem.message


def test_a_shard_that_the_grid_does_not_know_is_named(shard, measured):
    extra = measured / "extra" / SHARD
    extra.mkdir(parents=True)
    for path in shard.iterdir():
        (extra / path.name).write_bytes(path.read_bytes())
    rewrite(extra, lambda lines: [edit(lines[0], suite="extra")])
    attempt, row = load(measured, {}).problems
    assert "attempt-001.json: the grid has no such shard" in attempt.message
    assert "cells.jsonl:1: extra smollm2-135m prose prose-0000, budget 0.125, " in row.message
    assert {attempt.suite, row.suite} == {"extra"}


# ------------------------------------------------------------------ plans


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("suite", "other"),
        ("model", {"name": "other"}),
        ("layers", 3),
        ("query_heads", 9),
        ("task", {"name": "verse"}),
        ("attention", {"budgets": [0.125, 0.25]}),
        ("attention", {"seeds": [1]}),
        ("attention", {"query_offsets": [17]}),
        ("attention", {"worlds": 6}),
        ("world_ids", ["prose-0000"]),
        ("example_ids", ["prose-0000"]),
    ],
)
def test_a_config_must_mean_what_the_grid_says(name, value):
    here = planted.prompts(examples=6)
    config = planted.resolved_cells(here)
    grid = {PlannedPrompt.of(prompt) for prompt in here}
    assert cell_disagreement(planted.attempt(SHARD, config=config), grid) == ""
    value = {**config[name], **value} if name == "attention" else value
    other = planted.attempt(SHARD, config={**config, name: value})
    assert re.fullmatch(
        r"its config has \d+ prompts that the grid lacks and lacks \d of it", cell_disagreement(other, grid)
    )
    assert cell_disagreement(other, set()) == "the grid has no such shard"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("attention", {}),
        ("protocol", {"delta": 0.0, "norm_floor": 0.0}),
        ("protocol", {"delta": 0.1}),
        ("protocol", {"delta": 0.1, "norm_floor": 0.0}),
        ("protocol", {**planted.PROTOCOL, "sinks": 10**400}),
        ("example_ids", None),
    ],
)
def test_a_config_without_cells_or_constants_is_named(name, value):
    config = {**planted.resolved_cells(planted.prompts(examples=6)), name: value}
    words = cell_disagreement(planted.attempt(SHARD, config=config), set())
    assert words.startswith("its config names no prompts and cells (")


def test_the_configuration_of_kvexp_itself_gives_the_prompts_of_its_grid():
    from kvexp.study import compose, grid

    made = grid.shards(compose.select(["study=embedded"], compose.project_root()))
    shards = [shard for shard in made if shard.suite == ATTENTION]
    assert shards
    for shard in shards:
        attempt = planted.attempt(shard.shard_id, config=json.loads(json.dumps(shard.resolved())))
        assert attempt.shard_digest == shard.digest
        prompts = {PlannedPrompt.of(prompt) for prompt in shard.expected()}
        assert cell_disagreement(attempt, prompts) == ""
        assert cell_disagreement(attempt, set(list(prompts)[1:])) != ""


def test_grid_and_logs_cannot_shrink_together(shard, measured):
    def keep(lines):
        return [line for line in lines if b"prose-0003" not in line]

    grid = measured / "grid.jsonl"
    grid.write_bytes(b"".join(keep(grid.read_bytes().splitlines(keepends=True))))
    rewrite(shard, keep)
    (problem,) = load(measured, {}).problems
    assert (
        "attempt-001.json: its config has 1 prompts that the grid lacks and lacks 0 of it" in problem.message
    )


def test_code_is_judged_within_a_kind_of_suite(tmp_path):
    """Cells are measured by other code than answers are made by; two codes of one kind are one too many."""
    grid = [*planted.plan(examples=1), *planted.prompts()]
    folder = planted.write(tmp_path / "embedded", grid, World())
    digests = {
        json.loads(path.read_bytes())["protocol_digest"] for path in folder.glob("*/*/attempt-001.json")
    }
    assert len(digests) == 2
    assert load(folder, {}).problems == ()

    attempts = {
        ATTENTION: folder / ATTENTION / SHARD / "attempt-001.json",
        SHORT: folder / SHORT / f"{SHORT}.smollm2-135m.words.000" / "attempt-001.json",
    }
    for suite, path in attempts.items():
        before = path.read_bytes()
        restate(path, protocol_digest="9" * 64)
        problems = load(folder, {}).problems
        assert all("different code (protocol digest): '" in problem.message for problem in problems)
        assert {problem.suite for problem in problems} == (
            {ATTENTION} if suite == ATTENTION else {SHORT, planted.LONG}
        )
        path.write_bytes(before)


def test_attempts_on_one_model_loaded_the_same_files_whatever_they_made(tmp_path):
    grid = [*planted.plan(examples=1), *planted.prompts()]
    folder = planted.write(tmp_path / "embedded", grid, World())
    restate(folder / ATTENTION / SHARD / "attempt-001.json", model_digest="a" * 64)
    restate(folder / SHORT / f"{SHORT}.smollm2-135m.words.000" / "attempt-001.json", model_digest="b" * 64)
    problems = load(folder, {}).problems
    assert [problem.suite for problem in problems] == [ATTENTION, SHORT]
    assert all("loaded different files" in problem.message for problem in problems)


# ------------------------------------------------------------------ the grid


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"budgets": []}, "no budgets, so that no cell is expected"),
        ({"seeds": []}, "no seeds, so that no cell is expected"),
        ({"offsets": []}, "no offsets, so that no cell is expected"),
        ({"layers": 0}, "no layers or heads, so that no cell is expected"),
        ({"heads": 0}, "no layers or heads, so that no cell is expected"),
        ({"budgets": [0.25, 0.25]}, "budgets lists a value twice"),
        ({"budgets": [1.5]}, "not a valid expected_cells/1 record"),
        ({"layers": 2**53, "heads": 2**53}, "more than 5,000,000 attention cells are expected up to here"),
        ({"worlds": 2**50}, "more than 5,000,000 attention cells are expected up to here"),
        ({"kind": "expected_cells/2"}, "a record of kind 'expected_cells/2', which this version"),
    ],
)
def test_a_bad_grid_touches_everything(measured, changes, message):
    grid = measured / "grid.jsonl"
    lines = grid.read_bytes().splitlines(keepends=True)
    grid.write_bytes(b"".join([*lines[:2], edit(lines[2], **changes), *lines[3:]]))
    study = load(measured, {})
    assert f"grid.jsonl:3: {message}" in study.problems[0].message
    assert study.problems[0].suite == ""
    assert not len(study.cells)


def test_a_suite_is_of_one_kind(tmp_path):
    mixed = [*planted.plan((SHORT, ATTENTION), examples=1), *planted.prompts()]
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "grid.jsonl").write_bytes(planted.lines(mixed))
    study = load(tmp_path / "s", {})
    assert "suite attention has both generations and attention cells" in study.problems[0].message
    assert (len(study.table), len(study.cells)) == (0, 0)


def test_a_prompt_that_stands_twice_is_named(measured):
    grid = measured / "grid.jsonl"
    line = grid.read_bytes().splitlines(keepends=True)[0]
    grid.write_bytes(grid.read_bytes() + line)
    (problem,) = load(measured, {}).problems
    assert "attention smollm2-135m prose prose-0000 is expected 2 times" in problem.message
    assert problem.suite == ""
