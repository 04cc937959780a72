"""Registrations before a seal: the shipped ones are fit, every ambiguity is refused with its line."""

import hashlib
import os
import re
import shutil
from pathlib import Path

import pytest

from kvexp.ceremony.lint import registrations
from kvexp.documents.condition import State, verdict
from kvexp.documents.source import RegistrationError

ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "preregistration"
CLAIMS = ROOT / "analysis" / "claims"


def load_folder(folder):
    return registrations(folder, CLAIMS)


def load(path):
    return next(one for one in load_folder(path.parent) if one.path == path)


def edited(tmp_path, *changes, name="R", study="embedded"):
    """A shipped registration with literal replacements, each of which must apply."""
    text = (SHIPPED / study / f"{name}.toml").read_text()
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    path = tmp_path / f"{name}.toml"
    path.write_text(text)
    return path


CELLS, ANSWERS = ["A1", "A2", "A3"], ["R1", "R2", "R3", "R4", "S1", "S2", "S3"]


@pytest.mark.parametrize(
    ("study", "claims"),
    [("embedded", CELLS + ANSWERS), ("demo", CELLS + ANSWERS), ("paper", CELLS + ANSWERS), ("ablations", [])],
)
def test_the_shipped_registrations_load(study, claims):
    found = load_folder(SHIPPED / study)
    assert [claim for registered in found for claim in registered.content.claim] == claims
    parents = {registered.content.id: registered.content.parent for registered in found}
    assert parents.pop("S", "R") == "R"
    assert not any(parents.values())
    # The reference run was sealed before its examples were made; what else was seen stands in every note.
    known = {"before-creation"} if study == "embedded" else {"after-analysis"}
    assert {registered.content.existing_data for registered in found} == known


def test_the_claims_about_cells_are_the_same_in_every_study():
    found = {study: load(SHIPPED / study / "A.toml").content for study in STUDIES}
    assert {content.statistics for content in found.values()} == {found["paper"].statistics}
    for claim_id, kill in (("A1", "coverage < 0.85"), ("A2", "rho < 0.3"), ("A3", "difference > 0")):
        claims = {study: content.claim[claim_id] for study, content in found.items()}
        assert {(claim.kill, claim.support) for claim in claims.values()} == {(kill, None)}
        assert {claim.statement for claim in claims.values()} == {claims["paper"].statement}
        for study, (suite, model) in STUDIES.items():
            cells = claims[study].cells
            assert (cells.suites, cells.tasks, cells.models) == ([suite], ["prose"], [model])
            assert cells.budgets == [0.125, 0.25, 0.5]


STUDIES = {
    "paper": ("attention", "qwen2.5-1.5b"),
    "embedded": ("attention", "smollm2-135m"),
    "demo": ("demo-attention", "smollm2-135m"),
}


def test_the_demo_claims_what_embedded_claims():
    for name in ("R", "S"):
        embedded = load(SHIPPED / "embedded" / f"{name}.toml").content
        demo = load(SHIPPED / "demo" / f"{name}.toml").content
        assert demo.statistics == embedded.statistics
        for claim_id, claim in embedded.claim.items():
            other = demo.claim[claim_id]
            assert (other.kill, other.support) == (claim.kill, claim.support)
            assert other.quantities.keys() == claim.quantities.keys()
            assert other.population.label == claim.population.label


def test_the_paper_claims_what_embedded_claims_on_suites_models_and_tasks_of_its_own():
    for name in ("R", "S"):
        paper = load(SHIPPED / "paper" / f"{name}.toml").content
        embedded = load(SHIPPED / "embedded" / f"{name}.toml").content
        assert paper.statistics == embedded.statistics
        assert paper.success == {"token_f1": 0.5, "otherwise": 1.0}
        assert paper.claim.keys() == embedded.claim.keys()
        for claim_id, claim in paper.claim.items():
            other = embedded.claim[claim_id]
            assert (claim.statement[:30], claim.kill) == (other.statement[:30], other.kill)
            assert (claim.support is None) == (other.support is None)
            assert claim.quantities.keys() == other.quantities.keys()
            assert claim.sensitivity == other.sensitivity
            assert len(claim.readings) == len(other.readings)
            mine, theirs = claim.population, other.population
            assert (mine.label, mine.arms, mine.conditions) == (theirs.label, theirs.arms, theirs.conditions)
            assert mine.budgets == theirs.budgets
            assert mine.models == INSTRUCT


