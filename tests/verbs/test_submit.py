"""`kvexp submit` as a person meets it: what runs, what does not, what is said, and the exit code."""

import json
import os
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import huggingface_hub
import pytest
from transformers import GPT2Config

from kvexp.cli import main
from kvexp.models.load import load_model
from kvexp.records import FOOTER, GENERATIONS
from kvexp.run import answer
from kvexp.run.progress import AFTER, AROUND, RowCount, Work
from kvexp.study.grid import Counts
from kvexp.study.rates import Rate
from kvexp.study.schema import ClusterConf
from tests import project, tiny
from tests.project import results
from tests.run.test_log import small_disk

MANY = ["suite.n_examples=60", "suite.shard_examples=30"]  # seconds of work for a tiny model


@pytest.fixture
def root(tmp_path, tiny_folder):
    return project.make(tmp_path / "project", tiny_folder)


@pytest.fixture
def command(root, monkeypatch, capfd):
    """The command in this process: its exit code, what it printed and what it complained about."""
    monkeypatch.chdir(root)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)

    def run(verb, *arguments):
        capfd.readouterr()
        load_model.cache_clear()  # a new process would have none
        code = main([verb, "study=mini", *arguments])
        said = capfd.readouterr()
        return code, said.out, said.err

    return run


def submit(command, *arguments):
    return command("submit", "cluster=debug", "cluster.threads=1", *arguments)


def contents(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def logs(root):
    return sorted(results(root).glob("*/*/generations.jsonl"))


# What runs and what does not --------------------------------------------------------------------


def test_everything_then_nothing(command, root):
    code, out, err = submit(command)
    assert (code, err) == (0, "")
    assert "0 of 2 shards are complete, 2 to run on cluster=debug" in out
    assert "2 of 2 shards completed" in out
    before = contents(results(root))
    code, out, err = submit(command)
    assert (code, err) == (0, "")
    assert "2 of 2 shards are complete, 0 to run" in out
    assert contents(results(root)) == before


def test_only_what_is_missing_runs(command, root):
    submit(command)
    before = contents(results(root))
    (results(root) / "mini/mini.tiny.words.001" / FOOTER).unlink()
    log = results(root) / "mini/mini.tiny.words.001" / GENERATIONS
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:5]))
    code, out, _ = submit(command)
    assert code == 0
    assert "1 of 2 shards are complete, 1 to run" in out
    after = contents(results(root))
    assert {k: v for k, v in after.items() if ".000/" in k} == {
        k: v for k, v in before.items() if ".000/" in k
    }
    assert len(log.read_bytes().splitlines()) == project.ROWS


def test_a_choice_runs_its_part_and_the_grid_is_still_whole(command, root):
    project.write(root, "suite/other", project.SUITE.replace("name: mini", "name: other"))
    two = ["study.suites=[mini,other]"]
    code, out, _ = submit(command, *two, "suite=other")
    assert code == 0
    assert "0 of 2 shards are complete, 2 to run" in out
    assert {log.parent.parent.name for log in logs(root)} == {"other"}
    assert len((results(root) / "grid.jsonl").read_bytes().splitlines()) == 4 * project.ROWS


# Another experiment in the folder ---------------------------------------------------------------


def test_complete_shards_of_other_settings_are_not_taken_for_these(command, root):
    submit(command)
    before = contents(results(root))
    for change in (
        "arm.poisson.design_params.floor=1e-3",
        "study.protocol.delta=0.2",
        "task.words.max_new_tokens=3",
    ):
        code, _, err = submit(command, change)
        assert code == 4
        assert "made under another configuration or protocol" in project.one_sentence(err)
    code, _, err = submit(command, "suite.n_examples=3")
    assert code == 4
    assert "grid.jsonl expects other rows" in project.one_sentence(err)
    assert contents(results(root)) == before
    code, _, _ = submit(command, "study.name=second", "suite.n_examples=3")
    assert code == 0
    assert contents(results(root)) == before


def test_a_half_done_shard_of_other_settings_is_refused(command, root):
    submit(command)
    for folder in results(root).glob("mini/*"):
        (folder / FOOTER).unlink()
    before = contents(results(root))
    code, _, err = submit(command, "study.protocol.delta=0.2")
    assert code == 4
    assert err.count("was begun under another configuration") == 2
    assert contents(results(root)) == before


# Bad input: one sentence, nothing lost ----------------------------------------------------------


def gpt2(folder):
    GPT2Config(n_layer=1, n_head=2, n_embd=16, vocab_size=259).save_pretrained(folder)
    tiny.tokenizer().save_pretrained(folder)


