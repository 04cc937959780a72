"""`kvexp report`: what it runs, in which order, and which exit code wins."""

from types import SimpleNamespace

import pytest

from kvexp.cli import main
from kvexp.errors import IntegrityError
from tests import project


@pytest.fixture(scope="module")
def root(tmp_path_factory, tiny_folder):
    return project.make(tmp_path_factory.mktemp("report"), tiny_folder)


@pytest.fixture
def called(root, monkeypatch):
    """What is run, by name; `codes` says how it ends."""
    project.results(root).mkdir(parents=True, exist_ok=True)
    (project.results(root) / "grid.jsonl").touch()
    monkeypatch.chdir(root)
    done = SimpleNamespace(names=[], commands=[], codes={"analysis.render": 0, "analysis": 0}, verify=None)

    def verify(parsed, console):
        done.names.append("verify")
        done.again = (parsed.replay, parsed.decode, parsed.seed, parsed.json)
        if done.verify is not None:
            raise done.verify
        return 0

    def run(command, **_):
        done.names.append(command[2])
        done.commands.append(command[3:])
        return SimpleNamespace(returncode=done.codes[command[2]], stderr=f"{command[2]} failed\n")

    monkeypatch.setattr("kvexp.verbs.verify.run", verify)
    monkeypatch.setattr("kvexp.verbs.report.subprocess.run", run)
    return done


@pytest.mark.parametrize("words", [["mini"], ["study=mini"]])
def test_verify_then_answers_then_the_analysis(called, words, capsys):
    assert main(["report", *words]) == 0
    assert called.names == ["verify", "analysis.render", "analysis"]
    assert called.commands[0] == called.commands[1]
    assert called.commands[0][0] == "results/mini"
    assert capsys.readouterr().err == ""


def test_the_folder_of_registrations_is_passed_on(called, root):
    assert main(["report", "mini", "--registration", "claims"]) == 0
    assert called.commands == [["results/mini", "--registration", str(root / "claims")]] * 2


def test_what_evidence_shall_do_again_is_passed_on(called):
    assert main(["report", "mini", "--replay", "4", "--decode", "2", "--seed", "1"]) == 0
    assert called.again == (4, 2, 1, False)
    assert main(["report", "mini"]) == 0
    assert called.again == (None, None, None, False)


@pytest.mark.parametrize(("answers", "analysis", "code"), [(0, 3, 3), (1, 0, 1), (4, 4, 4), (0, 4, 4)])
def test_the_worst_code_wins_and_what_stops_both_is_said_once(called, capsys, answers, analysis, code):
    called.codes = {"analysis.render": answers, "analysis": analysis}
    assert main(["report", "mini"]) == code
    said = capsys.readouterr().err
    assert said == ("analysis.render failed\n" if answers and not analysis else "")


def test_evidence_that_fails_stops_no_page(called, capsys):
    called.verify = IntegrityError("a seal is broken", ["changed  R.toml\x1b[2J"])
    assert main(["report", "mini"]) == 4
    assert called.names == ["verify", "analysis.render", "analysis"]
    said = capsys.readouterr().err
    assert said.splitlines() == ["kvexp: a seal is broken", r"  changed  R.toml\x1b[2J"]


def test_a_study_that_never_started_is_one_sentence(called, root, capsys):
    (project.results(root) / "grid.jsonl").unlink()
    assert main(["report", "mini"]) == 3
    assert called.names == []
    assert len(capsys.readouterr().err.splitlines()) == 1
