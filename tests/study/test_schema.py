"""conf/: every file composes, an override touches what it names, every mistake is one sentence."""

import shutil
from dataclasses import asdict

import pytest

from kvexp.cli import main
from kvexp.errors import ConfigError
from kvexp.study.compose import _Composer, load_arms, project_root, select
from kvexp.study.schema import GROUPS
from tests import project
from tests.project import ROOT

STUDIES = sorted(path.stem for path in (ROOT / "conf" / "study").glob("*.yaml"))
FILES = sorted(path.relative_to(ROOT / "conf").with_suffix("") for path in (ROOT / "conf").glob("*/*.yaml"))


@pytest.fixture
def for_real(monkeypatch):
    """Nothing is taken from what another test composed of the same words.

    Not for the lists of files and mistakes below: what each of them is about is composed there for the first
    time, and the same twenty files around it hundreds of times.
    """
    monkeypatch.setattr(_Composer, "one", project.real_one)


@pytest.fixture
def root(tmp_path, tiny_folder):
    return project.make(tmp_path / "project", tiny_folder)


@pytest.mark.parametrize("study", STUDIES)
def test_every_study_composes(study):
    selection = select([f"study={study}"], ROOT)
    assert selection.study.name == study
    assert selection.chosen["suite"] == [suite.name for suite in selection.suites]


@pytest.mark.parametrize("name", [str(name) for name in FILES])
def test_every_file_belongs_to_a_group_and_composes(name, tmp_path):
    group, item = name.split("/")
    assert group in GROUPS
    shutil.copytree(ROOT / "conf", tmp_path / "conf")
    models = sorted(path.stem for path in (ROOT / "conf" / "model").glob("*.yaml"))
    suites = [item] if group == "suite" else ["demo-512"]
    if group == "study":
        select([f"study={item}"], tmp_path)
        return
    models = [item] if group == "model" else models[:1]
    (tmp_path / "conf/study/probe.yaml").write_text(
        f"defaults: [base_study, _self_]\nname: probe\nsuites: {suites}\nmodels: {models}\n"
    )
    overrides = ["study=probe"]
    if group == "cluster":
        overrides.append(f"cluster={item}")
    if group == "task":
        overrides.append(f"suite.tasks=[{item}]")
    selection = select(overrides, tmp_path)
    if group == "cluster":
        assert selection.cluster.name == item
    if group == "task":
        assert list(selection.tasks) == [item]
    if group == "arm":
        assert load_arms([item], [], tmp_path)[0].name == item


def test_a_file_that_the_choice_does_not_need_may_be_broken(for_real, root):
    """A colleague's half-written study must not stop mine."""
    project.write(root, "study/embedded", "name: [")
    project.write(root, "arm/draft", "x: ]")
    assert project.selected(root).study.name == "mini"


def test_without_a_choice_the_defaults_of_config_yaml_count(for_real, root):
    project.write(root, "../conf/config", "defaults:\n  - study: mini\n  - cluster: debug\n")
    selection = select([], root)
    assert (selection.study.name, selection.cluster.name) == ("mini", "debug")


def test_an_override_of_one_item_touches_only_it(for_real, root):
    before = project.selected(root)
    after = project.selected(root, "arm.poisson.design_params.floor=1e-5")
    assert after.arms["poisson"].design_params == {"floor": 1e-5}
    assert {n: asdict(a) for n, a in after.arms.items() if n != "poisson"} == {
        n: asdict(a) for n, a in before.arms.items() if n != "poisson"
    }
    assert after.suites == before.suites
    demo = select(["study=demo", "suite.demo-512.n_examples=3"], root)
    assert {s.name: s.n_examples for s in demo.suites} == {"demo-512": 3, "demo-1k": 16, "demo-attention": 12}


def test_an_override_of_a_group_touches_all_of_it(for_real, root):
    demo = select(["study=demo", "suite.n_examples=3"], root)
    assert [s.n_examples for s in demo.suites] == [3, 3, 3]