def qwen_with_window(folder):
    tiny.save(folder, "qwen2")
    config = json.loads((folder / "config.json").read_text())
    config |= {"use_sliding_window": True, "sliding_window": 64, "max_window_layers": 0}
    config.pop("layer_types", None)
    (folder / "config.json").write_text(json.dumps(config))


def pickled(folder):
    tiny.save(folder)
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'touch /tmp/kvexp-was-here'\ntR.")


def no_tokenizer(folder):
    tiny.model("qwen2").save_pretrained(folder)  # transformers makes an empty one of nothing


def spoilt_tokenizer(folder):
    tiny.save(folder)
    (folder / "tokenizer.json").write_text("{}")


def changed_config(folder, **fields):
    tiny.save(folder, "qwen2")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | fields))


def other_kind(folder):
    changed_config(folder, model_type="falcon_mamba")


def spoilt_config(folder):
    changed_config(folder, hidden_size="abc")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (None, "is missing: make it"),
        (lambda folder: folder.mkdir(), "config.json is missing in"),
        (gpt2, "architecture 'gpt2'"),
        (qwen_with_window, "architecture 'qwen2' has sliding_attention layers"),
        (pickled, "needs safetensors"),
        (no_tokenizer, "has no tokenizer (tokenizer.json, "),
        (spoilt_tokenizer, "the tokenizer in"),
        (other_kind, "architecture 'falcon_mamba'"),
        (spoilt_config, "expected int, got str"),
    ],
    ids=["missing", "empty", "gpt2", "sliding", "pickle", "no-tokenizer", "tokenizer", "kind", "config"],
)
def test_a_model_that_cannot_be_used(command, root, tmp_path, make, said):
    folder = tmp_path / "model"
    if make:
        make(folder)
    code, _, err = submit(command, f"model.tiny.source={folder}", "suite.n_examples=2")
    assert code == 2
    sentence = project.one_sentence(err)
    assert said in sentence
    assert str(folder) in sentence or "architecture" in sentence
    assert not logs(root) or not any(log.read_bytes() for log in logs(root))
    code, _, err = submit(command, "suite.n_examples=2")  # nothing stands in the way of the right model
    if make in (None, no_tokenizer) or not list(results(root).glob("*/*/attempt-*")):
        assert (code, err) == (0, "")


def test_a_hub_model_without_a_network(command, root):
    code, _, err = submit(command, "study.name=other", "model.tiny.source=nobody/no-such-model")
    assert code == 2
    assert "'nobody/no-such-model'" in project.one_sentence(err)


def test_examples_that_fail_are_tried_again_once_the_cause_is_gone(command, root, monkeypatch):
    def no_room(*_):
        raise MemoryError("no room for the cache")

    with monkeypatch.context() as patch:
        patch.setattr(answer, "answer_all", no_room)
        code, out, err = submit(command)
    assert code == 3
    assert "0 of 2 shards completed" in out
    assert err.count("2 of 2 examples failed") == 2
    assert "out_of_memory" in err
    _, out, _ = command("status", "--json")
    assert {row["state"] for row in json.loads(out)["shards"]} == {"failed"}
    code, _, err = submit(command)
    assert (code, err) == (0, "")
    _, out, _ = command("status", "--json")
    assert {row["state"] for row in json.loads(out)["shards"]} == {"complete"}


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda log: log.write_bytes(b"\x00\xff" * 1000 + b"\n" + log.read_bytes()), "generations.jsonl:1"),
        (
            lambda log: log.write_bytes(log.read_bytes().replace(b"generation/1", b"generation/2", 1)),
            "generation/2",
        ),
        (
            lambda log: log.write_bytes(log.read_bytes() + log.read_bytes().splitlines(keepends=True)[0]),
            "second row",
        ),
        (lambda log: (log.parent / "attempt-001.json").write_bytes(b""), "attempt-001.json is not a record"),
    ],
)
def test_a_spoilt_log_is_four_and_the_other_shard_completes(command, root, spoil, said):
    submit(command)
    for folder in results(root).glob("mini/*"):
        (folder / FOOTER).unlink()
    spoil(logs(root)[0])
    before = contents(logs(root)[0].parent)
    code, out, err = submit(command)
    assert code == 4
    assert said in project.one_sentence(err)
    assert "1 of 2 shards completed" in out
    assert contents(logs(root)[0].parent) == before


def change_a_score(log):
    log.write_text(log.read_text().replace('"score_value":0.0', '"score_value":1.0', 1))


def remove(log):
    log.unlink()


def put_a_pipe(log):
    log.unlink()
    os.mkfifo(log)


@pytest.mark.parametrize("damage", [change_a_score, remove, put_a_pipe])
def test_a_complete_shard_that_was_damaged_is_not_called_complete(command, root, damage):
    submit(command)
    damage(logs(root)[0])
    code, out, err = submit(command)
    assert code == 4
    assert "generations.jsonl" in project.one_sentence(err)
    assert "are complete" not in out


