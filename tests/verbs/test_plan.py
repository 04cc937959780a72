"""`kvexp plan`: counts, minutes, and the same as JSON."""

import io
import json
import re
import shutil
import socket

import pytest
from huggingface_hub import constants
from rich.console import Console

from kvexp.cli import main
from kvexp.models.embedded import POSITIONS, embedded_model
from kvexp.run.plan import study_plan
from kvexp.study.compose import select
from kvexp.verbs.plan import print_plan
from tests import project, tiny
from tests.project import ROOT

# All that a rate must have.
RATE = ("device=d", "dtype=float32", "date='2026-01-01'", "command=c", "prefill_token_s=0.01", "step_s=1")


@pytest.fixture(scope="module")
def root(tmp_path_factory, tiny_folder):
    return project.make(tmp_path_factory.mktemp("plan") / "project", tiny_folder)


@pytest.fixture
def plan(root, monkeypatch, capsys):
    monkeypatch.chdir(root)

    def run(*overrides, code=0):
        assert main(["plan", *overrides]) == code
        return capsys.readouterr().out

    return run


@pytest.mark.parametrize(("study", "arms"), [("demo", [17, 25, 0]), ("embedded", [20, 28, 0])])
def test_the_studies_that_ship(study, arms):
    made = study_plan(select([f"study={study}"], ROOT))
    assert [s["generations_per_example"] for s in made["suites"]] == arms
    for suite in made["suites"]:
        assert suite["generations"] == suite["examples"] * suite["generations_per_example"]
        assert suite["generations"] == sum(suite["generations_by_arm"].values())
        assert suite["cells"] == sum(suite["cells_by_budget"].values())
    assert made["cells"] == {"demo": 12 * 3 * 270, "embedded": 36 * 3 * 270}[study]
    assert made["worlds"] == {"demo": 4 * 2 * 7 * 30, "embedded": 12 * 2 * 7 * 30}[study]
    assert made["generations"] == sum(s["generations"] for s in made["suites"])
    assert made["shards"] == len(made["shard_ids"]) == len(set(made["shard_ids"]))
    assert made["expected_minutes"] > 0


