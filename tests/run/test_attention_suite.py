"""An attention suite in a study: shards resumed, refused and beside others; and the real model."""

import contextlib
import io
import json
import shutil
from dataclasses import replace
from statistics import median

import numpy as np
import pytest
import torch
from rich.console import Console

from kvexp import cli
from kvexp.errors import ConfigError, IncompleteError, IntegrityError
from kvexp.models.load import load
from kvexp.records import CELLS, FOOTER, GENERATIONS, Cell, Expected, ExpectedCells, Failed, Reader, World
from kvexp.run import launch
from kvexp.run.attempt import Place, Under
from kvexp.run.log import read_state, to_lines
from kvexp.run.prepare import write_examples, write_grid
from kvexp.run.shard import run_shard
from kvexp.study.compose import select
from kvexp.study.grid import shards
from kvexp.study.plugins import build_task
from kvexp.study.prompts import Rendering, prompt_of
from kvexp.study.provenance import PACKAGE, protocol_manifest
from kvexp.study.results import GRID
from kvexp.study.schema import AttentionConf, SuiteConf
from kvexp.study.shards import AttentionShard, GenerationShard
from kvexp.verbs import submit
from tests import project, tiny
from tests.replay.test_cells import assert_cells_equal, expected_cells, place_of
from tests.run.test_measure import (
    SUITE,
    Short,
    attention_shards,
    cells_of,
    changed,
    make,
    measured,
    worlds_of,
)

ROWS = 2 * 144 + 42  # of the first shard: two prompts of 144 cells, one with 42 rows of worlds


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def root(tmp_path_factory, tiny_folder):
    return make(tmp_path_factory.mktemp("attention") / "project", tiny_folder)


@pytest.fixture(scope="module")
def shard(root):
    return attention_shards(root)[0]


@pytest.fixture(scope="module")
def loaded(tiny_folder):
    return load(tiny_folder, "float32")


def place(folder, shard, **changes):
    made = Place(folder / shard.suite / shard.shard_id, Under(), (None, None), "cpu")
    return replace(made, **changes)


def run(folder, shard, model, **changes):
    run_shard(shard, place(folder, shard, **changes), lambda: model)
    return state(folder, shard)


def state(folder, shard):
    return read_state(place(folder, shard).folder, CELLS)


def refuse_to_load():
    pytest.fail("the model was loaded although nothing is missing")


def lines(folder, shard):
    return (place(folder, shard).folder / CELLS).read_bytes().splitlines(keepends=True)


def science(lines):
    """The lines as a set, without the number of the attempt that wrote them."""
    return {json.dumps({k: v for k, v in json.loads(line).items() if k != "attempt"}) for line in lines}


@pytest.fixture(scope="module")
def whole(tmp_path_factory, shard, loaded):
    """A complete shard's results folder; not to be changed."""
    folder = tmp_path_factory.mktemp("whole")
    run(folder, shard, loaded)
    return folder


def test_a_whole_shard(whole, shard):
    done = state(whole, shard)
    assert list(done.rows) == list(dict.fromkeys(row.key for row in done.rows.values()))
    assert set(done.rows) == set(shard.keys())
    assert len(done.rows) == shard.n_rows == ROWS == done.footer.rows
    folder = place(whole, shard).folder
    assert {p.name for p in folder.iterdir()} == {"attempt-001.json", CELLS, FOOTER}
    assert done.footer.shard_digest == shard.digest
    assert done.footer.model_seconds is None
    assert [s.rows for s in done.footer.segments] == [ROWS]
    assert {type(row) for row in done.rows.values()} == {Cell, World}