INSTRUCT = [
    "qwen2.5-1.5b-instruct",
    "qwen2.5-7b-instruct",
    "llama-3.1-8b-instruct",
    "mistral-7b-instruct-v0.3",
]


def test_three_of_the_papers_four_models_are_enough():
    registered = load(SHIPPED / "paper" / "R.toml")
    support = registered.question("R1").support
    for models, holds in ((2, False), (3, True), (4, True)):
        assert support.holds({"auc_pooled": Number(0.7), "models_above": Number(models)}) is holds


def test_the_paper_is_transcribed_without_dates():
    for name in ("A", "N", "R", "S"):
        text = (SHIPPED / "paper" / f"{name}.toml").read_text()
        assert 'existing_data = "after-analysis"' in text
        assert re.findall(r"20\d\d", text.replace("Randomized Design, 2026)", "")) == []


class Number:
    def __init__(self, value, lo=None, hi=None):
        self.value, self.lo, self.hi, self.n = value, lo, hi, 100


# Table 1, Appendix C and Table 3 of the paper, the R4 gains as its text describes them.
PAPER = {
    "R1": ({"auc_pooled": Number(0.555, 0.543, 0.568), "models_above": Number(4)}, State.KILLED),
    "R2": (
        {
            "strongest": Number(0.592, 0.58, 0.61),
            "visible": Number(0),
            "certificate": Number(0.645, 0.63, 0.66),
        },
        State.SURVIVED,
    ),
    "R2 induced": (
        {
            "strongest": Number(0.726, 0.71, 0.74),
            "visible": Number(3),
            "certificate": Number(0.855, 0.84, 0.87),
        },
        State.NOT_MET,
    ),
    "R3": ({"gain": Number(-0.004, -0.031, 0.025)}, State.NOT_MET),
    "R3 16k": ({"gain": Number(-0.038, -0.065, -0.010)}, State.KILLED),
    "R4": ({"aware": Number(-0.001, -0.004, 0.003), "stream": Number(0.001, -0.004, 0.006)}, State.KILLED),
    "S1": ({"rise": Number(-0.016)}, State.KILLED),
    "S2": ({"auc_pooled": Number(0.572, 0.562, 0.582)}, State.KILLED),
    "S3": ({"tax": Number(0.003)}, State.KILLED),
}


