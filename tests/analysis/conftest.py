"""Planted studies, and the shipped registration that judges them."""

import random
import shutil
from pathlib import Path

import pytest

from analysis import claims
from analysis.load import load
from kvexp.prereg.registration import load_folder
from tests import planted

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def registrations():
    """The shipped registrations of `embedded`."""
    return load_folder(ROOT / "preregistration" / "embedded", claims.has_file)


@pytest.fixture(scope="session")
def owners(registrations):
    return {suite: one.content.id for one in registrations for suite in one.content.suites}


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


@pytest.fixture
def shuffled():
    """An order of lines and shards that is not the usual one."""

    def order(rows):
        return random.Random(5).sample(rows, len(rows))

    return order