def test_the_attempts_config_says_what_the_analysis_reads(whole, shard):
    config = state(whole, shard).attempts[0].config
    assert config == json.loads(json.dumps(shard.resolved()))
    assert config["suite"] == "cells"
    assert config["model"]["name"] == "tiny"
    assert config["task"]["name"] == "prose"
    assert (config["layers"], config["query_heads"]) == (3, 6)
    assert config["example_ids"] == ["5-000", "5-001"]
    assert config["world_ids"] == ["5-000"]
    conf = config["attention"]
    assert (conf["budgets"], conf["seeds"], conf["query_offsets"]) == ([0.25, 0.5], [0, 1], [8, 40])
    assert (conf["worlds"], conf["score"]) == (6, "window")
    made = ExpectedCells(
        suite=config["suite"],
        shard_id=shard.shard_id,
        model=config["model"]["name"],
        task=config["task"]["name"],
        example_id="5-001",
        budgets=conf["budgets"],
        seeds=conf["seeds"],
        offsets=conf["query_offsets"],
        layers=config["layers"],
        heads=config["query_heads"],
        worlds=0,
    )
    assert made == list(shard.expected())[1]


def test_a_prompts_lines_stand_together_and_the_worlds_follow_the_cells(whole, shard):
    kinds = [(line["example_id"], line["kind"]) for line in map(json.loads, lines(whole, shard))]
    assert kinds == ([("5-000", "cell/1")] * 144 + [("5-000", "world/1")] * 42 + [("5-001", "cell/1")] * 144)


def test_a_complete_shard_is_not_run_again(whole, shard):
    before = lines(whole, shard)
    run_shard(shard, place(whole, shard), refuse_to_load)
    assert lines(whole, shard) == before


def test_two_runs_have_the_same_bytes(tmp_path, whole, shard, loaded):
    run(tmp_path, shard, loaded)
    assert lines(tmp_path, shard) == lines(whole, shard)


@pytest.mark.parametrize("kept", [0, 1, 143, 144, 150, 186, 187, ROWS - 1])
@pytest.mark.parametrize("torn", [b"", b'{"kind":"cell/1","attempt":1,"sui'])
def test_a_log_cut_anywhere_is_completed_to_the_same_lines(tmp_path, whole, shard, loaded, kept, torn):
    folder = place(tmp_path, shard).folder
    shutil.copytree(place(whole, shard).folder, folder)
    (folder / FOOTER).unlink()
    head = b"".join(lines(whole, shard)[:kept])
    (folder / CELLS).write_bytes(head + torn)
    again = run(tmp_path, shard, loaded)
    assert (folder / CELLS).read_bytes().startswith(head)
    assert science(lines(tmp_path, shard)) == science(lines(whole, shard))
    assert len(lines(tmp_path, shard)) == ROWS == again.footer.rows
    assert [row.attempt for row in again.rows.values()] == [1] * kept + [2] * (ROWS - kept)
    assert [s.rows for s in again.footer.segments] == [kept, ROWS - kept]


def test_only_a_footer_is_missing(tmp_path, whole, shard):
    folder = place(tmp_path, shard).folder
    shutil.copytree(place(whole, shard).folder, folder)
    (folder / FOOTER).unlink()
    run_shard(shard, place(tmp_path, shard), refuse_to_load)
    ours, theirs = state(tmp_path, shard).footer, state(whole, shard).footer
    assert (ours.sha256, ours.rows) == (theirs.sha256, theirs.rows)


def test_a_changed_digit_in_a_closed_log_is_an_integrity_error(tmp_path, whole, shard):
    folder = place(tmp_path, shard).folder
    shutil.copytree(place(whole, shard).folder, folder)
    log = (folder / CELLS).read_bytes()
    (folder / CELLS).write_bytes(log.replace(b'"hajek":0.', b'"hajek":1.', 1))
    with pytest.raises(IntegrityError, match=r"cells\.jsonl was changed after footer\.json closed it"):
        run_shard(shard, place(tmp_path, shard), refuse_to_load)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda s, p: (s, replace(p, under=Under(anchor="2026-stamp"))), "another anchor"),
        (lambda s, p: (changed(s, worlds=5), p), "another configuration"),
        (lambda s, p: (replace(s, layers=4), p), "another configuration"),
        (lambda s, p: (replace(s, protocol_digest="1" * 64), p), "another protocol"),
    ],
)
def test_a_folder_of_another_experiment_is_refused(whole, shard, change, what):
    before = lines(whole, shard)
    other, where = change(shard, place(whole, shard))
    with pytest.raises(IntegrityError, match=f"was begun under {what}"):
        run_shard(other, where, refuse_to_load)
    assert lines(whole, shard) == before


