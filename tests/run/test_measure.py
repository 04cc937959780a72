"""From a prompt to its cells and worlds: which rows come out, what keys the draws, what is refused."""

from dataclasses import dataclass, replace

import pytest
import torch

from kvexp.design.base import TooShort
from kvexp.errors import ConfigError, InputError, KvexpError
from kvexp.records import Cell, World
from kvexp.replay.model import wrap
from kvexp.replay.prompt import TooLong
from kvexp.run.log import to_lines
from kvexp.run.measure import measure
from kvexp.study.plugins import build_task
from kvexp.tasks.base import PromptText, Question, Task
from tests import project, tiny

SUITE = """
defaults: [base_attention, _self_]
name: cells
tasks: [prose]
context_tokens: 256
n_examples: 3
example_seed: 5
shard_examples: 2
budgets: [0.25, 0.5]
seeds: [0, 1]
query_offsets: [8, 40]
score: window
world_examples: 1
"""
CELLS = 2 * 2 * 2 * 3 * 6  # of a prompt: budgets, seeds, offsets, layers, query heads
WORLDS = 2 * 7 * 3  # of a prompt: changes, worlds, layers
TEXT = " ".join(
    f"Item {i} weighs {i * 37 % 101} grams and is {'red' if i % 3 else 'blue'}." for i in range(9)
)
AFTER = "\nNow the text goes on, and on, and later tokens look back at it."


@dataclass(frozen=True)
class Short(Task):
    """A context of any length, without answers: contexts of the real family have 256 words or more."""

    context: str = TEXT
    after: str = AFTER
    has_answers = False
    score_name = "token_f1"

    def load(self, n_examples, seed, context_tokens, count=None):
        return [Question(f"{seed}-{i:03d}", self.context, self.after, ()) for i in range(n_examples)]

    def prompt(self, question):
        return PromptText(before="", context=question.context, after=self.after, question=self.after)


def make(folder, model, layers=3, query_heads=6):
    """A project whose study has a suite of generations, `mini`, and one of attention cells, `cells`."""
    root = project.make(folder, model)
    project.write(root, "suite/cells", SUITE)
    project.write(root, "study/mini", project.STUDY.replace("suites: [mini]", "suites: [mini, cells]"))
    said = (root / "conf/model/tiny.yaml").read_text()
    project.write(root, "model/tiny", f"{said}layers: {layers}\nquery_heads: {query_heads}\n")
    return root


def attention_shards(root, *overrides):
    return [shard for shard in project.made(root, *overrides) if shard.suite == "cells"]


def changed(shard, **changes):
    """A shard whose suite has other settings."""
    return replace(shard, attention=replace(shard.attention, **changes))


def measured(shard, loaded, *, number=0, anchor="unanchored", attempt=1, family=None):
    """The rows of one example of a shard."""
    family = family or build_task(shard.task.family, **shard.task.params)
    questions = family.load(shard.n_examples, shard.example_seed, shard.context_tokens)
    by_id = {q.example_id: q for q in questions}
    return measure(shard, anchor, family, by_id[shard.example_ids[number]], attempt, loaded)


def cells_of(rows):
    return [row for row in rows if isinstance(row, Cell)]


def worlds_of(rows):
    return [row for row in rows if isinstance(row, World)]


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def root(tmp_path_factory, tiny_folder):
    return make(tmp_path_factory.mktemp("measuring") / "project", tiny_folder)


@pytest.fixture(scope="module")
def shard(root):
    return attention_shards(root)[0]


@pytest.fixture(scope="module")
def loaded():
    return wrap(tiny.model("llama"), tiny.tokenizer())


@pytest.fixture(scope="module")
def rows(shard, loaded):
    return measured(shard, loaded)


def lines(rows):
    return to_lines(rows)


def without(rows, *names):
    """The rows as plain values, without some of their fields."""
    return [{k: getattr(row, k) for k in row.__struct_fields__ if k not in names} for row in rows]