def test_the_longest_name_owns_an_override(for_real, root):
    """`llama-3` must not take what is said of `llama-3.1`."""
    for name in ("llama-3", "llama-3.1", "qwen2.5-1.5b"):
        project.write(root, f"model/{name}", f"defaults: [base_model, _self_]\nname: {name}\nsource: hub/x\n")
    models = project.selected(
        root,
        "study.models=[llama-3,llama-3.1,qwen2.5-1.5b]",
        "model.llama-3.1.dtype=bfloat16",
        "model.qwen2.5-1.5b.dtype=float16",
    ).models
    dtypes = {"llama-3": "float32", "llama-3.1": "bfloat16", "qwen2.5-1.5b": "float16"}
    assert {m.name: m.dtype for m in models} == dtypes


def test_a_choice_may_be_a_list(for_real, root):
    demo = select(["study=demo", "suite=demo-1k,demo-512", "task=words"], root)
    assert demo.chosen == {
        "study": ["demo"],
        "suite": ["demo-1k", "demo-512"],
        "task": ["words"],
        "model": ["smollm2-135m"],
    }
    assert len(demo.suites) == 3


def test_the_root_is_found_from_below_and_missed_elsewhere(for_real, root, tmp_path):
    assert project_root(root / "conf" / "arm") == root
    with pytest.raises(ConfigError, match=r"no conf/config\.yaml above it"):
        project_root(tmp_path)