def test_another_anchor_gives_another_log(tmp_path, whole, shard, loaded):
    run(tmp_path, shard, loaded, under=Under(anchor="2026-stamp"))
    assert len(lines(tmp_path, shard)) == ROWS
    assert not science(lines(tmp_path, shard)) & science(lines(whole, shard))


def test_chunks_of_another_size_hold_the_same_rows(tmp_path, root, shard, loaded):
    def rows(folder, *overrides):
        found = {}
        for each in attention_shards(root, "suite.cells.worlds=1", *overrides):
            done = run(folder, each, loaded)
            found |= {
                key: {n: getattr(row, n) for n in row.__struct_fields__ if n != "shard_id"}
                for key, row in done.rows.items()
            }
        return found

    assert rows(tmp_path / "two") == rows(tmp_path / "three", "suite.shard_examples=3")


@pytest.mark.parametrize(
    ("override", "category", "message"),
    [
        ("suite.query_offsets=[8,5000]", "error", "query offset 5000 lies beyond the prompt"),
        ("suite.budgets=[0.02]", "too_short", "a budget of 0.02 keeps"),
        ("++suite.cells.score_params.stride=99999", "error", "none of the"),
        ("suite.cells.context_tokens=4000", "too_long", "exceed the model's 4096 positions"),
    ],
)
def test_prompts_that_cannot_be_measured_leave_failed_rows_and_no_footer(
    tmp_path, root, loaded, override, category, message
):
    overrides = [override] + (["suite.cells.score=accumulated"] if "stride" in override else [])
    (shard, *_) = attention_shards(root, *overrides)
    with pytest.raises(IncompleteError, match="2 of 2 examples failed") as caught:
        run(tmp_path, shard, loaded)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    now = state(tmp_path, shard)
    assert (now.rows, now.footer) == ({}, None)
    assert [(f.example_id, f.category) for f in now.failed] == [(i, category) for i in shard.example_ids]
    assert all(message in f.message for f in now.failed)


def test_a_prompt_that_is_too_short_says_so(tmp_path, shard, loaded, monkeypatch):
    monkeypatch.setattr("kvexp.run.shard.family_of", lambda conf: Short(context="Too short."))
    with pytest.raises(IncompleteError, match="of 10 cached tokens, but 36 are protected"):
        run(tmp_path, shard, loaded)
    assert {f.category for f in state(tmp_path, shard).failed} == {"too_short"}
    assert state(tmp_path, shard).footer is None


def test_a_prompt_that_failed_is_tried_again_beside_those_that_are_there(tmp_path, whole, shard, loaded):
    real, calls = loaded.model.forward, []

    def forward(*arguments, **named):
        calls.append(1)
        if len(calls) == 1:
            raise RuntimeError("no memory today")
        return real(*arguments, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loaded.model, "forward", forward)
        with pytest.raises(IncompleteError, match="1 of 2 examples failed"):
            run(tmp_path, shard, loaded)
    now = state(tmp_path, shard)
    assert [f.example_id for f in now.failed] == ["5-000"]
    assert {key.example_id for key in now.rows} == {"5-001"}
    done = run(tmp_path, shard, loaded)
    assert done.failed == []
    assert done.footer.rows == ROWS
    there = [line for line in lines(tmp_path, shard) if b'"failed/1"' not in line]
    assert science(there) == science(lines(whole, shard))


def test_a_model_with_other_heads_than_conf_says_is_refused_and_writes_no_row(tmp_path, shard, loaded):
    other = replace(shard, query_heads=9)
    with pytest.raises(ConfigError, match=r"conf/model/tiny\.yaml says 3 layers and 9 query heads") as caught:
        run(tmp_path, other, loaded)
    assert "\n" not in str(caught.value)
    assert lines(tmp_path, other) == []


def test_a_budget_of_worlds_that_is_too_small_fails_only_the_prompts_that_have_worlds(tmp_path, root, loaded):
    (shard, *_) = attention_shards(root, "suite.world_budget=0.02")
    with pytest.raises(IncompleteError, match=r"1 of 2 examples failed .*: a budget of 0\.02 keeps"):
        run(tmp_path, shard, loaded)
    now = state(tmp_path, shard)
    assert [(f.example_id, f.category) for f in now.failed] == [("5-000", "too_short")]
    assert {key.example_id for key in now.rows} == {"5-001"}


