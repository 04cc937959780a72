"""RULER-style tasks: its wording, as long as the budget of each model, needles that can be followed."""

import hashlib
import re
from collections import Counter
from itertools import pairwise
from random import Random

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from kvexp.errors import ConfigError, InputError
from kvexp.models.embedded import embedded_model
from kvexp.models.load import load_tokenizer
from kvexp.replay.arm import Arm
from kvexp.replay.harness import answer_all
from kvexp.replay.model import wrap
from kvexp.replay.protocol import Protocol
from kvexp.run.plan import study_plan
from kvexp.study.compose import select
from kvexp.study.plugins import build_design, build_score, build_task
from kvexp.study.prompts import Rendering, counter, prompt_of
from kvexp.tasks._ruler import NOISE, different, largest, noise
from kvexp.tasks._words import ADJECTIVES, NOUNS, VERBS, WORDS
from tests import project, tiny

SEED = 9000
CONF = ("niah_single", "niah_multikey", "variable_tracking", "common_words")
LENGTHS = {  # in bytes, two each, the smallest that hold the task or more
    "niah_single": (1500, 4000),
    "niah_multikey": (5000, 9000),
    "variable_tracking": (4000, 7000),
    "common_words": (3000, 4000),
}
# sha256 of the whole prompts of the first 3 examples at 9,000 bytes. Another value means other data: logs
# made before and after the change must not be mixed.
GOLDEN = {
    "niah_single": "50b871842760111cb9ed331efcf98fa9124ffb8f1f4493fa596c2f0ea4818636",
    "niah_multikey": "3392be6bc6f94f4b81bb8995cad2dd2633100377629fe18409c8c174dd78f8b5",
    "variable_tracking": "906ac6980db7297679dae25ae10c25ca54f8eca140605fd318835f1d9a86368d",
    "common_words": "4b5de3dac32ea678f7016a846fd03a27ce10422d730dd9891317f3431aa7ebdf",
}


def n_bytes(text: str) -> int:
    return len(text.encode())


@pytest.fixture(scope="module")
def families():
    """The shipped tasks as conf/ has them."""
    made = select(["study=paper", "suite=ruler"], project.ROOT).tasks
    return {name: build_task(made[name].family, **made[name].params) for name in CONF}


@pytest.fixture(params=CONF)
def name(request) -> str:
    return request.param


@pytest.fixture
def family(families, name):
    return families[name]


def pieces() -> PreTrainedTokenizerFast:
    """Like Llama 2 and Mistral: a space before every text, one begin token, single digits, few merges."""
    backend = Tokenizer(models.BPE(unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Metaspace(prepend_scheme="always"), pre_tokenizers.Digits(individual_digits=True)]
    )
    backend.decoder = decoders.Metaspace(prepend_scheme="always")
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=["<unk>", "<s>", "</s>"],
        initial_alphabet=[chr(c) for c in range(10, 127)],
        show_progress=False,
    )
    backend.train_from_iterator([NOISE, "What is the special magic number?", *WORDS], trainer)
    backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>")


@pytest.fixture(scope="module")
def tokenizers():
    return {"bytes": tiny.tokenizer(), "smollm2": load_tokenizer(embedded_model()), "pieces": pieces()}


def whole(family, question) -> str:
    parts = family.prompt(question)
    return parts.before + parts.context + parts.after + parts.answer_prefix


# --- the same examples everywhere


def test_prompts_are_the_same_bytes_on_every_machine(families):
    found = {}
    for name, family in families.items():
        texts = [whole(family, q) for q in family.load(3, SEED, 9000, n_bytes)]
        found[name] = hashlib.sha256("\0".join(texts).encode()).hexdigest()
    assert found == GOLDEN


def test_an_example_does_not_depend_on_how_many_are_loaded(family, name):
    long = LENGTHS[name][1]
    assert family.load(2, SEED, long, n_bytes) == family.load(5, SEED, long, n_bytes)[:2]


def test_ids_are_known_without_a_tokenizer(family, name):
    loaded = family.load(3, SEED, LENGTHS[name][1], n_bytes)
    assert (
        family.example_ids(3, SEED, 4096)
        == [q.example_id for q in loaded]
        == ["9000-000", "9000-001", "9000-002"]
    )