@pytest.mark.parametrize("study", ["paper", "embedded"])
@pytest.mark.parametrize("case", PAPER)
def test_the_papers_numbers_give_the_papers_states(case, study):
    claim_id = case.split()[0]
    registered = load(SHIPPED / study / f"{claim_id[0]}.toml")
    question = registered.question(claim_id)
    quantities, state = PAPER[case]
    kill = question.kill.holds(quantities)
    support = question.support.holds(quantities) if question.support else None
    assert verdict(kill, support, question.support is not None) is state


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            ('statement = "The certificate predicts', 'kil = "x"\nstatement = "The certificate predicts'),
            "claim R1: the table has the unknown key `kil`",
        ),
        (
            ('kill = "auc_pooled < 0.60"', 'kill = "auc_pooled < 0.60"\nkill = "auc_pooled < 0.5"'),
            " cannot be read: Cannot overwrite a value",
        ),
        (('kill = "auc_pooled < 0.60"', 'kill = "auc < 0.60"'), "'auc' is used but not declared"),
        (('support = "models_above >= 1"\n', ""), "'models_above' is declared but decides nothing"),
        (('kill = "auc_pooled < 0.60"', 'kill = "auc_pooled < "'), "not a complete expression"),
        (('kill = "auc_pooled < 0.60"', 'kill = "auc_pooled == 0.6"'), "not one comparison"),
        (
            ('support = "models_above >= 1"', 'support = "models_above.lo >= 1"'),
            "'models_above' is a count, without .lo",
        ),
        (("count = true", "count = 1"), "count"),
        (("range = [-1, 1]", "range = [1, -1]"), "two finite, rising numbers"),
        (("range = [-1, 1]", "range = [-1, inf]"), "gain.range[1]: inf is not a finite number"),
        (('label = "own_failure"', 'label = "failure"'), "failure"),
        (('arms = ["poisson"]', "arms = []"), "length"),
        (('id = "R"', 'id = "Q"'), "'Q' must be the file's name"),
        (("otherwise = 1.0", "other = 1.0"), "'otherwise'"),
        (("otherwise = 1.0", "otherwise = 1.5"), "success"),
        (("otherwise = 1.0", "otherwise = nan"), "success.otherwise: nan is not a finite"),
        (("otherwise = 1.0", "otherwise = inf"), "success"),
        (("{ token_f1 = 0.3 }", "{ token_f1 = -0.3 }"), "success"),
        (("q = 0.25,", "q = " + "9" * 5000 + ","), "cannot be read"),
        (("q = 0.25,", "q = " + "[" * 50_000 + "]" * 50_000 + ","), "cannot be read"),
        (("q = 0.25,", "q = 0.25, " + ".".join("a" * 20_000) + " = 1,"), "has more than 100 dots"),
        (('title = "Error', 'title = "' + "x" * 300_000), "is longer than 262,144 bytes"),
        (("range = [-1, 1]", "range = [-1, 1" + "0" * 400 + "]"), "claim R3: Number out of range"),
        (("level = 0.95", "level = 95"), "level"),
        (("draws = 500", "draws = 500\nseed = 1"), "seed"),
        (('existing_data = "before-creation"', 'existing_data = "none"'), "existing_data"),
        (('existing_data = "before-creation"\n', ""), "existing_data"),
        (("claim.R1", "claim.r-1"), "claim r-1: an id is a capital letter"),
        (
            ('{ tasks = ["words", "facts"] } }', '{ task = ["words"] } }'),
            "claim R4: a variant's population: the table has the unknown key `task`",
        ),
        (('{ kill = "aware <= 0 and', '{ kill = "awake <= 0 and'), "'awake' is used but not declared"),
    ],
)
def test_a_bad_registration_is_refused_in_one_sentence(tmp_path, change, message):
    path = edited(tmp_path, change)
    with pytest.raises(RegistrationError, match=re.escape(message)) as caught:
        load(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value).strip()


@pytest.mark.parametrize(
    ("name", "changes", "line", "message"),
    [
        (
            "R",
            [('kill = "auc_pooled < 0.60"', 'kill = "auc < 0.60"')],
            "^kill = .auc",
            "claim R1: 'auc' is used",
        ),
        ("R", [("range = [-1, 1]", "range = [1, -1]")], "^gain = ", "claim R3: the range of 'gain'"),
        (
            "R",
            [('label = "own_failure"', 'label = "x"')],
            "^population = ",
            "claim R1: Invalid enum value 'x'",
        ),
        (
            "R",
            [('kill_prose = "Killed if the output', 'prose = "')],
            "^prose",
            "claim R3: the table has the unknow",
        ),
        (
            "R",
            [("{ token_f1 = 0.3 }", "{ token_f1 = 3 }")],
            "^.f1 >= 0.3",
            "claim R1: Expected `float` <= 1.0",
        ),
        (
            "R",
            [('"aware <= 0 and', '"awake <= 0 and')],
            "^.point est",
            "claim R4, readings 'point estimates': 'awake'",
        ),
        ("R", [("draws = 500", "draws = 1")], "^draws", "Expected `int` >= 2"),
        ("R", [('title = "Error', 'titel = "Error')], "^titel", "the table has the unknown key `titel`"),
        (
            "R",
            [("{ tasks = [", "{ task = [")],
            "^.main tasks",
            "claim R4: a variant's population: the table has",
        ),
        ("R", [('id = "R"', 'id = "Q"')], "^id", "the id 'Q' must be the file's name"),
        (
            "R",
            [('{ population = { suites = ["embedded-2k"] } }', "{}")],
            "^.embedded-2k",
            "readings 'embedded-2k' cha",
        ),
        (
            "R",
            [('"words", "facts"]\narm', '"words", "words"]\narm')],
            "^tasks",
            "tasks of [details] lists 'words' mo",
        ),
        ("R", [("range = [0, 1], count", "range = [0, 1.5], count")], "^models_above", "two whole numbers"),
        (
            "A",
            [("[0.125, 0.25, 0.5]", "[0.25, 0.25]")],
            "^cells",
            "claim A1: budgets of the cells lists '0.25' more",
        ),
    ],
)
def test_a_message_names_the_line(tmp_path, name, changes, line, message):
    path = edited(tmp_path, *changes, name=name)
    lines = path.read_text().split("\n")
    number = next(n for n, text in enumerate(lines, start=1) if re.search(line, text))
    with pytest.raises(RegistrationError) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}:{number}: ")
    assert message in str(caught.value)


