"""Registrations against the grid: the shipped ones fit, and what selects nothing is refused with its line."""

import re
import shutil
import time
from pathlib import Path

import pytest

from analysis.core.populations import LABELS, ORIENTATION
from kvexp.ceremony import lint_grid
from kvexp.documents.registration import load_folder
from kvexp.documents.source import RegistrationError
from kvexp.study.compose import select
from kvexp.study.grid import shards

ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "preregistration"
CLAIMS = ROOT / "analysis" / "claims"
STUDIES = ("paper", "embedded", "demo", "ablations", "longbench-small")


class Study:
    """A study's whole grid, and the names of its suites."""

    def __init__(self, name):
        selection = select([f"study={name}"], ROOT)
        self.shards = shards(selection, "assume")
        self.suites = [suite.name for suite in selection.suites]

    def of(self, *suites):
        return [shard for shard in self.shards if shard.suite in suites]


@pytest.fixture(scope="module", params=STUDIES)
def any_study(request):
    return request.param, Study(request.param)


@pytest.fixture(scope="module")
def paper():
    return Study("paper")


@pytest.fixture(scope="module")
def embedded():
    return Study("embedded")


def test_the_shipped_registrations_fit_their_grids(any_study):
    name, study = any_study
    found = load_folder(SHIPPED / name, CLAIMS)
    lint_grid.check(found, study.shards, study.suites)
    for one in found:
        # Sealed one by one: an addendum's suites, or its parent's, need not be here.
        lint_grid.check([one], study.of(*one.content.suites))
        lint_grid.check([one], study.shards, study.suites)


def test_the_papers_grid_is_checked_within_a_second(paper):
    found = load_folder(SHIPPED / "paper", CLAIMS)
    rows = sum(shard.n_rows for shard in paper.shards if shard.unit == "generations")
    assert rows == 98_412
    started = time.process_time()
    lint_grid.check(found, paper.shards, paper.suites)
    assert time.process_time() - started < 1


def test_signals_and_labels_are_those_of_the_analysis():
    assert set(lint_grid.KNOWN_SIGNALS) == set(ORIENTATION)
    assert set(lint_grid.NEED_FULL) == {name for name, label in LABELS.items() if label.needs_full}


def changed(tmp_path, study, name, *changes):
    """The study's registrations, one of them with literal replacements."""
    folder = tmp_path / study
    shutil.copytree(SHIPPED / study, folder)
    path = folder / f"{name}.toml"
    text = path.read_text()
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new, 1)
    path.write_text(text)
    return path, load_folder(folder, CLAIMS)


WORDS = '"words", "facts"'
R1 = 'tasks = ["words", "facts"], arms = ["poisson"], label = "own_failure" }'


@pytest.mark.parametrize(
    ("name", "change", "line", "message"),
    [
        (
            "R",
            (R1, R1.replace("facts", "fact")),
            "^population",
            "claim R1: the population asks for task fact, which",
        ),
        (
            "R",
            (R1, R1.replace(WORDS, '"word"')),
            "^population",
            "the population selects nothing: it asks for tasks w",
        ),
        (
            "R",
            (R1, R1.replace("poisson", "poison")),
            "^population",
            "selects nothing: it asks for arms poison, the",
        ),
        (
            "R",
            (R1, R1.replace("label", 'models = ["llama"], label')),
            "^population",
            "it asks for models llama, the grid has smollm2-135m there",
        ),
        (
            "R",
            (R1, R1.replace("label", "budgets = [0.25, 0.125], label")),
            "^population",
            "asks for budget 0.125, which selects nothing: with the rest of it the grid has 0.25",
        ),
        (
            "R",
            (R1, R1.replace('["poisson"]', '["poisson", "topk"], conditions = ["stream"]')),
            "^population",
            "asks for arm topk, which selects nothing: with the rest of it the grid has poisson",
        ),
        (
            "R",
            (
                '"main tasks only" = { population = { tasks',
                '"main tasks only" = { population = { models = ["x"], tasks',
            ),
            "^.main tasks only",
            "claim R4, readings 'main tasks only': the population selects nothing: it asks for models x",
        ),
        (
            "R",
            ('{ conditions = ["aware"], arms = ["topk", "poisson"] }', '{ conditions = ["aware"] }'),
            "^.aware with aware",
            "claim R2, sensitivity 'aware with aware': the population asks for arm streaming_llm, which",
        ),
        (
            "R",
            ("token_f1 = 0.5", "token_fi = 0.5"),
            "^token_fi",
            "[success] names the score 'token_fi', which none",
        ),
        (
            "R",
            ('"f1 >= 0.3" = { success = { token_f1', '"f1 >= 0.3" = { success = { retrieval'),
            "^.f1 >= 0.3",
            "claim R1, sensitivity 'f1 >= 0.3' names the score 'retrieval', which none of its tasks gives",
        ),
        (
            "R",
            ("to_budget = 0.5", "to_budget = 0.75"),
            "^parameters = .*0.75",
            "the parameter to_budget is 0.75, but",
        ),
        (
            "R",
            ('certificate_arm = "poisson"', 'certificate_arm = "x"'),
            "^certificate_arm",
            "certificate_arm is x, but",
        ),
        (
            "R",
            ('["words", "facts"]\narm', '["word", "facts"]\narm'),
            "^tasks",
            "[details] there is no task 'word'; did",
        ),
        (
            "R",
            ('arm = "poisson"\n', 'arm = "poison"\n'),
            "^arm = ",
            "[details] there is no arm 'poison'; did you mean",
        ),
        (
            "R",
            ('["certificate", "out', '["certainty", "out'),
            "^signals",
            "[details] there is no signal 'certainty'",
        ),
        (
            "R",
            ('"embedded-1k"]\nstop', '"embedded-1k", "embeded"]\nstop'),
            "^suites",
            "the grid has no suite 'embeded'",
        ),
        (
            "R",
            ('suites = ["embedded-2k"] }', 'suites = ["embedded-3k"] }'),
            "^.embedded-2k",
            "has no suite 'embedded-3k'",
        ),
        (
            "S",
            ("budgets = [0.125], label", "budgets = [0.1], label"),
            "^population.*0.1]",
            "it asks for budgets 0.1,",
        ),
        (
            "A",
            ("budgets = [0.125, 0.25, 0.5] }", "budgets = [0.2] }"),
            "^cells",
            "the cells selects nothing: it asks",
        ),
        ("A", ('["prose"], models', '["words"], models'), "^cells", "claim A1: the cells selects nothing"),
    ],
)
def test_what_the_grid_does_not_have_is_refused(tmp_path, embedded, name, change, line, message):
    path, found = changed(tmp_path, "embedded", name, change)
    lines = path.read_text().split("\n")
    number = next(n for n, text in enumerate(lines, start=1) if re.search(line, text))
    with pytest.raises(RegistrationError) as caught:
        lint_grid.check(found, embedded.shards, embedded.suites)
    assert str(caught.value).startswith(f"{path}:{number}: ")
    assert message in str(caught.value)


