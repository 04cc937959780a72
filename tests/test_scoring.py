"""Scores: edge cases, hostile answers, and agreement with another project's LongBench scorer."""

import json
from pathlib import Path
from random import Random

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

PEER_SCORES = Path(__file__).parents[2] / "shared" / "data" / "peer_scores.jsonl"
PEER_SCORERS = {"passage_count": count, "passage_retrieval_en": retrieval}


def _peer_score(row: dict) -> float:
    if row["all_classes"]:
        return classification(row["pred"], row["answers"], row["all_classes"])
    return PEER_SCORERS.get(row["dataset"], token_f1)(row["pred"], row["answers"])


def test_scores_of_another_project_are_reproduced_exactly():
    if not PEER_SCORES.exists():
        pytest.skip(f"{PEER_SCORES} is absent: the scores of other projects are not distributed")
    rows = [json.loads(line) for line in PEER_SCORES.read_text("utf-8").splitlines()]
    assert len(rows) == 102
    differ = [row["_id"] for row in rows if _peer_score(row) != row["score"]]
    assert differ == []


def test_normalise_removes_case_punctuation_and_articles():
    assert normalise(" The  Cat, a DOG; an 'ant'!\n") == "cat dog ant"
    assert normalise("theatre anthem aorta") == "theatre anthem aorta"


@pytest.mark.parametrize(
    ("answer", "references", "score"),
    [
        ("the maple tree", ["maple tree"], 1.0),
        ("maple", ["maple tree"], 2 / 3),
        ("maple maple", ["maple tree"], 0.5),
        ("oak", ["maple tree"], 0.0),
        ("oak", ["maple", "Oak."], 1.0),
        ("", [""], 0.0),
        ("maple", [], 0.0),
    ],
)
def test_token_f1(answer, references, score):
    assert token_f1(answer, references) == pytest.approx(score, abs=1e-15)


@pytest.mark.parametrize(
    ("answer", "references", "score"),
    [
        (" Maple.", ["maple"], 1.0),
        ("a maple", ["maple"], 1.0),
        ("maple tree", ["maple"], 0.0),
        ("", [""], 0.0),
        ("the", ["."], 0.0),
        ("maple", [], 0.0),
    ],
)
def test_exact_match(answer, references, score):
    assert exact_match(answer, references) == score


@pytest.mark.parametrize(
    ("answer", "score"),
    [
        ("Paragraph 7", 1.0),
        ("7", 1.0),
        ("Paragraph 7 or paragraph 9", 0.5),
        ("Paragraph 17", 0.0),
        ("Paragraph seven", 0.0),
        ("", 0.0),
    ],
)
def test_retrieval_is_the_share_of_numbers_that_are_right(answer, score):
    assert retrieval(answer, ["Paragraph 7"]) == score


def test_count_takes_bare_numbers():
    assert count("There are 12, not 13.", ["12"]) == 0.5
    assert count("012", ["12"]) == 0.0


def test_classification_does_not_count_parts_of_the_right_name():
    classes = ["Order", "Order, rank", "Animal"]
    assert classification("Order, rank", ["Order, rank"], classes) == 1.0
    assert classification("Animal or Order, rank", ["Order, rank"], classes) == 0.5
    assert classification("none of them", ["Animal"], classes) == 0.0


def test_all_present_wants_every_code_as_a_word_of_its_own():
    codes = ["12345", "67890"]
    assert all_present("67890 and 12345.", codes) == 1.0
    assert all_present("12345 only", codes) == 0.0
    assert all_present("123456 67890", codes) == 0.0
    assert all_present("anything", []) == 0.0


def test_ruler_scores_look_for_parts_of_the_answer():
    assert string_match_all("AB and cd", ["ab", "CD", "ef", "gh"]) == 0.5
    assert string_match_part("AB and cd", ["zz", "CD"]) == 1.0
    assert string_match_part("AB", []) == string_match_all("AB", []) == 0.0


def _by_rulers_text(answer: str, references: list[str]) -> float:
    """The share of references found, from RULER's description, character by character."""
    left, right = 0, len(answer)
    while left < right and answer[left].isspace():
        left += 1
    while right > left and answer[right - 1].isspace():
        right -= 1
    printable = [c if ord(c) > 31 else chr(10) for c in answer[left:right]]
    while printable and printable[0].isspace():
        printable.pop(0)
    while printable and printable[-1].isspace():
        printable.pop()
    given = "".join(printable).lower()
    found = 0
    for reference in references:
        wanted = reference.lower()
        found += any(given.startswith(wanted, i) for i in range(len(given) + 1))
    return found / len(references)


PARTS = [
    "7654321",
    "1234567",
    "qxzjk",
    "QXZJK",
    "maple",
    "Map",
    " ",
    "\n",
    "\t",
    "\x00",
    "\x1f",
    "\x7f",
    ".",
    "ß",
    "İ",
]


def test_ruler_scores_equal_its_description_on_thousands_of_answers():
    random = Random(0)
    scores = set()
    for _ in range(5000):
        answer = "".join(random.choices(PARTS, k=random.randrange(8)))
        references = ["".join(random.choices(PARTS, k=random.randrange(1, 3))) for _ in range(3)]
        score = string_match_all(answer, references)
        assert score == _by_rulers_text(answer, references), (answer, references)
        assert string_match_part(answer, references) == float(score > 0)
        scores.add(round(score, 3))
    assert scores == {0.0, 0.333, 0.667, 1.0}


@pytest.mark.parametrize(
    ("answer", "reference", "score"),
    [
        (" 7654321.", "7654321", 1.0),
        ("17654321", "7654321", 1.0),  # a part of a longer number counts, unlike a passcode
        ("765\x004321", "7654321", 0.0),  # replaced, not deleted
        ("a\tb", "a\nb", 1.0),
        ("\x0012\x1f", "12", 1.0),
        ("ab", " ab", 0.0),  # the answer is stripped, the reference is not
        (" ab", " ab", 0.0),
    ],
)
def test_ruler_strips_answers_and_turns_control_characters_into_line_breaks(answer, reference, score):
    assert string_match_all(answer, [reference]) == score


HOSTILE = [
    "",
    "9" * 200_000,
    "1 " * 50_000,
    "Paragraph " * 20_000,
    "\ud800\x00\u202e",
    "٣٤ Ⅻ ² İ",
    "(((((((([[[[\\",
    " ".join(["a"] * 50_000),
]


@pytest.mark.parametrize("name", sorted(SCORERS))
@pytest.mark.parametrize("answer", HOSTILE, ids=lambda text: ascii(text[:12]))
def test_every_score_of_a_hostile_answer_lies_between_0_and_1(name, answer):
    for references in ([], [""], ["Paragraph 3"], ["(["], [answer]):
        assert 0.0 <= SCORERS[name](answer, references) <= 1.0
