"""Reading results folders: what counts, what is missing, and every contradiction in one sentence."""

import hashlib
import json
import os
import re
import shutil

import msgspec
import pandas as pd
import pytest

from analysis.core.agreement import disagreement
from analysis.core.grid import ResultsError
from analysis.core.study import load
from kvexp import records
from tests import planted
from tests.planted import LONG, SHORT, World, compact, edit, restate

WORDS = f"{SHORT}.smollm2-135m.words.000"
FACTS = f"{SHORT}.smollm2-135m.facts.000"


@pytest.fixture
def shard(whole):
    return whole / SHORT / WORDS


def rewrite(shard, change):
    """Pass the log's lines through a function and close the shard over the result."""
    log = shard / "generations.jsonl"
    log.write_bytes(b"".join(change(log.read_bytes().splitlines(keepends=True))))
    planted.close(shard)


def test_a_sound_study_loads_whole(whole, owners):
    study = load(whole, owners)
    assert (study.name, study.problems) == ("embedded", ())
    assert study.table["present"].all()
    assert len(study.table) == 12 * 3 * (17 + 25)


def test_the_table_does_not_know_the_order_of_the_files(whole, owners, tmp_path, shuffled):
    grid = planted.plan(examples=12)
    other = planted.write(tmp_path / "b" / "embedded", grid, World(), order=shuffled)
    pd.testing.assert_frame_equal(load(whole, owners).table, load(other, owners).table)


