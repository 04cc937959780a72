"""Examples answered again: honest logs come out in every digit, each kind of forgery is found."""

import json
import re
from dataclasses import replace
from itertools import combinations

import msgspec
import pytest
import torch

from kvexp.ceremony import compare_answers
from kvexp.ceremony.checks import answers_check
from kvexp.ceremony.compare_answers import (
    EQUAL,
    FIELDS,
    FREE,
    MOVED,
    is_near_tie,
    most_moved,
    most_parted,
    parting,
    tolerance,
)
from kvexp.ceremony.evidence import most_unseen
from kvexp.ceremony.replay_answers import answer_again, draw_examples
from kvexp.ceremony.replay_source import Source, questions_of
from kvexp.documents.forms import Evidence, Regenerated
from kvexp.errors import ConfigError, IncompleteError, IntegrityError
from kvexp.records import FOOTER, GENERATIONS, Failed, Generation, Key, Reader, encode
from kvexp.replay import harness
from kvexp.run import answer
from kvexp.study import provenance
from kvexp.study.plugins import family_of
from tests import project
from tests.ceremony.logs import (
    elsewhere,
    folder_of,
    forge,
    is_poisson,
    log_of,
    run,
    with_fields,
)

ARMS = project.ROWS // 2  # of an example
EXAMPLES = 4


def answered(results, shards, loaded, m=1, seed=1):
    made = answer_again(Source(results, shards, lambda model: loaded), m, seed)
    return msgspec.json.decode(msgspec.json.encode(made), type=Regenerated)  # as evidence.json takes it


def drawn(results, shards, m=1, seed=1):
    """Places of the examples that are answered again."""
    return [(one.shard.shard_id, one.example_id) for one in chosen(results, shards, m, seed)]


def chosen(results, shards, m=1, seed=1):
    """Examples drawn; no model is asked."""
    return draw_examples(Source(results, shards, lambda model: None), m, seed).chosen


@pytest.fixture
def seen(honest, shards):
    """The shard of the example that seed 1 draws, and what its rows have in common."""
    (shard_id, example_id) = drawn(honest, shards)[0]
    shard = next(shard for shard in shards if shard.shard_id == shard_id)
    return shard, example_id


def of_example(example_id, only):
    return lambda row: row.example_id == example_id and only(row)


# Honest logs ----------------------------------------------------------------------------------------


def test_an_honest_log_comes_out_in_every_digit(honest, shards, loaded):
    found = answered(honest, shards, loaded, 100)
    assert (found.examples, found.of, found.failed, found.missing) == (EXAMPLES, EXAMPLES, 0, 0)
    assert (found.rows, found.equal, found.texts_equal, found.keep_sets_equal) == (ARMS * EXAMPLES,) * 4
    assert (found.near_ties, found.same_stack, found.holds, found.disagreements) == (0, True, True, [])
    assert set(found.largest.values()) == {0.0}
    assert {"certificate", "entropy", "evicted_mass", "margin", "output_logprob"} < found.largest.keys()


def test_every_field_is_compared_but_clocks_and_what_names_the_row():
    free = {"seconds", "attempt", "shard_id", *Key._fields}
    assert set(FIELDS) == set(Generation.__struct_fields__) - free
    assert set(FREE) < free


def test_records_keep_every_digit_of_a_number(honest, shards):
    row = next(row for row in log_of(honest, shards[0]) if is_poisson(row))
    assert json.loads(encode(row))["entropy"] == row.entropy
    assert len(str(row.entropy)) > 12


def test_the_seed_draws_and_more_examples_include_fewer(honest, shards):
    three = drawn(honest, shards, 3, 7)
    assert len(set(three)) == 3
    assert set(three) == set(drawn(honest, shards[::-1], 3, 7)) < set(drawn(honest, shards, 4, 7))
    assert set(drawn(honest, shards, 1, 7)) < set(three)
    assert len({frozenset(drawn(honest, shards, 2, seed)) for seed in range(12)}) > 3


