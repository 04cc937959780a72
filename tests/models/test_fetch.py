"""`kvexp fetch` against a real HTTP server that speaks the hub's API, and jobs without network after it."""

import hashlib
import io
import json
import os
import random
import re
import socket
import subprocess
import time
import zipfile
from functools import cache
from pathlib import Path

import pytest
from huggingface_hub import constants

from kvexp.cli import main
from kvexp.errors import InputError
from kvexp.models import fetch as fetching
from kvexp.models.fetch import model_files
from kvexp.models.folder import Source, content_digest, model_digest, model_source
from kvexp.models.missing import Missing
from kvexp.run.plan import study_plan
from kvexp.study.schema import ModelConf, is_pinned
from kvexp.tasks.longbench import HUB_FILE
from tests import project, tiny
from tests.hub_server import Repo, files_of, serving

COMMITS = {name: f"{i}f" * 20 for i, name in enumerate(("good", "gated", "pickled", "foreign"), start=1)}
WEIGHTS = tuple(f"model-0000{i}-of-00003.safetensors" for i in (1, 2, 3))
STUDY = """
defaults: [base_study, _self_]
name: hub
suites: [hub]
models: [good]
"""
SUITE = """
defaults: [base_suite, _self_]
name: hub
tasks: [words, hotpotqa]
context_tokens: 256
n_examples: 2
example_seed: 3
arms:
  - {arm: full}
  - {arm: topk, conditions: [aware], budgets: [0.5]}
"""


def model_repo(folder: Path, commit: str) -> Repo:
    """A tiny model as the hub has them: three safetensors, and much that nobody needs."""
    tiny.model("llama").save_pretrained(folder, max_shard_size="140kB")
    tiny.tokenizer().save_pretrained(folder)
    files = files_of(folder)
    assert [name for name in files if name.endswith(".safetensors")] == list(WEIGHTS)
    extra = (
        "pytorch_model.bin",
        "consolidated.safetensors",
        "modeling_tiny.py",
        "README.md",
        ".gitattributes",
    )
    files |= dict.fromkeys([*extra, "original/consolidated.00.pth", "original/params.json"], b"not for us")
    return Repo(commit, files)


@cache
def data_zip() -> bytes:
    body = io.BytesIO()
    with zipfile.ZipFile(body, "w") as archive:
        lines = [
            {"_id": f"r{i}", "input": f"What is {i}?", "context": f"It is {i}. " * 40, "answers": [str(i)]}
            for i in range(3)
        ]
        for name, text in (
            ("hotpotqa", "\n".join(map(json.dumps, lines))),
            ("other", random.Random(1).randbytes(17_000_000)),
        ):
            archive.writestr(zipfile.ZipInfo(f"data/{name}.jsonl"), text)  # without the time of day
    return body.getvalue()


@pytest.fixture(scope="module")
def repos(tmp_path_factory):
    good = model_repo(tmp_path_factory.mktemp("hub"), COMMITS["good"])
    foreign = {**good.files, "config.json": good.files["config.json"].replace(b'"llama"', b'"mamba9"')}
    return {
        "own/good": good,
        "own/gated": Repo(COMMITS["gated"], good.files, gated=True),
        "own/pickled": Repo(COMMITS["pickled"], {"config.json": b"{}", "pytorch_model.bin": b"x"}),
        "own/foreign": Repo(COMMITS["foreign"], foreign),
        HUB_FILE.repo: Repo(HUB_FILE.revision, {HUB_FILE.filename: data_zip()}, kind="dataset"),
    }


@pytest.fixture
def hub(repos):
    with serving(repos) as served:
        yield served


@pytest.fixture
def root(tmp_path, tiny_folder):
    made = project.make(tmp_path / "project", tiny_folder)
    project.write(made, "study/hub", STUDY)
    project.write(made, "suite/hub", SUITE)
    task = made / "conf" / "task" / "hotpotqa.yaml"
    task.write_text(f"{task.read_text()}  sha256: {hashlib.sha256(data_zip()).hexdigest()}\n")
    sources = {**COMMITS, "nowhere": "a" * 40, "unknown": "b" * 40}
    for name, commit in sources.items():
        repo = "good" if name == "unknown" else name
        text = f"defaults: [base_model, _self_]\nname: {name}\nsource: own/{repo}\nrevision: {commit}\n"
        project.write(made, f"model/{name}", text)
    return made


