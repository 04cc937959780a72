"""Figures of attention suites: the same bytes everywhere, light, and drawable whatever the numbers."""

import dataclasses
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import warnings
import xml.etree.ElementTree as ET
from pathlib import Path

import msgspec
import numpy as np
import pytest

from analysis import __main__ as cli
from analysis.describe.description import attention_of, attention_parts
from analysis.render.files import outputs
from tests import cell_frames, planted

ROOT = Path(__file__).resolve().parents[2]
SVG = "{http://www.w3.org/2000/svg}"


FIGURES = ("scatter", "errors", "calibration", "layers", "rare", "worlds")


def figures_of(one):
    """Drawings of a suite by their names; those that it has."""
    return {picture.name.split(".")[-1]: picture.svg for picture in one.part.pictures if picture.svg}


def files_of(*suites):
    return dict(outputs(attention_parts(suites)))


@pytest.fixture(scope="module")
def registered(registrations):
    content = registrations[0].content
    plan = msgspec.structs.replace(content.statistics, draws=20)
    changed = msgspec.structs.replace(content, suites=["attention"], statistics=plan)
    return dataclasses.replace(registrations[0], content=changed)


@pytest.fixture(scope="module")
def tell(registered):
    def told(cells, worlds=None, **options):
        (one,) = attention_of(cell_frames.study(cells, worlds, **options), [registered])
        return one

    return told


@pytest.fixture(scope="module")
def drawn(tell):
    one = tell(cell_frames.cells(), cell_frames.worlds())
    return one, figures_of(one)


def words(svg):
    """All text of a figure, labels and ticks."""
    return ["".join(element.itertext()).strip() for element in ET.fromstring(svg.encode()).iter(f"{SVG}text")]


def test_every_figure_is_drawn_for_a_readme(drawn):
    one, figures = drawn
    assert tuple(figures) == FIGURES
    for name, svg in figures.items():
        root = ET.fromstring(svg.encode())
        assert float(root.attrib["width"].removesuffix("pt")) * 96 / 72 == pytest.approx(800, abs=1)
        assert "<text" in svg, name  # text, not outlines
        assert "<dc:date" not in svg
        assert "Matplotlib v" not in svg
        assert not list(root.iter(f"{SVG}script"))
        assert not list(root.iter(f"{SVG}image"))
    row = one.numbers["budgets"][0]
    title = words(figures["scatter"])
    assert f"covered {100 * row.coverage.value:.1f} %, Spearman {row.spearman.value:.3f}" in title
    assert {"budget 12.5 %", "budget 25 %", "budget 50 %"} <= set(title)
    assert f"{row.hajek.value:#.3g}" in words(figures["errors"])
    counts = {f"{row.cells:,}" for row in one.numbers["rare"]}
    assert counts <= set(words(figures["rare"]))
    assert "alike to top-k in 6 of 6 (prompt, layer); its error:" in words(figures["worlds"])


@pytest.mark.slow
def test_files_are_light_at_full_size(tell):
    """12,096 cells a budget, as the paper has."""
    cells = cell_frames.cells(prompts=36, offsets=(8,), layers=28, heads=12)
    one = tell(cells, cell_frames.worlds(prompts=6, layers=28, heads=12))
    for name, svg in figures_of(one).items():
        limit = 300_000 if name == "scatter" else 150_000
        assert len(svg.encode()) < limit, name


SCRIPT = """
import dataclasses, hashlib, msgspec
from pathlib import Path
from analysis.core import decide
from analysis.describe.description import attention_of, attention_parts
from analysis.render.files import outputs
from kvexp.documents.registration import load_folder
from tests import cell_frames
one = load_folder(Path("preregistration/embedded"), decide.CLAIMS)[0]
plan = msgspec.structs.replace(one.content.statistics, draws=20)
content = msgspec.structs.replace(one.content, suites=["attention"], statistics=plan)
one = dataclasses.replace(one, content=content)
study = cell_frames.study(cell_frames.cells(), cell_frames.worlds())
for path, text in outputs(attention_parts(attention_of(study, [one]))):
    print(path, hashlib.sha256(text.encode()).hexdigest())
"""


