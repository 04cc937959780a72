"""Keep sets recomputed from the anchor: honest logs hold, each kind of forgery is found."""

import json
import re
from dataclasses import replace
from types import SimpleNamespace

import msgspec
import pytest
import torch

from kvexp.ceremony import replay_draws
from kvexp.ceremony.replay_draws import replay, wilson
from kvexp.ceremony.replay_source import Source, is_same_stack, questions_of
from kvexp.documents.forms import Replayed
from kvexp.errors import ConfigError, IncompleteError, InputError, IntegrityError
from kvexp.models.load import load
from kvexp.records import FOOTER, GENERATIONS, encode
from kvexp.replay.probe import PLACES
from kvexp.study import provenance
from kvexp.study.compose import select
from kvexp.study.grid import shards as shards_of
from kvexp.study.plugins import family_of
from tests import planted, project
from tests.ceremony.logs import (
    elsewhere,
    folder_of,
    forge,
    is_poisson,
    log_of,
    read,
    restate,
    rewrite,
    run,
    with_fields,
)

POISSON = 4 * 4  # rows of the study: 4 examples, 2 conditions, 2 seeds


def replayed(results, shards, loaded, n=100, seed=1):
    made = replay(Source(results, shards, lambda model: loaded), n, seed)
    return msgspec.json.decode(msgspec.json.encode(made), type=Replayed)  # as evidence.json takes it


# Honest logs ----------------------------------------------------------------------------------------


def test_an_honest_log_holds(honest, shards, loaded):
    found = replayed(honest, shards, loaded)
    assert (found.rows, found.of, found.digests_equal, found.scores_equal) == (POISSON,) * 4
    assert (found.probed, found.agree, found.agreement) == (PLACES * POISSON, PLACES * POISSON, 1.0)
    assert (found.same_stack, found.holds, found.disagreements) == (True, True, [])
    assert 0.7 < found.lo < found.hi == 1.0


def test_rows_show_probes_unless_all_is_kept(honest, shards):
    for shard in shards:
        for row in log_of(honest, shard):
            assert (row.keep_probe is None) == (row.arm == "full")
            if row.keep_probe is not None:  # 7 standard deviations
                share = int(row.keep_probe, 16).bit_count() / PLACES
                assert share == pytest.approx(row.realised_kept / row.n_evictable, abs=0.16)


def test_rows_of_an_arm_that_evicts_nothing_are_not_chosen(tmp_path, tiny_folder, loaded):
    root = project.make(tmp_path / "project", tiny_folder)
    arms = "suite.arms=[{arm: full}, {arm: floor, conditions: [stream], budgets: [1.0], seeds: [0]}]"
    made = project.made(root, arms, "suite.n_examples=1")
    run(tmp_path, made, loaded)
    with pytest.raises(IncompleteError, match="no rows"):
        replayed(tmp_path, made, loaded)


def test_a_shard_that_is_not_closed_is_replayed_too(results, shards, loaded):
    folder = folder_of(results, shards[0])
    (folder / FOOTER).unlink()
    kept = [row for row in log_of(results, shards[0]) if row.example_id == shards[0].example_ids[0]]
    (folder / GENERATIONS).write_bytes(b"".join(encode(row) + b"\n" for row in kept) + b'{"torn')
    found = replayed(results, shards, loaded)
    assert (found.of, found.rows, found.holds) == (POISSON - 4, POISSON - 4, True)


def test_rows_of_two_attempts_are_replayed_by_the_anchor_of_each(results, shards, loaded):
    """Whether an attempt has the right anchor is told elsewhere; here each row must follow its own."""
    other = folder_of(results, shards[1])
    for path in other.iterdir():
        path.unlink()
    run(results, shards[1:], loaded, anchor="b" * 64)
    assert replayed(results, shards, loaded).holds


def test_the_seed_chooses_the_rows_and_more_rows_include_fewer(honest, shards, loaded, monkeypatch):
    seen = []
    real = replay_draws._compare
    monkeypatch.setattr(
        replay_draws, "_compare", lambda one, *rest: seen.append(one.row.key) or real(one, *rest)
    )

    def chosen(n, seed, order=shards):
        seen.clear()
        found = replayed(honest, order, loaded, n, seed)
        assert (found.rows, found.of, found.seed) == (n, POISSON, seed)
        return set(seen)

    three = chosen(3, 7)
    assert len(three) == 3
    assert three == chosen(3, 7, shards[::-1])
    assert three < chosen(8, 7)
    assert len({frozenset(chosen(3, seed)) for seed in range(6)}) > 4


