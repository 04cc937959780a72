"""What each task is scored by and how long its answers may be, stated here once more; no outside data."""

import hashlib
import json
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from kvexp.study.plugins import build_task
from kvexp.tasks.base import Question

ROOT = Path(__file__).parents[2]
# By task: family, parameters, tokens of an answer, score. LongBench's lengths and scores are its own
# (config/dataset2maxlen.json and eval.py), RULER's those of its constants.
TASKS = {
    "2wikimqa": ("longbench", {"dataset": "2wikimqa"}, 32, "token_f1"),
    "hotpotqa": ("longbench", {"dataset": "hotpotqa"}, 32, "token_f1"),
    "multifieldqa_en": ("longbench", {"dataset": "multifieldqa_en"}, 64, "token_f1"),
    "musique": ("longbench", {"dataset": "musique"}, 32, "token_f1"),
    "narrativeqa": ("longbench", {"dataset": "narrativeqa"}, 128, "token_f1"),
    "passage_retrieval_en": ("longbench", {"dataset": "passage_retrieval_en"}, 32, "retrieval"),
    "niah_single": ("niah", {"n_keys": 1}, 128, "string_match_all"),
    "niah_multikey": ("niah", {"n_keys": 20}, 128, "string_match_all"),
    "variable_tracking": ("variable_tracking", {"n_hops": 4}, 30, "string_match_all"),
    "common_words": ("common_words", {}, 120, "string_match_all"),
    "facts": ("facts", {}, 12, "token_f1"),
    "words": ("words", {}, 6, "exact_match"),
    "passcodes": ("passcodes", {}, 20, "all_present"),
    "prose": ("prose", {}, 1, "token_f1"),
}


def test_no_shipped_task_is_forgotten_here():
    assert {path.stem for path in (ROOT / "conf" / "task").glob("*.yaml")} == set(TASKS)


@pytest.mark.parametrize("name", TASKS)
def test_a_task_has_the_stated_family_length_and_score(name):
    family, params, length, score = TASKS[name]
    conf = OmegaConf.load(ROOT / "conf" / "task" / f"{name}.yaml")
    assert (conf.name, conf.family, conf.max_new_tokens) == (name, family, length)
    stated = {key: conf.params[key] for key in conf.params if key != "answer_tokens"}
    assert stated == params
    assert build_task(family, **params).score_name == score


F1, EXACT = "the river and the sea", "River sea"
ANSWERS = {
    # An answer, references, and what the score of the task makes of them.
    "2wikimqa": (F1, ("river", "river sea land"), 2 / 3),  # river and sea: 2 of 3 words, 2 of 3
    "hotpotqa": (F1, ("river river sea sea sea",), 0.5),  # shared 2; P 2/3, R 2/5
    "multifieldqa_en": (F1, ("and",), 0.5),
    "musique": (F1, ("lake",), 0.0),
    "narrativeqa": (F1, ("Sea, and River",), 1.0),
    "passage_retrieval_en": ("Paragraph 3, or 4, or 3", ("Paragraph 3",), 2 / 3),
    "niah_single": ("it is 1234567.", ("1234567",), 1.0),
    "niah_multikey": ("it is 7654321.", ("1234567",), 0.0),
    "variable_tracking": ("abcde FGHIJ KLMNO", ("ABCDE", "FGHIJ", "PQRST", "UVWXY", "ZABCD"), 0.4),
    "common_words": ("1. river 2. sea 3. lake", tuple("river sea bay fjord".split()), 0.5),
    "facts": ("rivers and river", ("river rock",), 0.4),
    "words": (EXACT, ("river",), 0.0),
    "passcodes": ("12345 and 67890", ("12345", "67890"), 1.0),
    "prose": (F1, ("sea river",), 0.8),
}


@pytest.mark.parametrize("name", TASKS)
def test_an_answer_gets_the_score_of_its_task(name):
    family, params, _, _ = TASKS[name]
    answer, references, score = ANSWERS[name]
    question = Question("x", "", "", references)
    assert build_task(family, **params).score(answer, question) == pytest.approx(score, abs=1e-15)


def test_room_for_a_rulers_answer_is_its_length():
    for name, (family, _, length, _) in TASKS.items():
        conf = OmegaConf.load(ROOT / "conf" / "task" / f"{name}.yaml")
        if family in ("niah", "variable_tracking", "common_words"):
            assert build_task(family).answer_tokens == length
            assert OmegaConf.to_container(conf)["params"]["answer_tokens"] == "${task.max_new_tokens}"
        else:
            assert "answer_tokens" not in conf.params


def test_which_families_are_cut_sized_or_without_answers():
    found = {}
    for family, params, _, _ in TASKS.values():
        made = build_task(family, **params)
        found[family] = (made.is_cut, made.is_sized, made.has_answers)
    assert found == {
        "longbench": (True, False, True),
        "niah": (False, True, True),
        "variable_tracking": (False, True, True),
        "common_words": (False, True, True),
        "facts": (False, False, True),
        "words": (False, False, True),
        "passcodes": (False, False, True),
        "prose": (False, False, False),
    }


def shuffled(ids, key):
    """Each place takes one of those that are left: the sha256 of "key#place" says which."""
    left, order = sorted(ids), []
    for place in range(len(left)):
        word = int(hashlib.sha256(f"{key}#{place}".encode()).hexdigest()[:16], 16)
        at = place + word % (len(left) - place)
        left[place], left[at] = left[at], left[place]
        order.append(left[place])
    return order


def test_records_are_taken_in_the_order_of_a_keyed_shuffle_of_their_ids(tmp_path):
    """The ids are made here: what outside records show stands without them, too."""
    ids = [hashlib.md5(str(i).encode()).hexdigest() for i in range(40)]
    rows = [
        {"_id": i, "input": f"Q {i}?", "context": f"C {i}", "answers": [f"A {i}", "B"], "dataset": "musique"}
        for i in ids
    ]
    (tmp_path / "musique.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    family = build_task("longbench", dataset="musique", data_dir=str(tmp_path))
    for seed, n in ((1, 12), (2, 40)):
        wanted = shuffled(ids, f"longbench/musique/{seed}")[:n]
        questions = family.load(n, seed, 6000)
        assert [q.example_id for q in questions] == wanted == family.example_ids(n, seed, 16_000)
        for q in questions:
            i = q.example_id
            assert (q.question, q.context, q.references) == (f"Q {i}?", f"C {i}", (f"A {i}", "B"))
