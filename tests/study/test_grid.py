"""Identity: ids, keys and digests of shards, and what may and may not change them."""

import json
from collections import Counter
from dataclasses import replace
from itertools import chain

import pytest

from kvexp.errors import ConfigError
from kvexp.replay.protocol import Protocol
from kvexp.study.compose import select
from kvexp.study.grid import chosen, shards
from kvexp.study.schema import ArmConf, ArmGrid, ModelConf, TaskConf
from kvexp.study.shards import SHARD_VERSION, GenerationShard
from tests import project
from tests.project import ROOT

FIXED = GenerationShard(
    suite="s",
    model=ModelConf(name="m", source="hub/model", revision="abc", dtype="bfloat16"),
    task=TaskConf(name="t", family="words", max_new_tokens=8, params={"n_facts": 2}),
    arms=[
        (ArmConf(name="full", design="full"), ArmGrid(arm="full")),
        (
            ArmConf(
                name="p", score="accumulated", aware_score="question", design="poisson", estimator="hajek"
            ),
            ArmGrid(arm="p", conditions=["aware", "stream"], budgets=[0.25], seeds=[0, 1]),
        ),
    ],
    protocol=Protocol(),
    context_tokens=512,
    n_examples=4,
    example_seed=1,
    chunk=2,
    example_ids=["1-002", "1-003"],
    protocol_digest="0" * 64,
)
# Golden values: a change here gives every shard in the world another identity. It needs a new
# SHARD_VERSION, and a reason.
VERSION = 2
GOLDEN = "e4734eefdcc139a5ce81035591e5648280ebb12534390bfcc49f63d4285ebabf"
SMALLEST = replace(FIXED, arms=FIXED.arms[:1], example_ids=["1-000"], chunk=0, n_examples=1)
GOLDEN_SMALLEST = "aafad00bee3ac2a864f643004ab91f711b3bbc7e21631700ef94cecb7dea3fa5"


@pytest.fixture
def root(tmp_path, tiny_folder):
    return project.make(tmp_path / "project", tiny_folder)


def digests(made):
    return {shard.shard_id: shard.digest for shard in made}


def test_golden_digests():
    assert SHARD_VERSION == VERSION
    assert (FIXED.digest, SMALLEST.digest) == (GOLDEN, GOLDEN_SMALLEST)


def test_the_resolved_shard_is_plain_data_and_leaves_no_default_open():
    resolved = FIXED.resolved()
    assert json.loads(json.dumps(resolved, allow_nan=False))["arms"][1][1]["seeds"] == [0, 1]
    assert resolved["protocol"] == {
        "sinks": 4,
        "recent": 32,
        "head_stride": 4,
        "steps": 6,
        "delta": 0.1,
        "norm_floor": 1e-9,
        "first_token": "compressed",
    }


CHANGES = [
    replace(FIXED, suite="s2"),
    replace(FIXED, no_context=True),
    *(
        replace(FIXED, model=replace(FIXED.model, **{name: value}))
        for name, value in {
            "name": "m2",
            "source": "hub/other",
            "revision": None,
            "dtype": "float32",
            "chat": False,
        }.items()
    ),
    *(
        replace(FIXED, task=replace(FIXED.task, **{name: value}))
        for name, value in {
            "name": "t2",
            "family": "facts",
            "max_new_tokens": 9,
            "params": {"n_facts": 3},
        }.items()
    ),
    *(
        replace(FIXED, arms=[FIXED.arms[0], (replace(FIXED.arms[1][0], **{name: value}), FIXED.arms[1][1])])
        for name, value in {
            "score": "window",
            "score_params": {"stride": 8},
            "aware_score": None,
            "aware_score_params": {"a": 1},
            "design": "uniform",
            "design_params": {"floor": 1e-5},
            "estimator": "plain",
        }.items()
    ),
    *(
        replace(FIXED, arms=[FIXED.arms[0], (FIXED.arms[1][0], replace(FIXED.arms[1][1], **{name: value}))])
        for name, value in {"conditions": ["aware"], "budgets": [0.5], "seeds": [0]}.items()
    ),
    *(
        replace(FIXED, protocol=replace(FIXED.protocol, **{name: value}))
        for name, value in {
            "sinks": 5,
            "recent": 31,
            "head_stride": 2,
            "steps": 5,
            "delta": 0.2,
            "norm_floor": 1e-8,
            "first_token": "prefill",
        }.items()
    ),
    replace(FIXED, arms=FIXED.arms[:1]),
    replace(FIXED, context_tokens=513),
    replace(FIXED, n_examples=5),
    replace(FIXED, example_seed=2),
    replace(FIXED, chunk=3),
    replace(FIXED, example_ids=["1-003", "1-002"]),
    replace(FIXED, protocol_digest="1" * 64),
]


def test_every_scientific_field_changes_the_digest():
    assert len({FIXED.digest, *(shard.digest for shard in CHANGES)}) == 1 + len(CHANGES)


def test_no_field_was_forgotten_above():
    """A new field of a shard, model, task, arm or protocol needs a line in CHANGES."""

    def leaves(value, path=()):
        if isinstance(value, dict) and value and path[-1:] != ("params",):
            return {leaf for key, item in value.items() for leaf in leaves(item, (*path, key))}
        return {path}

    def differing(a, b):
        return {p for p in leaves(a) | leaves(b) if _at(a, p) != _at(b, p)}

    def flat(shard):
        resolved = shard.resolved()
        conf, entry = resolved.pop("arms")[-1]
        return {**resolved, "conf": conf, "entry": entry}

    covered = set().union(*(differing(flat(FIXED), flat(shard)) for shard in CHANGES))
    untouched = leaves(flat(FIXED)) - covered
    assert untouched <= {("version",), ("conf", "name"), ("entry", "arm")}


