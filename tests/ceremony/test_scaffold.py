"""`kvexp new-study`: a copy that plans at once and is refused until its author has spoken."""

import re
import shutil
import tomllib
from pathlib import Path

import pytest

from kvexp.ceremony.lint import registrations
from kvexp.ceremony.scaffold import FIELDS, REMARK, new_study
from kvexp.documents.source import RegistrationError
from kvexp.errors import ConfigError
from kvexp.study.compose import select
from kvexp.study.grid import shards

ROOT = Path(__file__).parents[2]
CLAIMS = ROOT / "analysis" / "claims"
SAID = {
    "authors": '["A. Person"]',
    "existing_data": '"before-creation"',
    "existing_data_note": '"nothing was seen"',
    "data_seen": '["6k: analysed"]',
}


@pytest.fixture
def project(tmp_path):
    for name in ("conf", "preregistration"):
        shutil.copytree(ROOT / name, tmp_path / name)
    return tmp_path


def files(root):
    return {path.relative_to(root): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("source", ["paper", "embedded", "demo", "ablations"])
def test_a_new_study_plans_at_once(project, source):
    seals = project / "preregistration" / source / "seals"
    seals.mkdir(exist_ok=True)
    (seals / "R.sha256").write_text("not to be copied")
    (project / "preregistration" / source / "amendments" / "R-1").mkdir(parents=True)
    before = files(project)
    written = new_study(project, "mine", source)
    after = files(project)
    ids = sorted(path.name for path in (ROOT / "preregistration" / source).glob("*.toml"))
    home = Path("preregistration/mine")
    assert [path.relative_to(project) for path in written] == [
        Path("conf/study/mine.yaml"),
        *(home / name for name in ids),
    ]
    assert after.keys() - before.keys() == {path.relative_to(project) for path in written}
    assert all(after[path] == body for path, body in before.items())
    mine, theirs = select(["study=mine"], project), select([f"study={source}"], project)
    assert mine.study.name == "mine"
    assert [s.digest for s in shards(mine, "assume")] == [s.digest for s in shards(theirs, "assume")]


def test_what_only_the_author_can_say_is_open_and_the_rest_is_the_sources(project):
    new_study(project, "mine", "paper")
    for name in ("A", "N", "R", "S"):
        own = (project / "preregistration" / "mine" / f"{name}.toml").read_text()
        old = (ROOT / "preregistration" / "paper" / f"{name}.toml").read_text()
        mine, theirs = tomllib.loads(own), tomllib.loads(old)
        opened = {key for key in FIELDS if key in theirs}
        assert opened == {"authors", "existing_data", "existing_data_note"} | ({"data_seen"} & {*theirs})
        assert {key: mine[key] for key in mine.keys() - opened} == {
            key: theirs[key] for key in theirs.keys() - opened
        }
        assert "P. Xie (the" not in own
        assert "A transcription, not a registration" not in own
        comments = [
            line for line in old.split("\n") if line.startswith("#") and "A transcription" not in line
        ]
        assert [line for line in own.split("\n") if line.startswith("#") and line != REMARK] == comments


def fill(folder, keys):
    for path in folder.glob("*.toml"):
        text = path.read_text()
        for key in keys:
            text = re.sub(rf"(?m)^{key} = .*FILL IN.*$", f"{key} = {SAID[key]}", text)
        path.write_text(text)


def test_a_study_in_the_first_format_is_copied_into_the_second_and_asks_for_witnesses(project):
    new_study(project, "mine", "embedded")
    folder = project / "preregistration" / "mine"
    fill(folder, SAID)
    with pytest.raises(RegistrationError, match=r"A.toml:\d+: claim.A1.witness.kill is not filled in"):
        registrations(folder, CLAIMS)
    rows = {name: tomllib.loads(path.read_text()) for name, path in demos().items()}
    for path in folder.glob("*.toml"):
        text = path.read_text().partition("\n[claim.A1.witness]")[0].partition("\n[claim.R1.witness]")[0]
        text = text.partition("\n[claim.S1.witness]")[0]
        claims = rows[path.name]["claim"]
        path.write_text(text + "".join(f"\n[claim.{c}.witness]\n{witness(path.name, c)}" for c in claims))
    found = registrations(folder, CLAIMS)
    assert {one.content.format for one in found} == {"kvexp-registration/2"}
    for one in found:
        old = tomllib.loads((ROOT / "preregistration/embedded" / one.path.name).read_text())
        mine = tomllib.loads(one.path.read_text())
        for name, claim in old["claim"].items():
            here = mine["claim"][name]
            assert {key: here[key] for key in here if key not in ("quantities", "witness")} == {
                key: claim[key] for key in claim if key != "quantities"
            }


def demos():
    return {path.name: path for path in (ROOT / "preregistration/demo").glob("*.toml")}


def witness(name, claim):
    """The rows of the demo's claim, as they are written."""
    text = demos()[name].read_text().split(f"[claim.{claim}.witness]\n")[1]
    return "\n".join(text.split("\n")[:2]) + "\n"


def test_a_file_is_refused_until_its_last_field_is_filled_in(project):
    new_study(project, "mine", "paper")
    folder = project / "preregistration" / "mine"
    for number, key in enumerate(SAID):
        fill(folder, list(SAID)[:number])
        name = "S.toml" if key == "data_seen" else "A.toml"
        with pytest.raises(RegistrationError) as caught:
            registrations(folder, CLAIMS)
        lines = (folder / name).read_text().split("\n")
        line = next(n for n, text in enumerate(lines, start=1) if text.startswith(f"{key} = "))
        assert str(caught.value).startswith(f"{folder / name}:{line}: {key}")
        assert "is not filled in; it wants" in str(caught.value)
    fill(folder, SAID)
    found = registrations(folder, CLAIMS)
    assert [one.content.id for one in found] == ["A", "N", "R", "S"]
    assert {one.content.existing_data for one in found} == {"before-creation"}


def test_a_date_and_a_count_of_the_source_are_open_too(project):
    path = project / "preregistration" / "embedded" / "R.toml"
    said = 'id = "R"\nregistered_at = 2020-01-01T00:00:00Z\nregistrations_made = 3'
    path.write_text(path.read_text().replace('id = "R"', said))
    new_study(project, "mine", "embedded")
    text = (project / "preregistration" / "mine" / "R.toml").read_text()
    assert "2020" not in text
    assert 'registrations_made = "FILL IN' in text


def test_a_new_study_may_come_from_a_new_study(project):
    new_study(project, "mine", "embedded")
    new_study(project, "ours", "mine")
    own, old = (project / "preregistration" / name / "R.toml" for name in ("ours", "mine"))
    assert own.read_text() == old.read_text()


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../x", "a/b", "a b", "-a", "1a", "a=b", "a\n", "\u0430", "a" * 61, "~a", "$HOME"],
)
def test_a_name_that_is_none_is_refused(project, name):
    before = files(project)
    with pytest.raises(ConfigError, match="a study's name begins with a letter"):
        new_study(project, name, "paper")
    assert files(project) == before


