"""The log schema: what a writer cannot write and a reader does not read."""

import json
import math

import msgspec
import pytest

from kvexp.records import Attempt, Expected, Failed, Generation, Reader, RecordError, Timings, encode

EXPECTED = Expected(
    suite="s",
    shard_id="s.m.t.000",
    model="m",
    task="t",
    example_id="1-000",
    arm="poisson",
    condition="aware",
    budget=0.5,
    seed=0,
)
GENERATION = Generation(
    **{name: getattr(EXPECTED, name) for name in EXPECTED.__struct_fields__},
    attempt=1,
    n_context=900,
    n_prompt=1000,
    n_evictable=999,
    expected_kept=499.5,
    realised_kept=500.25,
    tail_kept=100.0,
    first_step_cached=501.0,
    n_generated=3,
    text='a "quoted"\n\u2028 answer \x1b[31m',
    score_name="exact_match",
    score_value=1.0,
    certificate=0.25,
    entropy=0.5,
    evicted_mass=0.1,
    margin=None,
    output_logprob=-0.5,
    undefined={"margin": "random design"},
    certificate_steps=[0.25, 0.125],
    zero_variance_cells=0,
    min_logit_gap=0.01,
    seconds=Timings(prefill=1.0, plan=0.1, decode=2.0, decode_arms=8),
    stopped_by="stop_token",
    keep_digest="0" * 64,
)
read_expected: Reader[Expected] = Reader(Expected)
read_row: Reader[Generation | Failed] = Reader(Generation | Failed)


def changed(**fields):
    return json.dumps({**json.loads(encode(EXPECTED)), **fields}).encode()


def test_a_row_comes_back_as_it_was_on_one_line():
    line = encode(GENERATION)
    assert b"\n" not in line
    assert read_row(line) == GENERATION
    assert json.loads(line)["kind"] == "generation/1"


@pytest.mark.parametrize("field", ["certificate", "score_value", "expected_kept"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_not_finite_is_never_written(field, value):
    with pytest.raises(RecordError, match="not finite"):
        encode(msgspec.structs.replace(GENERATION, **{field: value}))


def test_not_finite_numbers_are_found_at_any_depth():
    nested = msgspec.structs.replace(GENERATION, certificate_steps=[0.1, math.nan])
    timed = msgspec.structs.replace(
        GENERATION, seconds=Timings(prefill=math.inf, plan=0.0, decode=0.0, decode_arms=1)
    )
    for record in (nested, timed):
        with pytest.raises(RecordError, match="not finite"):
            encode(record)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"suite": "../elsewhere"}, "suite"),
        ({"suite": "line\n"}, "suite"),
        ({"suite": ".hidden"}, "suite"),
        ({"suite": ""}, "suite"),
        ({"seed": -1}, "seed"),
        ({"budget": 0.0}, "budget"),
        ({"budget": 1.5}, "budget"),
        ({"condition": "later"}, "later"),
        ({"seed": 2**31}, "seed"),
    ],
)
def test_what_no_reader_would_accept_is_not_written(fields, said):
    with pytest.raises(RecordError, match=said):
        encode(msgspec.structs.replace(EXPECTED, **fields))
    with pytest.raises(RecordError, match=said):
        read_expected(changed(**fields))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("score_value", 7e300),
        ("score_value", -0.1),
        ("certificate", -0.5),
        ("certificate_steps", [-5.0]),
        ("n_generated", 10**400),
    ],
)
def test_numbers_outside_their_meaning_are_refused(field, value):
    row = msgspec.structs.replace(GENERATION, **{field: value})
    with pytest.raises(RecordError, match=field):
        encode(row)
    line = json.dumps({**json.loads(encode(GENERATION)), field: value}).encode()
    with pytest.raises(RecordError):
        read_row(line)


def test_half_a_character_is_refused_and_not_a_crash():
    failed = Failed(
        attempt=1,
        suite="s",
        shard_id="x",
        model="m",
        task="t",
        example_id="e",
        category="error",
        message="\ud83d",
    )
    with pytest.raises(RecordError, match="cannot be written"):
        encode(failed)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"", "truncated"),
        (b"null", "object"),
        (b"[]", "object"),
        (b"\x00" * 64, "malformed"),
        (b"\x89PNG\r\n\x1a\n", "malformed"),
        (b"[" * 100_000, "array"),
        (encode(EXPECTED)[:-1], "truncated"),
        (encode(EXPECTED) + b" {}", "trailing"),
        (encode(EXPECTED).replace(b'"s"', b'"\xff"'), "UTF-8"),
        (encode(EXPECTED).replace(b"0.5", b"NaN"), "malformed"),
        (encode(EXPECTED).replace(b"0.5", b"1e999"), "range"),
        (changed(kind="expected/2"), "expected/2"),
        (changed(kind="generation/1"), "generation/1"),
        (changed(comment="mine"), "unknown field `comment`"),
        (changed(seed=True), "bool"),
        (changed(seed="0"), "str"),
    ],
)
def test_a_reader_refuses_what_is_not_its_record(line, said):
    with pytest.raises(RecordError, match=said):
        read_expected(line)


def test_a_log_reader_does_not_take_records_of_another_kind():
    with pytest.raises(RecordError, match="expected/1"):
        read_row(encode(EXPECTED))


def test_a_missing_field_is_refused_even_where_null_would_do():
    fields = json.loads(encode(EXPECTED))
    del fields["seed"]
    with pytest.raises(RecordError, match="seed"):
        read_expected(json.dumps(fields).encode())


def test_an_attempt_keeps_the_resolved_shard_as_it_is():
    attempt = Attempt(
        shard_id="s",
        number=1,
        shard_digest="a" * 64,
        protocol_digest="b" * 64,
        seal=None,
        anchor="unanchored",
        git_commit=None,
        git_dirty=None,
        versions={},
        host="h",
        slurm={},
        model_digest=None,
        device="cpu",
        dtype="float32",
        threads=1,
        started_at="2026-01-01T00:00:00Z",
        config={"arms": [{"budgets": [0.25]}], "none": None},
    )
    assert Reader[Attempt](Attempt)(encode(attempt)) == attempt
    with pytest.raises(RecordError, match="not finite"):
        encode(msgspec.structs.replace(attempt, config={"deep": [{"x": math.nan}]}))


def test_the_key_tells_apart_what_the_grid_tells_apart():
    changes = {
        "suite": "s2",
        "model": "m2",
        "task": "t2",
        "example_id": "1-001",
        "arm": "h2o",
        "condition": "stream",
        "budget": 0.25,
        "seed": 1,
    }
    keys = {EXPECTED.key, *(msgspec.structs.replace(EXPECTED, **{k: v}).key for k, v in changes.items())}
    assert len(keys) == 1 + len(changes)
    assert GENERATION.key == EXPECTED.key


def test_a_whole_number_in_a_float_field_is_written_as_it_is_read_back():
    line = encode(msgspec.structs.replace(GENERATION, score_value=1))
    assert b'"score_value":1.0' in line
    assert encode(read_row(line)) == line
