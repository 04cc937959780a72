"""Generated tasks: the same bytes everywhere, matched across lengths, answerable from the context."""

import hashlib
import re
from itertools import pairwise

import pytest
from tokenizers import Tokenizer

from kvexp.errors import ConfigError, InputError
from kvexp.models.embedded import embedded_model
from kvexp.study import plugins
from kvexp.study.plugins import build_task
from kvexp.tasks._words import CITIES, FIRST_NAMES, SURNAMES, WORDS
from kvexp.tasks.base import Task
from kvexp.tasks.facts import RELATIONS

TASKS = ["facts", "passcodes", "words"]
LENGTHS = [512, 1024, 2048, 4096]
SEED = 9000

# sha256 of the whole prompts of the first 5 examples at 1,024 tokens. Another value means other data:
# logs made before and after the change must not be mixed.
GOLDEN = {
    "facts": "9dd90d8330ddc882f2b0f9bec345b7cb31afbe3a9de1523d2f6ad685d2169502",
    "passcodes": "3bfa2bbd1e047249a3445a8e8d4534123726fbf426afd7eb1858f3db56977764",
    "words": "e65090afbd1907439a0c53e2fae270f80f302039d074cd61d26b263a642ae623",
}


@pytest.fixture(params=TASKS)
def task(request) -> Task:
    return build_task(request.param)


def _words(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.lower()))


def test_prompts_are_the_same_bytes_on_every_machine():
    found = {}
    for name in TASKS:
        family = build_task(name)
        parts = [family.prompt(q) for q in family.load(5, SEED, 1024)]
        text = "\0".join(p.before + p.context + p.after + p.answer_prefix for p in parts)
        found[name] = hashlib.sha256(text.encode()).hexdigest()
    assert found == GOLDEN


def test_an_example_does_not_depend_on_how_many_are_loaded(task):
    assert task.load(2, SEED, 512) == task.load(5, SEED, 512)[:2]


def test_seeds_give_different_examples(task):
    ours, theirs = task.load(20, SEED, 512), task.load(20, SEED + 1, 512)
    assert len({q.example_id for q in ours + theirs}) == 40
    assert len({q.context for q in ours + theirs}) == 40
    assert len({q.references for q in ours + theirs}) > 25


def test_lengths_are_matched(task):
    """Same ids, facts and questions; the shorter text is the longer one with pieces cut out."""
    by_length = [task.load(10, SEED, length) for length in LENGTHS]
    for versions in zip(*by_length, strict=True):
        short = versions[0]
        for q in versions:
            assert (q.example_id, q.question, q.references) == (
                short.example_id,
                short.question,
                short.references,
            )
            assert _facts(q) == _facts(short)
        for less, more in pairwise(versions):
            lines = iter(_sentences(more.context))
            assert all(sentence in lines for sentence in _sentences(less.context))


def _facts(question) -> list[str]:
    return [question.context[start:end] for start, end in question.needle_spans]


def _sentences(context: str) -> list[str]:
    return re.split(r"(?<=\.)\s", context)


def test_facts_keep_their_depth(task):
    for short, long in zip(task.load(20, SEED, 1024), task.load(20, SEED, 2048), strict=True):
        for less, more in zip(short.needle_spans, long.needle_spans, strict=True):
            depths = less[0] / len(short.context), more[0] / len(long.context)
            assert abs(depths[0] - depths[1]) < 0.1


def test_facts_are_spread_over_the_context(task):
    questions = task.load(100, SEED, 1024)
    depths = [s / len(q.context) for q in questions for s, _ in q.needle_spans]
    quarters = [sum(k / 4 <= d < (k + 1) / 4 for d in depths) / len(depths) for k in range(4)]
    assert min(quarters) > 0.1


def test_an_answer_occurs_only_in_its_fact(task):
    for q in task.load(100, SEED, 2048):
        facts, rest = _facts(q), q.context
        for fact in facts:
            rest = rest.replace(fact, " ")
        for answer in q.references:
            answer_words = rf"\b{_words(answer)}\b"
            assert sum(bool(re.search(answer_words, _words(f))) for f in facts) == 1
            assert not re.search(answer_words, _words(rest))


def test_prompts_fit_the_interface(task):
    for q in task.load(100, SEED, 512):
        parts = task.prompt(q)
        assert parts.after.count(q.question) == 1
        assert parts.context == q.context == q.context.strip()
        assert parts.question == q.question
        for answer in q.references:
            assert answer not in parts.before + parts.after + parts.answer_prefix


def test_the_reference_answers_itself(task):
    for q in task.load(20, SEED, 512):
        assert task.score(" " + " and ".join(q.references) + ".", q) == 1.0
        assert task.score("I do not know.", q) == 0.0


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("name", TASKS)
def test_contexts_have_the_nominal_length_in_tokens(name, length):
    tokenizer = Tokenizer.from_file(str(embedded_model() / "tokenizer.json"))
    questions = build_task(name).load(30, SEED, length)
    encoded = tokenizer.encode_batch([q.context for q in questions], add_special_tokens=False)
    shares = [len(e.ids) / length for e in encoded]
    assert abs(sum(shares) / len(shares) - 1) < 0.05
    assert 0.85 < min(shares) < max(shares) < 1.15


@pytest.mark.parametrize("length", [0, -1, 100, 10_000_000])
def test_a_length_out_of_range_is_an_error(task, length):
    with pytest.raises(ConfigError, match="context_tokens"):
        task.load(1, SEED, length)


def test_vocabularies_are_large_and_without_repeats():
    assert len(WORDS) >= 150
    assert len(CITIES) >= 100
    assert len(FIRST_NAMES) * len(SURNAMES) >= 100
    for words in (WORDS, CITIES, FIRST_NAMES, SURNAMES):
        assert len(set(words)) == len(words)


def test_families_are_the_files_of_the_folder():
    assert set(TASKS) <= set(plugins.names("kvexp.tasks"))
    assert not [name for name in plugins.names("kvexp.tasks") if name == "base" or name.startswith("_")]


@pytest.mark.parametrize("name", ["passcode", "base", "_haystack", "_contexts", "os", "", "../x"])
def test_an_unknown_family_is_a_one_sentence_error(name):
    with pytest.raises(ConfigError, match="there is no task named"):
        build_task(name)


def test_a_misspelt_family_gets_a_suggestion():
    with pytest.raises(ConfigError, match="did you mean 'passcodes'"):
        build_task("passcode")


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [("passcodes", "n_codes", 1), ("passcodes", "n_codes", 6), ("words", "n_facts", 0)],
)
def test_parameters_out_of_range_are_errors(name, field, value):
    with pytest.raises(ConfigError, match=f"{field} is {value}"):
        build_task(name, **{field: value})


@pytest.mark.parametrize("n", [2, 3, 5])
def test_the_number_of_facts_can_be_set(n):
    assert len(build_task("passcodes", n_codes=n).load(1, SEED, 512)[0].references) == n
    assert len(build_task("words", n_facts=n).load(1, SEED, 512)[0].needle_spans) == n


def test_a_question_of_another_family_has_no_prefix():
    words = build_task("words").load(1, SEED, 512)[0]
    with pytest.raises(InputError, match="is not a question of this family"):
        build_task("facts").prompt(words)


def test_every_phrasing_is_used():
    text = " ".join(q.context for q in build_task("facts").load(200, SEED, 256))
    for relation in RELATIONS:
        for statement in relation.statements:
            assert max(statement.replace("{v}", "{p}").split("{p}"), key=len) in text