def test_a_message_about_a_folder_names_the_line(tmp_path):
    edited(tmp_path)
    path = edited(tmp_path, ("claim.S2", "claim.R2"), name="S")
    with pytest.raises(RegistrationError) as caught:
        load_folder(tmp_path)
    here = path.read_text().split("\n").index("[claim.R2]") + 1
    there = (tmp_path / "R.toml").read_text().split("\n").index("[claim.R2]") + 1
    assert str(caught.value) == f"{path}:{here}: claim R2 stands in {tmp_path / 'R.toml'}:{there} too"


@pytest.mark.parametrize(
    ("old", "key"),
    [
        ('existing_data = "before-creation"', "existing_data"),
        ('authors = ["the kvexp authors"]', "authors[0]"),
        ('title = "Error', "title"),
    ],
)
def test_a_file_that_is_not_filled_in_is_refused(tmp_path, old, key):
    blank = {"authors[0]": 'authors = ["FILL IN: your name"]'}.get(key, f'{key} = "FILL IN: words') + (
        '"' if old.endswith('"') else ""
    )
    path = edited(tmp_path, (old, blank))
    number = [text[:5] for text in path.read_text().split("\n")].index(old[:5]) + 1
    with pytest.raises(RegistrationError) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}:{number}: {key} is not filled in; it wants ")


def test_the_author_may_say_when_and_how_often(tmp_path):
    said = 'id = "R"\nregistrations_made = 2\nregistered_at = 2020-02-03T04:05:06+01:00'
    content = load(edited(tmp_path, ('id = "R"', said))).content
    assert content.registrations_made == 2
    assert content.registered_at.isoformat() == "2020-02-03T04:05:06+01:00"
    shipped = load(SHIPPED / "embedded" / "R.toml").content
    assert (shipped.registrations_made, shipped.registered_at) == (None, None)
    for odd, message in (
        ("registrations_made = 0", ":5: Expected `int` >= 1"),
        ("registered_at = 2020-02-03", ":5: Expected `datetime"),
        ("registered_at = 2020-02-03T04:05:06", ":5: Expected `datetime` with a timezone"),
        ('registered_at = "yesterday"', ":5: Invalid RFC3339 encoded datetime"),
    ):
        with pytest.raises(RegistrationError, match=re.escape(message)):
            load(edited(tmp_path, ('id = "R"', f'id = "R"\n{odd}')))


def test_parents_do_not_go_round(tmp_path):
    edited(tmp_path, ('id = "R"', 'id = "R"\nparent = "S"'))
    edited(tmp_path, name="S")
    with pytest.raises(RegistrationError, match=r"R.toml:5: its parents go round in a circle"):
        load_folder(tmp_path)


SPARE = "spare = { auc_pooled = 0.6, models_above = 1 }"
KILL = "kill = { auc_pooled = 0.59 }"
BOTH = "claim R4, readings 'point estimates': the witness row"


