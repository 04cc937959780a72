"""The replay harness against a dense reference, on every supported architecture."""

from dataclasses import replace

import pytest
import torch

from kvexp.draws import uniforms
from kvexp.errors import InputError
from kvexp.replay.arm import Arm
from kvexp.replay.harness import answer_all
from kvexp.replay.model import wrap
from kvexp.replay.prompt import encode_prompt
from kvexp.replay.protocol import Protocol
from kvexp.study.plugins import build_design, build_score
from tests import tiny
from tests.replay.reference import Dense

CONTEXT = " ".join(
    f"Item {i} weighs {i * 37 % 101} grams and is {'red' if i % 3 else 'blue'}." for i in range(9)
)


def prompt_of(loaded, context=CONTEXT):
    return encode_prompt(
        loaded.tokenizer,
        before="Read this.\n",
        context=context,
        after="\nWhat does item 3 weigh? Say it.",
        question="What does item 3 weigh?",
        answer_prefix="It weighs",
    )


def draw(arm, shape):
    return uniforms("unanchored", arm.seed, "task", "example", arm.condition, shape)


def all_arms(budgets=(0.25, 0.6)):
    accumulated, window, question = (
        build_score("accumulated", stride=3),
        build_score("window", window=16),
        build_score("question"),
    )
    topk, poisson = build_design("topk"), build_design("poisson")
    arms = [Arm("full", None, build_design("full"), "plain")]
    for budget in budgets:
        arms += [
            Arm("streaming_llm", None, build_design("recency"), "plain", "stream", budget),
            Arm("h2o", accumulated, topk, "plain", "stream", budget),
            Arm("snapkv", window, topk, "plain", "stream", budget),
            Arm("topk", question, topk, "plain", "aware", budget),
            Arm("uniform", None, build_design("uniform"), "hajek", "stream", budget, 0),
            Arm("no_offset", accumulated, poisson, "plain", "stream", budget, 0),
        ]
        for seed in (0, 1):
            arms.append(Arm("poisson", accumulated, poisson, "hajek", "stream", budget, seed))
            arms.append(Arm("poisson", question, poisson, "hajek", "aware", budget, seed))
    return arms


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)


@pytest.mark.parametrize(
    ("kind", "heads", "kv_heads"),
    [("llama", 6, 2), ("qwen2", 6, 2), ("mistral", 6, 2), ("llama", 4, 4), ("qwen2", 8, 1), ("llama", 9, 3)],
)
def test_every_arm_equals_the_dense_reference(kind, heads, kv_heads):
    loaded = wrap(tiny.model(kind, heads=heads, kv_heads=kv_heads), tiny.tokenizer())
    prompt, protocol = prompt_of(loaded), Protocol()
    answers = answer_all(loaded, prompt, all_arms(), protocol, 8, draw)
    for answer in answers:
        dense = Dense(loaded, prompt, answer)
        steps = len(answer.decoded.tokens)
        expected = dense.logits[:steps].log_softmax(-1)
        assert expected.argmax(-1).tolist() == answer.decoded.tokens
        chosen = expected.gather(-1, torch.tensor(answer.decoded.tokens)[:, None])[:, 0]
        torch.testing.assert_close(
            torch.tensor(answer.decoded.logprobs, dtype=torch.float64), chosen, atol=1e-5, rtol=1e-5
        )
        for step in range(min(steps, protocol.steps)):
            if answer.certificate_steps is not None:
                slow = dense.certificate(step, 4, protocol.delta, protocol.norm_floor)
                assert answer.certificate_steps[step] == pytest.approx(slow, rel=1e-4)
        entropies = [dense.entropy(t, 4) for t in range(min(steps, protocol.steps))]
        assert answer.entropy == pytest.approx(sum(entropies) / len(entropies), rel=1e-5)


def test_eviction_matters_in_these_tests():
    """Otherwise the comparison above would pass with any keep set."""
    loaded = wrap(tiny.model("llama"), tiny.tokenizer())
    answers = answer_all(loaded, prompt_of(loaded), all_arms((0.25,)), Protocol(), 8, draw)
    assert len({tuple(a.decoded.logprobs) for a in answers}) == len(answers)
    assert len({tuple(a.decoded.tokens) for a in answers}) > 2
    assert all(max(a.certificate_steps) > 0.01 for a in answers if a.certificate_steps)


