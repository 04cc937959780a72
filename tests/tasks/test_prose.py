"""Prose for attention suites: the same text everywhere, of the asked length, going on after the eviction."""

import hashlib

import pytest
from tokenizers import Tokenizer

from kvexp.errors import ConfigError
from kvexp.models.embedded import embedded_model
from kvexp.study.plugins import build_task
from tests import project

SEED = 9000
# sha256 of the first 5 texts at 1,024 tokens. Another value means other data: logs made before and after
# the change must not be mixed.
GOLDEN = "2001f928e4eba735b630f732aa56032f1db4b040f5e945a37cc682fc85933db6"


@pytest.fixture(scope="module")
def prose():
    return build_task("prose")


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.from_file(str(embedded_model() / "tokenizer.json"))


def tokens(tokenizer, texts):
    return [len(e.ids) for e in tokenizer.encode_batch(texts, add_special_tokens=False)]


def test_the_text_is_the_same_bytes_on_every_machine(prose):
    texts = [q.context + "\0" + q.question for q in prose.load(5, SEED, 1024)]
    assert hashlib.sha256("\0".join(texts).encode()).hexdigest() == GOLDEN


def test_the_text_is_the_same_on_every_call(prose):
    assert prose.load(3, SEED, 512) == prose.load(3, SEED, 512) == build_task("prose").load(3, SEED, 512)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_an_example_does_not_depend_on_how_many_are_loaded(prose, n):
    assert prose.load(n, SEED, 512) == prose.load(7, SEED, 512)[:n]


def test_ids_are_known_without_loading(prose):
    assert prose.example_ids(4, SEED, 512) == [q.example_id for q in prose.load(4, SEED, 512)]


def test_seeds_and_indices_give_different_texts(prose):
    every = [*prose.load(10, SEED, 512), *prose.load(10, SEED + 1, 512)]
    assert len({q.example_id for q in every}) == 20
    assert len({q.context for q in every}) == 20
    assert len({q.question for q in every}) == 20


@pytest.mark.parametrize("length", [256, 512, 1024, 1536, 4096, 8192])
def test_contexts_have_the_nominal_length_in_tokens(prose, tokenizer, length):
    shares = [n / length for n in tokens(tokenizer, [q.context for q in prose.load(12, SEED, length)])]
    assert abs(sum(shares) / len(shares) - 1) < 0.06
    assert 0.8 < min(shares) < max(shares) < 1.2


def test_the_continuation_has_room_for_the_queries_of_the_shipped_suites(prose, tokenizer):
    """About 96 tokens follow the eviction; the suites look at the 17th."""
    lengths = tokens(tokenizer, [q.question for q in prose.load(60, 1, 1536)])
    assert min(lengths) > 60
    assert 85 < sum(lengths) / len(lengths) < 125


def test_a_longer_context_begins_with_the_shorter_one(prose):
    for short, long in zip(prose.load(5, SEED, 512), prose.load(5, SEED, 1024), strict=True):
        assert long.context.startswith(short.context)
        assert len(long.context) > 1.7 * len(short.context)
        assert long.context[len(short.context) :].startswith(short.question[:200])


def test_the_text_goes_on_and_nothing_is_asked(prose):
    for q in prose.load(20, SEED, 512):
        parts = prose.prompt(q)
        assert (parts.before, parts.answer_prefix) == ("", "")
        assert parts.context == q.context
        assert parts.after == parts.question == q.question == q.question.rstrip()
        assert parts.after.count(q.question) == 1
        assert q.context[-1].isspace()  # one text: the next word begins on its own
        assert not q.question[0].isspace()
        assert q.question not in q.context
        assert (q.references, q.needle_spans) == ((), ())


@pytest.mark.parametrize("length", [0, -1, 255, 8193, 10_000_000])
def test_a_length_out_of_range_is_an_error(prose, length):
    with pytest.raises(ConfigError, match="context_tokens"):
        prose.load(1, SEED, length)
    with pytest.raises(ConfigError, match="context_tokens"):
        prose.example_ids(1, SEED, length)


def test_prose_has_no_answers_and_no_other_shipped_family_is_without(prose):
    assert not prose.has_answers
    assert all(build_task(name).has_answers for name in ("facts", "passcodes", "words"))


def test_a_generation_suite_with_prose_is_refused_in_one_sentence(tmp_path, tiny_folder):
    root = project.make(tmp_path / "project", tiny_folder)
    with pytest.raises(
        ConfigError, match=r"^conf/suite/mini\.yaml: task prose has no answers: only an attention"
    ) as caught:
        project.made(root, "suite.mini.tasks=[prose]")
    assert "\n" not in str(caught.value)
