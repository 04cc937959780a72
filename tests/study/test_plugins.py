"""One file, one part: what a name may mean, and every way in which a new part can be wrong."""

import sys
import textwrap

import pytest

from kvexp.design.base import Design
from kvexp.errors import ConfigError
from kvexp.scores.base import Score
from kvexp.study import plugins
from kvexp.study.plugins import build_design, build_score


class Base:
    """What the parts of the package below derive from."""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Writes parts of a package of its own, importable under a name that no other test uses."""
    name = f"parts_{abs(hash(str(tmp_path)))}s"
    folder = tmp_path / name
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("builtins.PartBase", Base, raising=False)

    def write(**files):
        for part, text in files.items():
            (folder / f"{part}.py").write_text(textwrap.dedent(text))
        return name

    yield write
    for module in [m for m in sys.modules if m.split(".")[0] == name]:
        del sys.modules[module]


PART = """
    from dataclasses import dataclass

    @dataclass(frozen=True)
    class One(PartBase):
        size: int = 3
        rate: float = 0.5
        on: bool = False
        sizes: tuple = ()
"""


def test_a_file_is_a_part_under_its_own_name(package):
    name = package(one=PART, _helper="", base="")
    assert plugins.names(name) == ["one"]
    assert plugins.build(name, "one", Base, {"size": 5}).size == 5


def test_a_whole_number_is_a_float_and_a_list_becomes_hashable(package):
    made = plugins.build(package(one=PART), "one", Base, {"rate": 1, "sizes": [1, 2]})
    assert (made.rate, made.sizes) == (1, (1, 2))
    assert hash(made) == hash(
        plugins.build(type(made).__module__.split(".")[0], "one", Base, {"rate": 1, "sizes": [1, 2]})
    )


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"sze": 1}, "no parameter 'sze'; did you mean 'size'?"),
        ({"size": 1.5}, "'size' of 'one' must be int, got 1.5"),
        ({"size": "3"}, "must be int"),
        ({"size": True}, "must be int, got True"),
        ({"rate": True}, "must be float"),
        ({"on": 1}, "must be bool"),
    ],
)
def test_a_parameter_that_does_not_fit_is_named(package, params, said):
    with pytest.raises(ConfigError, match=said.replace("?", r"\?")):
        plugins.build(package(one=PART), "one", Base, params)


TYPED = """
    from __future__ import annotations
    from dataclasses import dataclass
    from typing import Literal

    @dataclass(frozen=True)
    class One(PartBase):
        size: int = 3
        limit: float | None = None
        words: tuple[str, ...] = ()
        where: Literal["here", "there"] = "here"
        table: dict[str, int] | None = None
"""


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"size": "3"}, "'size' of 'one' must be int, got '3'"),
        ({"size": None}, "must be int, got None"),
        ({"limit": "x"}, r"'limit' of 'one' must be float \| None, got 'x'"),
        ({"limit": True}, r"must be float \| None"),
        ({"words": "abc"}, r"'words' of 'one' must be tuple\[str, ...\], got 'abc'"),
        ({"words": ["a", 1]}, r"must be tuple\[str, ...\]"),
        ({"where": "nowhere"}, r"must be Literal\['here', 'there'\], got 'nowhere'"),
    ],
)
def test_types_of_many_words_are_kept_too(package, params, said):
    name = package(one=TYPED)
    with pytest.raises(ConfigError, match=said):
        plugins.build(name, "one", Base, params)
    made = plugins.build(name, "one", Base, {"limit": 1, "words": ["a"], "where": "there", "table": {"a": 1}})
    assert (made.limit, made.words) == (1, ("a",))


def test_a_type_that_cannot_be_read_is_a_sentence(package):
    text = TYPED.replace("size: int", "size: Nowhere")
    with pytest.raises(ConfigError, match=r"types of One cannot be read.*Nowhere"):
        plugins.build(package(one=text), "one", Base, {"size": 1})


def test_a_part_without_parameters_says_so(package):
    with pytest.raises(ConfigError, match="it has none"):
        plugins.build(package(one="class One(PartBase): pass"), "one", Base, {"size": 1})


@pytest.mark.parametrize("name", ["onne", "", "os", "_helper", "base", "../one", "one.two", "__init__"])
def test_a_name_reaches_no_other_module(package, name):
    made = package(one=PART, _helper="raise SystemExit('imported')", base="raise SystemExit('imported')")
    with pytest.raises(ConfigError, match="there is no part"):
        plugins.build(made, name, Base, {})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("class Two: pass", "must define one Base, it defines 0"),
        ("class A(PartBase): pass\nclass B(PartBase): pass", "must define one Base, it defines 2"),
        ("class One(:", "cannot be imported: SyntaxError"),
        ("import nowhere_to_be_found", "cannot be imported: ModuleNotFoundError.*nowhere_to_be_found"),
        (
            "from dataclasses import dataclass\n@dataclass\nclass One(PartBase):\n    need: int",
            "cannot be built.*need",
        ),
        (
            "import abc\nclass One(PartBase, abc.ABC):\n    @abc.abstractmethod\n    def rows(self): ...",
            "cannot be built.*rows",
        ),
    ],
)
def test_a_new_part_that_is_wrong_is_told_in_a_sentence(package, text, said):
    with pytest.raises(ConfigError, match=said):
        plugins.build(package(one=text), "one", Base, {})


def test_every_part_that_ships_can_be_built():
    assert [type(build_score(n)) for n in plugins.names("kvexp.scores")]
    assert all(isinstance(build_score(n), Score) for n in plugins.names("kvexp.scores"))
    assert all(isinstance(build_design(n), Design) for n in plugins.names("kvexp.design"))


def test_equal_parts_are_equal_so_that_their_work_is_shared():
    assert build_score("window", pool=7) == build_score("window", pool=7)
    assert hash(build_score("window", pool=7)) == hash(build_score("window", pool=7))
    assert build_score("window", pool=7) != build_score("window")