@pytest.mark.parametrize(
    ("changes", "line", "message"),
    [
        (
            [(KILL, "kill = { auc_pooled = 0.6 }")],
            "^kill = { auc",
            "does not fulfil the kill condition 'auc_",
        ),
        ([('"auc_pooled < 0.60"', '"auc_pooled < 0"')], "^kill = { auc", "row kill does not fulfil the kill"),
        ([('"auc_pooled < 0.60"', '"auc_pooled <= 1"')], "^spare = { auc", "row spare fulfils the kill"),
        (
            [(KILL, "kill = { auc_pooled = -0.1 }")],
            "^kill = { auc",
            "puts auc_pooled outside its range, 0 to 1",
        ),
        ([(KILL, "kill = { auc_pooled = { hi = 1.5, value = 0.5 } }")], "^kill = { auc", "outside its range"),
        (
            [(KILL, "kill = { auc_pooled = { value = 0.5, hi = 0.4 } }")],
            "^kill = { auc",
            "the witness row kill needs lo <= value <= hi of auc_pooled",
        ),
        ([(KILL, "kill = { auc_pooled = { lo = 0.5 } }")], "^kill = { auc", "it needs auc_pooled.value"),
        ([(KILL, "kill = { models_above = 1 }")], "^kill = { models", "does not decide the kill condition"),
        ([(KILL, "kill = { auc = 0.5 }")], "^kill = { auc = ", "names 'auc', which is not declared"),
        (
            [("models_above = 1 }", "models_above = 0 }")],
            "^spare = ",
            "give it a row of its own, witness.support",
        ),
        (
            [("models_above = 1 }", "models_above = 0.5 }")],
            "^spare = ",
            "needs a whole number for models_above",
        ),
        (
            [("models_above = 1 }", "models_above = { value = 1, hi = 2 } }")],
            "^spare = ",
            "needs a whole number for models_above, without an interval",
        ),
        (
            [(SPARE, f"{SPARE}\nsupport = {{ auc_pooled = 0.5, models_above = 1 }}")],
            "^support = { auc",
            "claim R1: the witness row support fulfils the kill condition",
        ),
        (
            [("[claim.R1.witness]", "[claim.R1.witness]\nother = { auc_pooled = 0.5 }")],
            "^other = { auc",
            "claim R1: the table has the unknown key `other`",
        ),
        (
            [(f"[claim.R1.witness]\n{KILL}\n{SPARE}\n", "")],
            r"^\[claim.R1\]",
            "claim R1: [claim.R1.witness] must show numbers that kill it and numbers that spare it",
        ),
        (
            [("kill = { aware = { value = 0.0, lo", "kill = { aware = { value = 0.01, lo")],
            r"^kill = { aware",
            f"{BOTH} kill does not fulfil the kill condition 'aware <= 0 and stream <= 0'",
        ),
        (
            [("spare = { aware = { value = 0.02, lo", "spare = { aware = { lo")],
            "^spare = { aware",
            f"{BOTH} spare does not decide the kill condition",
        ),
        (
            [('gain = { meaning = "paired', 'gain = { range = [-1, 1], meaning = "paired')],
            "^gain",
            "claim R3: the range of 'gain' is declared in the claim's file: leave it away here",
        ),
        (
            [("\ngain = { meaning", "\nlosses = { meaning")],
            "^losses",
            "claim R3: its file declares gain, and not 'losses'",
        ),
    ],
)
def test_witnesses_show_that_each_verdict_can_come_about(tmp_path, changes, line, message):
    path = edited(tmp_path, *changes, study="demo")
    number = next(n for n, text in enumerate(path.read_text().split("\n"), start=1) if re.search(line, text))
    with pytest.raises(RegistrationError) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}:{number}: ")
    assert message in str(caught.value)


def test_a_support_and_a_variant_may_have_witnesses_of_their_own(tmp_path):
    supported = (SPARE, "spare = { auc_pooled = 0.6 }\nsupport = { auc_pooled = 0.9, models_above = 1 }")
    load(edited(tmp_path, supported, study="demo"))
    table, low = "[claim.R1.sensitivity]\n", '"low" = { kill = "auc_pooled < 0.1" }\n'
    path = edited(tmp_path, (table, table + low), study="demo")
    with pytest.raises(RegistrationError, match="claim R1, sensitivity 'low': the witness row kill does not"):
        load(path)
    text = path.read_text()
    own = "witness = { kill = { auc_pooled = 0.05 }, spare = { auc_pooled = 0.2, models_above = 1 } }"
    path.write_text(text.replace('"auc_pooled < 0.1"', f'"auc_pooled < 0.1", {own}'))
    load(path)