def test_a_moved_model_folder_is_the_same_model_and_other_weights_are_not(
    command, root, tmp_path, tiny_folder
):
    submit(command)
    shutil.copytree(tiny_folder, tmp_path / "moved")
    code, out, _ = submit(command, f"model.tiny.source={tmp_path / 'moved'}")
    assert code == 0
    assert "2 of 2 shards are complete" in out
    tiny.save(tmp_path / "moved", seed=9)
    code, _, err = submit(command, f"model.tiny.source={tmp_path / 'moved'}")
    assert code == 4
    assert "made with other files of model tiny" in project.one_sentence(err)
    for log in logs(root):
        (log.parent / FOOTER).unlink()
        log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:5]))
    code, _, err = submit(command, f"model.tiny.source={tmp_path / 'moved'}")
    assert code == 4
    assert "was begun under another model" in err


def test_other_weights_by_the_same_name_are_refused_before_anything_is_computed(command, root, tmp_path):
    project.write(root, "suite/other", project.SUITE.replace("name: mini", "name: other"))
    two = "study.suites=[mini,other]"
    assert submit(command, two, "suite=mini")[0] == 0
    before = contents(results(root) / "mini")
    other = tiny.save(tmp_path / "moved", seed=9)
    for word, what in (
        (f"model.tiny.source={other}", "its files"),
        ("model.tiny.dtype=bfloat16", "its dtype"),
    ):
        code, _, err = submit(command, two, "suite=other", word)
        assert code == 4
        assert f"begun under another model by the name tiny ({what} " in project.one_sentence(err)
        assert not (results(root) / "other").exists()
    assert contents(results(root) / "mini") == before
    assert submit(command, two, "suite=other")[0] == 0


def test_a_corrupt_footer_is_four(command, root):
    submit(command)
    (logs(root)[0].parent / FOOTER).write_bytes(b"{")
    code, _, err = submit(command)
    assert code == 4
    assert "footer.json is not a record" in project.one_sentence(err)


def test_a_results_folder_that_cannot_be_written(command, root):
    (root / "results").mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", str(root / "results")], capture_output=True
    )
    if made.returncode != 0:
        pytest.skip("mounting is not permitted here")
    try:
        code, _, err = submit(command)
    finally:
        subprocess.run(["umount", str(root / "results")], check=True)
    assert code == 3
    assert "Read-only file system" in project.one_sentence(err)


@pytest.mark.parametrize("kilobytes", [4, 16, 32, 48])
def test_a_disk_that_fills_up_loses_nothing(command, root, tmp_path, kilobytes):
    with small_disk(root / "results", kilobytes):
        code, _, err = submit(command)
        assert code == 3
        assert err.count("\n") <= 2
        assert "No space left on device" in err
        assert "Traceback" not in err
        kept = {log.parent.name: log.read_bytes() for log in logs(root)}
        assert all(body == b"" or body.endswith(b"\n") for body in kept.values())
        subprocess.run(["mount", "-o", "remount,size=2m", str(root / "results")], check=True)
        code, _, err = submit(command)
        assert (code, err) == (0, "")
        for log in logs(root):
            assert log.read_bytes().startswith(kept.get(log.parent.name, b""))


def test_an_error_with_markup_or_escapes_is_printed_inert(command, root):
    log = results(root) / "mini/mini.tiny.words.000" / GENERATIONS
    submit(command)
    (log.parent / FOOTER).unlink()
    log.write_bytes(log.read_bytes().replace(b'"score_value"', b'"[/red]\\u001b[31m[bold]"', 1))
    code, _, err = submit(command)
    assert code == 4
    assert r"[/red]\x1b[31m[bold]" in project.one_sentence(err)


def test_rows_are_counted_as_they_grow(tmp_path):
    one, two, cells = tmp_path / "one", tmp_path / "two", tmp_path / "cells.jsonl"
    count = RowCount([one, two, cells])
    assert count() == [Counts()] * 3
    one.write_bytes(b'a\nb\n{"kind":"failed/1","suite":"mini"}\ntor')
    assert count() == [Counts(2), Counts(), Counts()]
    two.write_bytes(b"c\n")
    cells.write_bytes(b'{"kind":"cell/1"}\n{"kind":"world/1"}\n{"kind":"failed/1"}\n{"kind":"world/1')
    with one.open("ab") as file:
        file.write(b"n\nd\n")
    assert count() == [Counts(4), Counts(1), Counts(cells=1, worlds=1)]


