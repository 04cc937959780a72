"""Planted studies, and the shipped registration that judges them."""

import random
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from analysis import __main__ as cli
from analysis.core import decide, verdict_text
from analysis.core.study import load
from analysis.core.verdicts import Report
from analysis.describe.description import details_of
from analysis.describe.scope import Scope
from analysis.render.evidence import evidence_text
from kvexp.documents.registration import load_folder
from tests import planted
from tests.analysis import sealing, varied
from tests.planted import LONG, SHORT

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def shipped(tmp_path_factory):
    """Folders of the shipped registrations of `embedded`: R and S on generations, A on attention cells."""
    folders = {}
    for names in ("RS", "A"):
        folders[names] = tmp_path_factory.mktemp("shipped")
        for name in names:
            shutil.copy(ROOT / "preregistration" / "embedded" / f"{name}.toml", folders[names])
    return folders


@pytest.fixture(scope="session")
def registrations(shipped):
    """R and S."""
    return load_folder(shipped["RS"], decide.CLAIMS)


@pytest.fixture(scope="session")
def of_cells(shipped):
    """A."""
    return load_folder(shipped["A"], decide.CLAIMS)[0]


@pytest.fixture(scope="session")
def owners(registrations):
    return {suite: one.content.id for one in registrations for suite in one.content.suites}


@pytest.fixture(scope="session")
def quick(tmp_path_factory):
    """R and S of `embedded` with few draws and without R4's nine values of q: shapes, not intervals."""
    folder = tmp_path_factory.mktemp("registration")
    for path in (ROOT / "preregistration" / "embedded").glob("[RS].toml"):
        text = path.read_text().replace("draws = 500", "draws = 20")
        text = text.replace('"entropy", "evicted_mass", "margin"]\n\n\n[claim', '"entropy"]\n\n\n[claim')
        lines = [line for line in text.splitlines() if not line.startswith('"q = ')]
        (folder / path.name).write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture
def plant(tmp_path, owners):
    """A function that writes a study and loads it."""

    def write(world, grid=None, **options):
        folder = tmp_path / "embedded"
        planted.write(folder, planted.plan() if grid is None else grid, world, **options)
        return load(folder, owners)

    return write


@pytest.fixture(scope="session")
def template(tmp_path_factory):
    folder = tmp_path_factory.mktemp("template") / "embedded"
    return planted.write(folder, planted.plan(examples=12), planted.World())


@pytest.fixture
def whole(tmp_path, template):
    """A complete, sound results folder called `embedded`, to be damaged at will."""
    return shutil.copytree(template, tmp_path / "embedded")


@pytest.fixture(scope="session")
def cells_template(tmp_path_factory):
    folder = tmp_path_factory.mktemp("template") / "embedded"
    return planted.write(folder, planted.prompts(), planted.World())


@pytest.fixture
def measured(tmp_path, cells_template):
    """A complete, sound results folder with an attention suite alone, to be damaged at will."""
    return shutil.copytree(cells_template, tmp_path / "embedded")


@pytest.fixture
def shuffled():
    """An order of lines and shards that is not the usual one."""

    def order(rows):
        return random.Random(5).sample(rows, len(rows))

    return order


@pytest.fixture(scope="session")
def of_paper():
    """A, N, R and S of the paper."""
    return load_folder(ROOT / "preregistration" / "paper", decide.CLAIMS)


@pytest.fixture(scope="session")
def paper_template(tmp_path_factory):
    """Two models on few examples; the control knows a quarter of what the full cache answers."""
    grid = planted.paper(models=planted.INSTRUCT[:2], examples=6)
    return planted.write(tmp_path_factory.mktemp("template") / "paper", grid, planted.forgetful)


@pytest.fixture
def paper(tmp_path, paper_template):
    """A complete, sound results folder of the paper's suites on real tasks, to be damaged at will."""
    return shutil.copytree(paper_template, tmp_path / "paper")


@pytest.fixture
def home(quick, tmp_path):
    """A folder of registrations, R and S."""
    return shutil.copytree(quick, tmp_path / "home")


@pytest.fixture
def study(whole, home):
    """A complete study, sealed by R and S and made under their seals; neither suite is locked."""
    for name, suite in (("R", SHORT), ("S", LONG)):
        sealing.put_under(whole, [suite], sealing.seal(whole, home, name))
    return whole


@pytest.fixture
def locked(study, home):
    """The same, both suites locked."""
    for name, suite in (("R", SHORT), ("S", LONG)):
        sealing.lock(study, home, name, suite)
    return study


@pytest.fixture
def described():
    """For a test of verdicts that looks at what comes after them too; see `undescribed`."""


@pytest.fixture
def undescribed(request, monkeypatch):
    """The verdicts alone, unless the test asks for `described`: details, figures and page take most of a run.

    One file stands for them all, so where they go is still seen, and few seeds tell how fragile a verdict is.
    In this process only; a test that starts another one describes as always.
    """
    monkeypatch.setattr("analysis.core.decide.SEEDS", 2)

    def make(report, out):
        if out is not None:
            (out / "details.json").write_text("{}")
            (out / "evidence.md").write_text(verdict_text.block("Evidence", evidence_text(report)))
        return ""

    if "described" not in request.fixturenames:
        monkeypatch.setattr("analysis.render.files.write_description", make)


@pytest.fixture
def undrawn(monkeypatch):
    """Details are described as always; tables, figures and the page are not made."""
    monkeypatch.setattr("analysis.render.files._files", lambda *_: {})
    monkeypatch.setattr("analysis.core.decide.SEEDS", 2)


@pytest.fixture(scope="session")
def quick_paper(tmp_path_factory):
    """A, N, R and S of the paper with few draws: shapes, not intervals."""
    return planted.few_draws(tmp_path_factory.mktemp("registration"), "paper", "*.toml")


@pytest.fixture
def run(home, capsys):
    def call(folder, *more, registration=home):
        code = cli.main([str(folder), "--registration", str(registration), *map(str, more)])
        out, err = capsys.readouterr()
        return code, out, err

    return call


@pytest.fixture(scope="session")
def varied_study(tmp_path_factory, quick):
    """Rows that differ in all that descriptive numbers read; judged by few draws."""
    registrations = load_folder(quick, decide.CLAIMS)
    return varied.write(tmp_path_factory.mktemp("varied") / "embedded", registrations)


@pytest.fixture(scope="session")
def details():
    """A function that returns the records of a study's generations by their name in details.json."""

    def of(study, *registrations):
        return SimpleNamespace(**details_of(Scope(Report(study, list(registrations), []))))

    return of
