"""Where keys stand in a TOML text: against texts whose answers are written beside their lines."""

import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvexp.ceremony.locate import places

ROOT = Path(__file__).parents[2]

TEXT_LINES = [
    '# a = "not a key" [nor a header]',
    "a = 1  # b = 2",
    '"quoted = key" = "value # no comment"',
    "'single \"quoted\"' = 'it'\t# a comment",
    '"esc\\u0061ped" = 2026-01-01 10:00:00Z',
    'dotted . "part.s" . x = 0.5',
    "",
    "[claim.R1]  # [claim.R2]",
    'statement = """',
    'kill = "no"',
    "[claim.R9]",
    'She said ""\\"hello""\\"."""""',
    'population = { suites = ["6k"], "tasks" = ["a", # ["b"]',
    '  "b",',
    "",
    '  { deep = "c" },',
    "], label = { x = 1, y.z = 2 } }",
    "kill = '''",
    "= [ \"x\" '' '''  # '''",
    "support = [",
    "  [1, 2],",
    "  # [3, 4],",
    "  [5,",
    "   6] ]",
    "",
    '  [ claim . "R2" . readings ]',
    '"at 12.5 %" = { cells = { budgets = [0.125] } }',
    '"=" = 1_000',
    "",
    "[[rows]]",
    "x = 1",
    "[last]",
    "end = true",
]
TEXT = "\n".join(TEXT_LINES)


def tree(table, keys=()):
    """Every key path of a table."""
    if keys:
        yield keys, table
    items = table.items() if isinstance(table, dict) else enumerate(table) if isinstance(table, list) else ()
    for key, value in items:
        yield from tree(value, (*keys, key))


LINES = {
    ("a",): 2,
    ("quoted = key",): 3,
    ('single "quoted"',): 4,
    ("escaped",): 5,
    ("dotted", "part.s", "x"): 6,
    ("dotted",): 6,
    ("claim", "R1"): 8,
    ("claim",): 8,
    ("claim", "R1", "statement"): 9,
    ("claim", "R1", "population"): 13,
    ("claim", "R1", "population", "suites", 0): 13,
    ("claim", "R1", "population", "tasks", 0): 13,
    ("claim", "R1", "population", "tasks", 1): 14,
    ("claim", "R1", "population", "tasks", 2, "deep"): 16,
    ("claim", "R1", "population", "label", "y", "z"): 17,
}


def test_keys_are_found_where_they_stand():
    tomllib.loads(TEXT)
    found = places(TEXT)
    assert {keys: found.line(keys) for keys in LINES} == LINES
    for keys, start in {
        ("claim", "R1", "kill"): "kill = ",
        ("claim", "R1", "support"): "support = [",
        ("claim", "R1", "support", 0): "  [1, 2],",
        ("claim", "R1", "support", 1): "  [5,",
        ("claim", "R1", "support", 1, 1): "   6] ]",
        ("claim", "R2", "readings"): "  [ claim",
        ("claim", "R2"): "  [ claim",
        ("claim", "R2", "readings", "at 12.5 %", "cells", "budgets", 0): '"at 12.5 %"',
        ("claim", "R2", "readings", "="): '"=" = 1_000',
        ("rows",): "[[rows]]",
        ("last", "end"): "end = true",
    }.items():
        assert TEXT_LINES[found.line(keys) - 1].startswith(start), keys


def test_what_is_not_there_is_said_of_the_nearest_table():
    found = places(TEXT)
    assert found.line(("claim", "R1", "quantities", "gain")) == 8
    assert found.line(("claim", "R1", "population", "arms")) == 13
    assert found.line(("nothing",)) == 1
    assert found.line(()) == 1


@pytest.mark.parametrize("name", ["paper/R", "paper/S", "paper/A", "embedded/R", "demo/S", "ablations/X"])
def test_values_of_the_shipped_files_are_read_where_they_are_found(name):
    """The text at the place of a value, read alone, is the value."""
    text = (ROOT / "preregistration" / f"{name}.toml").read_text()
    found = places(text)
    seen = 0
    for keys, value in tree(tomllib.loads(text)):
        place = found.written.get(keys)
        if place is None or text[place.start : place.end].startswith("[claim"):
            continue
        if text[place.start - 1] == "\n" and text[place.start] == "[":
            continue  # a header
        assert tomllib.loads(f"value = {text[place.start : place.end]}")["value"] == value
        seen += 1
    assert seen > 20


keys = st.one_of(
    st.from_regex(r"\A[A-Za-z0-9_-]{1,6}\Z"),
    st.text(alphabet="ab .#=[]{}'\u00e9", max_size=5).map('"{}"'.format),
)
scalars = st.one_of(
    st.integers(-5, 5).map(str),
    st.sampled_from(["0.5", "true", "1e-3", "2026-01-01", "'#'", '"]"', '""']),
    st.sampled_from(['"""a"b\n# c = 1"""', "'''}\n'''"]),
)
blanks = st.sampled_from(["", " ", "\n", ' # ] } "\n'])


@st.composite
def values(draw, depth=2):
    kind = draw(st.sampled_from(["scalar", "array", "table"] if depth else ["scalar"]))
    if kind == "scalar":
        return draw(scalars)
    if kind == "array":
        inner = draw(st.lists(st.tuples(blanks, values(depth - 1), blanks), max_size=3))
        return f"[{','.join(f'{a}{b}{c}' for a, b, c in inner)}]"
    inner = draw(st.lists(st.tuples(keys, values(depth - 1)), max_size=3, unique_by=lambda pair: pair[0]))
    return f"{{ {', '.join(f'{key} = {value}' for key, value in inner)} }}"


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.booleans(), keys, values(), blanks), max_size=6))
def test_every_value_of_any_text_is_found_where_it_stands(parts):
    text = "".join(
        f"{f'[t{number}]{chr(10)}' if is_table else ''}{key} = {value}{blank.strip(' ') or chr(10)}"
        for number, (is_table, key, value, blank) in enumerate(parts)
    )
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return
    found = places(text)
    for path, value in tree(table):
        place = found.written.get(path)
        if place is None or place.start == place.end:
            assert isinstance(value, dict)
            continue
        body = text[place.start : place.end]
        assert text.count("\n", 0, place.start) + 1 >= place.line
        if not (isinstance(value, dict) and body.startswith("[")):  # a header
            assert tomllib.loads(f"value = {body}")["value"] == value


def test_a_text_that_is_no_toml_is_no_error():
    for text in ("", "[", "a", "a = [", "a = {", "= 1", '"', "a.b.", "]]", "a = {b"):
        assert places(text).line(("a", "b")) == 1