@pytest.fixture
def dead_url():
    """An address at which nothing listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"


@pytest.fixture
def kvexp(root, tmp_path):
    """The command in a process of its own, with a cache of its own."""

    def run(*arguments, url, offline=False):
        away = ("HF_TOKEN", "HF_HUB_CACHE", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_ENDPOINT")
        environment = {k: v for k, v in project.environment().items() if k not in away}
        environment |= {"HF_HOME": str(tmp_path / "home"), "HF_ENDPOINT": url, "NO_PROXY": "127.0.0.1"}
        environment |= {"HF_HUB_OFFLINE": "1"} if offline else {}
        return subprocess.run(
            project.command(*arguments),
            cwd=root,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
        )

    return run


@pytest.fixture
def here(hub, root, tmp_path, monkeypatch, capsys):
    """The command in this process, which is quicker: exit code, output, what was said on stderr."""
    monkeypatch.chdir(root)
    monkeypatch.setattr(constants, "ENDPOINT", hub.url)
    template = hub.url + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "home" / "hub"))
    # Its waiting between two tries would be most of the test.
    monkeypatch.setattr("huggingface_hub.file_download.time.sleep", lambda _: None)

    def run(*arguments):
        hub.asked.clear()
        code = main(arguments)
        return code, *capsys.readouterr()

    return run


@pytest.mark.slow
def test_fetched_once_then_everything_runs_without_network(hub, kvexp, here, dead_url, tmp_path):
    """The one walk through real processes: look, fetch, run."""
    hub.cuts[HUB_FILE.filename] = [15_000_000]
    needed = model_files(list(hub.repos["own/good"].files))

    code, said, error = here("fetch", "study=hub", "--dry-run")
    assert (code, error, hub.downloads()) == (0, "", [])
    size = sum(len(hub.repos["own/good"].files[name]) for name in needed)
    size += len(hub.repos[HUB_FILE.repo].files[HUB_FILE.filename])
    assert f"{size / 1e6:.1f} MB in all" in said
    assert re.search(rf"model good +own/good +{COMMITS['good'][:12]} +{len(needed)} ", said)
    assert "GB free" in said

    code, said, error = here("plan", "study=hub", "cluster=debug", "--json")
    before = json.loads(said)
    assert set(before["suites"][0]["missing"]) == {"model good", "data of hotpotqa"}
    assert (before["generations"], before["fetch"]) == (8, "kvexp fetch study=hub")
    assert hub.asked == []

    run = kvexp("fetch", "study=hub", url=hub.url)
    assert (run.returncode, run.stderr) == (0, ""), run.stdout
    assert "all there" in run.stdout
    assert set(hub.downloads()) == {*needed, HUB_FILE.filename}
    # The file that was cut went on where the last whole piece of the library ended.
    ranges = [r for _, path, r in hub.asked if path.endswith(HUB_FILE.filename) and r]
    assert ranges == [f"bytes={constants.DOWNLOAD_CHUNK_SIZE}-"]
    cached = {path.name for path in (tmp_path / "home").rglob("snapshots/*/*")}
    assert cached == {*needed, HUB_FILE.filename}

    submitted = kvexp("submit", "study=hub", "cluster=debug", url=dead_url, offline=True)
    assert (submitted.returncode, submitted.stderr) == (0, ""), submitted
    logs = (tmp_path / "project/results/hub/hub").glob("*/generations.jsonl")
    assert sum(len(log.read_text().splitlines()) for log in logs) == 8

    attempts = [json.loads(p.read_text()) for p in (tmp_path / "project/results").rglob("attempt-*.json")]
    assert {a["model_digest"] for a in attempts} == {None}  # the commit in the config is as good

    code, said, error = here("fetch", "study=hub")
    assert (code, error, hub.asked) == (0, "", [])
    after = json.loads(here("plan", "study=hub", "--json")[1])
    assert (after["suites"][0]["missing"], after["fetch"]) == ({}, None)


def test_every_failure_has_its_reason_and_what_can_be_fetched_is(hub, here, root, tmp_path):
    project.write(root, "model/gated", f"{(root / 'conf/model/gated.yaml').read_text()}gated: true\n")
    names = ["gated", "nowhere", "unknown", "pickled", "foreign", "good"]
    project.write(root, "study/hub", STUDY.replace("[good]", f"[{', '.join(names)}]"))
    code, said, _ = here("fetch", "study=hub", "--dry-run")
    assert (code, hub.downloads()) == (3, [])
    assert "is gated" in said  # found out before anything is loaded
    code, said, error = here("fetch", "study=hub")
    assert code == 3
    missing = project.one_sentence(error)
    assert [name for name in names if f"model {name}" in missing] == names[:-1]
    for name, reason in (
        ("gated", "is gated.*licence.*hf auth login"),
        ("nowhere", "not on the hub"),
        ("unknown", f"no revision '{'b' * 40}'"),
        ("pickled", "no safetensors.*pytorch_model.bin"),
        ("foreign", "architecture 'mamba9'.*qwen2"),
    ):
        assert len(re.findall(reason, said)) == 1, (name, said)
    assert "pytorch_model.bin" not in hub.downloads()
    assert {*WEIGHTS} <= set(hub.downloads())
    assert not [*(tmp_path / "home").rglob("*.incomplete")]


def test_a_download_that_breaks_for_good_is_one_sentence_and_the_next_one_goes_on(hub, here):
    hub.cuts[WEIGHTS[1]] = [0] * 6  # the library tries six times
    code, said, error = here("fetch", "study=hub")
    assert code == 3
    project.one_sentence(error)
    assert f"the hub at {hub.url} cannot be reached" in said
    assert here("fetch", "study=hub")[0] == 0
    assert WEIGHTS[1] in hub.downloads()
    assert WEIGHTS[0] not in hub.downloads()


def test_data_that_are_not_the_pinned_ones_are_not_used_and_come_again(hub, here, root, monkeypatch):
    words = ("study=hub", "study.name=other", "task=hotpotqa", "model.good.source=embedded")
    served = hub.repos[HUB_FILE.repo].files
    changed = served[HUB_FILE.filename].replace(b"It is 1", b"It is 7", 1)
    assert len(changed) == len(data_zip())
    monkeypatch.setitem(served, HUB_FILE.filename, changed)
    wanted, found = (hashlib.sha256(body).hexdigest()[:12] for body in (data_zip(), changed))

    code, said, error = here("fetch", *words)
    assert (code, hub.downloads()) == (3, [HUB_FILE.filename])
    assert "data of hotpotqa" in project.one_sentence(error)
    assert re.search(f"sha256 {found}... instead of {wanted}... and is not used: .*kvexp fetch", said)
    assert "the one under way begins again" in said
    code, said, error = here("plan", *words, "--json")
    assert f"instead of {wanted}" in json.loads(said)["suites"][0]["missing"]["data of hotpotqa"]
    code, said, error = here("submit", *words, "cluster=debug")
    assert code == 2
    assert f"instead of {wanted}" in project.one_sentence(error)

    monkeypatch.setitem(served, HUB_FILE.filename, data_zip())
    hub.asked.clear()
    code, said, error = here("fetch", *words)
    assert (code, error, hub.downloads()) == (0, "", [HUB_FILE.filename])
    assert here("fetch", *words)[0] == 0
    assert hub.downloads() == []


def test_what_a_killed_fetch_left_is_of_no_use(hub, here, tmp_path):
    """As the progress line says. If this fails, the library has learnt to go on, and the line may say so."""
    words = ("study=hub", "study.name=other", "task=hotpotqa", "model.good.source=embedded")
    blobs = tmp_path / "home" / "hub" / f"datasets--{HUB_FILE.repo.replace('/', '--')}" / "blobs"
    blobs.mkdir(parents=True)
    digest = hashlib.sha256(data_zip()).hexdigest()
    for name in (f"{digest}.incomplete", f"{digest}.0123abcd.incomplete"):
        (blobs / name).write_bytes(data_zip()[:15_000_000])
    old, young = sorted(blobs.iterdir())
    os.utime(old, (0, 0))
    assert here("fetch", *words, "--dry-run")[0] == 0
    assert old.exists()
    assert here("fetch", *words)[0] == 0
    assert (old.exists(), young.exists()) == (False, True)  # the younger one may be of a fetch that runs
    assert [r for method, path, r in hub.asked if method == "GET" and "/resolve/" in path] == [None]


@pytest.mark.slow
def test_a_damaged_file_is_no_model_and_comes_again(hub, here, tmp_path):
    assert here("fetch", "study=hub")[0] == 0
    path = next((tmp_path / "home").rglob(f"snapshots/*/{WEIGHTS[0]}"))
    path.resolve().write_bytes(path.read_bytes()[:-100])
    code, _, error = here("submit", "study=hub", "cluster=debug")
    assert (code, hub.asked) == (2, [])
    assert re.search(f"{WEIGHTS[0]} is missing or damaged.*kvexp fetch", project.one_sentence(error))
    assert here("fetch", "study=hub")[0] == 0
    assert hub.downloads() == [WEIGHTS[0]]


@pytest.mark.slow
def test_without_network_one_sentence_says_so_at_once(kvexp, dead_url):
    start = time.monotonic()
    run = kvexp("fetch", "study=hub", url=dead_url)
    assert run.returncode == 2
    assert (
        "  model good, for hub: 'own/good' at 1f1f1f1f1f1f\n  data of hotpotqa, for hub: data.zip"
        in run.stdout
    )
    assert f"the hub at {dead_url} cannot be reached" in project.one_sentence(run.stderr)
    assert time.monotonic() - start < 30  # the library would wait for half a minute, twice


def test_offline_mode_is_named(here, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    code, _, error = here("fetch", "study=hub")
    assert code == 2
    assert "HF_HUB_OFFLINE is set" in project.one_sentence(error)


def test_a_branch_is_found_again_under_its_name(hub, here, root):
    project.write(root, "model/good", "defaults: [base_model, _self_]\nname: good\nsource: own/good\n")
    assert here("fetch", "study=hub", "task=words")[0] == 0
    code, _, error = here("fetch", "study=hub", "task=words")
    assert (code, error, hub.asked) == (0, "", [])
    # What a branch stands for may change, so its files are what the logs name.
    model = ModelConf(name="good", source="own/good")
    assert content_digest(model) == model_digest(Path(model_source(model)))


def test_submit_and_try_never_ask_the_network(hub, here, root):
    words = "suite.hub.tasks=[words]"
    code, _, error = here("submit", "study=hub", words, "cluster=debug")
    assert (code, hub.asked) == (2, [])
    assert re.search(
        "is not on this machine.*here that is `kvexp fetch study=hub ", project.one_sentence(error)
    )
    for chosen in ((), ("task=words",)):  # all of it at once, for the whole suite
        code, _, error = here("submit", "study=hub", *chosen, "cluster=debug")
        assert (code, hub.asked) == (2, [])
        assert re.search(
            r"1 model and 1 file of data; .*`kvexp fetch study=hub`\n.*model good.*\n.*hotpotqa", error
        )
    (root / "text.txt").write_text("The cat is grey.")
    code, _, error = here("try", "study=hub", "--file", "text.txt", "--question", "Which colour?")
    assert (code, hub.asked) == (2, [])
    assert "own/good" in project.one_sentence(error)


def test_what_is_no_hub_id_is_said(here):
    code, _, error = here("plan", "study=hub", "study.name=other", "model.good.source=own/good/deep")
    assert code == 2
    assert "model.good.source is 'own/good/deep'" in project.one_sentence(error)


def test_the_models_that_ship_are_pinned_to_commits():
    models = project.select(["study=paper"], project.ROOT).models
    assert len(models) == 8
    assert all(is_pinned(model) for model in models)
    assert len({model.revision for model in models}) == 8
    assert {model.dtype for model in models} == {"bfloat16"}
    # Layers and query heads as their config.json has them.
    shapes = {
        "qwen2.5-1.5b": (28, 12),
        "qwen2.5-7b": (28, 28),
        "llama-3.1-8b": (32, 32),
        "mistral-7b": (32, 32),
    }
    for model in models:
        (shape,) = [shape for name, shape in shapes.items() if model.name.startswith(name)]
        assert (model.layers, model.query_heads) == shape
        assert model.chat == ("instruct" in model.name)


def test_any_hub_id_or_folder_works_by_override(tiny_folder):
    where = "model.qwen2.5-1.5b"
    words = ["study=paper", "suite=needle", f"{where}.source=own/other", f"{where}.revision={'c' * 40}"]
    (model,) = [m for m in project.select(words, project.ROOT).models if m.name == "qwen2.5-1.5b"]
    assert (model.source, model.revision) == ("own/other", "c" * 40)
    words = ["study=paper", "suite=needle", f"{where}.source={tiny_folder}", f"{where}.revision=null"]
    made = study_plan(project.select(words, project.ROOT))
    assert made["suites"][0]["missing"] == {}


def test_a_full_disk_is_said_before_anything_is_loaded(hub, here, monkeypatch):
    monkeypatch.setattr(fetching, "_free", lambda: 1000)
    code, _, error = here("fetch", "study=hub")
    assert (code, hub.downloads()) == (2, [])
    assert re.search(r"MB are to be fetched .* 0\.0 MB free: set HF_HOME", project.one_sentence(error))


@pytest.mark.parametrize(
    ("names", "wanted"),
    [
        (  # Llama-3.1-8B
            "LICENSE README.md USE_POLICY.md config.json generation_config.json "
            "model-00001-of-00004.safetensors model-00002-of-00004.safetensors model.safetensors.index.json "
            "original/consolidated.00.pth original/params.json original/tokenizer.model "
            "special_tokens_map.json tokenizer.json tokenizer_config.json",
            "config.json generation_config.json model-00001-of-00004.safetensors "
            "model-00002-of-00004.safetensors model.safetensors.index.json special_tokens_map.json "
            "tokenizer.json tokenizer_config.json",
        ),
        (  # Mistral-7B-v0.3 carries its weights twice
            "config.json consolidated.safetensors generation_config.json model-00001-of-00003.safetensors "
            "model.safetensors.index.json params.json tokenizer.json tokenizer.model tokenizer.model.v3",
            "config.json generation_config.json model-00001-of-00003.safetensors "
            "model.safetensors.index.json params.json tokenizer.json tokenizer.model",
        ),
        (  # Qwen2.5-1.5B
            "config.json merges.txt model.safetensors tokenizer.json vocab.json",
            "config.json merges.txt model.safetensors tokenizer.json vocab.json",
        ),
        (  # an older repository with both kinds, and code
            "config.json flax_model.msgpack model.safetensors modeling_x.py pytorch_model.bin "
            "pytorch_model.bin.index.json tokenizer.json",
            "config.json model.safetensors tokenizer.json",
        ),
    ],
)
def test_one_copy_of_the_weights_and_no_code_is_chosen(names, wanted):
    assert model_files(names.split()) == sorted(wanted.split())


# What a hub says is not believed ---------------------------------------------------------------------


GOOD, OTHER = "a" * 40, "b" * 40


@pytest.mark.parametrize(
    ("revision", "sha"),
    [(GOOD, OTHER), (GOOD, "../../../../evil"), (None, "../../evil"), ("main", "main"), (GOOD, None)],
)
def test_a_commit_that_is_none_or_not_the_pinned_one_is_refused(revision, sha):
    with pytest.raises(InputError, match="the hub names the commit"):
        fetching._checked_commit(revision, sha)
    assert {fetching._checked_commit(one, GOOD) for one in (GOOD, "main", None)} == {GOOD}


@pytest.mark.parametrize(
    ("name", "size"), [("..\\evil.json", 1), ("../evil", 1), ("a/../b", 1), ("w", -1), ("w", "12")]
)
def test_files_that_no_repository_has_are_refused(name, size):
    with pytest.raises(InputError, match="the hub lists the file"):
        fetching._checked_sizes({"good": 1, name: size})


@pytest.mark.parametrize("error", [json.JSONDecodeError("x", "<html>", 0), TypeError("x"), KeyError("x")])
def test_an_answer_that_is_no_hubs_is_one_sentence(error):
    absent = Missing("model x", Source("org/x", GOOD), (), "", by_hand=False)
    message = r"^model x: org/x: the hub's answer cannot be read"
    with pytest.raises(InputError, match=message) as caught, fetching._said(absent):
        raise error
    assert "\n" not in str(caught.value)