def test_budget_one_gives_the_full_caches_tokens_and_a_certificate_of_zero():
    loaded = wrap(tiny.model("qwen2"), tiny.tokenizer())
    prompt = prompt_of(loaded)
    floor = [
        Arm("floor", build_score("accumulated"), build_design("poisson"), "hajek", "stream", 1.0, 0),
        Arm("floor", build_score("question"), build_design("poisson"), "hajek", "aware", 1.0, 0),
        Arm("floor", build_score("window"), build_design("topk"), "plain", "stream", 1.0),
        Arm("floor", None, build_design("recency"), "plain", "stream", 1.0),
    ]
    full, *answers = answer_all(
        loaded, prompt, [Arm("full", None, build_design("full"), "plain"), *floor], Protocol(), 8, draw
    )
    for answer in answers:
        assert answer.decoded.tokens == full.decoded.tokens
        assert answer.decoded.logprobs == pytest.approx(full.decoded.logprobs, abs=1e-5)
    assert [a.certificate_steps and max(a.certificate_steps) for a in answers] == [0.0, 0.0, None, None]
    assert answers[0].blind_cells == 0
    assert answers[2].planned.margin is None
    assert "evicted" in answers[2].undefined["margin"]


def test_the_full_arm_equals_transformers_own_greedy_generation():
    for kind in tiny.KINDS:
        made = tiny.model(kind, seed=3)
        made.generation_config.eos_token_id = [0, 2]
        tokenizer = tiny.tokenizer()
        prompt = prompt_of(wrap(tiny.model(kind, seed=3), tokenizer))
        with torch.no_grad():
            own = made.generate(prompt.ids[None], max_new_tokens=12, do_sample=False, pad_token_id=0)
        loaded = wrap(made, tokenizer)
        (full,) = answer_all(
            loaded, prompt, [Arm("full", None, build_design("full"), "plain")], Protocol(), 12, draw
        )
        assert full.decoded.tokens == own[0, prompt.n :].tolist()


def test_keep_sets_do_not_depend_on_the_other_arms_or_their_order():
    loaded = wrap(tiny.model("llama"), tiny.tokenizer())
    prompt, arms = prompt_of(loaded), all_arms()
    plans = [a.planned for a in answer_all(loaded, prompt, arms, Protocol(), 2, draw)]
    together = {p.arm: p.keep_digest for p in plans}
    for some in (arms[::-1], arms[3:7], arms[-1:]):
        for answer in answer_all(loaded, prompt, some, Protocol(), 2, draw):
            assert answer.planned.keep_digest == together[answer.planned.arm]
    assert len(set(together.values())) > 12


def test_first_token_from_the_prefill_is_the_full_caches_first_token():
    loaded = wrap(tiny.model("llama", seed=5), tiny.tokenizer())
    prompt, protocol = prompt_of(loaded), Protocol(first_token="prefill")
    answers = answer_all(loaded, prompt, all_arms((0.2,)), protocol, 4, draw)
    compressed = answer_all(loaded, prompt, all_arms((0.2,)), Protocol(), 4, draw)
    full = answers[0]
    for answer, other in zip(answers, compressed, strict=True):
        if answer.planned.arm.condition == "aware":
            assert answer.decoded.tokens[0] == full.decoded.tokens[0]
            assert answer.decoded.logprobs[0] == pytest.approx(full.decoded.logprobs[0], abs=1e-5)
            assert len(answer.certificate_steps or range(3)) == len(answer.decoded.tokens) - 1
        if answer.planned.arm.condition == "stream":
            assert answer.decoded.tokens == other.decoded.tokens


def test_an_answer_of_one_token_from_the_prefill_has_no_certificate_and_says_why():
    loaded = wrap(tiny.model("llama", seed=5), tiny.tokenizer())
    arm = Arm("poisson", build_score("question"), build_design("poisson"), "hajek", "aware", 0.2, 0)
    (answer,) = answer_all(loaded, prompt_of(loaded), [arm], Protocol(first_token="prefill"), 1, draw)
    assert answer.certificate_steps is None
    assert answer.entropy is None
    assert "prefill" in answer.undefined["certificate"]


def test_a_model_without_stop_tokens_answers_at_full_length():
    loaded = replace(wrap(tiny.model("llama"), tiny.tokenizer()), stop_ids=frozenset())
    answers = answer_all(loaded, prompt_of(loaded), all_arms((0.5,)), Protocol(), 5, draw)
    assert {len(a.decoded.tokens) for a in answers} == {5}
    assert not any(a.decoded.stopped for a in answers)


def test_a_score_without_a_query_row_is_refused_instead_of_ranking_nothing():
    loaded = wrap(tiny.model("llama"), tiny.tokenizer())
    sparse = Arm("h2o", build_score("accumulated", stride=5000), build_design("topk"), "plain", "stream", 0.5)
    with pytest.raises(InputError, match="h2o: none of the"):
        answer_all(loaded, prompt_of(loaded), [sparse], Protocol(), 2, draw)