@pytest.mark.parametrize("change", [{"cpu": "OTHER"}, {"torch": "2.0.0"}, {"gpu": "a card"}, {"cpu": None}])
def test_the_same_stack_has_the_same_processor_and_the_gpu_counts_where_it_is_used(
    results, shards, loaded, change
):
    stated = {k: v for k, v in {**provenance.versions(), **change}.items() if v is not None}
    restate(results, shards, versions=stated)
    assert replayed(results, shards, loaded, 1).same_stack == ("gpu" in change)


@pytest.mark.parametrize(("there", "is_same"), [("this card", True), ("another card", False), (None, False)])
def test_on_a_gpu_its_name_counts(shards, loaded, monkeypatch, there, is_same):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "this card")
    stated = {**provenance.versions(), "gpu": there} if there else {**provenance.versions()}
    if there is None:
        del stated["gpu"]
    attempt = SimpleNamespace(
        versions=stated, device="cuda:0", dtype="float32", protocol_digest=shards[0].protocol_digest
    )
    on_gpu = SimpleNamespace(device=torch.device("cuda"), model=loaded.model)
    assert is_same_stack(shards[0], attempt, on_gpu) == is_same


def test_without_a_seed_one_is_drawn_and_told(honest, shards, loaded):
    seeds = {replayed(honest, shards, loaded, 1, None).seed for _ in range(3)}
    assert len(seeds) == 3
    for seed in seeds:
        assert replayed(honest, shards, loaded, 2, seed).seed == seed


def test_one_prefill_serves_all_rows_of_an_example(honest, shards, loaded):
    prompts = []
    handle = loaded.model.register_forward_pre_hook(lambda *_: prompts.append(1))
    try:
        replayed(honest, shards, loaded)
    finally:
        handle.remove()
    assert len(prompts) == 4


def test_threads_are_those_of_the_attempt_and_then_again_the_callers(honest, shards, loaded):
    seen = []
    handle = loaded.model.register_forward_pre_hook(lambda *_: seen.append(torch.get_num_threads()))
    torch.set_num_threads(2)
    try:
        replayed(honest, shards, loaded, 1)
        assert (seen, torch.get_num_threads()) == ([1], 2)
    finally:
        torch.set_num_threads(1)
        handle.remove()


# Forged logs ----------------------------------------------------------------------------------------


def test_draws_keyed_by_another_anchor_are_found(results, shards, loaded):
    """The attempt states the anchor of the stamp, but the rows were made before there was one."""
    restate(results, shards, anchor="c" * 64)
    found = replayed(results, shards, loaded)
    assert (found.digests_equal, found.holds) == (0, False)
    assert found.agreement < 0.95
    assert found.hi < 1
    assert len(found.disagreements) == POISSON
    assert "the anchor and the model give another keep set" in found.disagreements[0]
    assert "mini tiny words 3-0" in found.disagreements[0]


def test_only_the_first_disagreements_are_listed(results, shards, loaded, monkeypatch):
    restate(results, shards, anchor="c" * 64)
    monkeypatch.setattr(replay_draws, "SHOWN", 5)
    found = replayed(results, shards, loaded)
    assert (len(found.disagreements), found.digests_equal) == (5, 0)


def test_a_row_under_another_seed_is_found(results, shards, loaded):
    """The better of two draws is logged twice."""
    rows = log_of(results, shards[0])
    names = ("suite", "model", "task", "example_id", "arm", "condition", "budget", "seed", "shard_id")
    first, second = [i for i, row in enumerate(rows) if is_poisson(row)][:2]
    assert (rows[first].seed, rows[second].seed) == (0, 1)
    rows[second] = msgspec.structs.replace(rows[first], **{n: getattr(rows[second], n) for n in names})
    rewrite(results, shards[0], rows)
    found = replayed(results, shards, loaded)
    assert (found.digests_equal, found.holds) == (POISSON - 1, False)
    assert "seed 1: the anchor" in found.disagreements[0]


def test_a_row_of_another_example_is_found(results, shards, loaded):
    rows = log_of(results, shards[0])
    one, other = shards[0].example_ids
    at = {row.key: i for i, row in enumerate(rows)}
    good = next(row for row in rows if is_poisson(row) and row.example_id == one)
    moved = msgspec.structs.replace(good, example_id=other)
    rows[at[moved.key]] = moved
    rewrite(results, shards[0], rows)
    found = replayed(results, shards, loaded)
    assert (found.digests_equal, found.holds) == (POISSON - 1, False)
    assert f" {other} poisson" in found.disagreements[0]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"keep_digest": "0" * 64}, "give another keep set than the log has"),
        ({"keep_digest": None}, "give another keep set than the log has"),
        ({"keep_probe": "5" * 128}, "its probe is not of its own keep set"),
        ({"realised_kept": 99.0}, "realised_kept is .*, the log says 99"),
        ({"expected_kept": 99.0}, "expected_kept is .*, the log says 99"),
        ({"n_evictable": 99}, "tokens could be evicted, the log says 99"),
        ({"score_value": 1.0}, "the logged text scores 0, the log says 1"),
        ({"score_name": "\x1b[31m"}, r"it is scored by exact_match, the log says '\\x1b\[31m'"),
    ],
)
def test_a_forged_field_is_found(results, shards, loaded, fields, said):
    forge(results, shards[0], with_fields(**fields))
    found = replayed(results, shards, loaded)
    assert not found.holds
    assert len(found.disagreements) == 1
    assert re.search(said, found.disagreements[0])
    assert found.scores_equal == POISSON - ("score_value" in fields)