def test_seeds_give_different_examples(family, name):
    every = [q for seed in (1, 2) for q in family.load(5, seed, LENGTHS[name][1], n_bytes)]
    for values in ([q.example_id for q in every], [q.references for q in every], [q.context for q in every]):
        assert len(set(values)) == 10


def test_tasks_of_one_family_share_nothing(families):
    for one, many in zip(
        *(families[n].load(5, SEED, 9000, n_bytes) for n in ("niah_single", "niah_multikey")), strict=True
    ):
        assert one.references[0] not in many.context


def needles(question) -> list[str]:
    return [question.context[start:end] for start, end in question.needle_spans]


def test_what_is_asked_depends_on_neither_length_nor_tokenizer(family, name, tokenizers):
    # The list's repetitions, and with them its solved example, change at 4,096.
    limit = 4095 if name == "common_words" else 9000
    versions = [
        family.load(3, SEED, min(tokens, limit), counter(tokenizers[kind]))
        for kind, tokens in (("smollm2", 2000), ("smollm2", 3500), ("bytes", 9000), ("pieces", 7000))
    ]
    for same in zip(*versions, strict=True):
        for what in (lambda q: (q.example_id, q.question, q.references), needles):
            assert all(what(q) == what(same[0]) for q in same)
        parts = [family.prompt(q) for q in same]
        assert len({(p.before, p.after, p.question, p.answer_prefix) for p in parts}) == 1
        assert len({q.context for q in same}) == 4


def units(question) -> list[str]:
    """Lines of a haystack, or words of a list."""
    return re.findall(r"\d+\. (\w+)", question.context) or question.context.split("\n")


def test_lengths_are_matched(family, name):
    """A shorter list is part of a longer one; needles keep their order and their depths."""
    short, long = (family.load(4, SEED, length, n_bytes) for length in LENGTHS[name])
    for less, more in zip(short, long, strict=True):
        assert len(units(less)) < len(units(more))
        if name == "common_words":
            rest = iter(units(more))
            assert all(unit in rest for unit in units(less))
            continue
        told = [[line for line in units(q) if line != NOISE] for q in (less, more)]
        assert told[0] == told[1]
        for a, b in zip(less.needle_spans, more.needle_spans, strict=True):
            assert abs(a[0] / len(less.context) - b[0] / len(more.context)) < 0.15


# --- sizes


@pytest.mark.parametrize(
    ("kind", "tokens"), [("bytes", 9000), ("smollm2", 2048), ("smollm2", 4096), ("pieces", 6000)]
)
def test_prompt_and_answer_fill_the_budget(family, tokenizers, kind, tokens):
    tokenizer = tokenizers[kind]
    rendering = Rendering(chat=False, limit=tokens)
    for q in family.load(4, SEED, tokens, counter(tokenizer)):
        total = prompt_of(tokenizer, family, q, rendering).n + family.answer_tokens
        # Another unit would be too much, also where no token begins the text and one was left free for it.
        n = len(set(units(q)) - set(needles(q))) if not q.needle_spans else q.context.split("\n").count(NOISE)
        more = family.example(q.example_id, tokens)(n + 1)
        assert total <= tokens < prompt_of(tokenizer, family, more, rendering).n + family.answer_tokens + 1
        assert tokens - total <= {"bytes": 91, "smollm2": 25, "pieces": 60}[kind]


def test_a_chat_template_comes_on_top_of_the_budget_and_nothing_else_does(family, tokenizers):
    tokenizer = tokenizers["smollm2"]
    turn = [{"role": "user", "content": "x"}]
    rendered = tokenizer.apply_chat_template(turn, tokenize=False, add_generation_prompt=True)
    template = len(tokenizer(rendered, add_special_tokens=False)["input_ids"]) - 1
    for q in family.load(2, SEED, 2048, counter(tokenizer)):
        plain, chat = (
            prompt_of(tokenizer, family, q, Rendering(chat=chat, limit=2048)).n for chat in (False, True)
        )
        assert plain + family.answer_tokens <= 2048
        assert chat - plain == template


