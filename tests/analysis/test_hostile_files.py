"""Seals, locks, looks and evidence that somebody else wrote: a clear error, soon, in little memory."""

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import planted
from tests.analysis import sealing
from tests.planted import LONG, SHORT, World

ROOT = Path(__file__).resolve().parents[2]
MEGABYTE = 1024 * 1024


@pytest.fixture(scope="module")
def small(tmp_path_factory, quick):
    """A sealed and locked study of few rows with its registrations beside it."""
    folder = tmp_path_factory.mktemp("small")
    home = shutil.copytree(quick, folder / "home")
    study = planted.write(folder / "embedded", planted.plan(examples=2), World())
    for name, suite in (("R", SHORT), ("S", LONG)):
        sealing.put_under(study, [suite], sealing.seal(study, home, name))
        sealing.amend(study, home, name)
        sealing.lock(study, home, name, suite)
    (study / "evidence.json").write_text("{}")
    return folder


@pytest.fixture
def place(small, tmp_path):
    return shutil.copytree(small, tmp_path / "place")


def analyse(place):
    """Exit code, output, errors, seconds of CPU and MB of memory of a run in a process of its own."""
    code = (
        "import resource, runpy, sys\n"
        "sys.argv = ['analysis', *sys.argv[1:]]\n"
        "try:\n    runpy.run_module('analysis', run_name='__main__')\n"
        "finally:\n"
        "    used = resource.getrusage(resource.RUSAGE_SELF)\n"
        "    print(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, file=sys.stderr)\n"
    )
    command = [sys.executable, "-c", code, str(place / "embedded"), "--registration", str(place / "home")]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    *errors, used = run.stderr.splitlines()
    seconds, megabytes = map(float, used.split())
    return run.returncode, run.stdout, "\n".join(errors), seconds, megabytes


DEEP = b"[" * 100_000
FILES = {
    "seal": "embedded/locks/registration/seals/R.sha256",
    "about": "embedded/locks/registration/seals/R.json",
    "shards": "embedded/locks/registration/seals/R.shards.jsonl",
    "amendment": "embedded/locks/registration/amendments/R-1/amendment.toml",
    "lock": f"embedded/locks/{SHORT}.sha256",
    "about the lock": f"embedded/locks/{SHORT}.json",
    "evidence": "embedded/evidence.json",
}


def long_line(path):
    with path.open("wb") as file:
        for _ in range(100):
            file.write(b'"' + b"x" * (MEGABYTE - 1))


def twice(path):
    body = path.read_bytes()
    if path.suffix == ".sha256":
        first, rest = body.split(b"\n", 1)
        path.write_bytes(first + b"\n" + first + b"\n" + rest)
    else:
        path.write_bytes(b'{"kind":"seal/1",' + body[1:])


ATTACKS = {
    "deep": lambda path: path.write_bytes(DEEP),
    "long": long_line,
    "link": lambda path: (path.rename(path.with_name("aside")), path.symlink_to("aside")),
    "pipe": lambda path: (path.unlink(), os.mkfifo(path)),
    "folder": lambda path: (path.unlink(), path.mkdir()),
    "twice": twice,
    "crlf": lambda path: path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n")),
    "climb": lambda path: path.write_bytes(b"0" * 64 + b"  ../../etc/passwd\n" + path.read_bytes()),
    "escape": lambda path: path.write_bytes(b"\x1b[2J" + path.read_bytes()),
}


@pytest.fixture(scope="module")
def usual(small, tmp_path_factory):
    """What a sound run of the same study costs."""
    place = shutil.copytree(small, tmp_path_factory.mktemp("usual") / "place")
    (place / "embedded" / "evidence.json").unlink()
    code, _, errors, seconds, megabytes = analyse(place)
    assert (code, errors) == (3, "")  # so few examples leave no interval
    return seconds, megabytes


@pytest.mark.slow
@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("what", FILES)
def test_a_hostile_file_gets_a_clear_error_soon_and_in_little_memory(place, usual, what, attack):
    ATTACKS[attack](place / FILES[what])
    code, out, errors, seconds, megabytes = analyse(place)
    if what == "seal" and attack in ("folder", "pipe"):
        assert code in (3, 4)
        assert "PREVIEW" in out or errors  # no manifest, no seal
    else:
        assert code == 4, (out, errors)
        assert errors.startswith("error: ")
    assert "Traceback" not in out + errors
    assert "\x1b" not in out + errors
    assert len(errors) < 20_000
    # A guard against minutes and gigabytes; machines are too noisy for more.
    assert seconds < 5 * usual[0] + 5
    assert megabytes < max(usual[1], 100) + 100


@pytest.mark.slow
def test_a_looks_file_of_100_mb_is_not_even_read(place, usual):
    (place / "embedded" / "evidence.json").unlink()
    shutil.rmtree(place / "embedded" / "locks")
    long_line(place / "embedded" / "looks.jsonl")
    before = (place / "embedded" / "looks.jsonl").stat().st_size
    code, _, errors, seconds, megabytes = analyse(place)
    assert (code, errors) == (3, "")
    assert (place / "embedded" / "looks.jsonl").stat().st_size > before
    assert (seconds < 5 * usual[0] + 5, megabytes < max(usual[1], 100) + 100) == (True, True)


@pytest.mark.slow
def test_report_bytes_do_not_depend_on_the_order_of_folders(place, monkeypatch, capsys):
    from analysis import __main__ as cli

    (place / "embedded" / "evidence.json").unlink()
    (place / "embedded" / SHORT / "stranger").write_text("x")  # a problem, so that lists are shown
    (place / "embedded" / SHORT / "another").write_text("x")
    arguments = [str(place / "embedded"), "--registration", str(place / "home")]

    def written():
        cli.main(arguments)
        names = ("verdicts.json", "verdicts.md", "details.json", "details.md")
        return capsys.readouterr(), [(place / "embedded" / name).read_bytes() for name in names]

    first = written()
    scandir, listdir, walk, order = os.scandir, os.listdir, os.walk, random.Random(7)

    class Shuffled:
        def __init__(self, path):
            with scandir(path) as entries:
                self.entries = list(entries)
            order.shuffle(self.entries)

        def __enter__(self):
            return self

        def __next__(self):
            if not self.entries:
                raise StopIteration
            return self.entries.pop()

        def close(self):
            self.entries.clear()

        def __exit__(self, *_):
            return None

        def __iter__(self):
            return self

    monkeypatch.setattr(os, "scandir", Shuffled)
    monkeypatch.setattr(os, "listdir", lambda path=".": order.sample(found := listdir(path), len(found)))
    monkeypatch.setattr(
        os,
        "walk",
        lambda top: ((f, order.sample(d, len(d)), order.sample(n, len(n))) for f, d, n in walk(top)),
    )
    for _ in range(3):
        assert written() == first
    assert json.loads(first[1][0])["problems"]