def submitted(root, *overrides):
    said = io.StringIO()
    with contextlib.chdir(root):
        parsed = cli._parse(["submit", "study=mini", "cluster=debug", *overrides])
        code = submit.run(parsed, Console(file=said, width=200))
    return code, said.getvalue()


def test_other_heads_than_the_models_are_told_before_anything_is_begun(tmp_path, tiny_folder):
    root = make(tmp_path / "project", tiny_folder, layers=2)
    message = r"^conf/model/tiny.yaml says 2 layers and 6 query heads, but the model has 3 and 6$"
    with pytest.raises(ConfigError, match=message):
        submitted(root, "suite=cells", "suite.cells.shard_examples=3")
    assert not list(project.results(root).glob("*/*/attempt-*"))


def test_submit_runs_an_attention_suite_beside_generations_once(tmp_path, tiny_folder):
    root = make(tmp_path / "project", tiny_folder)
    small = ("suite.n_examples=2", "suite.cells.worlds=1")
    code, said = submitted(root, *small)
    assert code == 0, said
    made = project.made(root, *small)
    assert [s.log for s in made] == [GENERATIONS, CELLS]
    for shard in made:
        folder = launch.folder_of(project.results(root), shard)
        assert len(read_state(folder, shard.log).rows) == shard.n_rows
        assert (folder / FOOTER).exists()
    code, said = submitted(root, *small)
    assert code == 0
    assert "2 of 2 shards are complete" in said


def attention_of(root, *overrides):
    return attention_shards(root, *overrides)[0].attention


@pytest.mark.parametrize("name", ["score", "rotation_score"])
def test_a_question_score_in_the_stream_condition_is_refused_in_one_sentence(root, name):
    message = r"^conf/suite/cells\.yaml: the question score is undefined in the stream condition$"
    with pytest.raises(ConfigError, match=message):
        project.made(root, f"suite.cells.{name}=question")
    aware = ("suite.cells.condition=aware", "suite.cells.query_offsets=[0]")
    assert getattr(attention_of(root, *aware, f"suite.cells.{name}=question"), name) == "question"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("suite.cells.condition=aware", "so query_offsets is \\[0\\]"),
        ("suite.cells.score=windw", "there is no score named 'windw'"),
        ("++suite.cells.score_params.widow=3", "widow"),
        ("++suite.cells.score_params.window=0", "window is at least 1"),
        ("++suite.cells.rotation_score_params.window=0", "window is at least 1"),
        ("++suite.cells.design_params.allocation=twice", "allocation is iterated or single_clip"),
        ("suite.cells.condition=never", "a condition is aware or stream"),
        ("suite.cells.budgets=[0.25,1.5]", r"a budget lies in \(0, 1\]"),
        ("suite.cells.budgets=[]", "budgets is empty"),
        ("suite.cells.budgets=[0.25,0.25]", "budgets repeats"),
        ("suite.cells.query_offsets=[-1]", "query_offsets and world_examples are at least 0"),
        ("suite.cells.query_offsets=[]", "query_offsets is empty"),
        ("suite.cells.seeds=[0,0]", "seeds repeats"),
        ("suite.cells.worlds=0", "worlds is at least 1"),
        ("suite.cells.world_budget=0", r"a budget lies in \(0, 1\]"),
        ("suite.cells.context_tokens=100", "context_tokens is 100"),
    ],
)
def test_settings_without_a_meaning_are_refused_in_one_sentence(root, override, message):
    with pytest.raises(ConfigError, match=message) as caught:
        project.made(root, override)
    assert "\n" not in str(caught.value)
    assert "conf/suite/cells.yaml" in str(caught.value)


def test_a_model_without_its_heads_in_conf_is_refused_in_one_sentence(tmp_path, tiny_folder):
    root = project.make(tmp_path / "project", tiny_folder)
    project.write(root, "suite/cells", SUITE)
    message = r"^conf/model/tiny\.yaml: an attention suite needs layers and query_heads"
    with pytest.raises(ConfigError, match=message):
        project.made(root, "study.suites=[mini,cells]")
    assert project.made(root, "study.suites=[mini]")