@pytest.fixture
def bare(monkeypatch, tmp_path):
    """A machine that has fetched nothing and has no network."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "empty"))

    def refuse(*_, **__):
        raise AssertionError("a plan asks no network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


PAPER = {"needle": 252, "ruler": 21_760, "6k": 34_000, "16k": 40_000, "no-context": 2_400}


def test_the_paper_counts_exactly_with_nothing_fetched(bare):
    """Counted by hand: examples x models x tasks x (1 + arms x budgets + Poisson's conditions and seeds)."""
    arms_6k, arms_16k = 1 + 4 * 2 + 2 * 2 * 2, 1 + 4 * 3 + 2 * 3 * 2
    assert {
        "needle": 12 * (1 + 2 * 2 + 2 * 2 * 4),
        "ruler": 4 * 4 * 80 * arms_6k,
        "6k": 4 * 5 * 100 * arms_6k,
        "16k": 4 * 4 * 100 * arms_16k,
        "no-context": 4 * 6 * 100,
    } == PAPER
    made = study_plan(select(["study=paper"], ROOT), ["study=paper"])
    counts = {s["suite"]: s["generations"] for s in made["suites"]}
    assert counts == {"attention": 0, **PAPER}
    assert made["generations"] == sum(PAPER.values()) == 98_412
    suites = {s["suite"]: s for s in made["suites"]}
    assert suites["attention"]["cells_by_budget"] == dict.fromkeys(("0.125", "0.25", "0.5"), 28 * 12 * 36)
    assert made["cells"] == 3 * 12_096
    # 640 Poisson rows in each of the 16 cells of model and task.
    assert suites["ruler"]["generations_by_arm"]["poisson"] == 16 * 640


def test_the_paper_s_plan_says_the_same_in_print_and_in_json_and_what_is_missing(bare, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    assert main(["plan", "study=paper", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert main(["plan", "study=paper"]) == 0
    shown = capsys.readouterr().out
    for suite, n in PAPER.items():
        assert next(s["generations"] for s in made["suites"] if s["suite"] == suite) == n
        assert re.search(rf"^ *{suite} .* {n:,} +0 ", shown, re.MULTILINE), shown
    assert (made["generations"], made["cells"]) == (98_412, 36_288)
    assert "98,412 generations, 36,288 cells" in shown
    assert len(re.findall(r"^ *0\.(?:125|25|5) +12,096 *$", shown, re.MULTILINE)) == 3
    missing = {s["suite"]: set(s["missing"]) for s in made["suites"]}
    assert missing["attention"] == missing["needle"] == {"model qwen2.5-1.5b"}
    assert {name for name in missing["16k"] if name.startswith("data")} == {
        "data of hotpotqa",
        "data of passage_retrieval_en",
        "data of musique",
        "data of narrativeqa",
    }
    assert len(missing["6k"]) == 4 + 4  # the passcodes need no data
    assert made["fetch"] == "kvexp fetch study=paper"
    assert "not on this machine: 8 models and 1 file of data\n" in shown
    told = shown[shown.index("not on this machine") : shown.index("to get it")]
    assert [told.count(f"  model {name}") for name in ("qwen2.5-1.5b, for attention, needle, ruler", "")] == [
        1,
        8,
    ]
    assert told.count("(gated), for ruler") == told.count("(gated), for 6k, 16k, no-context") == 2
    assert told.count("data.zip of 'THUDM/LongBench'") == told.count("hf auth login") == 1
    assert [one["gated"] for one in made["missing"]].count(True) == 4
    assert "kvexp fetch study=paper\n" in shown


def test_a_local_folder_that_is_missing_is_no_matter_of_fetching(bare, plan, tmp_path, tiny_folder):
    part, empty = tmp_path / "part", tmp_path / "empty"
    shutil.copytree(tiny_folder, part)
    (part / "model.safetensors").unlink()
    empty.mkdir()
    for source, said in (
        (tmp_path / "nowhere", f"model tiny: the folder {tmp_path / 'nowhere'} is missing: make it, or "),
        (empty, f"model tiny: config.json is missing in {empty} or damaged: add it, or "),
        (part, f"model tiny: model.safetensors is missing in {part} or damaged: add it, or "),
        ("~no-such-user-here/x", "model tiny: ~no-such-user-here/x: "),
    ):
        words = ["study=mini", f"model.tiny.source={source}"]
        made = json.loads(plan(*words, "--json", code=2))
        (suite,) = made["suites"]
        assert (made["fetch"], suite["by_hand"]) == (None, ["model tiny"])
        reason = suite["missing"]["model tiny"]
        assert reason.startswith(said)
        assert reason.endswith("set model.tiny.source to another folder")
        shown = plan(*words, code=2)
        assert shown.count(reason) == 1
        assert "fetch" not in shown


def test_what_is_missing_of_either_kind_is_told_apart(bare):
    words = ["study=paper", "suite=6k", "model.qwen2.5-7b-instruct.source=/no/such/folder"]
    made = study_plan(select(words, ROOT), words)
    assert made["fetch"].startswith("kvexp fetch study=paper suite=6k")
    (suite,) = made["suites"]
    assert suite["by_hand"] == ["model qwen2.5-7b-instruct"]
    assert len(suite["missing"]) == 8
    out = io.StringIO()
    print_plan(made, Console(file=out, width=1000))
    told, _, rest = (
        out.getvalue()
        .partition("not on this machine: 3 models and 1 file of data\n")[2]
        .partition("model qwen2.5-7b-instruct: ")
    )
    assert told.count("\n") == 5
    assert "model mistral-7b-instruct-v0.3 (gated), for 6k: " in told
    assert rest.startswith("the folder /no/such/folder is missing")
    assert "model qwen2.5-7b-instruct: the folder /no/such/folder is missing" in out.getvalue()


def test_the_command_that_gets_what_is_missing_repeats_the_choice_but_not_the_cluster(bare):
    words = ["study=paper", "suite=6k", "model=qwen2.5-7b-instruct", "cluster.workers=2"]
    made = study_plan(select(words, ROOT), words)
    assert made["fetch"] == "kvexp fetch study=paper suite=6k model=qwen2.5-7b-instruct"


def test_the_fetch_line_has_a_data_dir_only_if_the_data_would_come_without_it(bare, tmp_path):
    for name in ("hotpotqa", "2wikimqa", "multifieldqa_en", "passage_retrieval_en"):
        line = {"_id": "r", "input": "What?", "context": "This.", "answers": ["Paragraph 1"]}
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(line))
    data = f"task.data_dir={tmp_path}"
    for suite, kept in (("needle", ""), ("6k", f" {data}")):
        words = ["study=paper", f"suite={suite}", data]
        made = study_plan(select(words, ROOT), words)
        assert made["fetch"] == f"kvexp fetch study=paper suite={suite}{kept}"
        idle = f"{data} changes nothing: no chosen suite has such a task that reads data"
        assert made["notes"] == ([] if kept else [idle])


def test_files_that_a_folder_lacks_are_named_all_at_once(bare, tmp_path):
    words = ["study=longbench-small", f"task.data_dir={tmp_path}"]
    made = study_plan(select(words, ROOT), words)
    assert made["fetch"] is None
    assert [one["by_hand"] for one in made["missing"]] == [True] * 6
    assert all(f"{tmp_path} has neither " in one["reason"] for one in made["missing"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["study=demo", f"model.smollm2-135m.revision={'a' * 40}"], "the embedded model has no revision"),
        (
            ["study=paper", "suite=needle", "model.qwen2.5-1.5b.revision=main"],
            "revision 'main' is not pinned",
        ),
        (["study=paper", "suite=needle", "model.revision=null"], "revision 'main' is not pinned"),
        (
            ["study=demo", "study.name=other", "model.smollm2-135m.source=org/x"],
            "logs and verdicts call org/x by this name",
        ),
        (["study=demo", "task.data_dir=/x"], "task.data_dir=/x changes nothing"),
        (["study=demo", "suite.n_examples=3"], "suite.n_examples=3: not the grid of conf/study/demo.yaml"),
        (["study=demo", "suite.n_examples=3", "study.name=other"], None),
        (["study=paper", "suite=needle", "model.llama-3.1-8b.revision=main"], None),  # is not chosen
    ],
)
def test_words_that_do_not_do_what_they_seem_to(bare, words, said):
    told = study_plan(select(words, ROOT), words)["notes"]
    assert not told if said is None else said in told[-1], told


def test_other_weights_under_a_shipped_name_are_not_timed_by_its_rate(tiny_folder):
    words = ["study=demo", f"model.smollm2-135m.source={tiny_folder}"]
    rates = [f"cluster.rates.smollm2-135m.{word}" for word in RATE]
    for added, is_timed in (([], False), (rates, True)):
        made = study_plan(select(words + added, ROOT), words + added)
        assert (made["expected_minutes"] is not None) == is_timed
        assert all((suite["expected_minutes"] is not None) == is_timed for suite in made["suites"])


def test_a_local_folder_of_fewer_records_is_remarked(tmp_path):
    lines = [
        json.dumps({"_id": f"r{i}", "input": "What?", "context": "This.", "answers": ["x"]}) for i in range(7)
    ]
    (tmp_path / "multifieldqa_en.jsonl").write_text("\n".join(lines))
    data = f"task.multifieldqa_en.data_dir={tmp_path}"
    made = study_plan(select(["study=paper", "suite=6k", "task=multifieldqa_en", data], ROOT))
    (suite,) = made["suites"]
    assert suite["generations"] == 7 * 4 * 17
    assert suite["remarks"] == ["multifieldqa_en has 7 records, not the 100 asked for: all are used"]


def test_nothing_is_missing_where_the_study_needs_nothing():
    made = study_plan(select(["study=demo"], ROOT))
    assert made["fetch"] is None
    assert all(s["missing"] == {} for s in made["suites"])


def test_json_is_json_and_agrees_with_the_table(plan):
    as_json = json.loads(plan("study=mini", "--json"))
    assert (as_json["shards"], as_json["generations"]) == (2, 28)
    assert as_json["suites"][0]["generations_by_arm"] == {"full": 4, "h2o": 4, "topk": 4, "poisson": 16}
    assert as_json["expected_minutes"] is None
    table = plan("study=mini")
    assert "2 shards, 28 generations, unknown minutes" in table
    assert re.search(r"^ *poisson +16 *$", table, re.MULTILINE)


def test_hours_stand_beside_the_paper_s_with_where_they_come_from(bare, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    assert main(["plan", "paper", "cluster=slurm_h100"]) == 0
    shown = capsys.readouterr().out
    told = r"^at least ([0-9.]+) GPU-hours projected, a floor .* \(the paper's whole grid took roughly 70"
    hours = re.search(told, shown, re.MULTILINE)
    assert ", at least 6 minutes expected on cluster=slurm_h100" in shown
    assert 0.5 < float(hours[1]) < 70
    assert "estimated, not measured: H100" in shown
    assert "left out: loading models, waiting in queues" in shown
    assert "measured on" not in shown
    assert main(["plan", "paper"]) == 0
    shown = capsys.readouterr().out
    assert "unknown CPU-hours projected" in shown
    assert "no rate on cluster=local of qwen2.5-1.5b, qwen2.5-7b, " in shown
    assert main(["plan", "demo"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"^[0-9.]+ CPU-hours projected$", shown, re.MULTILINE)
    assert "  measured on one core of " in shown
    assert "estimated" not in shown
    assert "at least" not in shown


def test_a_choice_counts_only_what_is_chosen(plan):
    whole, part = (
        json.loads(plan("study=demo", *o, "--json")) for o in ([], ["suite=demo-1k", "task=words"])
    )
    assert [s["suite"] for s in part["suites"]] == ["demo-1k"]
    assert part["generations"] == 16 * 25 < whole["generations"]
    assert set(part["shard_ids"]) < set(whole["shard_ids"])


def test_minutes_follow_the_rates_and_the_workers(plan):
    def minutes(*overrides):
        return json.loads(plan("study=demo", "--json", *overrides))["expected_minutes"]

    rates = [
        "cluster.rates.smollm2-135m.prefill_token_s=0.01",
        "cluster.rates.smollm2-135m.step_s=1",
    ]
    assert minutes(*rates) > 2 * minutes()
    assert minutes("cluster.workers=2") == pytest.approx(minutes("cluster.workers=1") / 2, rel=0.05)
    assert minutes("cluster.workers=100") == minutes("cluster.workers=1000") > 0  # those of the longest shard


def test_planning_writes_nothing(plan, root):
    plan("study=mini")
    assert sorted(path.name for path in root.iterdir()) == ["conf"]


def records_of(folder, *names):
    """A folder with one record of each of some tasks."""
    folder.mkdir()
    line = json.dumps({"_id": "r", "input": "What?", "context": "This.", "answers": ["Paragraph 1"]})
    for name in names:
        (folder / f"{name}.jsonl").write_text(line)
    return folder


def test_a_folder_of_some_tasks_is_refused_by_plan_and_submit_with_the_way_out(tmp_path, monkeypatch, capsys):
    """A suite's grid is written whole, so a choice of tasks does not make the other data unnecessary."""
    data = records_of(tmp_path / "data", "hotpotqa")
    words = ["study=longbench-small", "study.name=z5", f"task.data_dir={data}", "suite.n_examples=1"]
    monkeypatch.chdir(ROOT)
    for verb in ("plan", "submit"):
        assert main([verb, *words, "task=hotpotqa"]) == 2
        told = capsys.readouterr()
        told = told.out if verb == "plan" else told.err
        assert "suite.longbench-2k.tasks=[hotpotqa]" in told
        assert told.count(f"{data} has neither ") == 5
    assert main(["plan", *words, "suite.longbench-2k.tasks=[hotpotqa]"]) == 0
    assert not (ROOT / "results" / "z5").exists()


def test_a_file_of_records_is_not_their_folder(tmp_path):
    data = records_of(tmp_path / "data", "hotpotqa")
    words = ["study=longbench-small", f"task.data_dir={data / 'hotpotqa.jsonl'}"]
    (one,) = study_plan(select(words, ROOT), words)["missing"]
    assert one["reason"].endswith(f"name the folder, task.data_dir={data}")


@pytest.mark.parametrize("verb", ["plan", "submit"])
def test_other_weights_do_not_go_into_the_results_of_a_study_that_names_its_own(verb, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    assert main([verb, "study=paper", "suite=6k", "model.qwen2.5-7b-instruct.source=embedded"]) == 2
    assert "study.name=NAME" in project.one_sentence(capsys.readouterr().err)
    study_plan(select(["study=demo", "model.source=embedded"], ROOT))  # that is what it is


def test_a_revision_is_of_one_repository():
    name = "model.qwen2.5-1.5b"

    def model(*words):
        (found,) = [m for m in select(["study=paper", *words], ROOT).models if f"model.{m.name}" == name]
        return found

    pinned = model()
    assert model(f"{name}.source={pinned.source}") == pinned
    assert model(f"{name}.source=other/repo").revision is None
    assert model(f"{name}.source=other/repo", f"{name}.revision=v1").revision == "v1"
    assert model(f"{name}.source=/a/folder").revision is None


def test_too_few_positions_are_said_before_anything_is_loaded(tmp_path, root, monkeypatch, capsys):
    folder = tiny.save(tmp_path / "short", positions=200)
    monkeypatch.chdir(root)
    for verb in ("plan", "submit"):
        assert main([verb, "study=mini", f"model.tiny.source={folder}"]) == 2
        told = capsys.readouterr()
        assert "model tiny has 200 positions, but suite mini asks for 256" in told.out + told.err
    assert not (root / "results").exists()
    words = ["study=paper", "study.name=z", "suite=16k", "model.source=embedded"]
    missing = study_plan(select(words, ROOT), words)["missing"]
    assert sum("has 8,192 positions, but suite 16k asks for 16,128" in one["reason"] for one in missing) == 4


def test_the_embedded_model_has_its_positions():
    config = json.loads((embedded_model() / "config.json").read_bytes())
    assert config["max_position_embeddings"] == POSITIONS