@pytest.mark.slow
def test_bytes_depend_neither_on_the_process_nor_on_matplotlib_settings(tmp_path):
    settings = tmp_path / "matplotlibrc"
    settings.write_text("font.size: 20\naxes.grid: True\nsvg.fonttype: path\nfigure.facecolor: red\n")
    found = []
    for hashes, extra in (("0", {}), ("7", {"MATPLOTLIBRC": str(settings)})):
        environment = {**os.environ, "PYTHONHASHSEED": hashes, **extra}
        command = [sys.executable, "-c", SCRIPT]
        run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
        found.append(run.stdout.splitlines())
    assert found[0] == found[1]
    assert len(found[0]) == 18 + 6 + 2 + 1  # the tables and figures of the suite, ablations, columns


def test_drawing_twice_gives_the_same_bytes(drawn):
    one, figures = drawn
    study = cell_frames.study(cell_frames.cells(), cell_frames.worlds())
    (again,) = attention_of(study, [one.suite.registered])
    assert figures_of(again) == figures


def few(**options):
    return cell_frames.cells(prompts=3, layers=2, heads=2, offsets=(8,), **options)


def with_zeros():
    rows = few()
    return rows.assign(
        hajek=np.where(rows.index % 3 == 0, 0.0, rows["hajek"]),
        certificate=np.where(rows.index % 4 == 0, 0.0, rows["certificate"]),
        variance=0.0,
        covered=1.0,
    )