def test_a_prompt_ends_with_the_answers_beginning_and_has_one_begin_token_at_most(family, tokenizers):
    for kind, tokenizer in tokenizers.items():
        q = family.load(1, SEED, 9000, counter(tokenizer))[0]
        prompt = prompt_of(tokenizer, family, q, Rendering(chat=False, limit=9000))
        decoded = tokenizer.decode(prompt.ids)
        assert decoded.endswith(family.prompt(q).answer_prefix)
        begins = (prompt.ids == tokenizer.bos_token_id).nonzero().flatten().tolist()
        assert begins == ([0] if kind == "pieces" else [])
        first, last = prompt.question
        assert tokenizer.decode(prompt.ids[first:last]).strip().endswith(q.question[-20:])


def test_the_search_finds_what_trying_every_number_finds():
    for seed in range(500):
        random = Random(seed)
        fewest, step = random.randrange(1, 30), random.choice([1, 2, 10, 100])
        sizes = np.cumsum([random.randrange(1, step + 1) for _ in range(400)]).tolist()
        room = random.randrange(sizes[fewest], sizes[-1])
        most = random.randrange(fewest, 400)
        tried = set()

        def size(n: int, sizes=sizes, tried=tried) -> int:
            tried.add(n)
            return sizes[n]

        by_trying = max(n for n in range(fewest, most + 1) if sizes[n] <= room)
        assert largest(size, room, fewest, most) == by_trying
        assert len(tried) <= 25


def test_what_the_search_finds_fits_though_sizes_are_not_monotone():
    for seed in range(300):
        random = Random(seed)
        sizes = [5 * n + random.randrange(12) for n in range(400)]
        room = random.randrange(40, 1990)
        found = largest(lambda n, sizes=sizes: sizes[n], room, 3, 399)
        assert sizes[found] <= room
        assert found == 399 or any(size > room for size in sizes[found + 1 : found + 3])


def test_a_family_that_cannot_count_says_so(family, name):
    said = rf"{type(family).__module__.split('.')[-1]} fills its contexts by a model's own tokens"
    with pytest.raises(ConfigError, match=said):
        family.load(1, SEED, 4096)


def test_the_smallest_context_is_told_and_is_enough(family):
    with pytest.raises(
        ConfigError, match=r"context_tokens is 100, but the shortest prompt of \w+ and its"
    ) as e:
        family.load(1, SEED, 100, n_bytes)
    least = int(re.search(r"have (\d+) tokens", str(e.value))[1])
    assert len(family.load(1, SEED, least, n_bytes)) == 1
    with pytest.raises(ConfigError, match="shortest prompt"):
        family.load(1, SEED, least - 1, n_bytes)


def test_a_list_of_words_that_ends_is_an_error_and_no_short_prompt(families):
    def n_words(text: str) -> int:
        return len(text.split())

    with pytest.raises(
        ConfigError, match=r"the haystack of common_words ends at \d+ tokens of this model: use"
    ):
        families["common_words"].load(1, SEED, 100_000, n_words)


# --- wording, word for word from RULER's description


def test_niah_has_rulers_wording(families):
    for name, keys in (("niah_single", 1), ("niah_multikey", 20)):
        for q in families[name].load(20, SEED, 6000, n_bytes):
            text, references = whole(families[name], q), q.references
            wanted = re.fullmatch(
                r"One of the special magic numbers for ([a-z]+-[a-z]+) is: (\d{7})\.", needles(q)[0]
            )
            key, value = wanted.groups()
            assert references == (value,)
            instruction, _, rest = text.partition("\n")
            assert instruction == (
                "A special magic number is hidden within the following text. Make sure to memorize it. "
                "I will quiz you about the number afterwards."
            )
            *lines, last = rest.split("\n")
            assert last == (
                f"What is the special magic number for {key} mentioned in the provided text?"
                f" The special magic number for {key} mentioned in the provided text is"
            )
            assert set(lines) == {NOISE, *needles(q)}
            assert len(needles(q)) == len(set(needles(q))) == len(lines) - lines.count(NOISE) == keys


