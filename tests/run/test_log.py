"""The folder of a shard on disk: nothing is lost, nothing foreign gets in."""

import fcntl
import os
import random
import subprocess
import sys
import time
from contextlib import contextmanager

import msgspec
import pytest

from kvexp import files
from kvexp.errors import IncompleteError, IntegrityError
from kvexp.files import write_whole
from kvexp.records import FOOTER, GENERATIONS, Attempt, Failed, encode
from kvexp.run import log as shard_log
from kvexp.run.log import locked_log, read_state, to_lines, write_new
from tests.test_records import GENERATION

ROW = msgspec.structs.replace(GENERATION, suite="s", shard_id="s.m.t.000")
ROWS = [msgspec.structs.replace(ROW, seed=seed) for seed in range(3)]
ATTEMPT = Attempt(
    shard_id="s.m.t.000",
    number=1,
    shard_digest="a" * 64,
    protocol_digest="b" * 64,
    seal=None,
    anchor="unanchored",
    git_commit=None,
    git_dirty=None,
    versions={},
    host="h",
    slurm={"SLURM_JOB_ID": "7"},
    model_digest=None,
    device="cpu",
    dtype="float32",
    threads=1,
    started_at="2026-01-01T00:00:00Z",
    config={},
)
FAILED = Failed(
    attempt=1,
    suite="s",
    shard_id="s.m.t.000",
    model="m",
    task="t",
    example_id=ROW.example_id,
    category="error",
    message="x",
)


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "s" / "s.m.t.000"
    path.mkdir(parents=True)
    write_new(path / "attempt-001.json", ATTEMPT)
    return path


def write(folder, *rows):
    with locked_log(folder) as log:
        log.append(to_lines(rows))


@contextmanager
def small_disk(path, kilobytes):
    """A real file system with hardly any room."""
    path.mkdir(exist_ok=True)
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(path)],
        capture_output=True,
        text=True,
    )
    if made.returncode != 0:
        pytest.skip(f"mounting is not permitted here: {made.stderr.strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", str(path)], check=True)


def test_an_empty_or_missing_folder_is_an_empty_state(tmp_path):
    for folder in (tmp_path, tmp_path / "nothing"):
        state = read_state(folder)
        assert (state.rows, state.failed, state.attempts, state.footer) == ({}, [], [], None)


def test_rows_come_back_in_the_order_of_the_log(folder):
    write(folder, *ROWS)
    state = read_state(folder)
    assert list(state.rows.values()) == ROWS
    assert state.attempts == [ATTEMPT]


@pytest.mark.parametrize("cut", [1, 2, 100, 500])
def test_a_torn_last_line_is_not_a_row_and_is_cut_before_the_next(folder, cut):
    write(folder, *ROWS[:2])
    whole = (folder / GENERATIONS).read_bytes()
    (folder / GENERATIONS).write_bytes(whole + to_lines(ROWS[2:])[:-cut])
    assert len(read_state(folder).rows) == 2
    with locked_log(folder) as log:
        log.drop_torn_line()
        assert (folder / GENERATIONS).read_bytes() == whole
        log.append(to_lines(ROWS[2:]))
    assert list(read_state(folder).rows.values()) == ROWS


def test_a_log_of_one_torn_line_becomes_empty(folder):
    (folder / GENERATIONS).write_bytes(b'{"kind":"generation/1"')
    with locked_log(folder) as log:
        log.drop_torn_line()
    assert (folder / GENERATIONS).read_bytes() == b""


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"", "truncated"),
        (b"hello", "malformed"),
        (b"\x00" * 4096, "malformed"),
        (random.Random(0).randbytes(4096).replace(b"\n", b" "), "generations.jsonl:2"),
        (to_lines(ROWS[2:]).strip().replace(b"generation/1", b"generation/2"), "generation/2"),
        (to_lines(ROWS[2:]).strip().replace(b'"text"', b'"words"'), "words"),
        (encode(msgspec.structs.replace(ROWS[2], shard_id="s.m.t.001")), "belongs to s/s.m.t.001"),
        (encode(msgspec.structs.replace(ROWS[2], suite="other")), "belongs to other/"),
        (encode(msgspec.structs.replace(ROWS[2], attempt=9)), "attempt 9, whose file is not there"),
        (encode(msgspec.structs.replace(FAILED, shard_id="s.m.t.001")), "belongs to s/s.m.t.001"),
        (encode(ROWS[0]), "a second row for s m t"),
    ],
)
def test_a_line_that_does_not_belong_there_is_named_and_left_alone(folder, line, said):
    write(folder, ROWS[0])
    with (folder / GENERATIONS).open("ab") as file:
        file.write(line + b"\n" + to_lines(ROWS[1:2]))
    before = (folder / GENERATIONS).read_bytes()
    with pytest.raises(IntegrityError) as caught:
        read_state(folder)
    assert said in str(caught.value)
    assert f"{folder / GENERATIONS}:2" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert (folder / GENERATIONS).read_bytes() == before