def test_the_table_holds_what_the_rows_say(whole, owners):
    table = load(whole, owners).table
    world, grid = World(), {row.key: row for row in planted.plan(examples=12)}
    for row in table[:: len(table) // 60].itertuples():
        key = records.Key(
            *(None if pd.isna(getattr(row, name)) else getattr(row, name) for name in records.Key._fields)
        )
        told = world(grid[key])
        assert row.score_value == told["success"]
        assert row.output_logprob == -told["output_logprob"]
        if row.arm == "poisson":
            assert row.certificate == told["certificate"]
            assert row.certificate_first == told["certificate"] / 2
            assert row.certificate_mean == told["certificate"] * 0.75
            assert row.tail_kept == 100.0
        else:
            assert pd.isna(row.certificate)
            assert pd.isna(row.tail_kept)
        made = planted.generation(grid[key], told)
        names = ("expected_kept", "n_context", "n_prompt", "text")
        assert all(getattr(row, name) == getattr(made, name) for name in names)
        for name in ("prefill", "plan", "decode"):
            assert getattr(row, f"{name}_seconds") == getattr(made.seconds, name)
        assert row.decode_arms == made.seconds.decode_arms
        full = table.iloc[row.full_at]
        same = ["suite", "model", "task", "example_id"]
        assert full["arm"] == "full"
        assert all(full[name] == getattr(row, name) for name in same)


def test_failed_rows_are_missing_until_a_later_success(shard, whole, owners):
    failed = msgspec.json.encode(
        records.Failed(
            attempt=1,
            suite=SHORT,
            shard_id=WORDS,
            model="smollm2-135m",
            task="words",
            example_id="words-0003",
            category="out_of_memory",
            message="planted",
        )
    )
    rewrite(shard, lambda lines: [failed + b"\n", *lines])
    study = load(whole, owners)
    assert study.problems == ()
    assert study.table["present"].all()
    assert "failed" not in study.absences[SHORT, WORDS]

    footer = json.loads((shard / "footer.json").read_bytes())
    assert footer["rows"] == 12 * 17
    rewrite(shard, lambda lines: [line for line in lines if b'"words-0003","arm"' not in line])
    study = load(whole, owners)
    assert study.problems == ()
    assert (~study.table["present"]).sum() == 17
    assert study.absences[SHORT, WORDS] == "absent from a closed log, examples failed: 1 out_of_memory"


def test_a_torn_last_line_of_a_running_shard_is_no_problem(shard, whole, owners):
    (shard / "footer.json").unlink()
    log = shard / "generations.jsonl"
    log.write_bytes(log.read_bytes()[:-40])
    study = load(whole, owners)
    assert study.problems == ()
    assert not study.table.loc[study.table["shard_id"] == WORDS, "present"].any()


def test_folders_that_are_no_shards_are_left_alone(whole, owners):
    for name in ("examples", "locks", "notes/old", f"{SHORT}/submitit", ".cache/x"):
        (whole / name).mkdir(parents=True)
        (whole / name / "readme.txt").write_text("hello")
    assert load(whole, owners).problems == ()


def damage_corrupt(shard):
    rewrite(shard, lambda lines: [*lines[:4], b'{"kind":"generation/1", oops\n', *lines[5:]])


def damage_foreign(shard):
    rewrite(shard, lambda lines: [*lines[:4], b'{"loss": 0.3}\n', *lines[5:]])


def damage_version(shard):
    rewrite(shard, lambda lines: [*lines[:4], edit(lines[4], kind="generation/9"), *lines[5:]])


def damage_unknown_field(shard):
    rewrite(shard, lambda lines: [*lines[:4], edit(lines[4], mood="good"), *lines[5:]])


def damage_nan(shard):
    rewrite(shard, lambda lines: [*lines[:4], edit(lines[4], entropy=float("nan")), *lines[5:]])


def damage_binary(shard):
    rewrite(shard, lambda lines: [*lines[:4], b"\xff\xfe\x00\n", *lines[5:]])


def damage_deep(shard):
    rewrite(shard, lambda lines: [*lines[:4], b"[" * 100_000 + b"\n", *lines[5:]])


def damage_twice(shard):
    rewrite(shard, lambda lines: [*lines[:4], lines[3], *lines[4:]])


def damage_not_in_grid(shard):
    rewrite(shard, lambda lines: [*lines[:4], edit(lines[4], seed=77), *lines[5:]])


def damage_other_shard(shard):
    rewrite(shard, lambda lines: [*lines[:4], edit(lines[4], shard_id=FACTS), *lines[5:]])


def damage_attempt(shard):
    rewrite(shard, lambda lines: [*lines[:4], edit(lines[4], attempt=2), *lines[5:]])


def damage_torn(shard):
    log = shard / "generations.jsonl"
    data = log.read_bytes()[:-1]
    log.write_bytes(data)
    footer = json.loads((shard / "footer.json").read_bytes())
    footer["sha256"] = hashlib.sha256(data).hexdigest()
    (shard / "footer.json").write_bytes(compact(footer))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (damage_corrupt, r"jsonl:5: not a log record"),
        (damage_foreign, r"jsonl:5: not a log record"),
        (damage_version, r"jsonl:5: a record of kind 'generation/9', which this version"),
        (damage_unknown_field, r"jsonl:5: not a valid generation/1 record \(.*mood"),
        (damage_nan, r"jsonl:5: not a log record"),
        (damage_binary, r"jsonl:5: not a log record"),
        (damage_deep, r"jsonl:5: not a log record"),
        (damage_twice, r"jsonl:5: embedded-1k smollm2-135m words words-0000 \S+, .* was answered before"),
        (damage_not_in_grid, r"jsonl:5: .*, seed 77 is not in the grid of this shard"),
        (damage_other_shard, r"jsonl:5: a row of embedded-1k/.*facts.000 in the wrong folder"),
        (damage_attempt, r"jsonl:5: written by an attempt without its attempt-002.json"),
        (damage_torn, r"jsonl:204: the last line is cut off"),
    ],
)
def test_a_bad_line_is_named(shard, whole, owners, damage, message):
    damage(shard)
    problems = [p for p in load(whole, owners).problems if "generations.jsonl" in p.message]
    assert len(problems) == 1
    assert re.search(message, problems[0].message), problems[0].message
    assert (problems[0].suite, problems[0].shard_id) == (SHORT, WORDS)
    assert "\n" not in problems[0].message


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("footer.json", b"{}", "footer.json: not a record"),
        ("footer.json", b"", "footer.json: not a record"),
        ("attempt-001.json", b"{}", "attempt-001.json: not a record"),
        ("generations.jsonl", None, "generations.jsonl is not there, although the shard is closed"),
        ("generations.jsonl", b"", "its sha256 is not the one in footer.json"),
    ],
)
def test_a_bad_file_is_named(shard, whole, owners, name, text, message):
    if text is None:
        (shard / name).unlink()
    else:
        (shard / name).write_bytes(text)
    problems = load(whole, owners).problems
    assert any(message in problem.message for problem in problems)
    assert all((p.suite, p.shard_id) == (SHORT, WORDS) for p in problems)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rows": 5}, "204 generations, but footer.json counts 5"),
        ({"shard_id": FACTS}, "it belongs to shard"),
        ({"shard_digest": "f" * 64}, "its shard digest is not that of attempt 1"),
        ({"kind": "footer/2"}, "footer.json: not a record this version of the analysis reads"),
    ],
)
def test_a_footer_must_fit(shard, whole, owners, changes, message):
    path = shard / "footer.json"
    path.write_bytes(compact({**json.loads(path.read_bytes()), **changes}))
    (problem,) = load(whole, owners).problems
    assert message in problem.message