def _at(value, path):
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def test_cluster_place_and_invocation_change_nothing(root, tmp_path, monkeypatch, tiny_folder):
    before = digests(project.made(root))
    other = project.make(tmp_path / "moved" / "elsewhere", tiny_folder)
    monkeypatch.chdir(tmp_path)
    assert digests(project.made(other)) == before
    assert digests(project.made(root, "cluster=debug")) == before
    assert (
        digests(project.made(root, "cluster.workers=7", "cluster.threads=2", "cluster.device=cuda")) == before
    )
    assert digests(project.made(root, "study.name=renamed")) == before
    assert digests(project.made(root, "suite=mini", "task=words", "model=tiny")) == before
    one = project.made(root, "suite.mini.n_examples=3", "arm.poisson.design_params.floor=1e-5")
    two = project.made(root, "arm.poisson.design_params.floor=0.00001", "suite.n_examples=3")
    assert digests(one) == digests(two) != before


def test_another_study_with_the_same_suite_has_the_same_shards(root):
    """Identity is what a shard computes, not the study that asked for it."""
    project.write(root, "study/twin", project.STUDY.replace("name: mini", "name: twin"))
    assert digests(shards(select(["study=twin"], root))) == digests(project.made(root))


def test_shards_are_ordered_chunks(root):
    made = project.made(root, "suite.n_examples=5")
    assert [s.shard_id for s in made] == [f"mini.tiny.words.{n:03d}" for n in range(3)]
    assert [len(s.example_ids) for s in made] == [2, 2, 1]
    ids = [i for s in made for i in s.example_ids]
    assert len(set(ids)) == 5


def test_the_chunk_size_moves_examples_between_shards_and_changes_no_row(root):
    def keys(*overrides):
        return [row.key for shard in project.made(root, *overrides) for row in shard.expected()]

    assert keys() == keys("suite.shard_examples=1") == keys("suite.shard_examples=99")


@pytest.mark.parametrize(
    ("study", "suite", "per_example", "extras"),
    [
        ("demo", "demo-512", 17, 0),
        ("demo", "demo-1k", 25, 0),
        ("embedded", "embedded-1k", 17, 3),
        ("embedded", "embedded-2k", 25, 3),
    ],
)
def test_generations_of_an_example(study, suite, per_example, extras):
    made = [s for s in shards(select([f"study={study}", "suite.n_examples=2"], ROOT)) if s.suite == suite]
    arms = made[0].places()
    assert len(arms) == per_example + extras
    by_name = Counter(arm.name for arm in arms)
    budgets = 2 if per_example == 17 else 3
    assert by_name["poisson"] == 4 * budgets
    assert [by_name[n] for n in ("full", "streaming_llm", "h2o", "snapkv", "topk")] == [1, *[budgets] * 4]
    assert sum(by_name[n] for n in ("uniform", "poisson_no_offset", "floor")) == extras


@pytest.mark.parametrize("study", ["demo", "embedded"])
def test_both_suites_of_a_study_ask_the_same_examples(study):
    made = shards(select([f"study={study}", "suite.n_examples=4"], ROOT))
    asked = {}
    for shard in (s for s in made if isinstance(s, GenerationShard)):
        asked.setdefault((shard.suite, shard.task.name), []).extend(shard.example_ids)
    suites = sorted({suite for suite, _ in asked})
    shared = {task for suite, task in asked if suite == suites[0]} & {t for s, t in asked if s == suites[1]}
    assert len(shared) >= 2
    for task in shared:
        assert asked[suites[0], task] == asked[suites[1], task]
        assert len(set(asked[suites[0], task])) == 4


@pytest.mark.parametrize("study", ["demo", "embedded"])
def test_no_key_is_expected_twice_in_a_study(study):
    made = shards(select([f"study={study}", "suite.n_examples=3"], ROOT))
    keys = list(chain.from_iterable(shard.keys() for shard in made))
    assert len(set(keys)) == len(keys) == sum(shard.n_rows for shard in made)
    assert len({shard.shard_id for shard in made}) == len(made)


def test_an_arm_at_the_same_place_through_two_entries_is_refused(root):
    overlap = (
        "suite.arms=[{arm: h2o, conditions: [stream], budgets: [0.25, 0.5]},"
        "{arm: h2o, conditions: [stream], budgets: [0.5]}]"
    )
    with pytest.raises(ConfigError, match=r"conf/suite/mini.yaml: arms lists h2o twice at stream 0.5"):
        project.made(root, overlap)
    apart = overlap.replace("budgets: [0.5]", "budgets: [1.0]")
    assert len(project.made(root, apart)[0].places()) == 3


def test_choosing_narrows_and_never_to_nothing(root):
    selection = select(["study=demo", "suite=demo-1k", "task=facts"], root)
    assert {(s.suite, s.task.name) for s in chosen(shards(selection), selection)} == {("demo-1k", "facts")}
    project.write(
        root, "suite/other", project.SUITE.replace("name: mini", "name: other").replace("words", "facts")
    )
    selection = project.selected(root, "study.suites=[mini,other]", "suite=mini", "task=facts")
    with pytest.raises(ConfigError, match="nothing is chosen: mini has no task facts"):
        chosen(shards(selection), selection)
