"""Submission records and accounting exports that are wrong, cut or hostile: one sentence, with the file."""

import json
import os
import shutil

import pytest

from kvexp.errors import IntegrityError
from kvexp.slurm.account import of_accounting, path_of, read_export
from kvexp.slurm.submissions import AFTER, BEFORE, Book
from tests.slurm.test_slurm_parts import attempt, exported, judged, send


@pytest.fixture
def book(tmp_path):
    (tmp_path / "results").mkdir()
    return Book(tmp_path, tmp_path / "results" / "mini")


def change(path, **fields):
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def answer_of(sent):
    return sent.path.with_name(sent.path.name.replace(BEFORE, AFTER))


@pytest.mark.parametrize(
    "fields",
    [
        {"user": "me\x00"},
        {"user": "-x"},
        {"user": "me,root"},
        {"user": ""},
        {"options": {"gres": ["gpu:1"]}},
        {"options": {"gres": {"gpu": 1}}},
        {"logs": "../../../etc"},
        {"logs": "/etc"},
        {"logs": "slurm/logs/../../etc"},
        {"name": "--all"},
        {"name": "mini.other"},
        {"study": "../x"},
        {"pid": -1},
        {"at": "tomorrow"},
        {"at": "2026-02-30T00:00:00Z"},
        {"shards": ["../x"]},
        {"shards": ["a", "a"]},
    ],
    ids=str,
)
def test_a_record_that_nobody_wrote_is_named(book, fields):
    sent = send(book, "a", "b", job_id="7")
    change(sent.path, **fields)
    with pytest.raises(IntegrityError, match=sent.path.name):
        book.read()


@pytest.mark.parametrize(
    "fields",
    [
        {"job_id": "seven"},
        {"job_id": "7_1"},
        {"job_id": "-1"},
        {"job_id": ""},
        {"job_id": "\u0667"},
        {"at": "noon"},
        {"name": "mini.other"},
    ],
    ids=str,
)
def test_an_answer_that_sbatch_never_gave_is_named(book, fields):
    answer = answer_of(send(book, "a", job_id="7"))
    change(answer, **fields)
    with pytest.raises(IntegrityError, match=answer.name):
        book.read()


def test_an_answer_without_its_record_is_noticed(book):
    first, second = send(book, "a", job_id="7"), send(book, "b", job_id="8")
    first.path.unlink()
    with pytest.raises(IntegrityError, match=f"{answer_of(first).name} answers .* {first.path.name}, is not"):
        book.read()
    answer_of(first).unlink()
    assert [one.before.shards for one in book.read()] == [["b"]]
    assert second.job_id == "8"


def test_what_is_no_file_is_not_waited_for(book):
    answer = answer_of(send(book, "a", job_id="7"))
    for make in (os.mkfifo, os.mkdir, lambda path: os.symlink("nowhere", path)):
        answer.unlink() if not answer.is_dir() else answer.rmdir()
        make(answer)
        with pytest.raises(IntegrityError, match=answer.name):
            book.read()


def test_two_answers_with_one_job_and_a_file_for_a_folder(book):
    send(book, "a", job_id="7")
    change(answer_of(send(book, "b", job_id="8")), job_id="7")
    with pytest.raises(IntegrityError, match="two answers with job id 7"):
        book.read()
    shutil.rmtree(book.folder)
    book.folder.write_text("mine")
    with pytest.raises(IntegrityError, match="is no folder: move it away"):
        book.read()


@pytest.mark.parametrize(
    "fields",
    [
        {"job_id": "x"},
        {"job_id": "7_x"},
        {"raw_id": "abc"},
        {"raw_id": "-8"},
        {"start": "tomorrow"},
        {"end": "2026-13-01T00:00:00Z"},
        {"seconds": -5},
        {"seconds": 10**30},
        {"gpus": -1},
        {"name": "a b"},
        {"suite": "../x"},
    ],
    ids=str,
)
def test_a_line_that_accounting_never_said_is_named(tmp_path, fields):
    exported(tmp_path, {})
    path = path_of(tmp_path, tmp_path / "results/mini")
    change(path, **fields)
    path.write_text(path.read_text() + "\n")
    with pytest.raises(IntegrityError, match=r"mini\.jsonl:1 is no line of an export"):
        read_export(path)


def test_an_export_that_was_cut_is_noticed(tmp_path):
    """An empty one knows no job; half a line was never written; what was submitted must be accounted for."""
    book = Book(tmp_path, tmp_path / "results/mini")
    sent = send(book, "mini.x", "mini.y", job_id="7")
    begun = [attempt(tmp_path)]
    assert judged(tmp_path)["accounting"][0] is None
    assert "2 tasks were submitted to Slurm and 0 attempts" in judged(tmp_path)["accounting"][1]
    exported(tmp_path, {"name": sent.before.name})
    told = judged(tmp_path, *begun)
    assert told["attempts in accounting"][0] is True
    assert told["jobs in accounting"][0] is None
    assert told["jobs in accounting"][1].endswith("cut since: 7_1 (mini.y)")
    path = path_of(tmp_path, tmp_path / "results/mini")
    whole = path.read_bytes()
    path.write_bytes(b"")
    assert judged(tmp_path, *begun)["attempts in accounting"][0] is False
    path.write_bytes(whole * 2)
    with pytest.raises(IntegrityError, match=r"mini\.jsonl:2 is a second line for the same run"):
        read_export(path)
    path.write_bytes(whole[:-30])
    with pytest.raises(IntegrityError, match=r"mini\.jsonl was cut in its last line"):
        list(of_accounting(tmp_path, tmp_path / "results/mini", {"s"}, begun))


def test_a_time_that_an_attempt_never_had_is_named(tmp_path):
    exported(tmp_path, {})
    with pytest.raises(IntegrityError, match=r"attempt-001.json: 'noon' is no time of a record"):
        judged(tmp_path, attempt(tmp_path, at="noon"))


def test_an_export_that_is_a_link_to_nowhere_is_not_absent(tmp_path):
    path = path_of(tmp_path, tmp_path / "results/mini")
    path.parent.mkdir(parents=True)
    path.symlink_to("nowhere")
    with pytest.raises(IntegrityError, match=r"mini\.jsonl is a link that leads nowhere"):
        judged(tmp_path, attempt(tmp_path))
