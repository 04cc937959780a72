"""Running a shard: killed, resumed, failed, refused; the rows are the same as if nothing had happened."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace

import msgspec
import pytest
import torch

from kvexp.errors import IncompleteError, IntegrityError, KvexpError
from kvexp.models.load import load
from kvexp.records import FOOTER, GENERATIONS, Failed, Generation, Reader
from kvexp.run import log
from kvexp.run.attempt import Place, Under
from kvexp.run.log import read_state
from kvexp.run.shard import run_shard
from tests import project


@pytest.fixture(scope="module")
def loaded(tiny_folder):
    return load(tiny_folder, "float32")


@pytest.fixture(scope="module")
def root(tmp_path_factory, tiny_folder):
    return project.make(tmp_path_factory.mktemp("shards") / "project", tiny_folder)


@pytest.fixture(scope="module")
def shard(root):
    return project.made(root)[0]


def place(folder, shard, **changes):
    made = Place(folder / shard.suite / shard.shard_id, Under(), (None, None), "cpu")
    return replace(made, **changes)


def run(folder, shard, model, **changes):
    run_shard(shard, place(folder, shard, **changes), lambda: model)
    return state(folder, shard)


def state(folder, shard):
    return read_state(place(folder, shard).folder)


def refuse_to_load():
    pytest.fail("the model was loaded although nothing is missing")


def science(row):
    """A row without what may differ between two runs: the attempt that wrote it and its clock."""
    fields = msgspec.structs.asdict(row)
    del fields["attempt"], fields["seconds"]
    return fields


def rows_by_key(state):
    return {key: science(row) for key, row in state.rows.items()}


def files(folder, shard):
    return {path.name: path.read_bytes() for path in sorted(place(folder, shard).folder.iterdir())}


def lines(folder, shard):
    return (place(folder, shard).folder / GENERATIONS).read_bytes().splitlines(keepends=True)


def test_a_whole_shard(tmp_path, shard, loaded):
    done = run(tmp_path, shard, loaded)
    assert list(done.rows) == [e.key for e in shard.expected()]
    assert len(done.rows) == project.ROWS
    assert set(files(tmp_path, shard)) == {"attempt-001.json", GENERATIONS, FOOTER}
    assert done.footer.rows == project.ROWS
    assert done.footer.shard_digest == shard.digest
    attempt = done.attempts[0]
    assert (attempt.number, attempt.anchor, attempt.shard_digest) == (1, "unanchored", shard.digest)
    assert attempt.config == json.loads(json.dumps(shard.resolved()))
    for row in done.rows.values():
        assert (row.keep_digest is None) == (row.arm == "full")
        assert (row.certificate is not None) == (row.arm == "poisson")
        nulls = {s for s in ("certificate", "entropy", "evicted_mass", "margin") if getattr(row, s) is None}
        assert nulls == set(row.undefined)


def test_a_complete_shard_is_not_run_again(tmp_path, shard, loaded):
    run(tmp_path, shard, loaded)
    before = files(tmp_path, shard)
    run_shard(shard, place(tmp_path, shard), refuse_to_load)
    assert files(tmp_path, shard) == before


def test_only_a_footer_is_missing(tmp_path, shard, loaded):
    """Killed between the last row and the footer."""
    whole = run(tmp_path, shard, loaded)
    (place(tmp_path, shard).folder / FOOTER).unlink()
    run_shard(shard, place(tmp_path, shard), refuse_to_load)
    assert state(tmp_path, shard).footer.sha256 == whole.footer.sha256
    assert len(state(tmp_path, shard).attempts) == 1


@pytest.mark.parametrize("kept", [0, 1, 6, 7, 8, 13])
@pytest.mark.parametrize("torn", [b"", b'{"kind":"generation/1","suite":"mi'])
def test_a_log_cut_anywhere_is_completed_to_the_same_rows(tmp_path, shard, loaded, kept, torn):
    whole = rows_by_key(run(tmp_path, shard, loaded))
    folder = place(tmp_path, shard).folder
    head = b"".join(lines(tmp_path, shard)[:kept])
    (folder / FOOTER).unlink()
    (folder / GENERATIONS).write_bytes(head + torn)
    again = run(tmp_path, shard, loaded)
    assert rows_by_key(again) == whole
    assert (folder / GENERATIONS).read_bytes().startswith(head)  # what was there is never rewritten
    assert [row.attempt for row in again.rows.values()] == [1] * kept + [2] * (project.ROWS - kept)
    assert [s.rows for s in again.footer.segments] == [kept, project.ROWS - kept]


CHILD = """
import os, sys
from pathlib import Path
import torch
torch.set_num_threads(1)
from kvexp.models.load import load
from kvexp.run.shard import run_shard
from kvexp.run.attempt import Place, Under
from tests import project
root, model = Path(sys.argv[1]), load(sys.argv[2], "float32")
shard = project.made(root, *sys.argv[3].split(";"))[0]
shard_folder = lambda name: Path(name) / shard.suite / shard.shard_id
print("ready", flush=True)
for line in sys.stdin:  # each line is a results folder: run the shard there in a process of its own
    child = os.fork()
    if child == 0:
        run_shard(shard, Place(shard_folder(line.strip()), Under(), (None, None), "cpu"), lambda: model)
        os._exit(0)
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
TEN_EXAMPLES = "suite.n_examples=10;suite.shard_examples=10"