@pytest.mark.parametrize(
    "cells",
    [
        few(),  # too few prompts for intervals
        few(budgets=(0.25,)),
        few(budgets=(0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)),
        with_zeros(),
        few().assign(hajek=0.0, topk=0.0, no_offset=0.0, uniform=0.0, certificate=0.0),
        few().assign(covered=0.0),
        few().assign(rare_attention=0.0),
        few().assign(hajek=1e-12, certificate=1e6),
        few().assign(hajek=5e-324, topk=1e30, certificate=1e30, uniform=1e-300),
        cell_frames.cells(prompts=1, layers=1, heads=1, offsets=(0,)),
    ],
    ids=[
        "few",
        "one budget",
        "seven",
        "zeros",
        "all zero",
        "uncovered",
        "one bin",
        "far",
        "ends",
        "one cell",
    ],
)
def test_unusual_numbers_are_drawn_without_a_warning(tell, cells):
    worlds = cell_frames.worlds(prompts=1, changed=1, layers=1, heads=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        one = tell(cells, worlds.assign(topk=0.0))
        figures = figures_of(one)
    assert tuple(figures) == FIGURES
    for svg in figures.values():
        ET.fromstring(svg.encode())
        assert "nan" not in " ".join(words(svg)).lower()


def test_worlds_next_to_nothing_are_drawn_without_a_warning(tell):
    worlds = cell_frames.worlds()
    worlds["topk"] = np.resize([1e30, 5e-324, 0.0, 1.0], len(worlds))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figures = figures_of(tell(few(), worlds))
    assert "inf" not in " ".join(words(figures["worlds"])).replace("infinit", "")


def test_cells_without_a_place_on_a_log_axis_are_counted(tell):
    rows = with_zeros()
    texts = words(figures_of(tell(rows))["scatter"])
    for _, here in rows.groupby("budget"):
        lost = ((here["hajek"] == 0) | (here["certificate"] == 0)).sum()
        assert f"{lost} cells beyond the edge" in texts


def test_without_numbers_old_figures_must_go(tell):
    cells = cell_frames.cells()
    whole = files_of(tell(cells, cell_frames.worlds()))
    part = files_of(tell(cells.assign(present=False), cell_frames.worlds()))
    assert whole.keys() == part.keys()
    assert all(text is not None for text in whole.values())
    gone = {path for path, text in part.items() if text is None}
    assert gone == {f"figures/attention.{name}.svg" for name in FIGURES}
    assert files_of() == {}


def test_a_suite_without_the_demonstration_has_no_such_figure(tell):
    files = files_of(tell(cell_frames.cells()))
    assert files["figures/attention.worlds.svg"] is None
    assert "tables/attention.worlds.csv" not in files


def test_outputs_are_text_of_known_places(drawn):
    one, _ = drawn
    files = files_of(one)
    assert {path.split("/")[0] for path in files} == {"figures", "tables"}
    digests = {hashlib.sha256(text.encode()).hexdigest() for text in files.values()}
    assert len(digests) == len(files)


# The command line -----------------------------------------------------------------------------------


@pytest.fixture
def run(shipped, capsys):
    def call(*arguments):
        code = cli.main([*map(str, arguments), "--registration", str(shipped["A"])])
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return code, out, err

    return call


def files_below(folder):
    paths = [path for name in ("figures", "tables") for path in sorted((folder / name).glob("*"))]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def test_a_study_is_written_as_text_json_figures_and_tables(run, measured):
    code, out, err = run(measured)
    assert (code, err) == (0, "")
    files = files_below(measured)
    of_cells = [name for name in files if name.split("/")[1].startswith(("attention.", "ablations."))]
    assert len(of_cells) == 18 + 6 + 2
    assert {Path(name).suffix for name in files} == {".svg", ".csv", ".md"}
    assert max(map(len, out.splitlines())) <= 100
    assert (
        "Certificate and true error by budget, attention (smollm2-135m, prose, score window, 12 prompts)"
        in out
    )
    assert re.search(r"\n\(prompt, layer\) identical +4 +4\nof +4 +4\n", out)
    assert "figures/*.svg" in out
    full = (measured / "details.md").read_text()
    assert "    Coverage by delta, attention" in full
    (one,) = json.loads((measured / "details.json").read_bytes())["attention"]
    assert (one["suite"], one["cells"], one["prompts"], one["undefined"]) == ("attention", 216, 12, "")
    assert [row["budget"] for row in one["budgets"]] == [0.125, 0.25, 0.5]
    lo, hi = (one["budgets"][0]["coverage"][end] for end in ("lo", "hi"))
    assert lo <= one["budgets"][0]["coverage"]["value"] <= hi
    assert {of["change"]: of["score"] for of in one["demonstrations"]} == {
        "permutation": "window",
        "rotation": "value_weighted",
    }
    assert not {"frame", "worlds"} & one.keys()
    assert one["promised"] == 0.9
    assert [(of["heads"], len(of["least"]), "every" in of) for of in one["heads"]] == [(6, 6, False)] * 3
    few = ", ".join(str(of["below_line"]) for of in one["heads"])
    assert f"heads covered in less than 85 % of their cells: {few} of 6; least: layer " in out
    assert re.search(r"\nprompts +2 +2\n", out)


@pytest.mark.slow
def test_neither_the_order_of_lines_nor_a_second_run_changes_a_byte(run, tmp_path, shuffled):
    grid = planted.prompts()
    usual = planted.write(tmp_path / "a" / "embedded", grid, planted.World())
    other = planted.write(tmp_path / "b" / "embedded", grid, planted.World(), order=shuffled)
    assert run(usual)[1] == run(other)[1]
    first = files_below(usual)
    assert first == files_below(other)
    assert run(usual)[0] == 0
    assert first == files_below(usual)


def test_figures_of_an_incomplete_suite_are_taken_away(run, measured):
    run(measured)
    foreign = measured / "figures" / "mine.svg"
    foreign.write_text("mine")
    next(iter(measured.glob("attention/*/footer.json"))).unlink()
    code, out, _ = run(measured)
    assert code == 3
    files = files_below(measured)
    assert [name for name in files if name.endswith(".svg")] == ["figures/mine.svg"]
    assert b"No numbers: " in files["tables/attention.budgets.md"]
    assert files["tables/attention.budgets.csv"].count(b"\n") == 1
    reason = "cells and worlds are missing (attention.smollm2-135m.prose.000 is not complete (no footer))"
    assert reason in " ".join(line.strip() for line in out.splitlines())


def test_what_cannot_be_written_is_one_line(run, measured, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    code, out, err = run(measured, "--out", blocked / "below")
    assert (code, err.count("\n")) == (0, 1)
    assert err.startswith("nothing was written to ")
    assert "A1    PREVIEW" in out

    target = tmp_path / "elsewhere"
    target.mkdir()
    for hindrance in (lambda path: path.write_text("x"), lambda path: path.symlink_to(target)):
        folder = tmp_path / "out"
        folder.mkdir()
        hindrance(folder / "tables")
        code, _, err = run(measured, "--out", folder)
        assert (code, err.count("\n")) == (0, 1)
        assert err.startswith("not all details, figures and tables were written to ")
        assert (folder / "verdicts.json").exists()
        (folder / "tables").unlink()
        shutil.rmtree(folder)
    assert list(target.iterdir()) == []
