"""A study that went through the whole ceremony once; tests attack copies of it."""

import shutil

import pytest

from kvexp.models.load import load
from tests import project
from tests.ceremony import ceremony, logs


@pytest.fixture(scope="session")
def unsealed(tmp_path_factory, tiny_folder):
    """A project whose study is registered and not sealed. Not to be changed: use `fresh`."""
    return ceremony.make(tmp_path_factory.mktemp("unsealed") / "project", tiny_folder)


@pytest.fixture(scope="session")
def performed(tmp_path_factory, unsealed):
    """Sealed, stamped, run, locked and stamped. Not to be changed: use `locked`."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is missing: it signs the time stamps of the test's own authority")
    return ceremony.perform(ceremony.copy(unsealed, tmp_path_factory.mktemp("performed") / "project"))


@pytest.fixture
def fresh(tmp_path, unsealed):
    return ceremony.copy(unsealed, tmp_path / "project")


@pytest.fixture
def locked(tmp_path, performed):
    return ceremony.copy(performed, tmp_path / "project")


@pytest.fixture
def unlocked(locked):
    """Sealed, stamped and run."""
    shutil.rmtree(locked / "results/mini/locks")
    return locked


@pytest.fixture(scope="session")
def loaded(tiny_folder):
    return load(tiny_folder, "float32")


@pytest.fixture(scope="session")
def shards(tmp_path_factory, tiny_folder):
    return project.made(project.make(tmp_path_factory.mktemp("replay") / "project", tiny_folder))


@pytest.fixture(scope="session")
def honest(tmp_path_factory, shards, loaded):
    """A complete results folder under an anchor."""
    results = tmp_path_factory.mktemp("honest")
    logs.run(results, shards, loaded)
    return results


@pytest.fixture
def results(tmp_path, honest, shards):
    """A copy to forge."""
    for shard in shards:
        folder = logs.folder_of(tmp_path, shard)
        folder.mkdir(parents=True)
        for path in logs.folder_of(honest, shard).iterdir():
            (folder / path.name).write_bytes(path.read_bytes())
    return tmp_path