def test_the_rows_are_the_cells_and_worlds_that_the_shard_expects(shard, loaded, rows):
    every = [*rows, *measured(shard, loaded, number=1)]
    keys = [row.key for row in every]
    assert len(set(keys)) == len(keys)
    assert set(keys) == set(shard.keys())
    assert len(keys) == shard.n_rows == 2 * CELLS + WORLDS
    assert len(cells_of(every)) == shard.n_cells
    assert {row.example_id for row in worlds_of(every)} == set(shard.world_ids) == {"5-000"}


def test_every_row_says_where_it_belongs(shard, rows):
    for row in rows:
        here = (row.suite, row.shard_id, row.model, row.task, row.example_id, row.attempt)
        assert here == ("cells", shard.shard_id, "tiny", "prose", "5-000", 1)
    assert {row.score for row in cells_of(rows)} == {"window"}
    assert {(row.change, row.score) for row in worlds_of(rows)} == {
        ("permutation", "window"),
        ("rotation", "value_weighted"),
    }


def test_numbers_have_seven_digits(rows):
    for row in rows:
        for value in without([row])[0].values():
            for number in value if isinstance(value, list) else [value]:
                assert not isinstance(number, float) or float(f"{number:.7g}") == number


def test_the_same_again_gives_the_same_bytes(shard, loaded, rows):
    assert lines(measured(shard, loaded)) == lines(rows)
    fresh = wrap(tiny.model("llama"), tiny.tokenizer())
    assert lines(measured(shard, fresh)) == lines(rows)


def test_the_attempt_is_the_only_thing_that_a_second_attempt_changes(shard, loaded, rows):
    again = measured(shard, loaded, attempt=2)
    assert {row.attempt for row in again} == {2}
    assert without(again, "attempt") == without(rows, "attempt")


def drawn(rows, seed=0):
    """Per budget, layer and head, what the two draws kept and where that led."""
    return [
        (row.kept, row.uniform_kept, row.hajek, row.uniform) for row in cells_of(rows) if row.seed == seed
    ]


def test_another_anchor_seed_or_example_draws_otherwise(shard, loaded, rows):
    others = [
        drawn(rows),
        drawn(rows, seed=1),
        drawn(measured(shard, loaded, anchor="2026-stamp")),
        drawn(measured(shard, loaded, number=1)),
        drawn(
            measured(
                replace(shard, task=replace(shard.task, name="other")), loaded, family=build_task("prose")
            )
        ),
    ]
    for place in range(len(others)):
        for other in others[:place]:
            different = sum(a[2] != b[2] for a, b in zip(others[place], other, strict=True))
            assert different > 0.9 * len(other)


def test_what_is_not_drawn_does_not_depend_on_the_anchor_or_the_seed(shard, loaded, rows):
    fixed = "budget offset layer head evictable expected_kept norm topk rare_attention".split()
    for other in (rows, measured(shard, loaded, anchor="2026-stamp")):
        by_seed = [
            [[getattr(row, name) for name in fixed] for row in cells_of(other) if row.seed == seed]
            for seed in (0, 1)
        ]
        assert by_seed[0] == by_seed[1]
        assert by_seed[0] == [
            [getattr(row, name) for name in fixed] for row in cells_of(rows) if row.seed == 0
        ]


def test_a_budget_or_seed_does_not_depend_on_the_others(shard, loaded, rows):
    alone = cells_of(measured(changed(shard, budgets=[0.5], seeds=[1]), loaded))
    beside = [row for row in cells_of(rows) if (row.budget, row.seed) == (0.5, 1)]
    assert lines(alone) == lines(beside)


def test_a_smaller_budget_keeps_fewer(rows):
    by_budget = {b: [r for r in cells_of(rows) if r.budget == b] for b in (0.25, 0.5)}
    for small, large in zip(by_budget[0.25], by_budget[0.5], strict=True):
        assert (small.seed, small.offset, small.layer, small.head) == (
            large.seed,
            large.offset,
            large.layer,
            large.head,
        )
        assert small.kept < large.kept < large.evictable
        assert small.uniform_kept < large.uniform_kept


def test_query_heads_of_a_kv_head_share_its_keep_set(rows):
    """Six query heads, two KV heads: heads 0-2 and 3-5."""
    names = "expected_kept kept tail_kept uniform_kept".split()
    by_head = [
        [[getattr(row, name) for name in names] for row in cells_of(rows) if row.head == head]
        for head in range(6)
    ]
    assert by_head[0] == by_head[1] == by_head[2] != by_head[3] == by_head[4] == by_head[5]