def test_n_rows_counts_cells_and_worlds(root):
    first, second = attention_shards(root)
    assert (first.n_rows, first.n_cells) == (ROWS, 288)
    assert (second.n_rows, second.n_cells) == (144, 144)
    for shard in attention_shards(root, "suite.cells.world_examples=99", "suite.cells.worlds=2"):
        assert shard.n_rows == len(list(shard.keys())) == len(set(shard.keys()))
        assert shard.n_rows == len(shard.example_ids) * (144 + 2 * 3 * 3)
    assert [s.world_ids for s in attention_shards(root, "suite.cells.world_examples=0")] == [[], []]


def test_the_shipped_suite_has_the_cells_that_issue_3_counts():
    paper = [s for s in shards(select(["study=paper"], project.ROOT), "assume") if s.suite == "attention"]
    assert sum(s.n_cells for s in paper) == 12_096 * 3
    assert paper[0].attention.budgets == [0.125, 0.25, 0.5]
    embedded = [s for s in shards(select(["study=embedded"], project.ROOT)) if s.suite == "attention"]
    assert sum(len(s.example_ids) for s in embedded) >= 20
    assert sum(s.n_cells for s in embedded) == 36 * 30 * 9 * 3
    assert sum(len(s.world_ids) for s in embedded) == 12


@pytest.mark.parametrize(
    ("override", "mini", "cells"),
    [
        ("suite.n_examples=2", True, True),
        ("suite.context_tokens=300", True, True),
        ("suite.arms=[{arm: full}]", True, False),
        ("suite.worlds=3", False, True),
        ("suite.query_offsets=[5]", False, True),
        ("suite.cells.n_examples=2", False, True),
        ("suite.mini.n_examples=2", True, False),
    ],
)
def test_an_override_of_all_suites_concerns_those_that_have_the_field(root, override, mini, cells):
    def digests(kind, *overrides):
        return [s.digest for s in project.made(root, *overrides) if isinstance(s, kind)]

    assert (digests(GenerationShard, override) != digests(GenerationShard)) == mini
    assert (digests(AttentionShard, override) != digests(AttentionShard)) == cells


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("suite.cells.arms=[{arm: full}]", "arms"),
        ("suite.mini.worlds=3", "worlds"),
        ("suite.wrlds=3", "did you mean"),
    ],
)
def test_a_field_that_a_suite_does_not_have_is_refused_in_one_sentence(root, override, message):
    with pytest.raises(ConfigError, match=message) as caught:
        project.made(root, override)
    assert "\n" not in str(caught.value)


def test_an_override_that_no_suite_of_the_study_has_is_refused(root):
    with pytest.raises(ConfigError, match=r"'suite\.worlds=3' changes nothing: study mini has no suite with"):
        project.made(root, "study.suites=[mini]", "suite.worlds=3")


def test_a_study_has_suites_of_both_kinds(root):
    kinds = [type(suite) for suite in project.selected(root).suites]
    assert kinds == [SuiteConf, AttentionConf]
    assert [s.shard_id for s in project.made(root)] == [
        "mini.tiny.words.000",
        "mini.tiny.words.001",
        "cells.tiny.prose.000",
        "cells.tiny.prose.001",
    ]


def begin(results, shard):
    folder = results / shard.suite / shard.shard_id
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "attempt-001.json").write_text("{}")


def grid(results):
    read = Reader(Expected | ExpectedCells)
    return [read(line) for line in (results / GRID).read_bytes().splitlines()]


def test_a_new_suite_joins_a_begun_study(root, tmp_path):
    before = project.made(root, "study.suites=[mini]")
    write_grid(tmp_path, before)
    begin(tmp_path, before[0])
    write_grid(tmp_path, project.made(root))
    assert grid(tmp_path) == [row for s in project.made(root) for row in s.expected()]
    assert {type(row) for row in grid(tmp_path)} == {Expected, ExpectedCells}


