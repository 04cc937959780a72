"""The maker of planted logs keeps its promises: sound folders, known truths, the same bytes, plain errors."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from analysis.core import statistics
from analysis.core.data import Data, Parameters
from analysis.core.study import load
from kvexp.documents.schema import Population, Statistics
from scripts.make_planted_logs import main
from scripts.planting.draws import normals, uniforms
from scripts.planting.study import Study
from scripts.planting.targets import read
from scripts.planting.wanted import Kept, PooledAuc, TopShare, below

ROOT = Path(__file__).resolve().parents[2]
PLAN = Statistics(
    auc="mann-whitney, ties half",
    interval="cluster-bootstrap-percentile",
    cluster=["task", "example_id"],
    resampled_within=["task"],
    level=0.95,
    draws=200,
    min_clusters=10,
    undefined_resamples_max=0.01,
    undefined_rows_max=0.01,
)
SMALL = """
[names]
both = ["words", "facts"]

[scores]
words = "exact_match"

[ability]
a = 0.1
b = -0.1

[[suite]]
name = "short"
models = ["a", "b"]
tasks = ["both"]
examples = 150
arms = [
  { arm = "full" },
  { arm = "h2o", conditions = ["stream"], budgets = [0.25, 0.5] },
  { arm = "poisson", conditions = ["aware", "stream"], budgets = [0.25, 0.5], seeds = [0, 1] },
]

[[suite]]
name = "bare"
models = ["a", "b"]
tasks = ["both"]
examples = 150
arms = [{ arm = "full" }]

[[control]]
suite = "bare"
tasks = ["both"]
known = 0.3
guessed = 0.05

[[rate]]
at = { conditions = ["stream"] }
induced = 0.4
rescued = 0.1

[[rate]]
at = { conditions = ["stream"], budgets = [0.5] }
induced = 0.3
dependent = 1.2

[[rate]]
at = { suites = ["short"], tasks = ["words"] }
full = 0.8

[[rate]]
at = { tasks = ["words"], conditions = ["aware"] }
induced = 0.1
accuracy = 0.75

[[auc]]
signal = "certificate"
label = "own_failure"
at = { arms = ["poisson"] }
value = 0.62

[[auc]]
signal = "certificate"
label = "induced_failure"
at = { arms = ["poisson"] }
value = 0.85

[[auc]]
signal = "certificate"
label = "attribution"
at = { arms = ["poisson"], conditions = ["stream"] }
value = 0.80

[[auc]]
signal = "margin"
label = "own_failure"
at = { arms = ["h2o"] }
value = 0.40

[[gain]]
signal = "certificate"
to = "next"
at = { arms = ["poisson"], conditions = ["stream"], budgets = [0.25] }
value = 0.01

[[gain]]
signal = "output_logprob"
to = "full"
at = { arms = ["poisson"], conditions = ["stream"], budgets = [0.25] }
value = 0.05

[[selective]]
signal = "entropy"
at = { arms = ["poisson"] }
coverage = 0.3
value = 0.2