def test_forged_text_is_scored_again(results, shards, loaded):
    """The text of a right answer under the score of the wrong one that it replaced."""
    question = questions_of(shards[0], family_of(shards[0].task), loaded)
    right = question[shards[0].example_ids[0]].references[0]
    forge(results, shards[0], with_fields(text=right))
    found = replayed(results, shards, loaded)
    assert (found.digests_equal, found.scores_equal, found.holds) == (POISSON, POISSON - 1, False)


def test_other_weights_are_found(honest, shards, loaded, tmp_path):
    from tests import tiny

    other = load(tiny.save(tmp_path / "other", seed=1), "float32")
    found = replayed(honest, shards, other)
    assert (found.digests_equal, found.holds) == (0, False)


# Another stack --------------------------------------------------------------------------------------


def nearly(row, places=1):
    """A keep set that differs from the row's in some places, as on another machine."""
    bits = int(row.keep_probe, 16) ^ (2**places - 1)
    return msgspec.structs.replace(row, keep_digest="0" * 64, keep_probe=f"{bits:0128x}")


def test_on_other_software_agreement_decides(results, shards, loaded):
    elsewhere(results, shards)
    forge(results, shards[0], nearly, count=8)
    found = replayed(results, shards, loaded)
    assert (found.same_stack, found.digests_equal) == (False, POISSON - 8)
    assert found.agree == PLACES * POISSON - 8
    assert found.agreement == pytest.approx(1 - 8 / PLACES / POISSON)
    assert (found.holds, found.disagreements) == (True, [])


def test_on_the_same_software_one_place_is_too_many(results, shards, loaded):
    forge(results, shards[0], nearly)
    assert not replayed(results, shards, loaded).holds


def test_on_other_software_too_many_small_differences_are_found(results, shards, loaded):
    elsewhere(results, shards)
    forge(results, shards[0], lambda row: nearly(row, 5), count=8)
    found = replayed(results, shards, loaded)
    assert not found.holds
    assert found.disagreements == ["on other software 0.99512 of the places agree, fewer than 0.999"]


def test_half_precision_may_differ_more_on_other_software(results, shards, loaded):
    half = [replace(shard, model=replace(shard.model, dtype="bfloat16")) for shard in shards]
    for shard in half:
        restate(results, [shard], dtype="bfloat16", config=json.loads(json.dumps(shard.resolved())))
        forge(results, shard, lambda row: nearly(row, 5), count=8)
    found = replayed(results, half, loaded)
    assert (found.digests_equal, found.holds) == (0, True)
    assert 0.99 < found.agreement < 0.991


