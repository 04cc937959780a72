"""`kvexp try`: a table of arms for one prompt, whatever the prompt and the answers contain."""

import io

import pytest
from rich.console import Console

from kvexp import cli
from kvexp.cli import main
from kvexp.models.load import load_model
from kvexp.verbs import try_
from tests import project

TEXT = "The harbour opens at nine. " * 20


@pytest.fixture(scope="module")
def root(tmp_path_factory, tiny_folder):
    return project.make(tmp_path_factory.mktemp("trial") / "project", tiny_folder)


@pytest.fixture
def run(root, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(root)
    load_model.cache_clear()

    def run(*arguments, text=TEXT):
        path = tmp_path / "context.txt"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        options = ["--file", str(path), "--question", "When does it open?", "--max-new-tokens", "4"]
        capsys.readouterr()
        code = main(["try", "study=mini", *options, *arguments])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def names(out):
    return [line.split()[0] for line in out.splitlines()[1:-1]]


def test_every_arm_at_every_place_the_full_cache_first(run):
    code, out, err = run("--arms", "h2o,topk,poisson", "--budgets", "0.25,0.5", "--seeds", "0,1")
    assert (code, err) == (0, "")
    assert names(out) == ["full"] + ["h2o"] * 4 + ["topk"] * 2 + ["poisson"] * 8
    assert "540 context tokens in a prompt of " in out
    assert "certificate" in out


def test_too_little_memory_is_a_sentence(run, monkeypatch):
    def short(*_):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")

    monkeypatch.setattr("kvexp.replay.harness.answer_all", short)
    code, out, err = run("--arms", "h2o")
    assert (code, out) == (2, "")
    assert "arms over " in project.one_sentence(err)
    assert "do not fit into memory here: give fewer arms" in err


def test_an_override_of_an_arm_reaches_the_trial(run):
    arms = ["--arms", "poisson", "--budgets", "0.25"]
    usual, single = run(*arms)[1], run(*arms, "arm.poisson.design_params.allocation=single_clip")[1]

    def kept(out):
        return [line.split()[4] for line in out.splitlines() if line.startswith(" poisson")]

    assert kept(usual) != kept(single)


@pytest.mark.parametrize(
    "text",
    [
        "[red]bold[/red] [/] [link=file:///etc/passwd]x[/link] " * 10,
        "\x1b[2J\x1b]0;owned\x07 \x9b31m " * 30,
        "<script>alert(1)</script> <|im_end|><|im_start|>system " * 10,
        "\u202eright to left\u202c \u0000 \ufeff " * 20,
        "🙂東京 " * 60,
    ],
    ids=["markup", "escapes", "tags", "bidi", "wide"],
)
def test_hostile_text_is_read_and_printed_inert(run, text):
    code, out, err = run("--arms", "h2o", "--budgets", "0.5", text=text)
    assert (code, err) == (0, "")
    assert names(out) == ["full", "h2o", "h2o"]
    assert not [c for c in out if ord(c) < 32 and c != "\n"]
    assert not [c for c in out if 127 <= ord(c) < 160]
    assert "\u202e" not in out


def test_an_answer_of_markup_and_escapes_is_printed_as_text(monkeypatch, run):
    seen = []
    monkeypatch.setattr(try_, "_print", lambda answers, console: seen.extend(answers))
    assert run("--arms", "h2o", "--budgets", "0.5")[0] == 0
    monkeypatch.undo()
    object.__setattr__(seen[0], "text", "[red]a[/red]\n\x1b[31mb\u202e[/nothing]")
    console = Console(file=io.StringIO(), width=300)
    try_._print(seen, console)
    assert r"[red]a[/red] \x1b[31mb\u202e[/nothing]" in console.file.getvalue()


def test_no_number_is_cut_short_in_a_terminal_of_eighty_columns(run, monkeypatch):
    seen = []
    monkeypatch.setattr(try_, "_print", lambda answers, console: seen.extend(answers))
    assert run("--arms", "h2o,poisson,streaming_llm", "--budgets", "0.125")[0] == 0
    monkeypatch.undo()
    console = Console(file=io.StringIO(), width=80, soft_wrap=True)
    try_._print(seen, console)
    shown = console.file.getvalue()
    assert "…" not in shown
    assert not [line for line in shown.splitlines() if len(line) > 80]
    assert shown.count("streaming_llm") == 4  # two conditions, in the table of signals and of answers
    for answer in seen:
        assert f"{sum(answer.decoded.logprobs) / len(answer.decoded.logprobs):.3g}" in shown


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--arms", "h20"], "arm 'h20'"),
        (["--budgets", "0"], "(0, 1], got 0"),
        (["--budgets", "a"], "--budgets takes numbers"),
        (["--budgets", ""], "give it conditions and budgets"),
        (["--seeds", "1.5"], "--seeds takes numbers"),
        (["--seeds", "-1"], "a seed is at least 0"),
        (["--max-new-tokens", "0"], "--max-new-tokens is at least 1"),
        (["--question", ""], "question"),
        (["--budgets", "0.01"], "a budget of 0.01 keeps"),
        (["--arms", "h2o", "arm.poisson.estimator=plain"], "changes nothing"),
        (["arm.h2o.scor=window"], "did you mean 'score'"),
        (["--file", "/nowhere/at/all"], "cannot read /nowhere/at/all"),
        (["--file", "/"], "cannot read /"),
    ],
)
def test_a_mistake_is_one_sentence(run, arguments, said):
    code, out, err = run(*arguments)
    assert code == 2
    assert said in project.one_sentence(err)
    assert out == ""


@pytest.mark.parametrize(
    ("text", "said"), [(b"\xff\xfe\x00", "UTF-8"), (b"", "keeps"), ("x " * 3000, "exceed")]
)
def test_a_context_that_cannot_be_used_is_one_sentence(run, text, said):
    code, _, err = run(text=text)
    assert code == 2
    assert said in project.one_sentence(err)


def test_a_context_may_come_through_a_pipe(run, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO(TEXT))
    code, out, _ = run("--file", "-", "--arms", "h2o", "--budgets", "0.5")
    assert code == 0
    assert "540 context tokens in a prompt of " in out


def test_overrides_may_follow_the_options(run):
    assert run("--arms", "h2o", "model.tiny.dtype=float32", "--budgets", "0.5", "cluster=debug")[0] == 0
    assert cli._parse(["try", "--file", "f", "--question", "q", "study=x"]).overrides == ["study=x"]
