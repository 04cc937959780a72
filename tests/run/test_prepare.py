"""What stands in a results folder before anything runs."""

import shutil

import pytest

import kvexp.run.prepare
from kvexp.errors import IncompleteError, IntegrityError
from kvexp.records import Example, Expected, Reader
from kvexp.run.prepare import write_examples, write_grid
from kvexp.study.results import GRID
from tests import project, tiny


@pytest.fixture(scope="module")
def root(tmp_path_factory, tiny_folder):
    return project.make(tmp_path_factory.mktemp("prepare") / "project", tiny_folder)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "results" / "mini"


def prepare(folder, root, *overrides):
    selection = project.selected(root, *overrides)
    write_grid(folder, project.shards(selection))
    write_examples(folder, project.shards(selection), lambda name: tiny.tokenizer())


def begin(folder):
    shard = folder / "mini" / "mini.tiny.words.000"
    shard.mkdir(parents=True)
    (shard / "attempt-001.json").write_text("{}")


def contents(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_the_grid_is_every_row_in_order(folder, root):
    prepare(folder, root)
    read = Reader[Expected](Expected)
    rows = [read(line) for line in (folder / GRID).read_bytes().splitlines()]
    assert rows == [row for shard in project.made(root) for row in shard.expected()]
    assert len(rows) == 2 * project.ROWS


def test_an_example_says_what_was_asked_and_how_long_it_is(folder, root):
    prepare(folder, root)
    read = Reader[Example](Example)
    examples = [read(line) for line in (folder / "examples/mini.tiny.words.jsonl").read_bytes().splitlines()]
    assert [e.example_id for e in examples] == [f"3-{n:03d}" for n in range(4)]
    for example in examples:
        assert example.question.startswith("What is the secret word for ")
        assert len(example.references) == 1
        assert example.model == "tiny"
        assert example.n_prompt > example.n_context == example.n_context_full > 256
        assert (example.truncated, example.answer_survives, example.difference) == (False, True, "")
        assert len(example.needle_depths) == len(example.needle_tokens) == 3
        assert set(example.segments) == {"before", "context", "after", "answer_prefix"}


def test_preparing_again_writes_nothing_and_loads_no_tokenizer(folder, root):
    prepare(folder, root)
    begin(folder)
    before = contents(folder)
    selection = project.selected(root)
    write_grid(folder, project.shards(selection))
    write_examples(folder, project.shards(selection), lambda name: pytest.fail("a tokenizer was loaded"))
    assert contents(folder) == before


def test_questions_that_hold_are_not_made_again_until_something_changes(folder, root, monkeypatch):
    made = project.made(root)
    monkeypatch.setenv("KVEXP_CACHE", str(folder / "cache"))
    made_anew = []
    real = kvexp.run.prepare._questions
    monkeypatch.setattr(kvexp.run.prepare, "_questions", lambda *words: made_anew.append(1) or real(*words))
    load = lambda name: tiny.tokenizer()  # noqa: E731
    write_examples(folder, made, load)
    write_examples(folder, made, load)
    assert len(made_anew) == 1
    (path,) = (folder / "examples").iterdir()
    kept = path.read_bytes()
    shutil.rmtree(folder / "cache")
    write_examples(folder, made, load)  # nothing is remembered: compared, and remembered
    write_examples(folder, made, load)
    assert len(made_anew) == 2
    write_examples(folder, project.made(root, "suite.example_seed=4"), load)
    assert len(made_anew) == 3
    assert path.read_bytes() != kept
    write_examples(folder, made, load)
    path.write_bytes(kept.replace(b'"references":["', b'"references":["x', 1))
    write_examples(folder, made, load)
    assert len(made_anew) == 5
    assert path.read_bytes() == kept


@pytest.mark.parametrize(
    "override", ["suite.n_examples=3", "suite.example_seed=9", "suite.arms=[{arm: full}]"]
)
def test_a_begun_study_keeps_its_grid(folder, root, override):
    prepare(folder, root)
    begin(folder)
    before = contents(folder)
    said = r"grid\.jsonl expects other rows of suite mini .*study\.name=NAME"
    with pytest.raises(IntegrityError, match=said):
        prepare(folder, root, override)
    assert contents(folder) == before


@pytest.mark.parametrize("override", ["suite.context_tokens=300", "task.words.params.n_facts=2"])
def test_a_begun_study_keeps_its_examples(folder, root, override):
    """Ids do not show these changes; the words of the questions do."""
    prepare(folder, root)
    begin(folder)
    before = contents(folder)
    with pytest.raises(IntegrityError, match="holds other examples than this configuration"):
        prepare(folder, root, override)
    assert contents(folder) == before


@pytest.mark.parametrize("override", ["suite.n_examples=3", "suite.context_tokens=300"])
def test_until_something_has_run_the_plan_may_change(folder, root, override):
    prepare(folder, root)
    before = contents(folder)
    prepare(folder, root, override)
    after = contents(folder)
    assert after.keys() == before.keys()
    assert after["examples/mini.tiny.words.jsonl"] != before["examples/mini.tiny.words.jsonl"]


@pytest.mark.parametrize("body", [b"", b"garbage\n", b"\x00\xff" * 100])
@pytest.mark.parametrize("name", [GRID, "examples/mini.tiny.words.jsonl"])
def test_a_broken_file_is_not_taken_for_ours(folder, root, name, body):
    prepare(folder, root)
    whole = contents(folder)
    (folder / name).write_bytes(body)
    begin(folder)
    with pytest.raises(IntegrityError, match=r"other (rows|examples)|no line of a grid"):
        prepare(folder, root)
    (folder / name).write_bytes(whole[name])
    prepare(folder, root)


def test_a_file_in_place_of_the_folder_is_a_sentence(folder, root):
    folder.parent.mkdir(parents=True)
    folder.write_text("in the way")
    with pytest.raises(IncompleteError, match=r"cannot write to .*mini \(File exists\)"):
        prepare(folder, root)
    assert folder.read_text() == "in the way"


def test_a_link_that_leads_to_itself_is_a_sentence(folder, root):
    folder.parent.mkdir(parents=True)
    folder.symlink_to(folder)
    with pytest.raises(IncompleteError, match="cannot write to"):
        prepare(folder, root)