def test_an_attempt_must_fit_its_place(shard, whole, owners):
    attempt = planted.attempt(FACTS, number=3)
    (shard / "attempt-002.json").write_bytes(records.encode(attempt))
    messages = " ".join(problem.message for problem in load(whole, owners).problems)
    assert "attempt-002.json: it says attempt 3" in messages
    assert f"attempt-002.json: it belongs to shard {FACTS}" in messages


def test_other_anchors_touch_their_registration_and_other_code_touches_the_study(whole, owners):
    path = whole / LONG / f"{LONG}.smollm2-135m.words.000" / "attempt-001.json"
    first = restate(path, anchor="c01e")
    (problem,) = load(whole, owners).problems
    assert problem.suite == LONG
    assert "different anchors: 'unanchored' in " in problem.message
    assert "'c01e' in " in problem.message

    restate(path, anchor=first.anchor, protocol_digest="2" * 64)
    (problem,) = load(whole, owners).problems
    assert problem.suite == ""
    assert "different code (protocol digest)" in problem.message


def test_a_shard_that_the_grid_does_not_know_is_named(whole, shard, owners):
    grid = planted.plan(examples=1)[:1]
    extra = whole / SHORT / "extra.000"
    extra.mkdir()
    (extra / "attempt-001.json").write_bytes(records.encode(planted.attempt("extra.000", rows=grid)))
    lines = (shard / "generations.jsonl").read_bytes().splitlines()
    (extra / "generations.jsonl").write_bytes(edit(lines[0], shard_id="extra.000"))
    planted.close(extra)
    attempt, row = load(whole, owners).problems
    assert "extra.000/attempt-001.json: the grid has no such shard" in attempt.message
    assert "extra.000/generations.jsonl:1" in row.message
    assert "is not in the grid of this shard" in row.message


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the grid is empty"),
        (b"{}\n", "grid.jsonl:1: not a log record"),
        (b'{"kind":"expected/2"}\n', "kind 'expected/2'"),
    ],
)
def test_a_bad_grid_touches_everything(whole, owners, data, message):
    (whole / "grid.jsonl").write_bytes(data)
    (problem,) = load(whole, owners).problems
    assert problem.suite == ""
    assert message in problem.message


def test_a_grid_that_repeats_itself_is_named(whole, owners):
    grid = whole / "grid.jsonl"
    grid.write_bytes(grid.read_bytes() + grid.read_bytes().splitlines(keepends=True)[0])
    (problem,) = load(whole, owners).problems
    assert "is expected 2 times" in problem.message


def test_many_problems_stay_readable(shard, whole, owners):
    rewrite(shard, lambda lines: [edit(line, attempt=9) for line in lines])
    messages = [problem.message for problem in load(whole, owners).problems]
    assert len(messages) == 6
    assert any("and 199 more problems" in message for message in messages)


@pytest.fixture
def words(whole):
    """The attempts on `words` in both suites."""
    return [whole / suite / f"{suite}.smollm2-135m.words.000" / "attempt-001.json" for suite in (SHORT, LONG)]


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("dtype", "bfloat16", "attempts on model smollm2-135m computed in different types: 'bfloat16' in "),
        ("model_digest", "a" * 64, None),  # one digest and otherwise null: a hub model has none
    ],
)
def test_attempts_on_one_model_computed_alike(whole, words, owners, field, value, message):
    restate(words[0], **{field: value})
    problems = load(whole, owners).problems
    assert {problem.suite for problem in problems} == ({SHORT, LONG} if message else set())
    assert all(message in problem.message or "'float32'" in problem.message for problem in problems)


def test_attempts_on_one_model_loaded_the_same_files(whole, words, owners):
    restate(words[0], model_digest="a" * 64)
    restate(words[1], model_digest="b" * 64)
    problems = load(whole, owners).problems
    assert [problem.suite for problem in problems] == [SHORT, LONG]
    assert (
        "attempts on model smollm2-135m loaded different files (model digest): 'aaaa" in problems[0].message
    )
    assert "'bbbb" in problems[0].message


def test_rows_of_one_task_are_scored_alike(shard, whole, owners):
    rewrite(shard, lambda lines: [*lines[:4], edit(lines[4], score_name="token_f1"), *lines[5:]])
    problems = load(whole, owners).problems
    assert [problem.suite for problem in problems] == [SHORT, LONG]
    assert "rows of task words carry different scores: 'exact_match' in " in problems[0].message
    assert "'token_f1' in " in problems[0].message
    assert "generations.jsonl:5" in problems[0].message


