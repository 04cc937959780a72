"""Every number that the replay logs of an answer, against loops over tokens that share no code with it."""

from dataclasses import dataclass, replace

import pytest
import torch

from kvexp.draws import uniforms
from kvexp.replay.arm import Arm
from kvexp.replay.harness import answer_all
from kvexp.replay.model import wrap
from kvexp.replay.prompt import encode_prompt
from kvexp.replay.protocol import Protocol
from kvexp.run.answer import answer as answer_rows
from kvexp.study.plugins import build_design, build_score
from kvexp.tasks.base import PromptText, Question, Task
from tests import project, tiny
from tests.replay.by_tokens import Prompted, Rules, probe

CONTEXT = " ".join(f"Box {i} holds {i * 29 % 83} {'pens' if i % 3 else 'cups'}." for i in range(12))
MOST = 7


def arms():
    """Each score and each design in each condition, and budgets that leave the tail a few tokens."""
    accumulated, window = build_score("accumulated", stride=5), build_score("window", window=20, pool=3)
    norms, question = build_score("value_weighted", window=12), build_score("question")
    topk, poisson, uniform = build_design("topk"), build_design("poisson"), build_design("uniform")
    return [
        Arm("full", None, build_design("full"), "plain"),
        Arm("recency", None, build_design("recency"), "plain", "stream", 0.3),
        Arm("h2o", accumulated, topk, "plain", "stream", 0.3),
        Arm("snapkv", window, topk, "plain", "stream", 0.3),
        Arm("norms", norms, topk, "plain", "stream", 0.3),
        Arm("topk", question, topk, "plain", "aware", 0.3),
        Arm("poisson", accumulated, poisson, "hajek", "stream", 0.3, 0),
        Arm("poisson", question, poisson, "hajek", "aware", 0.3, 1),
        Arm("no_offset", accumulated, poisson, "plain", "stream", 0.3, 0),
        Arm("uniform", None, uniform, "hajek", "stream", 0.3, 0),
        Arm("uniform", None, uniform, "hajek", "stream", 0.145, 3),
        Arm("poisson", window, poisson, "hajek", "stream", 0.15, 2),
    ]


def prompt_of(loaded):
    return encode_prompt(
        loaded.tokenizer,
        before="Read.\n",
        context=CONTEXT,
        after="\nWhat does box 3 hold?",
        question="What does box 3 hold?",
        answer_prefix="It holds",
    )


def draw(arm, shape):
    return uniforms("unanchored", arm.seed, "task", "example", arm.condition, shape)


SETTINGS = {
    "a head of each KV head": ("llama", 6, 2, {"head_stride": 4}, Rules(stride=4)),
    "heads in unequal numbers": (
        "qwen2",
        9,
        3,
        {"head_stride": 2, "steps": 3, "delta": 0.2, "norm_floor": 0.5, "sinks": 2, "recent": 20},
        Rules(stride=2, steps=3, delta=0.2, floor=0.5, sinks=2, recent=20),
    ),
    "KV heads that nobody samples": ("llama", 4, 4, {"head_stride": 3}, Rules(stride=3)),
    "the first token from the prefill": (
        "mistral",
        6,
        2,
        {"head_stride": 4, "first_token": "prefill"},
        Rules(stride=4, first_from_prefill=True),
    ),
}
# Arms of a setting that is about some of them only.
SOME = {
    "heads in unequal numbers": slice(4, None),
    "KV heads that nobody samples": slice(6, None),
    "the first token from the prefill": slice(4, 8),
}


@pytest.fixture(scope="module", params=SETTINGS)
def rows(request):
    """Pairs of what the replay made and what the loops make, arm by arm."""
    torch.set_num_threads(1)
    kind, heads, kv_heads, changes, rules = SETTINGS[request.param]
    loaded = wrap(tiny.model(kind, heads=heads, kv_heads=kv_heads), tiny.tokenizer())
    loaded = replace(loaded, stop_ids=frozenset(range(2, 259, 6)))
    prompt = prompt_of(loaded)
    some = arms()[SOME.get(request.param, slice(None))]
    answers = answer_all(loaded, prompt, some, Protocol(**changes), MOST, draw)
    slow = Prompted(loaded, prompt, rules)
    return [(answer, slow.row(answer.planned.arm, draw, MOST)) for answer in answers]