[[median]]
signal = "certificate"
at = { arms = ["poisson"] }
failures = 0.9
successes = 0.5
"""


@pytest.fixture(scope="module")
def targets(tmp_path_factory):
    path = tmp_path_factory.mktemp("targets") / "small.toml"
    path.write_text(SMALL)
    return path


@pytest.fixture(scope="module")
def study(targets, tmp_path_factory):
    """The planted study and what was planted."""
    made = Study(read(targets), seed=3)
    folder = tmp_path_factory.mktemp("planted") / "small"
    assert made.write(folder) == 2 * 2 * 150 * (11 + 1)
    return load(folder, {}), made


def data(study, label, **where):
    population = Population(suites=["short"], tasks=["words", "facts"], label=label, **where)
    success = {"token_f1": 0.5, "otherwise": 1.0}
    return Data(study[0].table, population, success, PLAN, 1, Parameters("test", {}))


def near(estimate, value, slack=0.0):
    """Within four standard errors, as its own interval has them."""
    error = (estimate.hi - estimate.lo) / (2 * 1.96)
    assert abs(estimate.value - value) <= 4 * error + slack, (estimate, value)


def test_the_folder_is_sound_and_whole(study):
    assert study[0].problems == ()
    assert study[0].table["present"].all()
    assert len(study[0].table) == 2 * 2 * 150 * (11 + 1)


def test_every_target_is_what_the_rows_have_in_expectation(study):
    planted = study[1].planted
    assert len(planted) == 7
    assert [one.value for one in planted] == pytest.approx([one.target for one in planted], abs=1e-4)


@pytest.mark.parametrize(
    ("signal", "label", "where", "value"),
    [
        ("certificate", "own_failure", {"arms": ["poisson"]}, 0.62),
        ("certificate", "induced_failure", {"arms": ["poisson"]}, 0.85),
        ("certificate", "attribution", {"arms": ["poisson"], "conditions": ["stream"]}, 0.80),
        ("margin", "own_failure", {"arms": ["h2o"]}, 0.40),
    ],
)
def test_aucs_are_as_planted(study, signal, label, where, value):
    found = data(study, label, **where)
    near(found.estimate(found.auc(found.counted, signal)), value)


def test_rates_are_as_planted(study):
    for label, where, value in (
        ("induced_failure", {"arms": ["h2o"], "budgets": [0.25]}, 0.4),
        ("induced_failure", {"arms": ["poisson"], "conditions": ["stream"], "budgets": [0.5]}, 0.3),
        ("rescue", {"arms": ["h2o"]}, 0.1),
        ("success", {"arms": ["full"]}, (0.8 + 0.6) / 2),
    ):
        found = data(study, label, **where)
        near(found.estimate(found.rate(found.counted)), value)
    aware = data(study, "success", arms=["poisson"], conditions=["aware"])
    near(aware.estimate(aware.rate(aware.counted[aware.counted["task"] == "words"])), 0.75)


def test_gains_medians_and_errors_that_pass_are_as_planted(study):
    found = data(study, "success", arms=["poisson"], conditions=["stream"])
    rows = found.split(found.counted, "budget", "seed")
    gains = [
        statistics.difference(*found.gate(rows[0.25, seed], rows[0.5, seed], "certificate", 0.25))
        for seed in (0, 1)
    ]
    near(found.estimate(statistics.mean(gains)), 0.01)
    every = data(study, "own_failure", arms=["poisson"]).counted
    for is_failure, median in ((True, 0.9), (False, 0.5)):
        assert every.loc[every["positive"] == is_failure, "certificate"].median() == pytest.approx(
            median, rel=0.1
        )
    safest = every.sort_values("entropy")["positive"].head(round(0.3 * len(every)))
    assert safest.mean() == pytest.approx(0.2, abs=0.05)


def test_what_the_control_answers_suffers_less(study):
    """`dependent`: induced failures among what the full cache answers and the control does not."""
    table = study[0].table
    key = ["model", "task", "example_id"]
    known = table.loc[(table["suite"] == "bare") & (table["score_value"] == 1.0), key].assign(known=True)
    found = data(study, "induced_failure", arms=["poisson"], conditions=["stream"], budgets=[0.5]).counted
    found = found[found["task"] == "words"].merge(known, how="left", on=key)
    is_known = found["known"].notna()
    assert 0.2 < is_known.mean() < 0.4
    assert found.loc[~is_known, "positive"].mean() == pytest.approx(0.36, abs=0.07)
    assert found.loc[is_known, "positive"].mean() < 0.26


def test_errors_are_clustered(study):
    """Rows of one example agree more often than rows of different ones."""
    found = data(study, "own_failure", arms=["poisson"], conditions=["stream"], budgets=[0.25]).counted
    by_example = found.groupby("cluster", observed=True)["positive"].mean()
    independent = found["positive"].var() / (len(found) / len(by_example))
    assert by_example.var() > 1.3 * independent


def test_the_same_seed_gives_the_same_bytes(targets, tmp_path):
    few = read(targets).sized(400)

    def made(name, seed):
        Study(few, seed).write(tmp_path / name)
        files = sorted(path for path in (tmp_path / name).rglob("*") if path.is_file())
        return {path.relative_to(tmp_path / name): path.read_bytes() for path in files}

    first = made("one", 5)
    assert first == made("two", 5)
    other = made("three", 6)
    assert first.keys() == other.keys()
    grid = Path("grid.jsonl")
    assert first[grid] == other[grid]
    assert all(first[path] != other[path] for path in first if path.name == "generations.jsonl")


OF_H2O = 'at = { arms = ["h2o"] }\nvalue = 0.40'


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('signal = "margin"', 'signal = "marign"', "no signal 'marign'"),
        ('arms = ["h2o"] }\nvalue = 0.40', 'arms = ["h3o"] }\nvalue = 0.40', "names arm 'h3o'"),
        ('arms = ["h2o"] }\nvalue = 0.40', "}\nvalue = 0.40", "must name one arm"),
        (
            'arms = ["h2o"] }\nvalue = 0.40',
            'arms = ["poisson"] }\nvalue = 0.40',
            "asks for margin of poisson",
        ),
        ("accuracy = 0.75", "accuracy = 0.05", "would need a rescue rate of -"),
        ("value = 0.62", "value = 0.99", "cannot be had beside the other targets"),
        ("value = 0.62", "value = 6.2", "Expected `float` <= 1.0"),
        ("b = -0.1", "b = 0.1", "do not sum to zero"),
        ("dependent = 1.2", "dependent = 2.0", "no rate fits what the control answers"),
        ("failures = 0.9", "failures = 0.1", "not in the order"),
        ("[names]", "[names", "small.toml"),
        ("known = 0.3", "knwon = 0.3", "unknown field `knwon`"),
    ],
)
def test_targets_that_cannot_be_had_are_refused_in_one_sentence(tmp_path, capsys, old, new, words):
    assert SMALL.count(old) == 1
    path = tmp_path / "small.toml"
    path.write_text(SMALL.replace(old, new))
    assert main([str(tmp_path / "out"), "--targets", str(path)]) == 2
    told = capsys.readouterr().err
    assert words in told
    assert told.startswith("error: ")
    assert told.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_nothing_is_overwritten(tmp_path, targets, capsys):
    assert main([str(tmp_path), "--targets", str(targets)]) == 2
    assert "is there already" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_it_runs_as_a_script(tmp_path, targets):
    script = ROOT / "scripts" / "make_planted_logs.py"
    command = [sys.executable, script, tmp_path / "new", "--targets", targets, "--rows", "100", "--show"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=True)
    assert done.stdout.splitlines()[-1].startswith("96 generations in ")
    assert "0.620   0.620  AUC of certificate for own_failure: poisson" in done.stdout


# The exact expectations, against simulation and finite differences -----------------------------------

MEANS = np.array([0.0, 0.7, -0.4, 1.5])
FUNCTIONALS = [
    PooledAuc(0.0, np.array([0.0, 3.0, 0.0, 2.0]), np.array([5.0, 0.0, 4.0, 1.0])),
    TopShare(0.0, np.array([5.0, 3.0, 4.0, 3.0]), np.array([0.0, 1.0, -1.0, 1.0]), 0.25),
    Kept(0.0, np.array([5.0, 3.0, 4.0, 3.0]), np.array([0.0, 1.0, 0.0, 1.0]), 0.3),
]


@pytest.mark.parametrize("wanted", FUNCTIONALS, ids=lambda one: type(one).__name__)
def test_derivatives_are_those_of_finite_differences(wanted):
    _, gradient = wanted.at(MEANS)
    step = 1e-3
    slopes = [
        (wanted.at(MEANS + step * one)[0] - wanted.at(MEANS - step * one)[0]) / (2 * step)
        for one in np.eye(4)
    ]
    assert gradient == pytest.approx(slopes, abs=2e-4)


def test_expectations_are_those_of_a_simulation():
    rng = np.random.default_rng(4)
    auc, gain, kept = FUNCTIONALS
    n = 20_000
    up = np.concatenate([rng.normal(MEANS[i], 1, int(n * auc.positive[i])) for i in range(4)])
    down = np.concatenate([rng.normal(MEANS[i], 1, int(n * auc.negative[i])) for i in range(4)])
    ranks = np.searchsorted(np.sort(down), up)
    assert auc.at(MEANS)[0] == pytest.approx(ranks.mean() / len(down), abs=5e-3)
    group = np.repeat(np.arange(4), (n * gain.count).astype(int))
    signal = rng.normal(MEANS[group], 1)
    order = np.argsort(-signal)
    change = gain.change[group][order]
    q = round(0.25 * len(change))
    assert gain.at(MEANS)[0] == pytest.approx(change[:q].sum() / len(change) - 0.25 * change.mean(), abs=5e-3)
    failed = kept.failed[group][order[::-1]]
    assert kept.at(MEANS)[0] == pytest.approx(failed[: round(0.3 * len(failed))].mean(), abs=5e-3)


def test_draws_are_uniform_normal_and_keyed():
    u, z = uniforms(20_000, "a", 1), normals(20_001, "a", 1)
    assert abs(u.mean() - 0.5) < 0.01
    assert abs(u.var() - 1 / 12) < 0.002
    assert len(z) == 20_001
    assert abs(z.mean()) < 0.03
    assert abs(z.std() - 1) < 0.02
    assert (u[:5] == uniforms(5, "a", 1)).all()
    assert not (u[:5] == uniforms(5, "a", 2)).any()
    assert below(np.array([-1.959964, 0.0, 1.959964])) == pytest.approx([0.025, 0.5, 0.975], abs=1e-6)


def test_a_folder_that_cannot_be_made_is_said_in_one_sentence(tmp_path, targets, capsys):
    (tmp_path / "file").write_text("")
    assert main([str(tmp_path / "file" / "below"), "--targets", str(targets), "--rows", "50"]) == 2
    assert "cannot be written" in capsys.readouterr().err
