"""The command: exit codes, sentences, pipes, and answers before anyone has to wait."""

import json
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from kvexp import cli
from kvexp.cli import main
from kvexp.errors import IncompleteError, InputError, IntegrityError, printable
from kvexp.study.words import with_study
from tests import project

HINT = f"{cli.TRACEBACK}=1 shows all"
VERBS = ("plan", "submit", "status", "verdicts", "try")


@pytest.fixture(scope="module")
def root(tmp_path_factory, tiny_folder):
    return project.make(tmp_path_factory.mktemp("cli") / "project", tiny_folder)


def test_help_names_every_verb_and_is_fast(tmp_path):
    start = time.monotonic()
    run = project.kvexp(tmp_path, "--help")
    seconds = time.monotonic() - start
    assert run.returncode == 0
    assert not [verb for verb in VERBS if verb not in run.stdout]
    assert seconds < 30
    loaded = subprocess.run(
        [sys.executable, "-c", "import kvexp.cli, sys; print(*sys.modules)"], capture_output=True, text=True
    ).stdout.split()
    assert not {"torch", "transformers", "hydra", "submitit", "numpy"} & set(loaded)


@pytest.mark.parametrize("arguments", [[], ["explode"], ["plan", "--jsn"], ["try"], ["try", "--file"]])
def test_usage_is_two(arguments, capsys):
    assert main(arguments) == 2
    project.one_sentence(capsys.readouterr().err)


def test_overrides_may_stand_on_both_sides_of_an_option():
    parsed = cli._parse(["plan", "study=demo", "--json", "suite=demo-512", "task=words"])
    assert parsed.overrides == ["study=demo", "suite=demo-512", "task=words"]
    assert parsed.json


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (InputError("no model"), 2, "kvexp: no model"),
        (IncompleteError("half"), 3, "kvexp: half"),
        (IntegrityError("foreign\n\x1b[31mline"), 4, r"kvexp: foreign\n\x1b[31mline"),
        (KeyError("a bug"), 1, f"kvexp: internal error: KeyError: 'a bug' (at {__file__}:65; {HINT})"),
        (PermissionError(13, "Permission denied", "/x"), 2, "kvexp: /x: Permission denied"),
        (KeyboardInterrupt(), 130, "kvexp: interrupted; what is on disk stays, submit again to continue"),
        (BrokenPipeError(), 0, ""),
    ],
)
def test_every_end_has_its_code_and_its_sentence(root, monkeypatch, capfd, error, code, said):
    def verb(_parsed, _console):
        raise error

    monkeypatch.setattr("kvexp.verbs.plan.run", verb)
    monkeypatch.chdir(root)
    assert main(["plan"]) == code
    assert capfd.readouterr().err.strip() == said


def test_a_traceback_can_be_asked_for(monkeypatch):
    def verb(_parsed, _console):
        raise KeyError("a bug")

    monkeypatch.setattr("kvexp.verbs.plan.run", verb)
    monkeypatch.setenv("KVEXP_TRACEBACK", "1")
    with pytest.raises(KeyError):
        main(["plan"])


def test_the_real_command_from_below_the_root_into_a_pipe_that_closes(root):
    command = " ".join(project.command("plan", "study=mini", "--json"))
    run = subprocess.run(
        ["bash", "-o", "pipefail", "-c", f"{command} | head -c 1"],
        cwd=root / "conf" / "arm",
        env=project.environment(),
        capture_output=True,
        text=True,
    )
    assert (run.returncode, run.stdout, run.stderr) == (0, "{", "")


def test_the_study_is_the_first_bare_word_or_said_by_its_name():
    for verb in ("plan", "fetch", "submit", "status", "verdicts"):
        for words in (["demo", "suite=x"], ["suite=x", "demo"], ["study=demo", "suite=x"]):
            assert with_study(cli._parse([verb, *words]).overrides) == ["study=demo", "suite=x"]
    assert with_study(cli._parse(["plan", "suite=x"]).overrides) == ["suite=x"]
    assert with_study(["study=demo", "demo"]) == ["study=demo", "demo"]  # refused later
    for verb in ("seal", "stamp", "lock", "verify", "amend"):
        assert with_study(cli._parse([verb, "demo", "R"]).overrides) == ["study=demo", "R"]


@pytest.mark.parametrize(
    ("verb", "words"),
    [
        ("submit", "STUDY [OVERRIDE ...]"),
        ("seal", "STUDY [ID ...]"),
        ("stamp", "STUDY [ID or SUITE ...]"),
        ("lock", "STUDY [SUITE ...]"),
        ("amend", "STUDY ID --why TEXT"),
    ],
)
def test_help_says_what_is_named_after_the_verb(verb, words, capsys):
    with pytest.raises(SystemExit):
        main([verb, "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert f"usage: kvexp {verb} {words}" in shown
    assert "STUDY or study=STUDY" in shown


def test_verdicts_pass_on_what_the_analysis_says(root):
    """A copy without the analysis: the command must neither hide that nor invent a verdict."""
    project.results(root).mkdir(parents=True, exist_ok=True)
    (project.results(root) / "grid.jsonl").touch()
    run = project.kvexp(root, "verdicts", "study=mini")
    assert run.returncode not in (0, 3)
    assert "SURVIVED" not in run.stdout


def test_the_folder_of_registrations_is_passed_on(root, monkeypatch):
    """As the user's own folder means it: the analysis runs in the project's."""
    project.results(root).mkdir(parents=True, exist_ok=True)
    (project.results(root) / "grid.jsonl").touch()
    monkeypatch.chdir(root / "conf")
    called = []
    monkeypatch.setattr(
        "kvexp.verbs.verdicts.subprocess.run",
        lambda command, **_: called.append(command) or SimpleNamespace(returncode=3),
    )
    assert main(["verdicts", "study=mini", "--registration", "claims"]) == 3
    assert called[0][2:] == ["analysis", "results/mini", "--registration", str(root / "conf/claims")]
    assert main(["verdicts", "mini", "--blind"]) == 3
    assert called[1][2:4] == ["analysis", "results/mini"]
    assert "--blind" in called[1]
    assert "--blind" not in called[0]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain [red]text[/red] <script>", "plain [red]text[/red] <script>"),
        ("\x1b[31mred\x1b]0;title\x07", r"\x1b[31mred\x1b]0;title\x07"),
        ("a\r\nb\tc\x00\x7f\x9b2J", r"a\r\nb\tc\x00\x7f\x9b2J"),
        ("right\u202eleft\u200b\ufeff", r"right\u202eleft\u200b\ufeff"),
        ("line\u2028para\u2029", r"line\u2028para\u2029"),
        ("half \ud83d", r"half \ud83d"),
        ("übung 東京 😀 é", "übung 東京 😀 é"),
    ],
)
def test_text_of_unknown_origin_is_inert(text, shown):
    assert printable(text) == shown


def test_json_has_no_colour_and_no_wrapping_whatever_the_terminal(root, monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.chdir(root)
    assert main(["plan", "study=mini", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["study"] == "mini"