@pytest.mark.slow
def test_killed_at_ten_random_moments_and_resumed(tmp_path, root, tiny_folder):
    shard = project.made(root, *TEN_EXAMPLES.split(";"))[0]
    server = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(root), str(tiny_folder), TEN_EXAMPLES],
        cwd=project.ROOT,
        env=project.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    def start(folder):
        server.stdin.write(f"{folder}\n")
        server.stdin.flush()
        return int(server.stdout.readline())

    def end():
        return int(server.stdout.readline())

    with server:
        assert server.stdout.readline() == "ready\n"
        start(tmp_path / "whole")
        began = time.monotonic()
        assert end() == 0
        seconds = time.monotonic() - began
        moments = random.Random(20261129)
        kills, seen = 0, set()
        for _ in range(200):
            child = start(tmp_path / "killed")
            if kills < 10:
                time.sleep(moments.uniform(0, seconds / 8))
                os.kill(child, signal.SIGKILL)
            code = end()
            assert code in (0, -signal.SIGKILL)
            kills += code == -signal.SIGKILL
            current = state(tmp_path / "killed", shard)  # readable at every moment
            assert current.rows.keys() >= seen
            seen = set(current.rows)
            if code == 0:
                break
        server.stdin.close()
    assert kills == 10
    whole, resumed = state(tmp_path / "whole", shard), state(tmp_path / "killed", shard)
    assert rows_by_key(resumed) == rows_by_key(whole)
    assert len(resumed.attempts) > 3
    assert len(lines(tmp_path / "killed", shard)) == len(whole.rows) == resumed.footer.rows  # none repeated
    assert sum(s.rows for s in resumed.footer.segments) == resumed.footer.rows


def test_examples_arms_and_chunks_in_another_order_draw_the_same(tmp_path, root, loaded):
    def digests(name, *overrides):
        rows = {}
        for shard in project.made(root, *overrides):
            rows |= run(tmp_path / name, shard, loaded).rows
        return {key: (row.keep_digest, row.text) for key, row in rows.items()}

    arms = project.made(root)[0].arms
    reverse = "suite.arms=[" + ",".join(
        f"{{arm: {e.arm}, conditions: {e.conditions[::-1]}, budgets: {e.budgets}, seeds: {e.seeds[::-1]}}}"
        for _, e in arms[::-1]
    )
    usual = digests("usual")
    assert digests("chunks", "suite.shard_examples=3") == usual
    assert digests("arms", reverse.replace("'", "") + "]") == usual
    backwards = {}
    for shard in project.made(root)[::-1]:
        turned = replace(shard, example_ids=shard.example_ids[::-1])
        backwards |= run(tmp_path / "backwards", turned, loaded).rows
    assert {key: (row.keep_digest, row.text) for key, row in backwards.items()} == usual
    poisson = {d for key, (d, _) in usual.items() if key.arm == "poisson"}
    assert len(poisson) == 16  # seeds, conditions and examples all draw for themselves


class Fault:
    """A hook on a real model that raises at chosen forward passes over a whole prompt."""

    def __init__(self, loaded, error, at):
        self.error, self.at, self.prompts = error, at, 0
        self.handle = loaded.model.register_forward_pre_hook(self, with_kwargs=True)

    def __call__(self, _module, args, kwargs):
        ids = kwargs.get("input_ids", args[0] if args else None)
        if ids is not None and ids.shape[-1] > 500:
            self.prompts += 1
            if self.prompts in self.at:
                raise self.error

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.handle.remove()