def test_it_runs_on_the_threads_of_the_attempt_and_all_arms_in_the_order_of_the_shard(
    honest, shards, loaded, monkeypatch
):
    seen = []
    real = answer.answer_all

    def watched(loaded, prompt, arms, *rest):
        seen.append((torch.get_num_threads(), arms))
        return real(loaded, prompt, arms, *rest)

    monkeypatch.setattr(answer, "answer_all", watched)
    torch.set_num_threads(2)
    try:
        assert answered(honest, shards, loaded).holds
        assert (seen, torch.get_num_threads()) == ([(1, shards[0].places())], 2)
    finally:
        torch.set_num_threads(1)


def test_what_failed_or_lacks_rows_is_left_out_and_told(results, shards, loaded):
    """One example of the first shard was killed after some of its rows, one of the second failed."""
    killed, failing = shards[0].example_ids[1], shards[1].example_ids[0]
    for shard, gone, left in ((shards[0], killed, 3), (shards[1], failing, 0)):
        folder = folder_of(results, shard)
        (folder / FOOTER).unlink()
        rows = log_of(results, shard)
        kept = [r for r in rows if r.example_id != gone] + [r for r in rows if r.example_id == gone][:left]
        (folder / GENERATIONS).write_bytes(b"".join(encode(row) + b"\n" for row in kept))
    names = {name: getattr(rows[0], name) for name in ("suite", "shard_id", "model", "task")}
    failure = Failed(**names, example_id=failing, attempt=1, category="out_of_memory", message="none left")
    with (folder_of(results, shards[1]) / GENERATIONS).open("ab") as file:
        file.write(encode(failure) + b"\n")
    found = answered(results, shards, loaded, 100)
    assert (found.examples, found.of, found.failed, found.missing, found.holds) == (2, 2, 1, 1, True)
    assert "left out: 1 examples that failed and 1 that lack rows" in answers_check(found).words


def test_rows_of_two_attempts_of_one_example_hold(results, shards, loaded, seen):
    """A line that a kill tore was written again by the next start."""
    shard, _ = seen
    folder = folder_of(results, shard)
    whole = (folder / GENERATIONS).read_bytes()
    (folder / FOOTER).unlink()
    (folder / GENERATIONS).write_bytes(b"".join(whole.splitlines(keepends=True)[:-1]) + b'{"torn')
    run(results, [shard], loaded)
    assert {row.attempt for row in log_of(results, shard)} == {1, 2}
    assert answered(results, shards, loaded, 100).equal == ARMS * EXAMPLES


# Forged logs ----------------------------------------------------------------------------------------


def better(shard, loaded, example_id):
    """The right answer with its score, and signals that suit it, beside the honest keep set."""
    question = questions_of(shard, family_of(shard.task), loaded)[example_id]
    text = question.references[0]
    score = family_of(shard.task).score(text, question)
    assert score == 1.0
    return with_fields(text=text, score_value=score, output_logprob=-0.01)


@pytest.mark.parametrize("arm", ["full", "h2o", "topk", "poisson"])
def test_10_one_row_forged_whole_beside_its_honest_keep_set_is_found(results, shards, loaded, seen, arm):
    """Threat 10: a text, its fitting score and log-probability; no keep set and no score betrays it."""
    from tests.ceremony.test_replay import replayed

    shard, example_id = seen
    forge(results, shard, better(shard, loaded, example_id), of_example(example_id, lambda r: r.arm == arm))
    if arm == "poisson":
        assert replayed(results, shards, loaded).holds  # keep sets and scores alone do not find it
    found = answered(results, shards, loaded)
    assert (found.rows, found.equal, found.texts_equal, found.holds) == (ARMS, ARMS - 1, ARMS - 1, False)
    assert len(found.disagreements) == 1
    assert f" {example_id} {arm}" in found.disagreements[0]
    assert "text is " in found.disagreements[0]
    check = answers_check(found)
    assert (check.name, check.holds) == ("answers", False)
    assert found.disagreements[0] in check.words


def test_a_forged_example_that_is_not_drawn_is_not_found(results, shards, loaded, seen):
    shard, example_id = seen
    other = next(name for name in shard.example_ids if name != example_id)
    forge(results, shard, better(shard, loaded, other), of_example(other, lambda r: r.arm == "full"))
    assert answered(results, shards, loaded, 1).holds
    assert not answered(results, shards, loaded, EXAMPLES).holds


