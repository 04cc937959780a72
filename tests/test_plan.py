"""`kvexp plan`: counts, minutes, and the same as JSON."""

import json
import re

import pytest

from kvexp.cli import main
from kvexp.compose import select
from kvexp.plan import study_plan
from tests import project
from tests.project import ROOT


@pytest.fixture(scope="module")
def root(tmp_path_factory, tiny_folder):
    return project.make(tmp_path_factory.mktemp("plan") / "project", tiny_folder)


@pytest.fixture
def plan(root, monkeypatch, capsys):
    monkeypatch.chdir(root)

    def run(*overrides):
        assert main(["plan", *overrides]) == 0
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
    assert made["generations"] == sum(s["generations"] for s in made["suites"])
    assert made["shards"] == len(made["shard_ids"]) == len(set(made["shard_ids"]))
    assert made["expected_minutes"] > 0


def test_the_paper_counts_its_cells_without_weights():
    made = study_plan(select(["study=paper", "suite=attention"], ROOT))
    assert made["suites"][0]["cells_by_budget"] == {"0.125": 12096, "0.25": 12096, "0.5": 12096}


def test_json_is_json_and_agrees_with_the_table(plan):
    as_json = json.loads(plan("study=mini", "--json"))
    assert (as_json["shards"], as_json["generations"]) == (2, 28)
    assert as_json["suites"][0]["generations_by_arm"] == {"full": 4, "h2o": 4, "topk": 4, "poisson": 16}
    assert as_json["expected_minutes"] is None
    table = plan("study=mini")
    assert "2 shards, 28 generations, unknown minutes" in table
    assert re.search(r"^ *poisson +16 *$", table, re.MULTILINE)


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
        "cluster.rates.smollm2-135m.prefill_tokens_per_s=100",
        "cluster.rates.smollm2-135m.decode_steps_per_s=1",
    ]
    assert minutes(*rates) > 2 * minutes()
    assert minutes("cluster.workers=4") == pytest.approx(minutes("cluster.workers=2") / 2, rel=0.05)


def test_planning_writes_nothing(plan, root):
    plan("study=mini")
    assert sorted(path.name for path in root.iterdir()) == ["conf"]