def numbers(answer):
    """The answer's numbers by the names of the log."""
    planned, decoded = answer.planned, answer.decoded
    return {
        "n_evictable": planned.n_evictable,
        "expected_kept": planned.plan.expected,
        "realised_kept": planned.plan.realised,
        "tail_kept": planned.plan.tail_kept if planned.arm.design.is_random else None,
        "first_step_cached": answer.first_step_cached,
        "evicted_mass": planned.evicted_mass,
        "margin": planned.margin,
        "entropy": answer.entropy,
        "certificate_steps": answer.certificate_steps,
        "zero_variance_cells": answer.blind_cells,
        "n_generated": len(decoded.tokens),
        "stopped_by": "stop_token" if decoded.stopped else "length",
        "keep_digest": planned.keep_digest,
        "text": answer.text,
        "output_logprob": sum(decoded.logprobs) / len(decoded.logprobs),
        "min_logit_gap": min(decoded.gaps),
    }


# A margin is a small difference of scores that the replay has in float32.
NEAR = {"margin": 1e-5, "min_logit_gap": 1e-4}


def test_every_number_equals_the_loops(rows):
    for answer, slow in rows:
        for name, value in numbers(answer).items():
            where = (answer.planned.arm, name)
            if value is None or isinstance(value, str | int):
                assert value == slow[name], where
            else:
                near = NEAR.get(name, 1e-6)
                assert value == pytest.approx(slow[name], rel=1e-4, abs=near), where


def test_undefined_signals_are_the_ones_that_say_why(rows):
    for answer, slow in rows:
        null = {name for name in ("certificate", "entropy", "evicted_mass", "margin") if slow[name] is None}
        assert set(answer.undefined) == null


def test_these_rows_show_what_they_are_there_for():
    """Both endings, cells without variance and cells with it, certificates over 0 and answers that differ."""
    torch.set_num_threads(1)
    kind, heads, kv_heads, changes, _ = SETTINGS["a head of each KV head"]
    loaded = wrap(tiny.model(kind, heads=heads, kv_heads=kv_heads), tiny.tokenizer())
    loaded = replace(loaded, stop_ids=frozenset(range(2, 259, 6)))
    answers = answer_all(loaded, prompt_of(loaded), arms(), Protocol(**changes), MOST, draw)
    assert {answer.decoded.stopped for answer in answers} == {True, False}
    blind = [answer.blind_cells for answer in answers if answer.blind_cells is not None]
    assert min(blind) == 0 < max(blind)
    assert len({tuple(answer.decoded.tokens) for answer in answers}) > 4
    assert max(len(answer.decoded.tokens) for answer in answers) > Protocol().steps


@dataclass(frozen=True)
class Asks(Task):
    """One question, scored by the parts of the answer."""

    score_name = "string_match_all"

    def load(self, n_examples, seed, context_tokens, count=None):
        return [Question("5-001", CONTEXT, "What does box 3 hold?", ("m", "i"))]

    def prompt(self, question):
        return PromptText(
            "Read.\n", question.context, f"\n{question.question}", question.question, "It holds"
        )


def test_every_number_of_a_log_row_equals_the_loops(tmp_path, tiny_folder):
    """As a shard writes them, with the draws and the probe that its keys choose."""
    torch.set_num_threads(1)
    shard = project.made(project.make(tmp_path / "project", tiny_folder))[0]
    shard = replace(shard, task=replace(shard.task, max_new_tokens=MOST))
    loaded = replace(wrap(tiny.model("llama"), tiny.tokenizer()), stop_ids=frozenset(range(2, 259, 6)))
    family = Asks()
    (question,) = family.load(1, 0, 0)
    rows = answer_rows(shard, "an anchor", family, question, 2, loaded)
    slow = Prompted(loaded, prompt_of(loaded), Rules())

    def keyed(arm, shape):
        return uniforms("an anchor", arm.seed, "words", "5-001", arm.condition, shape)

    for row, arm in zip(rows, shard.places(), strict=True):
        expected = slow.row(arm, keyed, MOST)
        kept = expected.pop("kept")
        if arm.name == "full":
            expected["keep_digest"] = expected["keep_probe"] = None
        else:
            key = ["mini", "tiny", "words", "5-001", arm.name, arm.condition, arm.budget, arm.seed]
            expected["keep_probe"] = probe(kept, key)
        text = expected["text"].lower()
        expected["score_value"] = (("m" in text) + ("i" in text)) / 2
        for name, value in expected.items():
            made, near = getattr(row, name), NEAR.get(name, 1e-6)
            if isinstance(value, float | list):
                assert made == pytest.approx(value, rel=1e-4, abs=near), (arm, name)
            else:
                assert made == value, (arm, name)
        assert row.score_name == "string_match_all"
    assert {row.score_value for row in rows} == {0.0, 0.5, 1.0}