FORGED = [
    {"certificate": 0.5},
    {"certificate_steps": [0.5]},
    {"entropy": 0.123},
    {"evicted_mass": 0.123},
    {"output_logprob": -0.5},
    {"min_logit_gap": 9.0},
    {"n_generated": 1},
    {"realised_kept": 99.0},
    {"tail_kept": 1.0},
    {"first_step_cached": 99.0},
    {"keep_digest": "0" * 64},
    {"n_context": 99},
    {"zero_variance_cells": 10**6},
    {"undefined": {}},
]


def test_each_forged_field_is_found(results, shards, loaded, seen):
    """Each field by itself, in one Poisson row."""
    shard, example_id = seen
    for fields in FORGED:
        (name,) = fields
        row = next(r for r in log_of(results, shard) if r.example_id == example_id and is_poisson(r))
        changed = msgspec.structs.replace(row, **fields)
        made = compare_answers.Made(row, [], [row.min_logit_gap], row.score_value, lambda tokens: "", 1)
        logged = next(one for one in chosen(results, shards)[0].rows if one.row.key == row.key)
        found = compare_answers.matched(replace(logged, row=changed), made, same_stack=True)
        assert not found.equal
        assert re.search(f"{name} is .*, the log says ", found.wrong), name
        honest = compare_answers.matched(logged, made, same_stack=True)
        assert (honest.equal, honest.wrong) == (True, "")


def test_a_last_digit_is_found(results, shards, loaded, seen):
    shard, example_id = seen
    forge(
        results,
        shard,
        lambda row: msgspec.structs.replace(row, entropy=row.entropy * (1 + 1e-15)),
        of_example(example_id, lambda row: row.arm == "h2o"),
    )
    found = answered(results, shards, loaded)
    assert (found.equal, found.holds) == (ARMS - 1, False)


# Other software -------------------------------------------------------------------------------------


def test_on_other_software_rounding_is_allowed(results, shards, loaded, seen):
    shard, example_id = seen
    elsewhere(results, shards)

    def rounded(row):
        fields = ("entropy", "output_logprob", "evicted_mass", "certificate", "min_logit_gap")
        changed = {n: value * 1.00001 for n in fields if (value := getattr(row, n)) is not None}
        return msgspec.structs.replace(row, **changed)

    forge(results, shard, rounded, of_example(example_id, lambda row: True), count=ARMS)
    found = answered(results, shards, loaded)
    assert (found.same_stack, found.holds, found.equal, found.texts_equal) == (False, True, 0, ARMS)
    assert 1e-7 < found.largest["output_logprob"] < 1e-3
    assert "the largest difference of a signal" in answers_check(found).words


def test_evidence_from_before_there_were_answers_is_read_and_keeps_its_bytes(honest, shards, loaded):
    old = (project.ROOT / "results/embedded/evidence.json").read_bytes().rstrip(b"\n")
    found = Reader[Evidence](Evidence)(old)
    if found.regenerated is None:
        assert b"regenerated" not in old
        assert encode(found) == old
    new = encode(msgspec.structs.replace(found, regenerated=answered(honest, shards, loaded)))
    assert Reader[Evidence](Evidence)(new).regenerated.rows == ARMS


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"entropy": 0.123}, "entropy is"),
        ({"evicted_mass": 0.123}, "evicted_mass is"),
        ({"certificate": None, "undefined": {"certificate": "none"}}, "certificate is"),
        ({"score_value": 1.0}, "the logged text scores 0, the log says 1"),
        ({"score_name": "other"}, "score_name is"),
        ({"keep_digest": "0" * 64, "keep_probe": "0" * 128}, "another keep set than the log has"),
        ({"keep_digest": "0" * 64, "keep_probe": None}, r"another keep set than the log has \(0 of 512"),
        ({"realised_kept": 99.0}, "realised_kept is"),
        ({"n_generated": 1}, "and no near-tie explains it"),
        ({"text": "forged"}, "it answers .*, the log says 'forged', and no near-tie explains it"),
        ({"text": "forged", "min_logit_gap": 0.0}, "no near-tie explains it"),
        ({"undefined": {"x": "y"}}, "undefined is"),
        ({"keep_digest": None}, "keep_digest is"),
    ],
)
def test_on_other_software_what_rounding_does_not_explain_is_found(
    results, shards, loaded, seen, fields, said
):
    """The gap that a log states clears no text: the model's own must be near a tie, too."""
    shard, example_id = seen
    elsewhere(results, shards)
    forge(results, shard, with_fields(**fields), of_example(example_id, is_poisson))
    found = answered(results, shards, loaded)
    assert (found.same_stack, found.holds, len(found.disagreements)) == (False, False, 1)
    assert re.search(said, found.disagreements[0])