def test_a_log_that_cannot_be_read_contradicts_no_other(shard, whole, owners):
    """Its rows carry another score, which nobody sees."""
    name, other = b'"score_name":"exact_match"', b'"score_name":"count"'
    rewrite(shard, lambda lines: [line.replace(name, other) for line in lines])
    assert any("carry different scores" in one.message for one in load(whole, owners).problems)
    rewrite(shard, lambda lines: [*lines, b"no record\n"])
    assert not any("carry different scores" in one.message for one in load(whole, owners).problems)


def replaced(line, old, new):
    assert old in line
    return line.replace(old, new, 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda line: replaced(line, b'"score_value":', b'"score_value":1.0,"score_value":'), "not spelt"),
        (
            lambda line: replaced(line, b'"kind":"generation/1",', b"")[:-2] + b',"kind":"generation/1"}\n',
            None,
        ),
        (lambda line: line[:-1] + b"\r\n", "not spelt"),
        (lambda line: b"\xef\xbb\xbf" + line, "not a log record"),
        (lambda line: replaced(line, b",", b", "), "not spelt"),
        (lambda line: replaced(line, b'"smollm2', b'"\\u0073mollm2'), "not spelt"),
        (lambda line: replaced(line, b",", b",\n"), "not a log record"),
        (lambda line: line[:-1] + line, "not a log record"),
    ],
)
def test_a_line_is_spelt_as_kvexp_spells_it(shard, whole, owners, change, message):
    rewrite(shard, lambda lines: [*lines[:4], change(lines[4]), *lines[5:]])
    found = [problem.message for problem in load(whole, owners).problems]
    assert len(found) == 1
    assert f"generations.jsonl:5: {message or 'not'}" in found[0]


@pytest.mark.parametrize("name", ["attempt-001.json", "footer.json"])
def test_files_of_one_record_are_spelt_so_too(shard, whole, owners, name):
    path = shard / name
    path.write_bytes(path.read_bytes().replace(b'"shard_id"', b'"shard_id":"x","shard_id"', 1))
    (problem,) = load(whole, owners).problems
    assert f"{name}: not spelt as kvexp writes it" in problem.message


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"certificate": 99.0}, "certificate 99.0 is not the largest of certificate_steps"),
        ({"certificate_steps": []}, "certificate_steps is empty"),
        ({"certificate_steps": None}, "certificate and certificate_steps are not there together"),
        ({"certificate": None}, "certificate and certificate_steps are not there together"),
        ({"entropy": None}, "entropy is null without a reason"),
        ({"undefined": {}}, "margin is null without a reason"),
        (
            {"undefined": {"margin": "x", "entropy": "x"}},
            "undefined gives a reason for entropy, which is there",
        ),
        ({"undefined": {"margin": "x", "mood": "x"}}, "undefined gives a reason for mood, which"),
        ({"expected_kept": -1.0}, "expected_kept -1.0 is not between 0 and 1000 evictable tokens"),
        ({"realised_kept": 1000.5}, "realised_kept 1000.5 is not between 0 and 1000 evictable tokens"),
        ({"realised_kept": 99.0}, "tail_kept 100.0 is not between 0 and 99.0 kept tokens"),
    ],
)
def test_a_row_that_contradicts_itself_is_named(shard, whole, owners, changes, message):
    lines = (shard / "generations.jsonl").read_bytes().splitlines()
    at = next(at for at, line in enumerate(lines) if b'"arm":"poisson"' in line)
    rewrite(shard, lambda lines: [*lines[:at], edit(lines[at], **changes), *lines[at + 1 :]])
    (problem,) = load(whole, owners).problems
    assert (
        f"generations.jsonl:{at + 1}: embedded-1k smollm2-135m words words-0000 poisson, " in problem.message
    )
    assert f": {message}" in problem.message


def test_steps_near_the_largest_float_have_a_mean(shard, whole, owners):
    def heat(line):
        huge = {"certificate": 1e308, "certificate_steps": [1e308, 1e308]}
        return edit(line, **huge).replace(b"e+", b"e") if b'"arm":"poisson"' in line else line

    rewrite(shard, lambda lines: list(map(heat, lines)))
    study = load(whole, owners)
    assert study.problems == ()
    rows = study.table[(study.table["shard_id"] == WORDS) & (study.table["arm"] == "poisson")]
    assert (rows["certificate_mean"] == 1e308).all()