def test_a_population_on_a_suite_of_cells_selects_nothing(tmp_path, embedded):
    _, found = changed(
        tmp_path,
        "embedded",
        "R",
        (
            '"embedded-2k" = { population = { suites = ["embedded-2k"] } }',
            '"a" = { population = { suites = ["attention"] } }',
        ),
    )
    with pytest.raises(RegistrationError, match="readings 'a': the population selects nothing"):
        lint_grid.check(found, embedded.shards, embedded.suites)


def test_a_label_that_compares_needs_the_full_cache(embedded):
    found = load_folder(SHIPPED / "embedded", CLAIMS)
    made = []
    for shard in embedded.shards:
        arms = getattr(shard, "arms", None)
        if arms is None or shard.suite != "embedded-1k" or shard.task.name != "facts":
            made.append(shard)
            continue
        rest = [(conf, entry) for conf, entry in arms if conf.name != "full"]
        made.append(type(shard)(**{**vars(shard), "arms": rest}))
    message = "label induced_failure needs the full cache's rows, which suite embedded-1k lacks for smollm2"
    with pytest.raises(RegistrationError, match=message):
        lint_grid.check(found, made, embedded.suites)


def test_what_is_not_here_cannot_be_wrong(tmp_path, embedded):
    """A reading on an addendum's suite, while only the registration's own is here."""
    _, found = changed(
        tmp_path,
        "embedded",
        "R",
        ('suites = ["embedded-2k"] }', 'suites = ["embedded-2k"], tasks = ["unknown"] }'),
    )
    reg = {one.content.id: one for one in found}
    lint_grid.check([reg["R"]], embedded.of("embedded-1k"), embedded.suites)
    with pytest.raises(RegistrationError, match="'embedded-2k': the population selects nothing"):
        lint_grid.check([reg["R"]], embedded.shards, embedded.suites)


@pytest.mark.parametrize("name", ["ruler", "attention"])
def test_a_control_is_a_suite_without_context(tmp_path, paper, name):
    text = (SHIPPED / "paper" / "R.toml").read_text()
    text = text.replace('suites = ["6k", "no-context"]', f'suites = ["6k", "no-context", "{name}"]')
    (tmp_path / "R.toml").write_text(text.replace('control = "no-context"', f'control = "{name}"'))
    found = load_folder(tmp_path, CLAIMS)
    with pytest.raises(
        RegistrationError, match=rf"R.toml:\d+: \[details\] control '{name}' shows the context"
    ):
        lint_grid.check(found, paper.shards, paper.suites)


def test_details_need_answers(tmp_path, embedded):
    folder = tmp_path / "own"
    folder.mkdir()
    text = (SHIPPED / "embedded" / "R.toml").read_text()
    text = text[: text.index("[claim.R1]")].replace('["embedded-1k"]', '["attention"]') + "[claim]\n"
    (folder / "R.toml").write_text(text)
    with pytest.raises(
        RegistrationError, match=r"R.toml:\d+: \[details\] describes answers, but no suite has any"
    ):
        lint_grid.check(load_folder(folder, CLAIMS), embedded.shards, embedded.suites)