@pytest.mark.parametrize(
    ("begun", "override", "allowed"),
    [
        ("cells", "suite.cells.query_offsets=[8]", False),
        ("cells", "suite.cells.worlds=5", False),
        ("cells", "suite.cells.world_examples=0", False),
        ("cells", "suite.cells.n_examples=4", False),
        ("cells", "study.suites=[mini]", False),
        ("cells", "suite.mini.n_examples=2", True),
        ("mini", "suite.cells.query_offsets=[8]", True),
        ("mini", "suite.mini.n_examples=2", False),
        ("mini", "study.suites=[cells]", False),
        ("mini", "study.suites=[mini]", True),
    ],
)
def test_a_begun_suite_keeps_its_grid_and_the_others_may_change(root, tmp_path, begun, override, allowed):
    write_grid(tmp_path, project.made(root))
    begin(tmp_path, next(s for s in project.made(root) if s.suite == begun))
    before, other = (tmp_path / GRID).read_bytes(), project.made(root, override)
    if allowed:
        write_grid(tmp_path, other)
        assert grid(tmp_path) == [row for s in other for row in s.expected()]
        return
    with pytest.raises(IntegrityError, match=f"expects other rows of suite {begun} than this") as caught:
        write_grid(tmp_path, other)
    assert "\n" not in str(caught.value)
    assert (tmp_path / GRID).read_bytes() == before


def test_examples_are_tokenised_as_the_suite_renders_them(root, tmp_path):
    """`chat` of an attention suite is its own; the context's length does not hang on it."""
    write_examples(tmp_path, project.made(root), lambda name: tiny.tokenizer())
    said = [
        json.loads(line) for line in (tmp_path / "examples/cells.tiny.prose.jsonl").read_bytes().splitlines()
    ]
    assert [e["example_id"] for e in said] == ["5-000", "5-001", "5-002"]
    questions = build_task("prose").load(3, 5, 256)
    for example, question in zip(said, questions, strict=True):
        assert example["question"] == question.question
        assert example["references"] == []
        assert example["n_context"] == example["n_context_full"] == len(question.context.encode())


USED = {"scores/window", "scores/value_weighted", "design/poisson", "tasks/prose"}


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("replay/cells.py", {"cells"}),
        ("run/measure.py", {"cells"}),
        ("replay/signals.py", {"cells", "generations"}),
        ("replay/cache.py", {"generations"}),
        ("replay/decode.py", {"generations"}),
        ("run/answer.py", {"generations"}),
        ("estimate.py", {"cells", "generations"}),
        ("replay/prefill.py", {"cells", "generations"}),
        ("study/prompts.py", {"cells", "generations"}),
        ("draws.py", {"cells", "generations"}),
        ("scores/value_weighted.py", {"cells", "generations"}),
        ("scores/question.py", set()),
    ],
)
def test_what_makes_one_kind_of_rows_leaves_the_other_kinds_digest(tmp_path, name, changes):
    package = tmp_path / "kvexp"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    kinds = ("cells", "generations")
    before = {kind: protocol_manifest(kind, USED, package).digest for kind in kinds}
    assert before == {kind: protocol_manifest(kind, USED).digest for kind in kinds}
    with (package / name).open("a") as file:
        file.write("# a comment counts: what ran is what is named\n")
    assert {k for k in kinds if protocol_manifest(k, USED, package).digest != before[k]} == changes


def test_shards_carry_the_digest_of_their_kind(root):
    by_kind = {s.log: s.protocol_digest for s in project.made(root)}
    assert set(by_kind) == {CELLS, GENERATIONS}
    assert by_kind[CELLS] != by_kind[GENERATIONS]
    other = {s.log: s.protocol_digest for s in project.made(root, "suite.cells.score=accumulated")}
    assert other[GENERATIONS] == by_kind[GENERATIONS]
    assert other[CELLS] != by_kind[CELLS]


def test_a_failed_row_of_an_attention_shard_is_a_failed_record(tmp_path, root, loaded):
    (shard, *_) = attention_shards(root, "suite.budgets=[0.02]")
    with pytest.raises(IncompleteError):
        run(tmp_path, shard, loaded)
    read = Reader(Cell | World | Failed)
    rows = [read(line) for line in lines(tmp_path, shard)]
    assert [type(row) for row in rows] == [Failed, Failed]
    assert to_lines(rows) == b"".join(lines(tmp_path, shard))