@pytest.mark.parametrize(
    ("error", "category"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"), "out_of_memory"),
        (MemoryError(), "out_of_memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), "out_of_memory"),
        (RuntimeError("two\nlines \x1b[31mred"), "error"),
    ],
)
def test_a_failed_example_leaves_a_row_and_the_next_ones_run(tmp_path, shard, loaded, error, category):
    with Fault(loaded, error, at={1}), pytest.raises(IncompleteError) as caught:
        run(tmp_path, shard, loaded)
    assert caught.value.exit_code == 3
    assert "1 of 2 examples failed" in str(caught.value)
    assert "\n" not in str(caught.value)
    now = state(tmp_path, shard)
    assert now.footer is None
    assert [(f.example_id, f.category) for f in now.failed] == [(shard.example_ids[0], category)]
    assert {key.example_id for key in now.rows} == {shard.example_ids[1]}
    done = run(tmp_path, shard, loaded)  # the cause is gone
    assert rows_by_key(done) == rows_by_key(run(tmp_path / "clean", shard, loaded))
    assert done.failed == []
    assert done.footer.rows == project.ROWS
    kinds = [json.loads(line)["kind"] for line in lines(tmp_path, shard)]
    assert kinds.count("failed/1") == 1


def test_an_unforeseen_exception_keeps_the_rows_before_it(tmp_path, shard, loaded):
    with Fault(loaded, KeyError("a bug"), at={2}), pytest.raises(KeyError):
        run(tmp_path, shard, loaded)
    now = state(tmp_path, shard)
    assert {key.example_id for key in now.rows} == {shard.example_ids[0]}
    assert not log.is_locked(place(tmp_path, shard).folder)
    done = run(tmp_path, shard, loaded)
    assert rows_by_key(done) == rows_by_key(run(tmp_path / "clean", shard, loaded))


def test_a_context_that_the_protected_tokens_fill_is_too_short(tmp_path, root, loaded):
    shard = project.made(root, "suite.arms=[{arm: full}, {arm: h2o, conditions: [stream], budgets: [0.02]}]")[
        0
    ]
    with pytest.raises(IncompleteError, match=r"too_short: TooShort: a budget of 0.02 keeps \d+ of \d+"):
        run(tmp_path, shard, loaded)
    now = state(tmp_path, shard)
    assert ({f.category for f in now.failed}, now.rows, now.footer) == ({"too_short"}, {}, None)


def test_a_prompt_longer_than_the_models_positions_is_too_long(tmp_path, shard, loaded):
    short = replace(loaded, max_positions=600)
    with pytest.raises(IncompleteError, match=r"too_long: TooLong: a prompt of .* exceed the model's 600"):
        run(tmp_path, shard, short)
    assert {f.category for f in state(tmp_path, shard).failed} == {"too_long"}
    assert run(tmp_path, shard, loaded).footer.rows == project.ROWS


def test_an_answer_with_nan_is_a_failed_example_and_not_a_crash(tmp_path, shard, tiny_folder):
    broken = load(tiny_folder, "float32")
    with torch.no_grad():
        broken.model.lm_head.weight.fill_(float("nan"))
    with pytest.raises(IncompleteError, match="not finite"):
        run(tmp_path, shard, broken)
    assert {f.category for f in state(tmp_path, shard).failed} == {"error"}


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda s, p: (s, replace(p, under=Under(anchor="2026-stamp"))), "another anchor"),
        (lambda s, p: (replace(s, context_tokens=300), p), "another configuration"),
        (lambda s, p: (replace(s, protocol_digest="1" * 64), p), "another protocol"),
        (lambda s, p: (s, replace(p, model_digest="2" * 64)), "another model"),
    ],
)
@pytest.mark.parametrize("is_complete", [True, False])
def test_a_folder_of_another_experiment_is_refused_and_left_alone(
    tmp_path, shard, loaded, change, what, is_complete
):
    run(tmp_path, shard, loaded)
    if not is_complete:
        folder = place(tmp_path, shard).folder
        (folder / FOOTER).unlink()
        (folder / GENERATIONS).write_bytes(b"".join(lines(tmp_path, shard)[:9]))
    before = files(tmp_path, shard)
    other, where = change(shard, place(tmp_path, shard))
    with pytest.raises(IntegrityError, match=f"was begun under {what}") as caught:
        run_shard(other, where, refuse_to_load)
    assert caught.value.exit_code == 4
    assert files(tmp_path, shard) == before


def test_rows_that_the_shard_does_not_expect_are_refused(tmp_path, shard, loaded):
    run(tmp_path, shard, loaded)
    folder = place(tmp_path, shard).folder
    (folder / FOOTER).unlink()
    extra = lines(tmp_path, shard)[0].replace(b'"3-000"', b'"3-077"')
    with (folder / GENERATIONS).open("ab") as file:
        file.write(extra)
    with pytest.raises(IntegrityError, match=r"1 rows that the shard does not expect .*3-077"):
        run_shard(shard, place(tmp_path, shard), refuse_to_load)


def test_a_model_that_cannot_be_loaded_costs_nothing(tmp_path, shard, loaded, root):
    def missing():
        return load(root / "nowhere", "float32")

    with pytest.raises(KvexpError, match="cannot be loaded") as caught:
        run_shard(shard, place(tmp_path, shard), missing)
    assert "\n" not in str(caught.value)
    assert len(run(tmp_path, shard, loaded).attempts) == 2


def test_rows_are_generations_or_failures(tmp_path, shard, loaded):
    run(tmp_path, shard, loaded)
    read = Reader(Generation | Failed)
    rows = [read(line) for line in lines(tmp_path, shard)]
    assert all(isinstance(row, Generation) and not isinstance(row, Failed) for row in rows)