def test_the_first_format_has_ranges_and_no_witnesses(tmp_path):
    path = edited(
        tmp_path, ("[claim.R1.quantities]", f"[claim.R1.witness]\n{KILL}\n{SPARE}\n[claim.R1.quantities]")
    )
    with pytest.raises(RegistrationError, match="claim R1: kvexp-registration/1 has no witnesses"):
        load(path)
    path = edited(tmp_path, (", range = [-1, 1]", ""))
    with pytest.raises(RegistrationError, match="claim R3: 'gain' lacks the key `range`"):
        load(path)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("", "r1.py declares no ranges: add QUANTITIES = "),
        ("QUANTITIES = {'auc_pooled': print()}", "r1.py: QUANTITIES cannot be read"),
        ("QUANTITIES = {'auc_pooled': (0, 1, 2)}", "r1.py: QUANTITIES cannot be read"),
        ("QUANTITIES = {'auc_pooled': 'many'}", "r1.py: QUANTITIES cannot be read"),
        ("QUANTITIES = {", "r1.py: QUANTITIES cannot be read"),
        (
            "raise SystemExit\nQUANTITIES = {'auc_pooled': (0, 1)}",
            "R1: its file declares auc_pooled, and not",
        ),
        (
            "QUANTITIES = {'auc_pooled': (1, 0), 'models_above': 'count'}",
            "must be two finite, rising numbers",
        ),
    ],
)
def test_ranges_are_read_from_the_claims_file_which_is_not_run(tmp_path, body, message):
    claims = tmp_path / "claims"
    shutil.copytree(CLAIMS, claims)
    (claims / "r1.py").write_text(body)
    with pytest.raises(RegistrationError, match=re.escape(message)):
        registrations(SHIPPED / "demo", claims)


def test_a_new_line_in_the_second_format_moves_no_seed(tmp_path):
    """The bytes of a file key the seeds of the first format alone."""
    for study, moves in (("embedded", True), ("demo", False)):
        old, new = (
            load(edited(tmp_path, *changes, study=study)) for changes in ((), [("statement", " statement")])
        )
        assert (old.seed("R1") != new.seed("R1")) is moves
        assert old.seed("R1") != old.seed("R2")


def test_a_pipe_is_no_registration(tmp_path):
    os.mkfifo(tmp_path / "R.toml")
    with pytest.raises(RegistrationError, match="is not a regular file"):
        load_folder(tmp_path)


def test_a_claim_needs_its_file(tmp_path):
    edited(tmp_path)
    claims = tmp_path / "claims"
    shutil.copytree(CLAIMS, claims)
    (claims / "r3.py").unlink()
    with pytest.raises(RegistrationError, match="claim R3 has no file"):
        registrations(tmp_path, claims)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ([('parent = "R"\n', "")], "S1 decides on 'embedded-1k', which neither"),
        ([('parent = "R"', 'parent = "Q"')], "parent 'Q' is not in this folder"),
        ([('parent = "R"', 'parent = "S"')], "parent 'S' is not in this folder"),
        ([("claim.S2", "claim.R2")], "claim R2 stands in"),
        (
            [('suites = ["embedded-2k"]\nstopping', 'suites = ["embedded-1k"]\nstopping')],
            "suite embedded-1k stands",
        ),
    ],
)
def test_files_of_a_study_fit_together(tmp_path, changes, message):
    edited(tmp_path)
    edited(tmp_path, *changes, name="S")
    with pytest.raises(RegistrationError, match=re.escape(message)):
        load_folder(tmp_path)


def test_an_empty_or_absent_folder_is_an_error(tmp_path):
    with pytest.raises(RegistrationError, match="holds no registration"):
        load_folder(tmp_path)
    with pytest.raises(RegistrationError, match="is not a folder"):
        load_folder(tmp_path / "absent")


def test_a_variant_changes_what_it_names_and_nothing_else():
    registered = load(SHIPPED / "embedded" / "R.toml")
    own = registered.question("R4")
    claim = registered.content.claim["R4"]
    other = registered.question("R4", claim.readings["q = 0.9"])
    assert other.parameters == {**own.parameters, "q": 0.9}
    assert (other.population, other.success, other.seed) == (own.population, own.success, own.seed)
    reading = registered.question("R4", claim.readings["main tasks only"])
    assert reading.population.tasks == ["words", "facts"]
    assert reading.population.budgets == own.population.budgets
    assert registered.question("R1", claim.sensitivity["f1 >= 0.3"]).success["token_f1"] == 0.3


def test_seeds_depend_on_the_file_and_the_claim(tmp_path):
    """In the first format: the sha256 of the file and the claim's id."""
    registered = load(SHIPPED / "embedded" / "R.toml")
    digest = hashlib.sha256((SHIPPED / "embedded" / "R.toml").read_bytes()).hexdigest()
    expected = hashlib.sha256(f"{digest} R1".encode()).digest()[:16]
    assert registered.question("R1").seed == registered.seed("R1") == int.from_bytes(expected, "big")


