"""`kvexp status`: every state, from files alone, readable in a pipe and in a narrow terminal."""

import io
import json
import os
import subprocess
import time

import pytest
from rich.console import Console

from kvexp.cli import main
from kvexp.records import FOOTER, GENERATIONS
from kvexp.run.log import locked_log, to_lines
from kvexp.slurm.status import shard_status
from kvexp.verbs.status import print_status
from tests import project
from tests.project import results
from tests.run.test_log import FAILED, msgspec


@pytest.fixture(scope="module")
def done(tmp_path_factory, tiny_folder):
    """A project whose study is complete."""
    root = project.make(tmp_path_factory.mktemp("status") / "project", tiny_folder)
    before = os.getcwd()
    os.chdir(root)
    try:
        assert main(["submit", "study=mini", "cluster=debug", "cluster.threads=1"]) == 0
    finally:
        os.chdir(before)
    return root


@pytest.fixture
def root(done, tmp_path):
    """A copy to spoil."""
    subprocess.run(["cp", "-r", str(done), str(tmp_path / "project")], check=True)
    return tmp_path / "project"


@pytest.fixture
def status(root, monkeypatch, capsys):
    monkeypatch.chdir(root)

    def run(*arguments, code=0):
        capsys.readouterr()
        assert main(["status", "study=mini", *arguments]) == code
        said = capsys.readouterr()
        assert said.err == ""
        return said.out

    return run


def first(root):
    return results(root) / "mini" / "mini.tiny.words.000"


def open_again(root, rows):
    """The first shard as if it had been killed after some rows."""
    (first(root) / FOOTER).unlink()
    kept = (first(root) / GENERATIONS).read_bytes().splitlines(keepends=True)[:rows]
    (first(root) / GENERATIONS).write_bytes(b"".join(kept))


def fail(root, rows=5):
    open_again(root, rows)
    failed = msgspec.structs.replace(
        FAILED, suite="mini", shard_id=first(root).name, model="tiny", task="words", example_id="3-001"
    )
    with (first(root) / GENERATIONS).open("ab") as file:
        file.write(to_lines([msgspec.structs.replace(failed, message="[red]out of memory[/red]")]))


def spoil(root):
    (first(root) / GENERATIONS).write_bytes(b"\x1b[31mgarbage\n")


def pipe(root):
    """Opening it would wait for ever."""
    (first(root) / GENERATIONS).unlink()
    os.mkfifo(first(root) / GENERATIONS)


def close_wrongly(root):
    text = (first(root) / GENERATIONS).read_text()
    (first(root) / GENERATIONS).write_text(text.replace('"score_value":0.0', '"score_value":1.0', 1))


def remove(root):
    subprocess.run(["rm", "-r", str(first(root))], check=True)


def loop(root):
    remove(root)
    first(root).symlink_to(first(root))


@pytest.mark.parametrize(
    ("change", "state", "rows", "note"),
    [
        (lambda root: None, "complete", 14, ""),
        (remove, "waiting", 0, ""),
        (loop, "waiting", 0, ""),
        (lambda root: open_again(root, 5), "partial", 5, ""),
        (lambda root: open_again(root, 0), "partial", 0, ""),
        (fail, "failed", 5, "1 examples failed, last 3-001: [red]out of memory[/red]"),
        (spoil, "broken", 0, "generations.jsonl:1"),
        (pipe, "broken", 0, "generations.jsonl is not a file"),
        (close_wrongly, "broken", 0, "was changed after footer.json closed it"),
        (lambda root: (first(root) / FOOTER).write_bytes(b""), "broken", 0, "footer.json is not a record"),
        (lambda root: (first(root) / "attempt-001.json").unlink(), "broken", 0, "attempt 1, whose file"),
    ],
)
def test_states(root, status, change, state, rows, note):
    change(root)
    code = 4 if state == "broken" else 0
    found = {row["shard_id"]: row for row in json.loads(status("--json", code=code))["shards"]}
    row = found["mini.tiny.words.000"]
    assert (row["state"], row["done"], row["expected"]) == (state, rows, 14)
    assert note in row["note"]
    assert found["mini.tiny.words.001"]["state"] == "complete"
    table = status(code=code)
    assert f"{1 + (state == 'complete')} of 2 shards complete" in table
    assert note in table
    assert "\x1b" not in table


def test_a_shard_is_running_while_its_log_is_locked(root, status):
    open_again(root, 5)
    with locked_log(first(root)):
        assert json.loads(status("--json"))["shards"][0]["state"] == "running"
    assert json.loads(status("--json"))["shards"][0]["state"] == "partial"


