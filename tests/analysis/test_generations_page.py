"""generations.html as text: it holds what is logged and counts, with the outcomes of the registration."""

import base64
import json
import re
import shutil
import zlib

import pytest

from analysis import __main__ as run
from analysis.render import __main__ as pages
from analysis.render.generations import is_stale
from kvexp import records
from tests import hostile, planted
from tests.analysis import sealing
from tests.analysis.test_report import Page
from tests.planted import LONG, SHORT

SIGNALS = records.SIGNALS
THRESHOLDS = {"token_f1": 0.5}


@pytest.fixture(scope="module")
def texted(tmp_path_factory):
    """A study whose texts mean harm, and the same study's registrations."""
    folder = tmp_path_factory.mktemp("texted")
    (folder / "none").mkdir()
    return hostile.folder(folder, folder / "none")[0]


@pytest.fixture
def study(texted, tmp_path):
    return shutil.copytree(texted, tmp_path / "embedded")


@pytest.fixture
def make(quick, capsys):
    """A function that writes the page and returns what is packed in it."""

    def call(folder, registration=quick, code=0, said=""):
        assert pages.main([str(folder), "--registration", str(registration)]) == code
        out, err = capsys.readouterr()
        assert said in err
        return unpacked((folder / "generations.html").read_text()) if code == 0 else out

    return call


def unpacked(text):
    packed = re.search(
        r'<script type="application/x-deflate-base64" id="data">([A-Za-z0-9+/=]*)</script>', text
    )
    return json.loads(zlib.decompress(base64.b64decode(packed[1])))


def logged(folder, pattern="*/*"):
    return [
        records.Reader(records.Generation)(line)
        for log in sorted(folder.glob(f"{pattern}/generations.jsonl"))
        for line in log.read_bytes().splitlines()
    ]


def shown(data):
    """Rows of the page by key, as the browser puts them together."""
    found, asked, rows = {}, data["questions"], data["rows"]
    for question, key in enumerate(
        zip(*(asked[n] for n in ("suite", "model", "task", "example_id")), strict=True)
    ):
        for at in range(asked["start"][question], asked["start"][question + 1]):
            place = data["places"][rows["place"][at]]
            number = asked["question"][question]
            found[records.Key(*key, *place)] = {
                "text": data["texts"][rows["text"][at]],
                "outcome": data["outcomes"][rows["outcome"][at]],
                "signals": [rows[name][at] for name in SIGNALS],
                "undefined": data["why"][rows["why"][at]],
                "question": None if number is None else data["texts"][number],
                "references": [data["texts"][one] for one in asked["references"][question]],
                "is_first": at == asked["start"][question],
            }
    return found


def outcome(row, full):
    """Of one row, the slow way."""
    own, other = (one.score_value >= THRESHOLDS.get(one.score_name, 1.0) for one in (row, full))
    if row.arm == "full":
        return "correct" if own else "failure"
    if own:
        return "correct" if other else "rescued"
    return "induced failure" if other else "inherent failure"


def test_every_row_is_what_was_logged(study, make):
    rows = logged(study)
    full = {row.key[:4]: row for row in rows if row.arm == "full"}
    found = shown(make(study))
    assert found.keys() == {row.key for row in rows}
    asked = {}
    for path in (study / "examples").iterdir():
        for line in path.read_bytes().splitlines():
            one = records.Reader(records.Example)(line)
            asked[one.suite, one.model, one.task, one.example_id] = one
    outcomes = set()
    for row in rows:
        one = found[row.key]
        assert one["text"] == row.text
        assert one["outcome"] == outcome(row, full[row.key[:4]])
        assert one["undefined"] == row.undefined
        for name, value in zip(SIGNALS, one["signals"], strict=True):
            logged_value = getattr(row, name)
            assert value == (None if logged_value is None else pytest.approx(logged_value, rel=5.1e-4))
        assert (one["question"], one["references"]) == (
            asked[row.key[:4]].question,
            asked[row.key[:4]].references,
        )
        assert one["is_first"] == (row.arm == "full")
        outcomes.add(one["outcome"])
    assert outcomes == {"correct", "failure", "rescued", "induced failure", "inherent failure"}