def test_variable_tracking_has_rulers_wording_and_a_chain_that_gives_the_answer(families):
    family = families["variable_tracking"]
    template = re.compile(
        r"Memorize and track the chain\(s\) of variable assignment hidden in the following text\.\n\n(.*)\n"
        r"Question: Find all variables that are assigned the value (\d{5}) in the text above\."
        r" Answer: According to the chain\(s\) of variable assignment in the text above, 5 variables are "
        r"assigned the value \2, they are: ",
        re.DOTALL,
    )
    for q in family.load(20, SEED, 6000, n_bytes):
        solved, asked = re.split(r"\n\n(?=Memorize)", whole(family, q))
        solved, answer = solved.rsplit(" ", 5)[0], solved.rsplit(" ", 5)[1:]
        values = []
        for text, names, letters in ((solved, answer, 3), (asked, list(q.references), 5)):
            context, value = template.fullmatch(text).groups()
            values.append(value)
            assert _assigned(context, value) == names
            assert len(set(names)) == 5
            assert all(re.fullmatch(f"[A-Z]{{{letters}}}", n) for n in names)
        assert values[0] != values[1]


def _assigned(text: str, value: str) -> list[str]:
    """Runs the assignments line by line; every other line must be noise."""
    known: dict[str, str] = {}
    for line in text.split("\n"):
        if line == NOISE:
            continue
        name, given = re.fullmatch(r"VAR (\w+) = (\d{5}|VAR \w+ )", line).groups()
        known[name] = known[given.split()[1]] if given.startswith("VAR") else given
    return [name for name, found in known.items() if found == value]