def test_a_line_of_fifty_megabytes_is_answered_within_seconds(folder):
    with (folder / GENERATIONS).open("wb") as file:
        file.write(b'{"kind":"generation/1","text":"' + b"x" * 50_000_000 + b'"}\n')
    start = time.monotonic()
    with pytest.raises(IntegrityError) as caught:
        read_state(folder)
    assert time.monotonic() - start < 30
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("body", [b"", b"{", b"\x00" * 100, b"[]\n", encode(FAILED), encode(ATTEMPT) * 2])
@pytest.mark.parametrize("name", ["attempt-001.json", FOOTER])
def test_a_corrupt_attempt_or_footer_is_named(folder, name, body):
    write(folder, *ROWS)
    (folder / name).write_bytes(body)
    with pytest.raises(IntegrityError, match=f"{name} is not a record of this version"):
        read_state(folder)


def test_a_failure_is_over_once_the_example_has_rows(folder):
    write(folder, FAILED)
    assert [f.example_id for f in read_state(folder).failed] == [ROW.example_id]
    write(folder, *ROWS)
    assert read_state(folder).failed == []


def test_a_closed_log_that_was_changed_is_refused(folder):
    write(folder, *ROWS)
    shard_log.close(folder, "a" * 64)
    footer = read_state(folder).footer
    assert footer.rows == 3
    assert [(s.attempt, s.job_id, s.rows) for s in footer.segments] == [(1, "7", 3)]
    whole = (folder / GENERATIONS).read_bytes()
    for body in (whole[:-1], whole.replace(b'"score_value":1.0', b'"score_value":0.0', 1), b"", whole + b"{"):
        (folder / GENERATIONS).write_bytes(body)
        with pytest.raises(IntegrityError, match=r"was changed after footer\.json closed it"):
            read_state(folder)
    (folder / GENERATIONS).unlink()
    with pytest.raises(IntegrityError, match="was changed after"):
        read_state(folder)


def test_a_full_disk_writes_all_rows_or_none(tmp_path):
    with small_disk(tmp_path / "disk", 16) as disk:
        with locked_log(disk) as log:
            log.append(to_lines(ROWS))
            whole = (disk / GENERATIONS).read_bytes()
            with pytest.raises(OSError, match="No space left"):
                log.append(to_lines(ROWS) * 20)
            assert (disk / GENERATIONS).read_bytes() == whole
            log.append(to_lines(ROWS[:1]))  # what fits is still taken
        assert (disk / GENERATIONS).read_bytes() == whole + to_lines(ROWS[:1])


def test_rows_are_whole_where_the_system_takes_a_few_bytes_at_a_time(folder, monkeypatch):
    write_all = os.write
    monkeypatch.setattr(shard_log.os, "write", lambda to, body: write_all(to, body[:7]))
    with locked_log(folder) as log:
        log.append(to_lines(ROWS))
    assert (folder / GENERATIONS).read_bytes() == to_lines(ROWS)


def test_a_full_disk_leaves_no_half_attempt_and_no_half_footer(tmp_path):
    """An empty attempt file would lock the shard out for ever."""
    with small_disk(tmp_path / "disk", 8) as disk:
        (disk / "filler").write_bytes(b"x" * 8192)
        with pytest.raises(OSError, match="No space left"):
            write_new(disk / "attempt-001.json", ATTEMPT)
        with pytest.raises(OSError, match="No space left"):
            write_whole(disk / FOOTER, b"x" * 100)
        assert [path.name for path in disk.iterdir()] == ["filler"]


def test_a_full_disk_is_a_sentence(tmp_path):
    with (
        pytest.raises(
            IncompleteError, match=r"cannot write to .*\(No space left on device\).*rows so far are kept"
        ),
        files.on_disk(tmp_path),
        open("/dev/full", "wb", buffering=0) as file,
    ):
        file.write(b"x")


def test_a_new_file_never_replaces_one(folder):
    before = (folder / "attempt-001.json").read_bytes()
    with pytest.raises(FileExistsError):
        write_new(folder / "attempt-001.json", msgspec.structs.replace(ATTEMPT, host="other"))
    assert (folder / "attempt-001.json").read_bytes() == before
    assert sorted(path.name for path in folder.iterdir()) == ["attempt-001.json"]


HOLD = """
import sys
from pathlib import Path
from kvexp.run.log import locked_log
with locked_log(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_two_processes_do_not_write_one_log(folder):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout.readline() == "held\n"
        assert shard_log.is_locked(folder)
        with pytest.raises(IncompleteError, match="is being written by another process"), locked_log(folder):
            pass
    finally:
        holder.kill()  # -9: the lock dies with its process
        holder.wait()
        holder.stdin.close()
        holder.stdout.close()
    assert not shard_log.is_locked(folder)
    write(folder, *ROWS)


def test_asking_whether_a_log_is_locked_does_not_make_a_writer_fail(folder):
    """`status` holds the lock for a moment; a worker that starts right then must wait, not fail."""
    write(folder, ROWS[0])
    asker = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import fcntl, sys, time\nfile = open(sys.argv[1])\nfcntl.flock(file, fcntl.LOCK_SH)\n"
            "print('asking', flush=True)\ntime.sleep(0.2)",
            str(folder / GENERATIONS),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    with asker:
        assert asker.stdout.readline() == "asking\n"
        write(folder, ROWS[1])
    assert len(read_state(folder).rows) == 2


def test_the_lock_is_given_back(folder):
    write(folder, ROWS[0])
    with (folder / GENERATIONS).open() as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
