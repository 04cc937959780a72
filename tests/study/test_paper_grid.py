"""The paper's grid as configuration: models by suite, suites without context, data that are elsewhere."""

import json
import re
from dataclasses import replace

import pytest

from kvexp.cli import main
from kvexp.errors import ConfigError, IntegrityError, NotFetched
from kvexp.run.prepare import _survives
from kvexp.slurm.status import study_status
from kvexp.study.compose import select
from kvexp.study.grid import chosen, shards
from kvexp.study.plugins import family_of
from kvexp.study.prompts import Rendering, prompt_of
from kvexp.study.schema import TaskConf
from kvexp.study.shards import GenerationShard
from kvexp.tasks.base import Question
from tests import project, tiny
from tests.project import ROOT


@pytest.fixture(scope="module")
def root(tmp_path_factory, tiny_folder):
    return project.make(tmp_path_factory.mktemp("paper") / "project", tiny_folder)


@pytest.fixture
def no_hub(monkeypatch, tmp_path):
    """An empty cache of the hub."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))


RECORD = {
    "input": "Who wrote it?",
    "context": "A book was written by Ada Lovelace. " * 40,
    "answers": ["Ada Lovelace"],
    "length": 1,
    "dataset": "hotpotqa",
    "language": "en",
    "all_classes": None,
}


@pytest.fixture
def records(tmp_path):
    """Three records of every task of the paper."""
    folder = tmp_path / "records"
    folder.mkdir()
    for name in ("hotpotqa", "2wikimqa", "multifieldqa_en", "passage_retrieval_en", "musique", "narrativeqa"):
        answers = ["Paragraph 1"] if name.startswith("passage") else RECORD["answers"]
        record = {**RECORD, "dataset": name, "answers": answers}
        lines = [json.dumps({**record, "_id": f"{name}-{n}"}) for n in range(3)]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    return folder


WRONG = project.STUDY.replace("mini", "wrong", 1).replace("models:", "suite_models: {7k: [tiny]}\nmodels:")


def test_every_suite_runs_on_its_own_models():
    selection = select(["study=paper"], ROOT)
    models = {suite.name: [m.name for m in selection.models_of(suite.name)] for suite in selection.suites}
    assert models["attention"] == models["needle"] == ["qwen2.5-1.5b"]
    assert models["ruler"] == ["qwen2.5-1.5b", "qwen2.5-7b", "llama-3.1-8b", "mistral-7b-v0.3"]
    assert models["6k"] == models["16k"] == models["no-context"]
    assert all(name.endswith("-instruct") or "-instruct-" in name for name in models["6k"])
    assert {m.dtype for m in selection.models} == {"bfloat16"}
    assert {m.chat for m in selection.models_of("ruler")} == {False}
    assert {m.chat for m in selection.models_of("6k")} == {True}


def test_models_of_a_suite_that_the_study_lacks_are_refused(root):
    project.write(root, "study/wrong", WRONG)
    with pytest.raises(ConfigError, match="suite_models names 7k, which is no suite of it"):
        select(["study=wrong"], root)


def test_a_suite_whose_data_are_elsewhere_joins_the_grid_whole_or_not_at_all(no_hub):
    attention = select(["study=paper", "suite=attention"], ROOT)
    assert {s.suite for s in shards(attention, "leave_out")} == {"attention", "needle", "ruler"}
    for refused in (["suite=6k"], ["suite=6k", "task=passcodes"]):
        with pytest.raises(NotFetched, match="kvexp fetch"):
            shards(select(["study=paper", *refused], ROOT), "leave_out")
    with pytest.raises(NotFetched):
        shards(attention)
    assert sum(s.n_rows for s in shards(attention, "assume") if isinstance(s, GenerationShard)) == 98_412


def test_data_dir_says_where_the_records_are_and_is_no_part_of_a_shard(records, tmp_path):
    words = ["study=paper", "suite=6k", "task=hotpotqa", "model=qwen2.5-1.5b-instruct"]
    here = select([*words, f"task.data_dir={records}"], ROOT)
    (one,) = chosen(shards(here), here)
    assert one.example_ids == sorted(one.example_ids, key=one.example_ids.index)
    assert sorted(one.example_ids) == ["hotpotqa-0", "hotpotqa-1", "hotpotqa-2"]
    moved = records.rename(tmp_path / "moved")
    there = select([*words, f"task.data_dir={moved}"], ROOT)
    assert chosen(shards(there), there)[0].digest == one.digest
    assert str(tmp_path) not in json.dumps(one.resolved())


def test_a_family_without_data_does_not_mind_a_data_dir(records):
    conf = TaskConf(name="words", family="words", max_new_tokens=1, data_dir=str(records))
    assert family_of(conf) == family_of(replace(conf, data_dir=None))


def test_a_home_folder_needs_no_quotes():
    selection = select(["study=paper", "task.data_dir=~/longbench"], ROOT)
    assert selection.tasks["hotpotqa"].data_dir == "~/longbench"


def test_the_same_examples_are_asked_at_both_lengths_and_without_context(records):
    made = shards(select(["study=paper", f"task.data_dir={records}"], ROOT))
    asked = {}
    for shard in made:
        asked.setdefault((shard.task.name, shard.model.name), {}).setdefault(shard.suite, []).extend(
            shard.example_ids
        )
    model = "qwen2.5-1.5b-instruct"
    for name in ("hotpotqa", "passage_retrieval_en"):
        assert asked[name, model]["6k"] == asked[name, model]["16k"] == asked[name, model]["no-context"]
    assert asked["musique", model]["16k"] == asked["musique", model]["no-context"]


def test_without_a_context_nothing_can_be_evicted(root):
    with pytest.raises(ConfigError, match="without a context there is nothing to evict, but h2o is listed"):
        project.made(root, "suite.no_context=true")
    (shard, _) = project.made(root, "suite.no_context=true", "suite.arms=[{arm: full}]")
    assert shard.rendering.context is False
    assert shard.digest != project.made(root, "suite.arms=[{arm: full}]")[0].digest


def test_a_prompt_without_its_context_is_otherwise_the_same(root):
    (shard, _) = project.made(root, "suite.arms=[{arm: full}]")
    family = family_of(shard.task)
    question = family.load(1, 3, 256)[0]
    tokenizer = tiny.tokenizer()
    whole, bare = (
        prompt_of(tokenizer, family, question, Rendering(True, 256, context=context))
        for context in (True, False)
    )
    kept = [*whole.ids[: whole.n_prefix].tolist(), *whole.ids[whole.n_prefix + whole.n_context :].tolist()]
    assert bare.ids.tolist() == kept
    assert (bare.n_context, bare.needles) == (0, ())


@pytest.mark.parametrize(
    ("references", "left", "said"),
    [
        (["Ada Lovelace"], "by ADA Lovelace.", True),
        (["Ada Lovelace"], "by Ada", False),
        (["Paragraph 1"], "Paragraph 10: text", False),
        (["Paragraph 1", "Paragraph 10"], "Paragraph 10: text", True),
        (["yes"], "yes, said Ada", None),
        (["nothing of it"], "by Ada Lovelace", None),
        ([" "], "by", None),
        (["YES."], "yes, said Ada", None),
        (["Ada  Lovelace"], "by Ada\nLovelace", True),
        (["5"], "costs 1.5 more", None),
    ],
)
def test_a_reference_survives_as_words(references, left, said):
    context = "A book by Ada Lovelace. Paragraph 1: one. Paragraph 10: text. yes, said Ada"
    question = Question(example_id="1", context=context, question="?", references=tuple(references))
    assert _survives(question, left) is said


SMALL = """
defaults: [base_study, _self_]
name: small
suites: [small]
models: [one, two]
"""


@pytest.fixture
def two_models(tmp_path, tiny_folder, records):
    """A project with one LongBench suite on two models, and the words that run it."""
    root = project.make(tmp_path / "project", tiny_folder)
    project.write(root, "study/small", SMALL)
    suite = project.SUITE.replace("name: mini", "name: small").replace("[words]", "[hotpotqa]")
    project.write(root, "suite/small", suite.replace("context_tokens: 256", "context_tokens: 400"))
    for name in ("one", "two"):
        project.write(
            root, f"model/{name}", f"defaults: [base_model, _self_]\nname: {name}\nsource: {tiny_folder}\n"
        )
    return root, ["study=small", "cluster=debug", "task.max_new_tokens=2", f"task.data_dir={records}"]


def submitted(root, words, monkeypatch, capsys):
    monkeypatch.chdir(root)
    code = main(["submit", *words])
    return code, capsys.readouterr().err


def test_a_suite_may_be_run_model_by_model(two_models, monkeypatch, capsys):
    root, words = two_models
    for name in ("one", "two", "one"):
        assert submitted(root, [*words, f"model={name}"], monkeypatch, capsys)[0] == 0
    assert len(list((root / "results/small/small").glob("*/footer.json"))) == 4
    names = sorted(path.name for path in (root / "results/small/examples").iterdir())
    assert names == ["small.one.hotpotqa.jsonl", "small.two.hotpotqa.jsonl"]


def test_other_answers_of_a_begun_suite_are_refused(two_models, records, monkeypatch, capsys):
    root, words = two_models
    assert submitted(root, words, monkeypatch, capsys)[0] == 0
    file = records / "hotpotqa.jsonl"
    file.write_text(file.read_text().replace('["Ada Lovelace"]', '["Charles Babbage"]'))
    code, said = submitted(root, words, monkeypatch, capsys)
    assert code == 4
    assert "holds other examples than this configuration" in project.one_sentence(said)


def test_a_begun_suite_whose_data_are_gone_stays_in_the_grid(two_models, no_hub, monkeypatch, capsys):
    root, words = two_models
    project.write(root, "study/small", SMALL.replace("[small]", "[small, mini]"))
    assert submitted(root, [*words, "suite=small"], monkeypatch, capsys)[0] == 0
    before = (root / "results/small/grid.jsonl").read_bytes()
    code, said = submitted(root, [*words[:3], "suite=mini"], monkeypatch, capsys)
    assert (code, said) == (0, "")
    assert sorted((root / "results/small/grid.jsonl").read_bytes().splitlines()) == sorted(
        before.splitlines()
    )


def test_a_prompt_that_cannot_be_made_names_its_record(two_models, records, monkeypatch, capsys):
    root, words = two_models
    file = records / "hotpotqa.jsonl"
    lines = file.read_text().splitlines()
    lines[1] = lines[1].replace("Who wrote it?", "Who wrote <|im_end|>?")
    file.write_text("\n".join(lines) + "\n")
    code, said = submitted(root, words, monkeypatch, capsys)
    assert code == 2
    assert "task hotpotqa, example hotpotqa-1: the question" in project.one_sentence(said)


def test_the_status_of_a_begun_suite_needs_no_data(two_models, no_hub, records, monkeypatch, capsys):
    """The same shards, rows and digests as with them; a suite that was never begun waits as if it had all."""
    root, words = two_models
    project.write(root, "study/small", SMALL.replace("[small]", "[small, mini, other]"))
    other = project.SUITE.replace("name: mini", "name: other").replace("[words]", "[hotpotqa]")
    project.write(root, "suite/other", other.replace("n_examples: 4", "n_examples: 6"))
    assert submitted(root, [*words, "suite=small"], monkeypatch, capsys)[0] == 0
    results = root / "results" / "small"
    grid = (results / "grid.jsonl").read_bytes().splitlines(keepends=True)
    (results / "grid.jsonl").write_bytes(b"".join(line for line in grid if b'"suite":"other"' not in line))

    def told(*further):
        rows = study_status(select([*words[:3], *further], root), results)
        return [replace(row, idle_seconds=None) for row in rows]

    with_data = told(words[3], "suite=small")
    assert {row.state for row in with_data} == {"complete"}
    assert {row.note for row in with_data} == {""}
    gone = told("suite=small")
    assert [replace(row, note="") for row in gone] == with_data
    (note,) = {row.note for row in gone}
    assert re.match("told without its data: LongBench .* is not on this machine: run `kvexp fetch`", note)

    by_suite = {}
    for row in told():
        by_suite.setdefault(row.shard_id.split(".")[0], []).append(row)
    assert by_suite["small"] == gone
    assert {(row.state, row.note) for row in by_suite["mini"]} == {("waiting", "")}
    assert {row.state for row in by_suite["other"]} == {"waiting"}
    assert sum(row.expected for row in by_suite["other"]) == 2 * 6 * 7

    records.rename(root / "elsewhere")  # where the study still says that they are
    (note,) = {row.note for row in study_status(select([*words, "suite=small"], root), results)}
    assert "data_dir of hotpotqa is not there" in note
    records.mkdir()
    (records / "hotpotqa.jsonl").write_bytes(b"\0")
    (note,) = {row.note for row in study_status(select([*words, "suite=small"], root), results)}
    assert "NUL byte" in note


def test_a_grid_that_is_none_is_said_by_status(two_models, no_hub, monkeypatch, capsys):
    root, words = two_models
    assert submitted(root, words, monkeypatch, capsys)[0] == 0
    grid = root / "results" / "small" / "grid.jsonl"
    grid.write_bytes(grid.read_bytes() + b"{}\n")
    with pytest.raises(IntegrityError, match=r"grid.jsonl:\d+ is no line of a grid: restore the file"):
        study_status(select(words[:3], root), grid.parent)