def test_on_other_software_a_near_tie_explains_a_text_but_not_many(
    results, shards, loaded, seen, monkeypatch
):
    """With a tolerance that every gap is within, any text is explained; the share of such texts is not."""
    shard, example_id = seen
    wide = replace(tolerance("float32", True), tie=100.0)
    monkeypatch.setattr(compare_answers, "tolerance", lambda *_: wide)
    elsewhere(results, shards)
    forge(results, shard, with_fields(text="other"), of_example(example_id, is_poisson))
    found = answered(results, shards, loaded)
    assert (found.holds, found.near_ties, found.texts_equal) == (True, 1, ARMS - 1)
    assert "1 texts part at a near-tie" in answers_check(found).words
    forge(results, shard, with_fields(text="another"), of_example(example_id, lambda r: not is_poisson(r)))
    found = answered(results, shards, loaded)
    assert (found.holds, found.near_ties) == (False, 2)
    assert found.disagreements == [
        "on other software 2 of 7 float32 texts part at near-ties, more than the 1 that rounding explains"
    ]


def test_on_other_software_few_keep_sets_move(results, shards, loaded, seen):
    """A digest that is not the one beside it gives a row its wider tolerances, so not all may have one."""
    shard, example_id = seen
    elsewhere(results, shards)
    forge(results, shard, with_fields(keep_digest="0" * 64), of_example(example_id, is_poisson))
    assert answered(results, shards, loaded).holds
    forge(results, shard, with_fields(keep_digest="1" * 64), of_example(example_id, is_poisson), count=4)
    found = answered(results, shards, loaded)
    assert found.disagreements == [
        f"on other software 4 of {ARMS} float32 keep sets moved, more than the 1.0 that rounding explains"
    ]


def test_as_many_keep_sets_may_move_as_there_are_chances():
    """In float32 one row of some hundred at 1,000 tokens, most of them at 16,000; in half precision all."""
    short, long = [30 * 3 * 1000] * 100, [28 * 4 * 16000] * 100
    assert 10 < most_moved("float32", short) < 20
    assert 90 < most_moved("float32", long) < 100
    assert most_moved("float32", [1]) == 1
    assert most_moved("float16", long) == most_moved("bfloat16", long) == 100


def test_batches_are_those_of_the_log(tmp_path, honest, shards, loaded, monkeypatch):
    """A device that was too small for all arms at once decoded them budget by budget, and says so."""
    real = harness._Batch._decode

    def small(self, groups):
        if len(groups) > 1:
            raise torch.OutOfMemoryError("too small")
        return real(self, groups)

    monkeypatch.setattr(harness._Batch, "_decode", small)
    run(tmp_path, shards, loaded)
    assert len({row.seconds.decode_arms for row in log_of(tmp_path, shards[0])}) > 1
    with pytest.raises(IncompleteError, match=r"has too little memory for the arms of .* in one batch"):
        answered(honest, shards, loaded)
    monkeypatch.undo()
    found = answered(tmp_path, shards, loaded, 100)
    assert (found.holds, found.same_stack, found.equal) == (True, True, found.rows)


def test_a_batch_that_no_device_has_is_found(results, shards, loaded, seen):
    shard, example_id = seen

    def three(row):
        return msgspec.structs.replace(row, seconds=msgspec.structs.replace(row.seconds, decode_arms=3))

    forge(results, shard, three, of_example(example_id, is_poisson))
    found = answered(results, shards, loaded)
    assert not found.holds
    assert any("arms decode together, the log says 3" in one for one in found.disagreements)


