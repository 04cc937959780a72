"""Reading attention suites: where every cell and world lands, and every contradiction in one sentence."""

import json
import math
import re

import msgspec
import numpy as np
import pandas as pd
import pytest

from analysis.load import load
from analysis.load.plan import Prompt, cell_disagreement
from kvexp import records
from tests import planted
from tests.planted import ATTENTION, DELTA, FLOOR, SHORT, Heads, World

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


def edit(line, **changes):
    return compact({**json.loads(line), **changes}) + b"\n"


def compact(record):
    return json.dumps(record, separators=(",", ":"), ensure_ascii=False).encode()


def restate(path, **changes):
    before = msgspec.json.decode(path.read_bytes(), type=records.Attempt)
    path.write_bytes(records.encode(msgspec.structs.replace(before, **changes)))


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
        world = planted.layer_of_world(prompts[row.model, row.example_id], records.WorldKey(*key[:-1]))
        assert (row.budget, row.seed, row.offset) == (0.5, 0, 16)
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
        ({"kept": 1001}, f"{CELL}: kept 1001 exceeds evictable 1000"),
        ({"uniform_kept": 1001}, f"{CELL}: uniform_kept 1001 exceeds evictable 1000"),
        ({"expected_kept": 1001.0}, f"{CELL}: expected_kept 1001.0 exceeds evictable 1000"),
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

    rewrite(shard, lambda lines: list(map(jitter, lines)))
    assert load(measured, {}).problems == ()


@pytest.mark.parametrize(("delta", "norm_floor"), [(0.05, FLOOR), (DELTA, 0.5)])
def test_the_constants_are_those_of_the_attempt(shard, measured, delta, norm_floor):
    """The same numbers under other constants contradict themselves; recomputed, they do not."""
    path = shard / "attempt-001.json"
    config = json.loads(path.read_bytes())["config"]
    config["protocol"] = {"delta": delta, "norm_floor": norm_floor}
    body = json.dumps(config, sort_keys=True)
    digest = planted.hashlib.sha256(body.encode()).hexdigest()
    restate(path, config=config, shard_digest=digest)
    rewrite(shard, lambda lines: lines)
    problems = [problem.message for problem in load(measured, {}).problems]
    assert len(problems) == 6  # five and how many more there are
    assert "does not follow from variance, largest and estimate_norm" in problems[0]

    def again(line):
        cell = json.loads(line)
        if cell["kind"] != "cell/1":
            return line
        level = math.log(1 / delta)
        bound = math.sqrt(2 * cell["variance"] * level) + cell["largest"] * level
        error = cell["hajek"] * (cell["norm"] + norm_floor)
        radius = bound / (cell["estimate_norm"] + norm_floor)
        return edit(line, certificate=float(f"{radius:.7g}"), covered=error <= bound)

    rewrite(shard, lambda lines: list(map(again, lines)))
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
    ],
)
def test_nothing_is_a_sound_number(shard, measured, numbers):
    if "norm" in numbers:
        cell = told(shard)
        numbers = {
            **numbers,
            "covered": True,
            "certificate": cell["certificate"] * (cell["estimate_norm"] / FLOOR + 1),
        }
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


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"score": "window"}, "worlds of one rotation carry different scores: "),
        ({"budget": 0.25}, "worlds of one rotation have another budget, seed or offset: '0.125 0 16' in "),
        ({"offset": 3}, "worlds of one rotation have another budget, seed or offset: '0.125 0 16' in "),
    ],
)
def test_the_worlds_of_a_prompt_stand_at_one_place(shard, measured, changes, message):
    lines = (shard / "cells.jsonl").read_bytes().splitlines()
    at = [at for at, line in enumerate(lines) if b'"rotation"' in line][4]
    rewrite(shard, lambda lines: [*lines[:at], edit(lines[at], **changes), *lines[at + 1 :]])
    (problem,) = load(measured, {}).problems
    assert message in problem.message
    assert problem.suite == ATTENTION


def test_cells_of_one_suite_and_task_carry_one_score(shard, measured, tmp_path):
    rewrite(shard, lambda lines: [*lines[:4], edit(lines[4], score="accumulated"), *lines[5:]])
    (problem,) = load(measured, {}).problems
    assert "cells of task prose carry different scores: 'window' in " in problem.message
    # Another suite may use another score.
    both = [*planted.prompts(), *planted.prompts("other")]
    folder = planted.write(tmp_path / "both", both, World())
    for other in (folder / "other").iterdir():
        rewrite(other, lambda lines: [edit(line, score="accumulated") for line in lines])
    assert load(folder, {}).problems == ()


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
        ("attention", {"budgets": [0.125, 0.25], "seeds": [0], "query_offsets": [16], "worlds": 2}),
        ("attention", {"budgets": [0.125, 0.25, 0.5], "seeds": [1], "query_offsets": [16], "worlds": 2}),
        ("attention", {"budgets": [0.125, 0.25, 0.5], "seeds": [0], "query_offsets": [17], "worlds": 2}),
        ("attention", {"budgets": [0.125, 0.25, 0.5], "seeds": [0], "query_offsets": [16], "worlds": 6}),
        ("world_ids", ["prose-0000"]),
        ("example_ids", ["prose-0000"]),
    ],
)
def test_a_config_must_mean_what_the_grid_says(name, value):
    here = planted.prompts(examples=6)
    config = planted.resolved_cells(here)
    grid = {Prompt.of(prompt) for prompt in here}
    assert cell_disagreement(planted.attempt(SHARD, config=config), grid) == ""
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
        ("example_ids", None),
    ],
)
def test_a_config_without_cells_or_constants_is_named(name, value):
    config = {**planted.resolved_cells(planted.prompts(examples=6)), name: value}
    words = cell_disagreement(planted.attempt(SHARD, config=config), set())
    assert words.startswith("its config names no prompts and cells (")


def test_the_configuration_of_kvexp_itself_gives_the_prompts_of_its_grid():
    from kvexp import compose, grid

    made = grid.shards(compose.select(["study=embedded"], compose.project_root()))
    shards = [shard for shard in made if shard.suite == ATTENTION]
    assert shards
    for shard in shards:
        attempt = planted.attempt(shard.shard_id, config=json.loads(json.dumps(shard.resolved())))
        assert attempt.shard_digest == shard.digest
        prompts = {Prompt.of(prompt) for prompt in shard.expected()}
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