# ------------------------------------------------------------------ claims about cells


COVERAGE = 'cells = { suites = ["attention"], tasks = ["prose"], models = ["smollm2-135m"], '
READING = '"at 25 %" = { cells = { budgets = [0.25] } }'
POPULATION = 'population = { suites = ["a"], tasks = ["t"], arms = ["x"], label = "success" }\n'


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ((COVERAGE, POPULATION + COVERAGE), "claim A1 has a population, so [details] is needed"),
        (("cells = { suites", "cels = { suites"), "claim A1: the table has the unknown key `cels`"),
        (('"attention"], tasks = ["prose"], models', '"attention"], models'), "lacks the key `tasks`"),
        (("budgets = [0.125, 0.25, 0.5] }", "budgets = [] }"), "length"),
        (("budgets = [0.125, 0.25, 0.5] }", "budgets = [12.5] }"), "claim A1: "),
        (('["prose"], models', '["prose"], arms = ["poisson"], models'), "unknown key `arms`"),
        (("[0.25] } }", "[0.25], arms = [] } }"), "a variant's cells: the table has the unknown key `arms`"),
        (
            (READING, '"at 25 %" = { population = { budgets = [0.25] } }'),
            "claim A1, readings 'at 25 %' changes the population of a claim about cells",
        ),
        (
            (READING, '"at 25 %" = { success = { token_f1 = 0.3 } }'),
            "claim A1, readings 'at 25 %' changes a threshold of success",
        ),
        (('"rho < 0.3"', '"r < 0.3"'), "'r' is used but not declared"),
        (("\n[claim.A1]\n", "\n[details]\ntasks = [1]\n[claim.A1]\n"), "details"),
        (
            (
                'cells = { suites = ["attention"], tasks',
                'cells = { suites = ["attention", "attention"], tasks',
            ),
            "claim A1: suites of the cells lists 'attention' more than once",
        ),
        (
            ("budgets = [0.125, 0.25, 0.5] }", "budgets = [0.25, 0.5, 0.250] }"),
            "claim A1: budgets of the cells lists '0.25' more than once",
        ),
        (
            (READING, '"at 25 %" = { cells = { tasks = ["prose", "prose"] } }'),
            "claim A1, readings 'at 25 %': tasks of the cells lists 'prose' more than once",
        ),
    ],
)
def test_a_bad_registration_of_cells_is_refused_in_one_sentence(tmp_path, change, message):
    path = edited(tmp_path, change, name="A")
    with pytest.raises(RegistrationError, match=re.escape(message)) as caught:
        load(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value).strip()


def test_a_claim_is_about_a_population_or_about_cells(tmp_path):
    population = 'population = { suites = ["embedded-1k"], tasks = ["words", "facts"], arms = ["poisson"], '
    cells = 'cells = { suites = ["attention"], tasks = ["prose"] }\n'
    both = edited(tmp_path, (f'{population}label = "own', f'{cells}{population}label = "own'))
    neither = edited(tmp_path, ("\ncells = {", "\n# cells = {"), name="A")
    one_of_two = {both: "both a population and cells", neither: "neither a population nor cells"}
    for path, words in one_of_two.items():
        (tmp_path / words).mkdir()
        path = path.rename(tmp_path / words / path.name)
        with pytest.raises(RegistrationError, match=f"claim .1 has {words}"):
            load(path)


def test_a_population_names_nothing_twice(tmp_path):
    path = edited(tmp_path, ('tasks = ["words", "facts"], arms', 'tasks = ["words", "facts", "words"], arms'))
    with pytest.raises(RegistrationError, match="tasks of the population lists 'words' more than once"):
        load(path)


def test_a_variant_of_a_population_has_no_cells(tmp_path):
    path = edited(
        tmp_path, ('{ population = { suites = ["embedded-2k"] } }', "{ cells = { budgets = [0.5] } }")
    )
    with pytest.raises(RegistrationError, match="claim R3, readings 'embedded-2k' changes the cells of a"):
        load(path)