def run(root, monkeypatch, capsys, *overrides):
    monkeypatch.chdir(root)
    code = main(["plan", "study=mini", *overrides])
    return code, project.one_sentence(capsys.readouterr().err)


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("study=mii", ["study 'mii'", "conf/study/mii.yaml", "did you mean 'mini'"]),
        ("study=mini,demo", ["one study at a time"]),
        ("suite=other", ["study mini has no suite 'other'", "mini"]),
        ("cluster=lcal", ["cluster 'lcal'", "did you mean 'local'"]),
        ("sweet=1", ["no group 'sweet'", "suite"]),
        ("arm=banana", ["no word chooses arms", "suite.NAME.arms"]),
        ("arm=poisson", ["no word chooses arms", "suite.NAME.arms"]),
        ("suite", ["not an override"]),
        ("=", ["no group ''"]),
        ("~study", ["nothing can be removed"]),
        ("suite.nexamples=3", ["suite.nexamples=3", "did you mean 'n_examples'"]),
        ("suite.mini.nexamples=3", ["suite mini has no key 'nexamples'", "did you mean 'n_examples'"]),
        ("suite.mii.n_examples=3", ["no item 'mii'", "did you mean 'mini'"]),
        ("suite.demo-512.n_examples=3", ["changes nothing", "study mini has no suite 'demo-512'"]),
        ("suite.n_examples=abc", ["conf/suite/mini.yaml", "'abc'", "suite.n_examples"]),
        ("suite.n_examples=1.5", ["conf/suite/mini.yaml", "'1.5'", "suite.n_examples"]),
        ("suite.n_examples=0", ["conf/suite/mini.yaml", "n_examples is at least 1, got 0"]),
        ("suite.arms=[]", ["conf/suite/mini.yaml", "arms is empty"]),
        ("suite.tasks=[words,words]", ["conf/suite/mini.yaml", "tasks repeats 'words'"]),
        ("suite.tasks=[wrds]", ["conf/suite/mini.yaml", "task 'wrds'", "did you mean 'words'"]),
        ("suite.context_tokens=10", ["conf/suite/mini.yaml", "context_tokens is 10"]),
        ("suite.name=other", ["conf/suite/mini.yaml", "name is 'other'", "'mini'"]),
        ("study.suites=[mini,mini]", ["conf/study/mini.yaml", "suites repeats 'mini'"]),
        ("study.models=[tiyn]", ["conf/study/mini.yaml", "model 'tiyn'", "did you mean 'tiny'"]),
        ("study.name=scratch", ["conf/study/mini.yaml", "results/scratch is for unregistered runs"]),
        ("study.name=../up", ["conf/study/mini.yaml", "'../up'"]),
        ("study.protocol.delta=2", ["conf/study/mini.yaml", "protocol.delta lies in (0, 1), got 2"]),
        ("study.protocol.detla=.2", ["conf/study/mini.yaml", "detla"]),
        ("model.dtype=float8", ["conf/model/tiny.yaml", "dtype is one of"]),
        ("arm.estimator=hajk", ["conf/arm/", "estimator is plain or hajek", "'hajk'"]),
        ("arm.poisson.design_params.flor=1", ["conf/arm/poisson.yaml", "'flor'", "did you mean 'floor'"]),
        ("arm.poisson.design_params.floor=x", ["conf/arm/poisson.yaml", "'floor'", "must be float"]),
        ("arm.h2o.score=winow", ["conf/arm/h2o.yaml", "score named 'winow'", "did you mean 'window'"]),
        ("arm.h2o.design=topq", ["conf/arm/h2o.yaml", "design named 'topq'", "did you mean 'topk'"]),
        ("arm.h2o.score=null", ["conf/arm/h2o.yaml", "the topk design needs a score"]),
        ("arm.h2o.estimator=hajek", ["conf/arm/h2o.yaml", "hajek", "topk is fixed"]),
        ("task.words.family=wrds", ["conf/task/words.yaml", "wrds", "did you mean 'words'"]),
        ("task.words.params.foo=4", ["conf/task/words.yaml", "no parameter 'foo'", "n_facts"]),
        (
            "task.params.n_codes=4",
            ["conf/task/words.yaml", "no parameter 'n_codes'", "task.NAME.params.n_codes"],
        ),
        ("task.params.name=x", ["conf/task/words.yaml", "no parameter 'name'"]),
        ("task.words.params.n_facts=[3]", ["conf/task/words.yaml", "'n_facts'", "must be int, got [3]"]),
        ("arm.poisson.design_params.name=x", ["conf/arm/poisson.yaml", "design_params cannot set 'name'"]),
        ("arm.h2o.score_params.name=x", ["conf/arm/h2o.yaml", "score_params cannot set 'name'"]),
        ("cluster.executor=slrm", ["conf/cluster/local.yaml", "executor"]),
        ("cluster.workers=0", ["conf/cluster/local.yaml", "workers is at least 1"]),
        ("suite.arms=[{arm: nope}]", ["conf/suite/mini.yaml", "arm 'nope'"]),
        ("suite.arms=[{arm: full, bugdets: [1]}]", ["conf/suite/mini.yaml", "bugdets"]),
        ("suite.arms=[{arm: full},{arm: full}]", ["conf/suite/mini.yaml", "lists full twice"]),
        ("suite.arms=[{arm: full, budgets: [0.5]}]", ["conf/suite/mini.yaml", "full cache has no"]),
        ("suite.arms=[{arm: h2o}]", ["conf/suite/mini.yaml", "arm h2o: give it conditions and budgets"]),
        (
            "suite.arms=[{arm: h2o, conditions: [stream], budgets: [0]}]",
            ["conf/suite/mini.yaml", "arm h2o", "(0, 1], got 0"],
        ),
        ("suite.arms=[{arm: h2o, conditions: [stream], budgets: [1.5]}]", ["(0, 1], got 1.5"]),
        ("suite.arms=[{arm: h2o, conditions: [stream], budgets: [nan]}]", ["(0, 1], got nan"]),
        ("suite.arms=[{arm: h2o, conditions: [strem], budgets: [1]}]", ["'strem'"]),
        ("suite.arms=[{arm: h2o, conditions: [stream], budgets: [1, 1.0]}]", ["budgets repeats"]),
        ("suite.arms=[{arm: topk, conditions: [stream], budgets: [1]}]", ["question score is undefined"]),
        ("suite.arms=[{arm: h2o, conditions: [stream], budgets: [1], seeds: [0]}]", ["has no seeds"]),
        ("suite.arms=[{arm: poisson, conditions: [stream], budgets: [1]}]", ["needs seeds"]),
        (
            "suite.arms=[{arm: poisson, conditions: [stream], budgets: [1], seeds: [-1]}]",
            ["a seed is at least 0 and below 2^31, got -1"],
        ),
        (
            "suite.arms=[{arm: poisson, conditions: [stream], budgets: [1], seeds: [99999999999999999999]}]",
            ["a seed is at least 0 and below 2^31"],
        ),
        ("suite.example_seed=-1", ["example_seed is at least 0"]),
        ("study.protocol.norm_floor=-1", ["norm_floor is at least 0"]),
    ],
)
def test_a_mistake_on_the_command_line_is_one_sentence(root, monkeypatch, capsys, override, said):
    code, sentence = run(root, monkeypatch, capsys, override)
    assert code == 2
    assert not [words for words in said if words not in sentence], sentence
    assert not (root / "results").exists()


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("suite/mini", project.SUITE.replace("n_examples", "nexamples"), ["nexamples"]),
        ("suite/mini", project.SUITE.replace("n_examples: 4", "n_examples: many"), ["many", "n_examples"]),
        ("suite/mini", project.SUITE.replace("n_examples: 4", ""), ["n_examples", "missing"]),
        ("suite/mini", project.SUITE.replace("[0.25]", "[2.5]"), ["arm h2o", "(0, 1], got 2.5"]),
        ("suite/mini", project.SUITE.replace("{arm: h2o", "{arm: h20"), ["arm 'h20'", "did you mean 'h2o'"]),
        ("suite/mini", "name: [", ["cannot be read"]),
        ("suite/mini", "", ["base_suite"]),
        ("suite/mini", "just words", []),
        ("suite/mini", project.SUITE.split("\n", 2)[2], ["base_suite"]),
        ("suite/mini", project.SUITE.replace("name: mini", "name: demo-512"), ["'demo-512'", "'mini'"]),
        ("arm/h2o", "defaults: [base_arm, _self_]\nname: h2o\ndesing: topk\n", ["desing"]),
        ("arm/h2o", "defaults: [base_arm, _self_]\nname: h2o\n", ["design", "missing"]),
        ("model/tiny", "defaults: [base_model, _self_]\nname: tiny\n", ["source", "missing"]),
        ("study/mini", project.STUDY.replace("[tiny]", "tiny"), ["models"]),
        ("study/mini", project.STUDY.replace("[base_study", "[bse_study"), ["bse_study"]),
    ],
)
def test_a_mistake_in_a_file_is_one_sentence_that_names_the_file(root, monkeypatch, capsys, name, text, said):
    project.write(root, name, text)
    code, sentence = run(root, monkeypatch, capsys)
    assert code == 2
    assert not [words for words in [f"conf/{name}.yaml", *said] if words not in sentence], sentence