@pytest.mark.parametrize(
    ("tokens", "common", "others", "solved"), [(4095, 6, 1, (20, 3, 1)), (4096, 30, 3, (40, 10, 3))]
)
def test_common_words_has_rulers_wording_and_repetitions(families, tokens, common, others, solved):
    family = families["common_words"]
    for q in family.load(10, SEED, tokens, lambda text: len(text.split())):
        text = whole(family, q)
        shot, rest = re.split(r"\n(?=Below is)", text)
        head = (
            "Below is a numbered list of words. In these words, some appear more often than others. "
            "Memorize the ones that appear most often.\n"
        )
        tail = (
            "\nQuestion: What are the 10 most common words in the above list?"
            " Answer: The top 10 words that appear most often in the list are:"
        )
        assert rest.startswith(head)
        assert rest.endswith(tail)
        assert shot.startswith(head)
        listed, answer = shot.removeprefix(head).split(tail)
        for numbered, references, (words, often, seldom) in (
            (listed, re.findall(r"[a-z]+", answer), solved),
            (q.context, list(q.references), (None, common, others)),
        ):
            items = re.findall(r"\w+", numbered)
            assert items[::2] == [str(i + 1) for i in range(len(items) // 2)]
            counts = Counter(items[1::2])
            assert {w: n for w, n in counts.items() if w in references} == dict.fromkeys(references, often)
            assert {n for w, n in counts.items() if w not in references} == {seldom}
            assert len(references) == 10
            assert words in (None, len(counts))
        assert answer == " " + " ".join(
            f"{i}. {w}" for i, w in enumerate(re.findall(r"[a-z]+", answer), start=1)
        )


def test_common_words_come_in_no_order(families):
    q = families["common_words"].load(1, SEED, 3000, lambda text: len(text.split()))[0]
    places = [i / len(units(q)) for i, word in enumerate(units(q)) if word == q.references[0]]
    assert min(places) < 0.4
    assert max(places) > 0.6


def test_a_list_of_another_family_is_refused(families):
    q = families["niah_single"].load(1, SEED, 4000, n_bytes)[0]
    with pytest.raises(InputError, match="is none of this family"):
        families["common_words"].prompt(q)


# --- needles


def test_nothing_is_named_by_accident(families):
    for name in ("niah_single", "niah_multikey", "variable_tracking"):
        for q in families[name].load(100, SEED, 6000, n_bytes):
            found = needles(q)
            rest = q.context
            for needle in found:
                assert rest.count(needle) == 1 or name == "variable_tracking"
                rest = rest.replace(needle, "")
            keys = re.findall(r"for (\S+) is", " ".join(found))
            values = re.findall(r"\d+", " ".join(found))
            assert len(set(keys)) == len(keys)
            assert len(set(values)) == len(values)
            for thing in (*q.references, *keys, *values):
                assert thing.lower() not in rest.lower()
                assert thing not in families[name].prompt(q).before


def test_a_common_word_is_part_of_no_other(families):
    for q in families["common_words"].load(60, SEED, 4000, n_bytes):
        others = [w for w in (*WORDS, *ADJECTIVES, *NOUNS, *VERBS) if w not in q.references]
        assert not [r for r in q.references if any(r in w for w in others)]


def test_the_reference_answers_itself(family, name):
    for q in family.load(10, SEED, LENGTHS[name][1], n_bytes):
        assert family.score(" " + ", ".join(q.references).upper() + ".\x00", q) == 1.0
        assert family.score(" ".join(q.references[1:]), q) == 1 - 1 / len(q.references)
        assert family.score("1. 2. 3.", q) == 0.0
        assert family.score(family.prompt(q).answer_prefix, q) == 0.0


@pytest.mark.parametrize("statements", [1, 5, 20])
def test_needles_stand_between_different_lines_and_everywhere(statements):
    random = Random(1)
    texts = [f"S{i} " for i in range(statements)]
    counts = Counter()
    lines = 40
    for _ in range(4000):
        depths = sorted(random.random() for _ in texts)
        text, spans = noise(texts, depths, lines)
        split = text.split("\n")
        assert split.count(NOISE) == lines
        assert [w for w in split if w != NOISE] == texts
        assert all(a == NOISE or b == NOISE for a, b in pairwise(split))
        assert split[-1] == NOISE
        assert [text[a:b] for a, b in spans] == [t.strip() for t in texts]
        before = np.cumsum([line == NOISE for line in split])
        counts.update(int(before[i]) for i, line in enumerate(split) if line != NOISE)
    shares = np.array([counts[line] for line in range(lines)]) / (4000 * statements)
    assert abs(shares * lines - 1).max() < 0.5  # 10 % of spread by chance for one statement
    assert abs(shares.reshape(4, -1).sum(1) - 0.25).max() < 0.03


@pytest.mark.parametrize("name", ["niah_single", "niah_multikey", "variable_tracking"])
def test_depths_of_needles_are_uniform(families, name):
    questions = families[name].load(200, SEED, 9000, n_bytes)
    depths = [spans[0] / len(q.context) for q in questions for spans in q.needle_spans[:1]]
    every = np.sort([s / len(q.context) for q in questions for s, _ in q.needle_spans])
    edges = np.arange(len(every)) / len(every)
    assert np.abs(every - edges).max() < 0.1  # Kolmogorov-Smirnov: 0.095 is the 5 % point of 200
    if name != "variable_tracking":  # there the first of a chain stands before the others
        assert [
            0.25 - 0.1 < np.mean(np.digitize(depths, [0.25, 0.5, 0.75]) == k) < 0.35 for k in range(4)
        ] == [True] * 4


def test_token_positions_are_those_of_the_needles(families, tokenizers):
    for tokenizer in tokenizers.values():
        for name in ("niah_multikey", "variable_tracking"):
            q = families[name].load(1, SEED, 9000, counter(tokenizer))[0]
            prompt = prompt_of(tokenizer, families[name], q, Rendering(chat=False, limit=9000))
            for needle, (first, last) in zip(needles(q), prompt.needles, strict=True):
                assert prompt.n_prefix <= first < last <= prompt.n_prefix + prompt.n_context
                assert needle in tokenizer.decode(prompt.ids[first:last])
                # A token may reach over the needle's ends, but none could be left out.
                assert needle not in tokenizer.decode(prompt.ids[first + 1 : last])
                assert needle not in tokenizer.decode(prompt.ids[first : last - 1])


def test_which_heads_evicted_a_needle_follows_from_keep_plan_and_positions(families):
    """Recency keeps positions that are known without any plan; top-k and Poisson differ by head."""
    loaded = wrap(tiny.model("llama", positions=8192), tiny.tokenizer())
    family = families["niah_multikey"]
    q = family.load(1, SEED, 5200, counter(loaded.tokenizer))[0]
    prompt = prompt_of(loaded.tokenizer, family, q, Rendering(chat=False, limit=5200))
    protocol = Protocol()
    arms = [
        Arm("streaming_llm", None, build_design("recency"), "plain", "stream", 0.5),
        Arm("h2o", build_score("accumulated"), build_design("topk"), "plain", "stream", 0.97),
        Arm("poisson", build_score("accumulated"), build_design("poisson"), "hajek", "stream", 0.97, 0),
        Arm("floor", build_score("accumulated"), build_design("topk"), "plain", "stream", 1.0),
    ]
    draws = np.random.default_rng(0)
    answers = answer_all(loaded, prompt, arms, protocol, 1, lambda arm, shape: draws.random(shape))
    lost = {}
    for arm, answer in zip(arms, answers, strict=True):
        kept = answer.planned.plan.kept_LKN
        # (needles, layers, KV heads): a needle is lost to a head that lacks any of its tokens
        lost[arm.name] = torch.stack([~kept[..., first:last].all(-1) for first, last in prompt.needles])
        assert lost[arm.name].shape == (20, loaded.layers, loaded.kv_heads)
    n = prompt.n_prefix + prompt.n_context
    recent = n - (round(0.5 * n) - protocol.sinks)
    by_hand = torch.tensor([first < recent for first, _ in prompt.needles])
    assert (lost["streaming_llm"] == by_hand[:, None, None]).all()
    assert 0 < by_hand.sum() < 20
    assert not lost["floor"].any()
    for name in ("h2o", "poisson"):
        assert lost[name].any()
        per_head = lost[name].float().mean(0)
        assert per_head.min() < per_head.max()


# --- parts


def test_different_values_keep_their_order():
    draws = iter("abacabd")
    assert different(lambda: next(draws), 4) == ["a", "b", "c", "d"]


def test_words_are_plain_and_occur_once():
    words = (*WORDS, *ADJECTIVES, *NOUNS, *VERBS)
    assert len(set(words)) == len(words) > 1900
    assert all(re.fullmatch(r"[a-z]{3,}", word) for word in words)
    assert len(ADJECTIVES) * len(NOUNS) > 300_000


@pytest.mark.parametrize(
    ("family", "field", "value"),
    [
        ("niah", "n_keys", 0),
        ("niah", "n_keys", 101),
        ("variable_tracking", "n_hops", 0),
        ("variable_tracking", "n_hops", 11),
    ],
)
def test_parameters_out_of_range_are_errors(family, field, value):
    with pytest.raises(ConfigError, match=f"{field} is {value}"):
        build_task(family, **{field: value})


@pytest.mark.parametrize(("hops", "letters"), [(1, 5), (10, 5)])
def test_the_chain_can_have_another_length(hops, letters):
    family = build_task("variable_tracking", n_hops=hops)
    q = family.load(1, SEED, 6000, n_bytes)[0]
    assert len(q.references) == len(q.needle_spans) == hops + 1
    assert f"above, {hops + 1} variables are assigned" in family.prompt(q).answer_prefix


def test_room_for_the_answer_follows_the_longest_answer():
    made = select(["study=paper", "suite=ruler", "task.common_words.max_new_tokens=50"], project.ROOT).tasks
    longest = {name: made[name].max_new_tokens for name in CONF}
    assert longest == {"niah_single": 128, "niah_multikey": 128, "variable_tracking": 30, "common_words": 50}
    assert {name: made[name].params["answer_tokens"] for name in CONF} == longest


def test_the_suites_have_the_papers_counts():
    plan = {
        suite: study_plan(select(["study=paper", f"suite={suite}"], project.ROOT))
        for suite in ("needle", "ruler")
    }
    assert plan["needle"]["generations"] == 12 * 21 == 252
    assert plan["ruler"]["generations"] == 16 * 80 * 17 == 21_760
    ruler = plan["ruler"]["suites"][0]
    assert (len(ruler["models"]), ruler["tasks"]) == (4, list(CONF))
    assert ruler["generations_by_arm"]["poisson"] == 16 * 640