def test_the_time_left_is_told_by_expected_minutes_and_not_by_rows(root, tmp_path):
    """Ten rows of the slow shard are worth more than ten of the fast one, though both have as many."""
    slow, fast = project.made(root)
    beside = AROUND + 3 * AFTER  # tokens that are fed whatever the context, three arms being stream
    slow = replace(slow, context_tokens=10 * (fast.context_tokens + beside) - beside)
    rate = Rate(device="d", dtype="float32", date="2026", command="c", prefill_token_s=0.01, step_s=0.0)
    cluster = ClusterConf(name="c", executor="debug", rates={"tiny": rate})
    logs = [tmp_path / "slow", tmp_path / "fast"]
    work = Work([slow, fast], logs, cluster)
    assert work.line(60) == f"0 of {2 * project.ROWS} generations, ETA unknown"
    logs[1].write_bytes(b"x\n" * project.ROWS)
    work.update()
    assert work.share == pytest.approx(1 / 11)
    assert work.line(60) == f"{project.ROWS} of {2 * project.ROWS} generations, ETA 10.0 min"
    unknown = Work([slow, fast], logs, replace(cluster, rates={}))
    assert unknown.share == 0.5


# Real worker processes --------------------------------------------------------------------------


def start(root, *arguments):
    return subprocess.Popen(
        project.command("submit", "study=mini", "cluster=local", "cluster.workers=1", *arguments),
        cwd=root,
        env=project.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def wait_for_rows(process, root, rows, seconds=90):
    end = time.monotonic() + seconds
    while time.monotonic() < end and process.poll() is None:
        if sum(log.read_bytes().count(b"\n") for log in logs(root)) >= rows:
            return
        time.sleep(0.05)
    pytest.fail(f"no {rows} rows: {process.communicate()}")


def workers(root):
    """Process ids of the workers that run in a project."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it ended meanwhile
            words = path.read_bytes()
            if str(root).encode() in words and b"_submit" in words:
                found.append(int(path.parent.name))
    return found


@pytest.mark.slow
def test_local_workers_complete_a_study_and_a_second_submit_runs_nothing(root):
    run = project.kvexp(root, "submit", "study=mini", "cluster=local", "cluster.workers=2")
    assert (run.returncode, run.stderr) == (0, "")
    assert "2 of 2 shards completed" in run.stdout
    assert run.stdout.isascii()
    before = contents(results(root))
    run = project.kvexp(root, "submit", "study=mini", "cluster=local")
    assert run.returncode == 0
    assert "0 to run" in run.stdout
    assert contents(results(root)) == before
    assert not workers(root)


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("is_terminal", [True, False])
def test_an_interrupt_stops_the_workers_and_says_so(root, sent, is_terminal):
    """A terminal signals the workers too; `kill` only the command."""
    process = start(root, *MANY)
    wait_for_rows(process, root, 14)
    assert workers(root)
    if is_terminal and sent == signal.SIGINT:
        for worker in workers(root):
            os.kill(worker, signal.SIGINT)
    process.send_signal(sent)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "interrupted; what is on disk stays, submit again to continue" in project.one_sentence(err)
    assert "the workers are stopped" in out
    assert not workers(root)
    kept = logs(root)[0].read_bytes()
    run = project.kvexp(root, "submit", "study=mini", *MANY)
    assert (run.returncode, run.stderr) == (0, "")
    assert logs(root)[0].read_bytes().startswith(kept[: kept.rfind(b"\n") + 1])


@pytest.mark.slow
def test_a_killed_worker_is_named_and_a_second_submit_completes(root):
    process = start(root, *MANY)
    wait_for_rows(process, root, 14)
    for worker in workers(root):
        os.kill(worker, signal.SIGKILL)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 3
    sentence = project.one_sentence(err)
    assert "shard mini.tiny.words.000: its process ended early" in sentence
    assert "submit again to continue" in sentence
    assert "1 of 2 shards completed" in out
    run = project.kvexp(root, "submit", "study=mini", *MANY)
    assert (run.returncode, run.stderr) == (0, "")
    assert "1 of 2 shards are complete, 1 to run" in run.stdout


@pytest.mark.slow
def test_a_command_killed_without_mercy_leaves_workers_that_nobody_doubles(root):
    """-9 on the command: its worker goes on; a second submit must not run the same shard beside it."""
    process = start(root, *MANY)
    wait_for_rows(process, root, 14)
    process.kill()
    process.communicate()
    run = project.kvexp(root, "submit", "study=mini", "cluster=debug", *MANY)
    if workers(root):
        assert run.returncode == 3
        assert "is being written by another process" in run.stderr
    end = time.monotonic() + 60
    while workers(root) and time.monotonic() < end:
        time.sleep(0.1)
    run = project.kvexp(root, "submit", "study=mini", *MANY)
    assert run.returncode == 0
    rows = [line for log in logs(root) for line in log.read_bytes().splitlines()]
    assert len(rows) == 60 * 7
