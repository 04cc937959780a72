"""Whatever is not sealed comes after the verdicts and cannot change them."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HOSTILE = """
import sys
import analysis.core.decide
import analysis.core.verdict_json
from analysis.core.verdicts import Report

LOADED = sorted(m.__file__ for n, m in sys.modules.items() if n.split(".")[0] in ("analysis", "kvexp"))


def _nonsense(*_, **__):
    raise ValueError("planted")


analysis.core.decide.decide = analysis.core.decide.answer = analysis.core.verdict_json.to_json = _nonsense
Report.word = _nonsense


def write_description(report, out):
    (out / "loaded.txt").write_text("\\n".join(LOADED))
    (out / "seen.json").write_bytes((out / "verdicts.json").read_bytes())
    raise ValueError("planted")
"""


@pytest.fixture
def tree(tmp_path):
    for name in ("analysis", "kvexp", "preregistration"):
        shutil.copytree(ROOT / name, tmp_path / "tree" / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copyfile(ROOT / "requirements.lock", tmp_path / "tree" / "requirements.lock")
    return tmp_path / "tree"


def analyse(tree, results, out, quick):
    command = [
        sys.executable,
        "-m",
        "analysis",
        str(results),
        "--registration",
        str(quick),
        "--out",
        str(out),
    ]
    return subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)


def test_verdicts_are_written_and_printed_before_anything_else_is_imported(tree, whole, quick, tmp_path):
    from kvexp.documents.manifest import core_files

    right = analyse(tree, whole, tmp_path / "right", quick)
    assert (right.returncode, right.stderr) == (0, "")
    (tree / "analysis" / "render" / "files.py").write_text(HOSTILE)
    bad = analyse(tree, whole, tmp_path / "bad", quick)
    assert bad.returncode == 1
    assert bad.stderr.startswith("the verdicts stand, their description failed: ValueError: planted")
    for name in ("verdicts.json", "verdicts.md"):
        assert (tmp_path / "bad" / name).read_bytes() == (tmp_path / "right" / name).read_bytes()
    assert (tmp_path / "bad" / "seen.json").read_bytes() == (
        tmp_path / "right" / "verdicts.json"
    ).read_bytes()
    head, tail = bad.stdout.split("\n\nR1  ")
    assert right.stdout.startswith(head)
    assert right.stdout.endswith(f"R1  {tail}")
    loaded = {
        Path(name).relative_to(tree).as_posix() for name in (tmp_path / "bad/loaded.txt").read_text().split()
    }
    claims = [claim["id"] for claim in json.loads((tmp_path / "bad/seen.json").read_bytes())["claims"]]
    assert len(loaded) > 40
    assert loaded - {"analysis/render/__init__.py", "analysis/render/files.py"} <= set(
        core_files(tree, claims)
    )


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("analysis/core/decide/__init__.py", "module analysis.core.decide was loaded from"),
        ("msgspec.py", "hides the package msgspec"),
    ],
)
def test_threat_14_a_file_that_hides_another_is_named(tree, whole, quick, tmp_path, name, said):
    path = tree / name
    path.parent.mkdir(exist_ok=True)
    if name == "msgspec.py":
        lines = "import sys; here = sys.path.pop(0); me = sys.modules.pop('msgspec'); file = me.__file__\n"
        path.write_text(f"{lines}import msgspec\nsys.path.insert(0, here)\nmsgspec.__file__ = file\n")
    else:
        text = (tree / "analysis" / "core" / "decide.py").read_text()
        path.write_text(text)
    run = analyse(tree, whole, tmp_path / "out", quick)
    assert run.returncode == 4, run.stderr
    assert said in run.stderr
    assert not (tmp_path / "out" / "verdicts.json").exists()


def test_the_page_about_the_core_lists_each_of_its_files_once():
    from kvexp.documents.manifest import core_files

    page = (ROOT / "docs" / "reading-the-core.md").read_text()
    rows = [line.split("|")[1:] for line in page.splitlines() if line.startswith("| `")]
    listed = [path for row in rows for path in re.findall(r"`([^`]+)`", row[0])]
    rest = {"analysis/claims/__init__.py", "analysis/requirements.txt"}
    assert sorted(listed) == sorted(set(core_files(ROOT, ["R1"])) - rest)
    marked = [path for row in rows if row[3].strip() for path in re.findall(r"`([^`]+)`", row[0])]
    assert sum(len((ROOT / path).read_text().splitlines()) for path in marked) < 3500
