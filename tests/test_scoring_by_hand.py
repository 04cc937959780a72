"""Scores of answers worked out by hand: repeated words, punctuation, several numbers, the best reference."""

import pytest

from kvexp.scoring import (
    SCORERS,
    all_present,
    classification,
    count,
    exact_match,
    normalise,
    retrieval,
    string_match_all,
    string_match_part,
    token_f1,
)


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("An Apple a Day", "apple day"),
        ("the-end", "theend"),  # punctuation goes first, without a space in its place
        ("a.b", "ab"),
        ("a . b", "b"),
        ("The A An", ""),
        ("U.S. and U.K.", "us and uk"),
        ("tab\there\nline", "tab here line"),
        ("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~x", "x"),
        ("caf\u00e9 \u201cquoted\u201d", "caf\u00e9 \u201cquoted\u201d"),
        ("Another then anon", "another then anon"),
        ("12,345.6", "123456"),
    ],
)
def test_the_form_of_an_answer(text, form):
    assert normalise(text) == form


@pytest.mark.parametrize(
    ("answer", "references", "score"),
    [
        # Shared words are counted as often as both have them. P and R as fractions; F1 = 2 P R / (P + R).
        ("red red blue", ["red blue blue"], 2 / 3),  # shared: red, blue; P 2/3, R 2/3
        ("red red red", ["red red"], 0.8),  # shared 2; P 2/3, R 1
        ("red red red red", ["red"], 0.4),  # shared 1; P 1/4, R 1
        ("red", ["red red red red"], 0.4),  # P 1, R 1/4
        ("red red", ["red red"], 1.0),
        ("one two three four five", ["five four nine"], 0.5),  # shared 2; P 2/5, R 2/3
        ("The red, the RED!", ["a red red"], 1.0),
        ("red green", ["red yellow pink", "green red blue"], 0.8),  # the better one: P 1, R 2/3
        ("red green", ["green red blue", "red yellow pink"], 0.8),
        ("the a an", ["the"], 0.0),  # nothing is left of either
        ("red", ["the", "red"], 1.0),
        ("reds", ["red"], 0.0),
    ],
)
def test_token_f1(answer, references, score):
    assert token_f1(answer, references) == pytest.approx(score, abs=1e-15)


@pytest.mark.parametrize(
    ("answer", "references", "score"),
    [
        ("The Red.", ["red"], 1.0),
        ("red", ["blue", "a RED"], 1.0),
        ("red red", ["red"], 0.0),
        ("re d", ["red"], 0.0),
        ("red blue", ["blue red"], 0.0),
        ("", ["", "the"], 0.0),
        ("  red\n", [" Red "], 1.0),
    ],
)
def test_exact_match(answer, references, score):
    assert exact_match(answer, references) == score


@pytest.mark.parametrize(
    ("answer", "references", "score"),
    [
        ("5", ["5"], 1.0),
        ("5 5 5", ["5"], 1.0),
        ("5 and 6, then 5 and 7", ["5"], 0.5),
        ("1 2 3 4 5 6 7 8", ["8"], 0.125),
        ("15 51 5", ["5"], 1 / 3),
        ("3.5", ["5"], 0.5),  # two numbers: 3 and 5
        ("a5b", ["5"], 1.0),
        ("five", ["5"], 0.0),
        ("5", ["five"], 0.0),
        ("4 4 6", ["6", "4"], 2 / 3),  # the better reference
        ("05", ["5"], 0.0),
        ("5", [], 0.0),
    ],
)
def test_count(answer, references, score):
    assert count(answer, references) == pytest.approx(score, abs=1e-15)


@pytest.mark.parametrize(
    ("answer", "references", "score"),
    [
        ("Paragraph 12", ["Paragraph 12"], 1.0),
        ("12, 12 or 3", ["Paragraph 12"], 2 / 3),
        ("1 2", ["Paragraph 12"], 0.0),
        ("12", ["Paragraph 1"], 0.0),
        ("12", ["12"], 0.0),  # a reference that names no paragraph
        ("12", ["paragraph 12"], 0.0),
        ("4", ["see Paragraph 3", "Paragraph 4 of them"], 1.0),
        ("Paragraph", ["Paragraph 12"], 0.0),
    ],
)
def test_retrieval(answer, references, score):
    assert retrieval(answer, references) == pytest.approx(score, abs=1e-15)


@pytest.mark.parametrize(
    ("answer", "references", "score"),
    [
        ("12345 67890 11111", ["12345", "67890", "11111"], 1.0),
        ("11111, 67890; 12345.", ["12345", "67890", "11111"], 1.0),
        ("12345 67890", ["12345", "67890", "11111"], 0.0),
        ("12345 012345", ["12345"], 1.0),
        ("012345", ["12345"], 0.0),
        ("12345x", ["12345"], 0.0),
        ("x_12345", ["12345"], 0.0),
        ("(12345)", ["12345"], 1.0),
        ("AB c", ["ab", "C"], 1.0),
        ("a.b", ["a.b"], 1.0),
        ("axb", ["a.b"], 0.0),
        ("", ["12345"], 0.0),
    ],
)
def test_all_present(answer, references, score):
    assert all_present(answer, references) == score


@pytest.mark.parametrize(
    ("answer", "references", "whole", "part"),
    [
        ("ABC def", ["abc", "DEF"], 1.0, 1.0),
        ("abc", ["abc", "def", "ghi", "jkl"], 0.25, 1.0),
        ("abc", ["def", "ghi"], 0.0, 0.0),
        ("abcdef", ["bcd", "cde", "xyz"], 2 / 3, 1.0),
        ("abc abc", ["abc"], 1.0, 1.0),
        ("abc", ["abc", "abc", "def"], 2 / 3, 1.0),
    ],
)
def test_string_match(answer, references, whole, part):
    assert string_match_all(answer, references) == pytest.approx(whole, abs=1e-15)
    assert string_match_part(answer, references) == part


@pytest.mark.parametrize(
    ("answer", "reference", "score"),
    [
        ("Animal", "Animal", 1.0),
        ("Animal, Plant or Mineral", "Plant", 1 / 3),
        ("Animal or Animal", "Animal", 1.0),
        ("animal", "Animal", 0.0),
        ("Plant pot", "Plant pot", 1.0),  # names Plant only because it names Plant pot
        ("Plant pot", "Plant", 0.5),
        ("Mineral", "Plant", 0.0),
    ],
)
def test_classification(answer, reference, score):
    classes = ["Animal", "Plant", "Plant pot", "Mineral"]
    assert classification(answer, [reference], classes) == pytest.approx(score, abs=1e-15)
    assert classification(answer, ["Nothing", reference], classes) == pytest.approx(score, abs=1e-15)


def test_the_names_of_scores_are_those_that_logs_hold():
    assert {name: scorer.__name__ for name, scorer in SCORERS.items()} == {
        name: name
        for name in (
            "token_f1",
            "exact_match",
            "count",
            "retrieval",
            "all_present",
            "string_match_all",
            "string_match_part",
        )
    }