def test_on_other_software_one_row_that_was_drawn_otherwise_is_found(results, shards, loaded):
    elsewhere(results, shards)
    restate(results, shards[1:], versions=provenance.versions())  # mixed: each row by its own rule
    restate(results, shards[:1], anchor="c" * 64)
    found = replayed(results, shards, loaded)
    assert (found.same_stack, found.holds, found.digests_equal) == (False, False, POISSON // 2)
    assert len(found.disagreements) == POISSON // 2 + 1


@pytest.mark.parametrize(
    "changes",
    [
        {"versions": {}},
        {"versions": {**provenance.versions(), "platform": "Linux-elsewhere"}},
        {"device": "cuda:0"},
        {"dtype": "bfloat16"},
        {"protocol_digest": "7" * 64},
    ],
)
def test_what_makes_another_stack(results, shards, loaded, changes):
    restate(results, shards, **changes)
    found = replayed(results, shards, loaded)
    assert (found.same_stack, found.holds) == (False, True)


def without_probe(row):
    return msgspec.structs.replace(row, keep_probe=None)


def test_logs_from_before_the_probe_hold_by_their_digests(results, shards, loaded):
    for shard in shards:
        forge(results, shard, without_probe, count=8)
    assert replayed(results, shards, loaded).holds
    elsewhere(results, shards)
    assert replayed(results, shards, loaded).holds


def test_a_stripped_probe_clears_no_row(results, shards, loaded):
    elsewhere(results, shards)
    forge(results, shards[0], lambda row: without_probe(nearly(row)))
    found = replayed(results, shards, loaded)
    assert not found.holds
    assert "it shows no probe" in found.disagreements[0]


def test_where_nothing_can_be_told_it_is_not_told(results, shards, loaded):
    elsewhere(results, shards)
    for shard in shards:
        forge(results, shard, lambda row: without_probe(nearly(row)), count=8)
    with pytest.raises(IncompleteError, match="show no probe of their keep sets"):
        replayed(results, shards, loaded)


# Refusals -------------------------------------------------------------------------------------------


def one_sentence(error):
    assert "\n" not in str(error.value)
    return error.value.exit_code


def test_no_rows(tmp_path, shards, loaded):
    with pytest.raises(IncompleteError, match="no rows of a random design to replay") as error:
        replayed(tmp_path, shards, loaded)
    assert one_sentence(error) == 3


def test_less_than_one_row(honest, shards, loaded):
    with pytest.raises(ConfigError, match="at least 1 row, got 0") as error:
        replayed(honest, shards, loaded, 0)
    assert one_sentence(error) == 2


def test_the_model_is_absent(honest, shards, tmp_path):
    with pytest.raises(InputError, match="cannot be loaded") as error:
        replay(Source(honest, shards, lambda model: load(tmp_path / "nowhere", model.dtype)), 1, 1)
    assert one_sentence(error) == 2


def test_rows_of_a_shard_that_the_study_does_not_have(honest, shards, loaded):
    with pytest.raises(IntegrityError, match="belongs to no shard of the study") as error:
        replayed(honest, shards[:1], loaded)
    assert one_sentence(error) == 4


def test_rows_that_the_shard_does_not_expect(results, shards, loaded):
    forge(results, shards[0], with_fields(seed=77))
    with pytest.raises(IntegrityError, match=r"a row that its shard does not expect .*77") as error:
        replayed(results, shards, loaded)
    assert one_sentence(error) == 4


def test_rows_of_another_configuration(honest, shards, loaded):
    other = [replace(shard, context_tokens=300) for shard in shards]
    with pytest.raises(IntegrityError, match="another configuration") as error:
        replayed(honest, other, loaded)
    assert one_sentence(error) == 4


def test_hostile_numbers_of_threads_do_no_harm(results, shards, loaded):
    restate(results, shards, threads=0)
    assert replayed(results, shards, loaded).holds
    restate(results, shards, threads=2**53)
    assert replayed(results, shards, loaded, 1).rows == 1


# The interval and the log line ----------------------------------------------------------------------


def test_the_interval_is_wilsons():
    """Its ends are the shares from which the observed one lies 1.96 of their own standard errors away."""
    for share, n in ((0.9, 10), (0.5, 40), (1.0, 3), (0.999, 1000), (0.0, 7)):
        lo, hi = wilson(share, n)
        assert 0 <= lo <= share <= hi <= 1
        for end in (lo, hi):
            assert (share - end) ** 2 == pytest.approx(1.959964**2 * end * (1 - end) / n, abs=1e-12)


def test_lines_from_before_the_probe_are_read_and_keep_their_bytes():
    log = next((project.ROOT / "results" / "embedded").glob("embedded-1k/*/generations.jsonl"))
    for line in log.read_bytes().splitlines()[:40]:
        if b"keep_probe" not in line:
            assert encode(read(line)) == line
    bare = json.loads(line)
    bare.pop("keep_probe", None)
    old = planted.compact(bare)
    assert read(old).keep_probe is None
    assert encode(read(old)) == old
    assert encode(msgspec.structs.replace(read(old), keep_probe="0" * 128)).endswith(
        b',"keep_probe":"' + b"0" * 128 + b'"}'
    )


# The real model -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_rows_of_a_real_submit_with_the_embedded_model(tmp_path, real_model):
    root = project.make(tmp_path / "project", tmp_path)
    words = ["study=embedded", "study.name=trial", "suite=embedded-1k", "task=facts"]
    words += ["suite.embedded-1k.n_examples=2", "cluster=debug", "cluster.threads=1"]
    done = project.kvexp(root, "submit", *words, timeout=600)
    assert (done.returncode, done.stderr) == (0, "")
    made = [s for s in shards_of(select(words, root), "leave_out") if s.suite == "embedded-1k"]
    results = root / "results" / "trial"
    found = replayed(results, made, real_model, 12)
    assert (found.rows, found.digests_equal, found.same_stack, found.holds) == (12, 12, True, True)
    for shard in made:
        attempt = folder_of(results, shard) / "attempt-001.json"
        if attempt.exists():
            planted.restate(attempt, anchor="d" * 64, versions={})
    found = replayed(results, made, real_model, 12)
    assert (found.digests_equal, found.same_stack, found.holds) == (0, False, False)
    assert all("give another keep set" in words for words in found.disagreements[:12])