@pytest.mark.parametrize(
    "name", ["trust", "Trust", "locks", "scratch", "base_study", "yes", "null", "NaN", "off"]
)
def test_a_name_that_means_something_else_is_refused(project, name):
    with pytest.raises(ConfigError, match="means something else: choose another name"):
        new_study(project, name, "paper")


@pytest.mark.parametrize(
    "there",
    ["conf/study/mine.yaml", "preregistration/mine/R.toml", "preregistration/mine/notes.txt"],
)
def test_nothing_is_overwritten(project, there):
    path = project / there
    path.parent.mkdir(exist_ok=True)
    path.write_text("kept")
    before = files(project)
    with pytest.raises(ConfigError, match="is there already: choose another name, nothing was written"):
        new_study(project, "mine", "paper")
    assert files(project) == before


def test_a_dangling_link_is_not_written_through(project):
    (project / "conf" / "study" / "mine.yaml").symlink_to(project / "elsewhere")
    with pytest.raises(ConfigError, match="is there already"):
        new_study(project, "mine", "paper")
    assert not (project / "elsewhere").exists()


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("papr", "there is no study 'papr' in conf/study; did you mean 'paper'?"),
        ("../conf", "there is no study '../conf'"),
        ("bare", "preregistration/bare holds no registration"),
    ],
)
def test_an_unknown_source_is_refused(project, source, message):
    (project / "conf/study/bare.yaml").write_text((project / "conf/study/paper.yaml").read_text())
    before = files(project)
    with pytest.raises(ConfigError, match=re.escape(message)):
        new_study(project, "mine", source)
    assert files(project) == before