def test_tolerances_widen_with_fewer_digits_and_with_keep_sets_that_moved():
    for dtype in ("float32", "bfloat16"):
        assert all(
            vars(EQUAL[dtype])[name] <= vars(MOVED[dtype])[name] for name in ("evicting", "deciding", "tie")
        )
    assert tolerance("float16", True) == tolerance("bfloat16", True) == EQUAL["bfloat16"]
    assert (most_parted("float32", 20), most_parted("float32", 1000)) == (1, 50)


# Where texts part -----------------------------------------------------------------------------------

WORDS = [" a", " b", "", " c", "\ufffd", "\ufffd", " d"]


def decode(tokens):
    """Two tokens, 4 and 5, are one character together; token 2 is special."""
    return "".join(WORDS[t] for t in tokens).replace("\ufffd\ufffd", "é")


@pytest.mark.parametrize(
    ("tokens", "text", "at"),
    [
        ([0, 1, 3], " a b c", 3),
        ([0, 1, 3], " a b c d", 3),
        ([0, 1, 3], " a b", 2),
        ([0, 1, 3], " a c", 1),
        ([0, 1, 3], "x", 0),
        ([0, 2, 1], " a c", 2),
        ([0, 4, 5, 6], " aé d", 4),
        ([0, 4, 5, 6], " aé c", 3),
        ([0, 4, 5, 6], " aè d", 2),
        ([0, 4], " a b", 1),
        ([], "x", 0),
    ],
)
def test_where_texts_part(tokens, text, at):
    assert parting(tokens, text, decode) == at


def test_a_near_tie_counts_up_to_where_the_texts_part():
    gaps = [3.0, 0.001, 5.0, 0.001]
    assert is_near_tie(gaps, 1, 0.001, 0.01)
    assert is_near_tie(gaps, 2, 0.001, 0.01)
    assert not is_near_tie(gaps, 0, 0.001, 0.01)  # the tie comes after
    assert not is_near_tie(gaps, 2, 0.5, 0.01)  # the log knows of none
    assert is_near_tie(gaps, 99, 0.001, 0.01)


# Refusals and what is left --------------------------------------------------------------------------


def test_refusals(tmp_path, honest, shards, loaded):
    with pytest.raises(ConfigError, match="at least 1 example, got 0"):
        answered(honest, shards, loaded, 0)
    with pytest.raises(ConfigError, match="the seed of a replay is at least 0, got -1"):
        answered(honest, shards, loaded, 1, -1)
    with pytest.raises(IncompleteError, match="no example with all its rows"):
        answered(tmp_path, shards, loaded)
    with pytest.raises(IntegrityError, match="belongs to no shard of the study"):
        answered(honest, shards[:1], loaded)
    with pytest.raises(IntegrityError, match="another configuration"):
        answered(honest, [replace(shard, context_tokens=300) for shard in shards], loaded)


def test_a_machine_with_too_little_memory_is_one_sentence(honest, shards, loaded, monkeypatch):
    def none_left(*_):
        raise torch.OutOfMemoryError("tried to allocate\nmuch")

    monkeypatch.setattr(answer, "answer_all", none_left)
    with pytest.raises(IncompleteError, match=r"cannot be answered again here \(OutOfMemoryError\)") as error:
        answered(honest, shards, loaded)
    assert "\n" not in str(error.value)


def test_the_number_that_a_draw_does_not_exclude_is_that_of_an_enumeration():
    for of in range(1, 9):
        for drawn_of in range(1, of + 1):
            draws = [set(one) for one in combinations(range(of), drawn_of)]
            chances = [sum(one.isdisjoint(range(f)) for one in draws) / len(draws) for f in range(of + 1)]
            assert most_unseen(drawn_of, of) == max(f for f, chance in enumerate(chances) if chance >= 0.05)
    assert most_unseen(59, 10**6) > 10**6 * 0.045


def test_provenance_is_that_of_this_machine(honest, shards):
    """Otherwise nothing above compared digits."""
    assert chosen(honest, shards)[0].rows[0].attempt.versions == provenance.versions()