def test_a_claim_about_cells_decides_on_its_own_suites(tmp_path):
    edited(tmp_path, ('\nsuites = ["attention"]', '\nsuites = ["detention"]'), name="A")
    with pytest.raises(RegistrationError, match="claim A1 decides on 'attention', which neither"):
        load_folder(tmp_path)


def test_a_variant_changes_the_cells_that_it_names_and_nothing_else():
    registered = load(SHIPPED / "embedded" / "A.toml")
    own = registered.question("A1")
    other = registered.question("A1", registered.content.claim["A1"].readings["at 25 %"])
    assert own.population is None
    assert own.cells.budgets == [0.125, 0.25, 0.5]
    assert other.cells.budgets == [0.25]
    assert (other.cells.suites, other.cells.models) == (own.cells.suites, own.cells.models)
    assert (other.seed, other.statistics) == (own.seed, own.statistics)


def test_details_and_thresholds_are_needed_by_generations_alone(tmp_path):
    text = (SHIPPED / "embedded" / "R.toml").read_text()
    head, claims = text.split("[success]")[0], text[text.index("[claim.R1]") :]
    (tmp_path / "R.toml").write_text(head + claims)
    with pytest.raises(RegistrationError, match=r"claim R1 has a population, so \[details\] is needed"):
        load(tmp_path / "R.toml")
    details = text[text.index("[details]") : text.index("[claim.R1]")]
    (tmp_path / "R.toml").write_text(head + details + claims)
    with pytest.raises(RegistrationError, match=r"\[success\] needs 'otherwise'"):
        load(tmp_path / "R.toml")
    (tmp_path / "R.toml").write_text(head + "[claim]\n")
    assert load(tmp_path / "R.toml").content.claim == {}
    (tmp_path / "R.toml").write_text(head)
    with pytest.raises(RegistrationError, match="the table lacks the key `claim`"):
        load(tmp_path / "R.toml")


# ------------------------------------------------------------------ the control


CONTROL = 'arm = "poisson"\nsignals'


def with_control(tmp_path, suite, name, *, suites=None):
    changes = [(CONTROL, f'control = "{suite}"\n{CONTROL}')]
    if suites is not None:
        changes.append(('\nsuites = ["embedded-1k"]', f"\nsuites = {suites}"))
    return edited(tmp_path, *changes, name=name)


@pytest.mark.parametrize("name", ["R", "S"])
def test_a_control_is_a_suite_of_the_registration_or_its_parent(tmp_path, name):
    edited(tmp_path, ('\nsuites = ["embedded-1k"]', '\nsuites = ["embedded-1k", "bare"]'))
    edited(tmp_path, name="S")
    suites = '["embedded-1k", "bare"]' if name == "R" else None
    with_control(tmp_path, "bare", name, suites=suites)
    found = {one.content.id: one.content for one in load_folder(tmp_path)}
    assert found[name].details.control == "bare"
    assert found["S" if name == "R" else "R"].details.control is None


@pytest.mark.parametrize("suite", ["nowhere", "embedded-2k"])
def test_a_control_elsewhere_is_refused(tmp_path, suite):
    """R may not look into S, its descendant."""
    with_control(tmp_path, suite, "R")
    edited(tmp_path, name="S")
    message = f"[details] control '{suite}' is no suite that this registration or its parent lists"
    with pytest.raises(RegistrationError, match=re.escape(message)) as caught:
        load_folder(tmp_path)
    assert "R.toml" in str(caught.value)


@pytest.mark.parametrize("name", ["R", "S"])
def test_a_control_is_no_suite_that_a_claim_decides_on(tmp_path, name):
    edited(tmp_path)
    edited(tmp_path, name="S")
    path = with_control(tmp_path, "embedded-1k", name)
    with pytest.raises(RegistrationError) as caught:
        load_folder(tmp_path)
    line = path.read_text().split("\n").index('control = "embedded-1k"') + 1
    decides = {"R": "R1", "S": "S1"}[name]
    words = f"[details] control 'embedded-1k' is a suite that claim {decides} decides on"
    assert str(caught.value).startswith(f"{path}:{line}: {words}")


def test_a_control_is_a_name(tmp_path):
    path = edited(tmp_path, (CONTROL, f'control = ["a"]\n{CONTROL}'))
    with pytest.raises(RegistrationError, match=r"Expected `str \| null`, got `array`"):
        load(path)