def test_a_folder_made_under_other_settings_is_said_so(root, status):
    rows = json.loads(status("--json", "study.protocol.delta=0.2"))["shards"]
    (note,) = {row["note"] for row in rows}
    assert note.startswith("made under another configuration or protocol, at commit ")


def test_asking_changes_nothing(root, status):
    open_again(root, 5)
    before = {p: (p.stat().st_mtime_ns, p.read_bytes()) for p in root.rglob("*") if p.is_file()}
    status()
    assert {p: (p.stat().st_mtime_ns, p.read_bytes()) for p in root.rglob("*") if p.is_file()} == before


def test_of_a_study_that_was_never_submitted_the_verbs_say_how_to(root, monkeypatch, capsys):
    monkeypatch.chdir(root)
    words = ["study=mini", "study.name=never", "model.tiny.source=/it does not matter"]
    for verb in ("status", "verdicts"):
        assert main([verb, *words, "cluster=debug"]) == 3
        said = capsys.readouterr()
        assert said.out == ""
        assert said.err == (
            "kvexp: nothing has been run: kvexp submit study=mini study.name=never "
            "'model.tiny.source=/it does not matter'\n"
        )


def test_what_was_never_submitted_to_slurm_cannot_be_cancelled_or_exported(root, monkeypatch, capsys):
    monkeypatch.chdir(root)
    for verb, what in (("cancel", "cancel"), ("account", "export")):
        assert main([verb, "study=mini", "study.name=never"]) == 3
        said = project.one_sentence(capsys.readouterr().err)
        assert f"study never was never submitted to Slurm: there is nothing to {what}" in said


def test_a_file_where_the_results_should_be(root, monkeypatch, capsys):
    monkeypatch.chdir(root)
    (root / "results/plain").write_text("mine")
    for verb in ("status", "submit", "cancel", "verdicts", "report", "lock", "verify"):
        assert main([verb, "study=mini", "study.name=plain"]) == 2
        assert "results/plain is no folder: move it away" in project.one_sentence(capsys.readouterr().err)


def test_a_run_without_registration_is_told_as_such(root, monkeypatch, capsys):
    monkeypatch.chdir(root)
    words = ["study=mini", "study.name=loose"]
    hint = "kvexp status study=mini study.name=loose --unregistered"
    assert main(["status", *words, "--unregistered"]) == 3
    assert capsys.readouterr().err.endswith("kvexp submit study=mini study.name=loose --unregistered\n")
    assert main(["submit", *words, "--unregistered", "cluster=debug"]) == 0
    capsys.readouterr()
    for verb in ("status", "verdicts"):
        assert main([verb, *words]) == 3
        said = capsys.readouterr().err
        assert "loose was only run with --unregistered" in said
        assert hint in said
    assert main(["status", *words, "--unregistered"]) == 0
    assert "2 of 2 shards complete" in capsys.readouterr().out


def test_a_study_that_is_prepared_and_not_begun_is_waiting(root, status):
    (root / "results/never").mkdir()
    (root / "results/never/grid.jsonl").write_bytes((results(root) / "grid.jsonl").read_bytes())
    out = status("study.name=never")
    assert out.count("waiting") == 2
    assert "0 of 2 shards complete, 0 of 28 generations" in out


def test_no_id_is_cut_short_in_a_pipe_or_at_eighty_columns(root):
    spoil(root)
    run = project.kvexp(root, "status", "study=mini")
    assert run.returncode == 4  # something is broken
    lines = run.stdout.splitlines()
    assert [line for line in lines if "mini.tiny.words.001" in line and "complete" in line]
    assert "…" not in run.stdout
    row = shard_status(results(root), project.made(root)[0])
    usual = "embedded-2k.smollm2-135m.passcodes.000"
    for name, width in ((usual, 80), (usual, 50), ("long-" * 15, 80)):
        console = Console(width=width, file=io.StringIO(), soft_wrap=True)
        print_status("mini", [row, type(row)(name, "running", 1, 2000, 90.0, "")], console)
        shown = console.file.getvalue()
        assert "…" not in shown
        assert "running  1/2,000" in shown
        assert (usual in shown) == (name == usual and width == 80)  # else folded over two lines, whole
        first_column = "".join(line[1 : width - 26].rstrip() for line in shown.splitlines())
        assert name[:20] in first_column


def test_what_needs_a_person_comes_first(root, status):
    fail(root)
    states = [line.split()[1] for line in status().splitlines() if line.startswith(" mini.")]
    assert states == ["failed", "complete"]


def test_idle_time_is_readable(root, status):
    open_again(root, 5)
    for seconds, shown in ((5, "5 s"), (600, "10 min"), (7200, "2 h"), (200_000, "2 d")):
        then = time.time() - seconds
        os.utime(first(root) / GENERATIONS, (then, then))
        assert shown in status()
