"""Shared fixtures: tiny random models, the real embedded model, the threads of a test."""

import os
from pathlib import Path

import pytest

os.environ.setdefault("TQDM_DISABLE", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory) -> Path:
    """A tiny random Llama with its tokenizer in a local folder."""
    from tests import tiny

    return tiny.save(tmp_path_factory.mktemp("tiny-llama"))


@pytest.fixture(scope="session")
def real_model():
    """SmolLM2-135M-Instruct, ready for replay."""
    from kvexp.models.embedded import embedded_model
    from kvexp.models.load import load

    return load(embedded_model(), "float32")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real records that are not part of the project; tests that need them skip without them."""
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("real long-context records are missing: no folder ../shared/data beside the project")
    return folder