def test_bytes_that_are_not_text_are_one_sentence(for_real, root, monkeypatch, capsys):
    (root / "conf/suite/mini.yaml").write_bytes(b"name: \xff\xfe\x00")
    code, sentence = run(root, monkeypatch, capsys)
    assert code == 2
    assert "conf/suite/mini.yaml" in sentence


def test_a_config_yaml_without_defaults_says_what_to_do(for_real, root, monkeypatch, capsys):
    project.write(root, "../conf/config", "defaults: []\n")
    monkeypatch.chdir(root)
    assert main(["plan"]) == 2
    assert "say study=NAME" in project.one_sentence(capsys.readouterr().err)


def test_outside_a_project_is_one_sentence(for_real, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["plan"]) == 2
    assert "is not inside a kvexp project" in project.one_sentence(capsys.readouterr().err)


def test_a_suite_cannot_take_a_folder_that_results_need(for_real, root):
    project.write(root, "suite/examples", project.SUITE.replace("name: mini", "name: examples"))
    project.write(root, "study/mini", project.STUDY.replace("suites: [mini]", "suites: [examples]"))
    with pytest.raises(ConfigError, match="results/<study>/examples is taken"):
        project.selected(root)


def test_a_name_that_makes_ids_too_long_is_refused_before_anything_runs(for_real, root):
    name = "m" * 190
    project.write(root, f"model/{name}", f"defaults: [base_model, _self_]\nname: {name}\nsource: x\n")
    project.write(root, "study/mini", project.STUDY.replace("[tiny]", f"[{name}]"))
    with pytest.raises(ConfigError, match="at most 200 characters"):
        project.made(root)