def spearman(x, y):
    """Rank correlation of lists without ties."""
    ranks = [np.argsort(np.argsort(values)) for values in (x, y)]
    return float(np.corrcoef(*ranks)[0, 1])


def test_spearman_of_this_file():
    assert spearman([1, 2, 3, 4], [10, 30, 20, 40]) == pytest.approx(0.8)


@pytest.fixture(scope="module")
def real_rows(real_model):
    """The shipped suite on 4 prompts of 1,024 tokens, one with worlds."""
    small = {"n_examples": 4, "context_tokens": 1024, "shard_examples": 4, "world_examples": 1}
    overrides = [f"suite.attention.{name}={value}" for name, value in small.items()]
    made = shards(select(["study=embedded", *overrides], project.ROOT))
    (shard,) = [s for s in made if s.suite == "attention"]
    rows = [row for number in range(4) for row in measured(shard, real_model, number=number)]
    return shard, rows


@pytest.mark.slow
def test_the_real_model_shows_the_pattern_of_section_4(real_rows, record_property):
    """DESIGN 2.8; levels depend on the text, the pattern does not."""
    shard, rows = real_rows
    assert len(cells_of(rows)) == 3 * 4 * 30 * 9
    assert {row.key for row in rows} == set(shard.keys())
    for budget in (0.125, 0.25, 0.5):
        cells = [row for row in cells_of(rows) if row.budget == budget]
        names = ("hajek", "topk", "no_offset", "uniform", "certificate")
        medians = {name: median(getattr(row, name) for row in cells) for name in names}
        coverage = sum(row.covered for row in cells) / len(cells)
        rho = spearman([row.certificate for row in cells], [row.hajek for row in cells])
        ratio = medians["certificate"] / medians["hajek"]
        record_property(f"section_4_at_{budget:g}", {**medians, "coverage": coverage, "spearman": rho})
        print(f"{budget:g}", medians, "coverage", coverage, "spearman", rho, "ratio", ratio)
        assert coverage >= 0.9
        assert rho >= 0.85
        assert 2 < ratio < 5
        if budget == 0.25:
            assert medians["hajek"] < medians["topk"] < medians["no_offset"] < medians["uniform"]
        assert max(medians["hajek"], medians["topk"], medians["no_offset"]) < medians["uniform"]


@pytest.mark.slow
def test_the_real_models_cells_equal_the_loop_over_tokens(real_rows, real_model):
    """A few cells of a prompt, at all budgets and of all three KV heads."""
    shard, rows = real_rows
    example_id, family = shard.example_ids[2], build_task("prose")
    question = {q.example_id: q for q in family.load(4, shard.example_seed, 1024)}[example_id]
    prompt = prompt_of(real_model.tokenizer, family, question, Rendering(chat=False, limit=4096))
    chosen = {(0, 0), (7, 4), (15, 8), (29, 1), (29, 6)}  # layers and heads
    expected = expected_cells(
        real_model, shard, prompt, example_id, lambda layer, head, **_: (layer, head) in chosen
    )
    there = [row for row in cells_of(rows) if row.example_id == example_id and place_of(row) in expected]
    assert len(there) == len(expected) == 3 * len(chosen)
    assert_cells_equal(there, expected)


@pytest.mark.slow
def test_the_real_models_worlds_look_alike_to_top_k(real_rows, record_property):
    _, rows = real_rows
    for change in ("permutation", "rotation"):
        ratios = []
        for layer in range(30):
            group = [r for r in worlds_of(rows) if (r.change, r.layer) == (change, layer)]
            assert [r.world for r in group] == list(range(7))
            assert len({r.statistics for r in group}) == 1
            for head in range(9):
                errors = [r.topk[head] for r in group]
                ratios.append(max(errors) / min(errors))
        record_property(f"worst_over_best_topk_error_{change}", median(ratios))
        print(change, "median of the worst over the best world's top-k error:", median(ratios))
        assert min(ratios) > 1