@pytest.mark.parametrize("name", ["attempt-0001.json", "attempt-1.json", "attempt-٠٠١.json", "attempt-.json"])  # noqa: RUF001
def test_an_attempt_has_one_name(shard, whole, owners, name):
    shutil.copy(shard / "attempt-001.json", shard / name)
    restate(shard / name, dtype="float16")
    (problem,) = load(whole, owners).problems
    assert problem.message.endswith(": it says attempt 1")


def test_grid_and_logs_cannot_shrink_together(shard, whole, owners):
    def keep(lines):
        return [line for line in lines if b'"words-0003"' not in line or WORDS.encode() not in line]

    grid = whole / "grid.jsonl"
    grid.write_bytes(b"".join(keep(grid.read_bytes().splitlines(keepends=True))))
    rewrite(shard, keep)
    (problem,) = load(whole, owners).problems
    assert "attempt-001.json: its config has 17 rows that the grid lacks and lacks 0 of it" in problem.message
    path = shard / "attempt-001.json"
    config = json.loads(path.read_bytes())["config"]
    config["example_ids"].remove("words-0003")
    restate(path, config=config)
    (problem,) = load(whole, owners).problems
    assert "attempt-001.json: its config does not have the shard digest that it states" in problem.message


def test_the_configuration_of_kvexp_itself_gives_the_rows_of_its_grid():
    from kvexp.study import compose, grid

    shard = grid.shards(compose.select(["study=embedded"], compose.project_root()))[0]
    attempt = planted.attempt(shard.shard_id, config=json.loads(json.dumps(shard.resolved())))
    assert attempt.shard_digest == shard.digest
    rows = {(row.example_id, row.arm, row.condition, row.budget, row.seed) for row in shard.expected()}
    assert disagreement(attempt, rows) == ""
    assert disagreement(attempt, set(list(rows)[1:])) != ""


def test_a_key_twice_in_a_running_shard_is_a_contradiction(shard, whole, owners):
    rewrite(shard, lambda lines: [*lines[:4], lines[3], *lines[4:]])
    (shard / "footer.json").unlink()
    (problem,) = load(whole, owners).problems
    assert "was answered before" in problem.message


@pytest.mark.parametrize("name", ["generations.jsonl", "attempt-001.json", "attempt-002.json", "footer.json"])
def test_a_pipe_is_refused_and_not_waited_for(shard, whole, owners, name):
    (shard / name).unlink(missing_ok=True)
    os.mkfifo(shard / name)
    problems = load(whole, owners).problems
    assert any(f"{name} cannot be read: it is not a regular file" in p.message for p in problems)


def test_a_pipe_for_a_grid_is_refused(whole, owners):
    (whole / "grid.jsonl").unlink()
    os.mkfifo(whole / "grid.jsonl")
    with pytest.raises(ResultsError, match="it is not a regular file"):
        load(whole, owners)


@pytest.mark.parametrize(
    "changes",
    [
        {"budget": None},
        {"condition": None},
        {"condition": None, "budget": None, "seed": None},
        {"arm": "full"},
        {"seed": 2**60},
    ],
)
def test_a_grid_row_without_its_place_touches_everything(whole, owners, changes):
    grid = whole / "grid.jsonl"
    lines = grid.read_bytes().splitlines(keepends=True)
    at = next(at for at, line in enumerate(lines) if b'"arm":"poisson"' in line)
    grid.write_bytes(b"".join([*lines[:at], edit(lines[at], **changes), *lines[at + 1 :]]))
    study = load(whole, owners)
    assert f"grid.jsonl:{at + 1}: " in study.problems[0].message
    assert study.problems[0].suite == ""
    assert not len(study.table)


def test_what_logs_say_is_printed_without_its_escape_sequences(shard, whole, words, owners):
    rewrite(shard, lambda lines: [*lines[:4], edit(lines[4], kind="\x1b]0;x\x07/1"), *lines[5:]])
    restate(words[1], protocol_digest="2" * 64, anchor="```\n\x1b[2J")
    restate(words[0], anchor="\u202eevil")
    facts = whole / SHORT / FACTS / "attempt-001.json"
    restate(facts, anchor="\x9b31m")
    messages = "".join(problem.message for problem in load(whole, owners).problems)
    assert r"\x1b]0;x\x07/1" in messages
    assert r"'\x9b31m'" in messages
    assert messages.isprintable()