def test_every_query_head_has_a_query_of_its_own(rows):
    here = {row.head: row.norm for row in cells_of(rows) if (row.layer, row.offset, row.seed) == (1, 8, 0)}
    assert len(set(here.values())) == 6


def test_budgets_and_draws_do_not_change_the_output_over_the_whole_cache(rows):
    whole = {}
    for row in cells_of(rows):
        whole.setdefault((row.layer, row.head, row.offset), set()).add(row.norm)
    assert {len(norms) for norms in whole.values()} == {1}


def test_an_aware_suite_evicts_with_all_tokens_but_the_last_in_the_cache(shard, loaded):
    aware = changed(shard, condition="aware", query_offsets=[0], score="question")
    rows = measured(aware, loaded, family=Short())
    prompt = len(TEXT) + len(AFTER)  # one token a byte
    assert {row.evictable for row in cells_of(rows)} == {prompt - 1}
    assert {row.score for row in cells_of(rows)} == {"question"}
    assert {row.key for row in rows} < set(aware.keys())


@pytest.mark.parametrize("offset", [len(AFTER), 10_000])
def test_a_query_beyond_the_prompt_is_refused_in_one_sentence(shard, loaded, offset):
    message = f"query offset {offset} lies beyond the prompt: only {len(AFTER)} tokens follow the eviction"
    with pytest.raises(InputError, match=message):
        measured(changed(shard, query_offsets=[0, offset]), loaded, family=Short())


def test_the_last_token_of_the_prompt_can_be_a_query(shard, loaded):
    last = changed(shard, query_offsets=[0, len(AFTER) - 1])
    assert len(cells_of(measured(last, loaded, family=Short()))) == CELLS


@pytest.mark.parametrize(
    ("changes", "family", "error", "message"),
    [
        ({"budgets": [0.5, 0.1]}, Short(), TooShort, r"a budget of 0\.1 keeps 32 of 316 cached tokens"),
        ({"world_budget": 0.1}, Short(), TooShort, r"a budget of 0\.1 keeps 32"),
        ({}, Short(context="Too short."), TooShort, "of 10 cached tokens, but 36 are protected"),
        ({"score": "accumulated", "score_params": {"stride": 5000}}, Short(), InputError, "none of the 316"),
        ({"design_params": {"floor": 0.9}}, Short(), InputError, r"a floor of 0\.9 .* spends more than"),
        ({}, Short(context=TEXT * 20), TooLong, "exceed the model's 4096 positions"),
    ],
)
def test_what_cannot_be_measured_is_refused_in_one_sentence(shard, loaded, changes, family, error, message):
    with pytest.raises(error, match=message) as caught:
        measured(changed(shard, **changes), loaded, family=family)
    assert isinstance(caught.value, KvexpError)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("layers", "heads"), [(4, 6), (3, 9), (2, 2)])
def test_a_model_that_is_not_as_conf_says_is_refused_in_one_sentence(shard, loaded, layers, heads):
    other = replace(shard, layers=layers, query_heads=heads)
    message = (
        rf"conf/model/tiny\.yaml says {layers} layers and {heads} query heads, but the model has 3 and 6"
    )
    with pytest.raises(ConfigError, match=message) as caught:
        measured(other, loaded)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("offsets", [[4], [4, 20], [4, 20, 30]])
@pytest.mark.parametrize("layout", [("llama", 6, 2), ("mistral", 4, 4), ("qwen2", 9, 3)], ids=str)
def test_any_number_of_queries(shard, layout, offsets):
    kind, heads, kv_heads = layout
    loaded = wrap(tiny.model(kind, heads=heads, kv_heads=kv_heads), tiny.tokenizer())
    there = changed(replace(shard, layers=3, query_heads=heads), query_offsets=offsets)
    rows = measured(there, loaded, family=Short())
    expected = list(there.keys())
    assert {row.key for row in rows} == {key for key in expected if key.example_id == "5-000"}
    assert {(row.offset, row.head) for row in cells_of(rows)} == {
        (offset, head) for offset in offsets for head in range(heads)
    }