def test_the_page_is_inert_as_text(study, make):
    make(study)
    text = (study / "generations.html").read_text()
    page = Page(text)
    assert not [a for _, a, _ in page.elements if any(name.startswith("on") for name in a)]
    assert {t for t, *_ in page.elements} & {"img", "iframe", "svg", "object"} == set()
    assert all(not a.get("src") for _, a, _ in page.elements)
    assert {a.get("href") for _, a, _ in page.elements} == {None, "#list", "report.html"}
    assert "pwned" not in text  # whatever comes from logs is packed
    assert "unsafe-eval" not in text
    script = page.sources["script"][-1]
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|Function\(|setAttribute\(\"on", script
    )
    assert len(page.texts("noscript")) == 1


def test_the_same_logs_give_the_same_bytes_in_whatever_order(tmp_path, quick, shuffled):
    grid = planted.plan(examples=3)
    usual = planted.write(tmp_path / "a" / "embedded", grid, planted.World())
    other = planted.write(tmp_path / "b" / "embedded", grid, planted.World(), order=shuffled)
    for folder in (usual, other):
        assert pages.main([str(folder), "--registration", str(quick)]) == 0
    assert (usual / "generations.html").read_bytes() == (other / "generations.html").read_bytes()


def test_an_open_shard_is_not_shown_and_its_examples_have_no_outcome(study, make):
    shard = f"{SHORT}.smollm2-135m.words.000"
    (study / SHORT / shard / "footer.json").unlink()
    found = shown(make(study))
    assert found.keys() == {row.key for row in logged(study) if row.shard_id != shard}
    shutil.rmtree(study / "examples")
    assert {one["question"] for one in shown(make(study)).values()} == {None}


def test_older_examples_that_hold_for_every_model_are_shown(study, make):
    target = next((study / "examples").glob(f"{SHORT}.*words*"))
    old = {"kind": "example/1", "suite": SHORT, "task": "words", "example_id": "words-0000"}
    line = planted.compact(
        {**old, "question": "which word?", "references": ["one"], "n_context": {"a": [1, 1]}}
    )
    target.write_bytes(line + b"\n")
    broken = next((study / "examples").glob(f"{SHORT}.*facts*"))
    broken.write_bytes(b"{")
    found = shown(make(study))
    asked = {one["question"] for key, one in found.items() if (key.suite, key.task) == (SHORT, "words")}
    assert asked == {"which word?", None}
    assert {one["question"] for key, one in found.items() if (key.suite, key.task) == (SHORT, "facts")} == {
        None
    }


def test_the_report_is_the_same_with_or_without_the_page_and_says_if_it_is_of_other_logs(
    tmp_path, few_claims, capsys
):
    folder = planted.write(tmp_path / "embedded", planted.plan(examples=2), planted.World())

    def report():
        run.main([str(folder), "--registration", str(few_claims)])
        capsys.readouterr()
        return (folder / "report.html").read_text()

    before = report()
    assert "kvexp report study=embedded" in before
    assert pages.main([str(folder), "--registration", str(few_claims)]) == 0
    assert report() == before
    (folder / SHORT / f"{SHORT}.smollm2-135m.words.000" / "footer.json").unlink()
    assert "is about other logs" not in before
    assert "is about other logs" in report()


@pytest.fixture(scope="module")
def few_claims(quick, tmp_path_factory):
    folder = tmp_path_factory.mktemp("few-claims")
    text = (quick / "R.toml").read_text()
    (folder / "R.toml").write_text(text[: text.index("[claim.R2]")])
    return folder


def test_a_look_at_answers_before_the_lock_is_recorded(whole, quick, tmp_path, make):
    home = shutil.copytree(quick, tmp_path / "home")
    for name, suite in (("R", SHORT), ("S", LONG)):
        sealing.put_under(whole, [suite], sealing.seal(whole, home, name))
    make(whole, home)
    (look,) = map(json.loads, (whole / "looks.jsonl").read_text().splitlines())
    assert (look["suites"], look["claims"], look["rows"]) == ([SHORT, LONG], [], 1512)
    home.joinpath("R.toml").write_text("changed")
    make(whole, home, code=4, said="R.toml")  # as for the verdicts: a sealed file was changed


@pytest.mark.parametrize(
    ("folder", "said"),
    [("nowhere", "is not a folder"), (".", "grid.jsonl is not there")],
    ids=["none", "empty"],
)
def test_mistakes_are_one_sentence(tmp_path, make, folder, said):
    make(tmp_path / folder, code=2, said=said)


def test_a_study_of_cells_alone_has_no_answers(measured, shipped, capsys):
    assert pages.main([str(measured), "--registration", str(shipped["A"])]) == 0
    assert "no generations" in capsys.readouterr().out
    assert not (measured / "generations.html").exists()


def test_a_link_in_place_of_the_page_is_not_followed(tmp_path, whole, quick):
    from analysis.core.study import load

    (whole / "generations.html").symlink_to("/etc/hostname")
    assert not is_stale(whole, load(whole, {}))
    assert pages.main([str(whole), "--registration", str(quick)]) == 0
    assert not (whole / "generations.html").is_symlink()
