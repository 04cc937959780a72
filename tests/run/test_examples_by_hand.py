"""Fields of an example's record and of a footer, from the texts and seconds that they are made of."""

import hashlib
import json

import msgspec
import pytest
import torch

from kvexp.records import Example, Reader, Timings
from kvexp.run.log import model_seconds
from kvexp.run.prepare import questions_digest, questions_digests, write_examples
from kvexp.study.plugins import build_task
from kvexp.study.prompts import Rendering, prompt_of
from kvexp.tasks.base import PromptText, Question, Task
from tests import project, tiny
from tests.test_records import GENERATION

USER, TURN = len("?user\n"), len("?\n?assistant\n")  # a special token, here "?", is one token, as a byte is


@pytest.fixture(scope="module")
def shards(tmp_path_factory, tiny_folder):
    return project.made(project.make(tmp_path_factory.mktemp("examples") / "project", tiny_folder))


def sha256(text):
    return hashlib.sha256(text.encode()).hexdigest()


def segments(parts):
    named = {"before": parts.before, "context": parts.context, "after": parts.after}
    return {name: sha256(text) for name, text in (named | {"answer_prefix": parts.answer_prefix}).items()}


def test_an_examples_record_follows_from_its_text(tmp_path, shards):
    """The tests' tokenizer has one token a byte, and these texts one byte a character."""
    write_examples(tmp_path, shards, lambda _: tiny.tokenizer())
    lines = (tmp_path / "mini.tiny.words.jsonl", tmp_path / "examples" / "mini.tiny.words.jsonl")
    body = next(path for path in lines if path.exists()).read_bytes().splitlines()
    family, read = build_task("words"), Reader(Example)
    questions = family.load(4, 3, 256)
    assert len(body) == len(questions) == 4
    for example, question in zip(map(read, body), questions, strict=True):
        parts = family.prompt(question)
        before = USER + len(parts.before)
        n = len(parts.context)
        assert (example.suite, example.model, example.task) == ("mini", "tiny", "words")
        assert (example.example_id, example.question) == (question.example_id, question.question)
        assert example.references == list(question.references)
        assert example.segments == segments(parts)
        assert (example.n_context, example.n_context_full, example.truncated) == (n, n, False)
        assert example.n_prompt == before + n + len(parts.after) + TURN + len(parts.answer_prefix)
        assert example.needle_depths == [round(start / n, 6) for start, _ in question.needle_spans]
        assert example.needle_tokens == [(before + a, before + b) for a, b in question.needle_spans]
        asked = question.context[slice(*question.needle_spans[0])]
        assert asked.startswith("The secret word for ")
        assert example.answer_survives is True


def test_the_digest_of_what_is_asked(shards):
    family = build_task("words")
    wanted = []
    for shard in shards:
        lines = ""
        for question in family.load(4, 3, 256):
            if question.example_id in shard.example_ids:
                asked = [question.example_id, segments(family.prompt(question)), list(question.references)]
                lines += json.dumps(asked, sort_keys=True) + "\n"
        wanted.append(sha256(lines))
    assert list(questions_digests(shards, lambda _: tiny.tokenizer())) == wanted
    assert len(set(wanted)) == 2
    assert questions_digest({"1": ({"b": "x", "a": "y"}, ["r"])}) == sha256(
        '["1", {"a": "y", "b": "x"}, ["r"]]\n'
    )


class Cut(Task):
    """A context of twenty letters with marked ones, which a suite may cut."""

    is_cut = True
    score_name = "token_f1"

    def load(self, n_examples, seed, context_tokens, count=None):
        spans = ((0, 2), (2, 5), (4, 7), (15, 16), (18, 20))
        return [Question("x", "abcdefghijklmnopqrst", "And?", ("ab",), spans)]

    def prompt(self, question):
        return PromptText("", question.context, "\nAnd?", question.question)


@pytest.mark.parametrize(
    ("limit", "left", "needles"),
    [
        (20, "abcdefghijklmnopqrst", [(0, 2), (2, 5), (4, 7), (15, 16), (18, 20)]),
        (10, "abcdepqrst", [(0, 2), (2, 5), None, (5, 6), (8, 10)]),
        (9, "abcdeqrst", [(0, 2), (2, 5), None, None, (7, 9)]),  # an odd limit: one more before the cut
        (4, "abst", [(0, 2), None, None, None, (2, 4)]),
        (3, "abt", [(0, 2), None, None, None, None]),
        (1, "a", [None] * 5),
    ],
)
def test_the_middle_is_cut_and_marks_move(limit, left, needles):
    family = Cut()
    (question,) = family.load(1, 0, 0)
    prompt = prompt_of(tiny.tokenizer(), family, question, Rendering(chat=False, limit=limit))
    assert prompt.context == left
    assert (prompt.n_prefix, prompt.n_context, prompt.n_context_full) == (0, len(left), 20)
    assert list(prompt.needles) == needles
    assert (prompt.n, prompt.question) == (len(left) + 5, (len(left) + 1, len(left) + 5))
    assert torch.equal(prompt.ids[: len(left)], torch.tensor(tiny.tokenizer()(left)["input_ids"]))
    stream, aware = prompt.spans("stream"), prompt.spans("aware")
    assert (stream.n_evictable, aware.n_evictable) == (len(left), len(left) + 4)
    assert stream.question == aware.question == prompt.question


def test_the_models_seconds_count_what_rows_share_once():
    """Prefills 1 + 2, batches 8 + 4 + 16, and a plan of 0.25 for each of the five rows."""

    def row(example_id, prefill, decode, attempt=1):
        seconds = Timings(prefill=prefill, plan=0.25, decode=decode, decode_arms=2)
        return msgspec.structs.replace(GENERATION, example_id=example_id, attempt=attempt, seconds=seconds)

    rows = [
        row("a", 1.0, 8.0),
        row("a", 1.0, 8.0),
        row("a", 1.0, 4.0),
        row("b", 2.0, 16.0),
        row("b", 2.0, 16.0),
    ]
    assert model_seconds(rows) == 3.0 + 28.0 + 1.25
    again = row("a", 32.0, 64.0, attempt=2)  # what an attempt had to do once more is counted once more
    assert model_seconds([*rows, again]) == 35.0 + 92.0 + 1.5
    assert model_seconds([]) is None
