"""A model's folder from outside: whole or not, how large, and whether it fits."""

import json
import re

import pytest
import torch
import transformers
from safetensors.torch import save_file

from kvexp.errors import InputError
from kvexp.models import load as loading
from kvexp.models.folder import INDEX, SINGLE, lacking, weight_bytes, weight_files
from kvexp.models.load import load
from kvexp.replay import memory
from tests import tiny


@pytest.fixture
def folder(tmp_path):
    """A tiny model in three files with an index."""
    tiny.model("llama").save_pretrained(tmp_path, max_shard_size="140kB")
    tiny.tokenizer().save_pretrained(tmp_path)
    return tmp_path


def parts(folder):
    return sorted(folder.glob("model-*.safetensors"))


def test_a_whole_folder_lacks_nothing_and_its_bytes_are_those_of_its_parameters(folder):
    assert lacking(folder) is None
    files = weight_files(folder)
    assert files == parts(folder)
    n = sum(p.numel() for p in tiny.model("llama").parameters())
    assert weight_bytes(files, "float32") == 4 * n
    assert weight_bytes(files, "bfloat16") == 2 * n


@pytest.mark.parametrize("name", ["config.json", "model-00002-of-00003.safetensors", "tokenizer.json"])
def test_what_is_removed_is_named(folder, name):
    (folder / name).unlink()
    assert lacking(folder) == name


@pytest.mark.parametrize(
    "damage",
    [
        lambda body: body[:-1],
        lambda body: body + b"\0",
        lambda body: b"",
        lambda body: b"\xff" * 8 + body[8:],
        lambda body: body[:8] + b"x" + body[9:],
    ],
)
def test_damaged_weights_are_missing_and_never_loaded(folder, damage):
    path = parts(folder)[1]
    path.write_bytes(damage(path.read_bytes()))
    assert lacking(folder) == path.name
    with pytest.raises(InputError, match=rf"{path.name} is damaged") as caught:
        load(folder, "float32")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"weight_map": 3}', '{"weight_map": {"a": "../x.safetensors"}}']
)
def test_an_index_that_is_none_is_refused(folder, text):
    (folder / INDEX).write_text(text)
    assert lacking(folder) == INDEX
    with pytest.raises(InputError, match="index"):
        weight_files(folder)


def test_one_file_goes_before_an_index_as_in_transformers(folder):
    save_file({"a": torch.zeros(2, 3)}, folder / SINGLE)
    assert weight_files(folder) == [folder / SINGLE]
    assert weight_bytes([folder / SINGLE], "bfloat16") == 12


def test_too_little_memory_is_said_before_loading(folder, monkeypatch):
    monkeypatch.setattr(loading, "free_bytes", lambda device: 100_000)
    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", None)
    n = sum(p.numel() for p in tiny.model("llama").parameters())
    with pytest.raises(
        InputError, match=rf"memory of cpu .*{2 * n / 1e6:.1f} MB and 0\.1 MB are free"
    ) as caught:
        load(folder, "bfloat16")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate"),
        MemoryError(),
        RuntimeError(
            "[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory: you tried"
        ),
    ],
)
def test_running_out_while_loading_is_the_same_sentence(folder, monkeypatch, error):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", fail)
    with pytest.raises(InputError, match="does not fit into the memory of cpu") as caught:
        load(folder, "float32")
    assert "\n" not in str(caught.value)


def test_other_runtime_errors_are_not_called_a_lack_of_memory(folder, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("a bug")

    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", fail)
    with pytest.raises(RuntimeError, match="a bug"):
        load(folder, "float32")


def test_free_memory_is_what_the_kernel_and_the_job_allow(monkeypatch):
    free = memory.free_bytes("cpu")
    assert free is not None
    total = int(re.search(r"MemTotal: +(\d+)", open("/proc/meminfo").read())[1]) * 1024  # noqa: SIM115
    assert 0 < free <= total
    monkeypatch.setattr(memory, "_cgroup_limits", lambda: [10_000, 5_000])
    assert memory.free_bytes("cpu") == 5_000


def test_free_memory_of_a_gpu_is_asked_of_the_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (7, 9) if device == "cuda:1" else None)
    assert memory.free_bytes("cuda:1") == 7


@pytest.mark.parametrize("kind", ["rwkv99", "gpt2", "gemma3_text"])
def test_an_architecture_is_refused_by_its_name_before_its_weights(folder, kind):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "model_type": kind}))
    with pytest.raises(InputError, match=f"architecture '{kind}'.*llama, mistral, qwen2") as caught:
        load(folder, "float32")
    assert "\n" not in str(caught.value)
