"""What is scored and logged of an answer, on a model whose every token and logit is written by hand.

The model's layers add nothing, so the token that is fed decides the next one: the greedy answer, its
log-probabilities and its gaps are known without a forward pass.
"""

import math
from dataclasses import dataclass, replace

import pytest
import torch

from kvexp.replay.model import wrap
from kvexp.run.answer import answer
from kvexp.tasks.base import PromptText, Question, Task
from tests import project, tiny

CONTEXT = "A context of no importance, long enough to lose a part of it. " * 6
# From "=" on: the token that follows, its logit and the logit of the runner-up, "?". All others have 0.
SCRIPT = [
    ("A", 6.0, 5.0),
    ("b", 7.0, 3.0),
    ("Ġ", 8.0, 7.25),
    (".", 9.0, 1.0),
    ("<|endoftext|>", 6.5, 2.0),
    ("Ċ", 7.5, 4.0),
    ("Ġ", 0.0, 0.0),  # never reached: the tokens of a script are different ones
]
TOKENS = [token for token, _, _ in SCRIPT[:-1]]


@dataclass(frozen=True)
class Asks(Task):
    """One question whose prompt ends with "="."""

    score_name = "exact_match"

    def load(self, n_examples, seed, context_tokens, count=None):
        return [Question("1-000", CONTEXT, "And?", ("the AB",))]

    def prompt(self, question):
        return PromptText("", question.context, "\nAnd?", "And?", answer_prefix="=")


def scripted(script=SCRIPT[:-1]):
    """A Llama in which token i is a direction of its own and the head maps it to what follows it."""
    model, tokenizer = tiny.model("llama"), tiny.tokenizer()
    vocabulary = tokenizer.get_vocab()
    size = model.config.hidden_size
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
        model.model.embed_tokens.weight.zero_()
        model.model.embed_tokens.weight[:, size - 1] = 1.0
        model.lm_head.weight.zero_()
        for place, before in enumerate(["=", *(token for token, _, _ in script[:-1])]):
            following, highest, second = script[place]
            model.model.embed_tokens.weight[vocabulary[before]] = torch.eye(size)[place]
            # The last norm makes a direction of length 1 one of length sqrt(size).
            model.lm_head.weight[vocabulary[following], place] = highest / size**0.5
            model.lm_head.weight[vocabulary["?"], place] = second / size**0.5
    return wrap(model, tokenizer)


def stopping_at(loaded, *tokens):
    vocabulary = loaded.tokenizer.get_vocab()
    return replace(loaded, stop_ids=frozenset(vocabulary[token] for token in tokens))


def logprob(place):
    """Of the token at a place of the script: 257 of the 259 tokens have the logit 0."""
    _, highest, second = SCRIPT[place]
    return highest - math.log(math.exp(highest) + math.exp(second) + 257)


@pytest.fixture(scope="module")
def shard(tmp_path_factory, tiny_folder):
    torch.set_num_threads(1)
    return project.made(project.make(tmp_path_factory.mktemp("text") / "project", tiny_folder))[0]


@pytest.fixture(scope="module")
def model():
    return scripted()


def rows(shard, loaded, most, **protocol):
    """The log rows of every arm at a limit of `most` tokens."""
    changed = replace(
        shard,
        task=replace(shard.task, max_new_tokens=most),
        protocol=replace(shard.protocol, **protocol),
    )
    family = Asks()
    made = answer(changed, "unanchored", family, family.load(1, 0, 0)[0], 7, loaded)
    assert len(made) == 7
    return made


ENDINGS = [
    # limit, stop tokens, text, tokens generated, how it ended, score
    (3, ["<|im_end|>"], "Ab ", 3, "length", 1.0),
    (1, ["<|im_end|>"], "A", 1, "length", 0.0),
    (2, ["Ġ"], "Ab", 2, "length", 1.0),
    (3, ["Ġ"], "Ab", 3, "stop_token", 1.0),
    (6, ["Ġ"], "Ab", 3, "stop_token", 1.0),
    (4, ["."], "Ab ", 4, "stop_token", 1.0),
    (6, ["<|endoftext|>"], "Ab .", 5, "stop_token", 1.0),
    (5, ["<|im_end|>"], "Ab .", 5, "length", 1.0),  # a special token that stops nothing is no text
    (6, ["<|im_end|>"], "Ab .\n", 6, "length", 1.0),
    (6, ["Ċ"], "Ab .", 6, "stop_token", 1.0),
    (6, ["A"], "", 1, "stop_token", 0.0),
    (6, ["b", "A"], "", 1, "stop_token", 0.0),
    (6, [".", "b"], "A", 2, "stop_token", 0.0),
]


@pytest.mark.parametrize(("most", "stops", "text", "n", "ended", "score"), ENDINGS)
def test_the_text_ends_before_the_stop_token_or_with_the_last_token(
    shard, model, most, stops, text, n, ended, score
):
    for row in rows(shard, stopping_at(model, *stops), most):
        assert (row.text, row.n_generated, row.stopped_by) == (text, n, ended), row.arm
        assert (row.score_name, row.score_value) == ("exact_match", score)
        assert row.output_logprob == pytest.approx(sum(map(logprob, range(n))) / n, rel=1e-4)
        assert row.min_logit_gap == pytest.approx(min(a - b for _, a, b in SCRIPT[:n]), rel=1e-3)


def test_the_numbers_of_the_script_are_these():
    """Written out, so that the formula above is not the only witness."""
    assert logprob(0) == pytest.approx(-0.6956, abs=1e-4)
    assert logprob(1) == pytest.approx(-0.2253, abs=1e-4)
    assert logprob(2) == pytest.approx(-0.4438, abs=1e-4)


def test_a_stop_token_counts_for_the_log_probability_and_the_gap(shard, model):
    for row in rows(shard, stopping_at(model, "Ġ"), 6):
        assert row.output_logprob == pytest.approx((-0.6956 - 0.2253 - 0.4438) / 3, abs=1e-4)
        assert row.min_logit_gap == pytest.approx(0.75, abs=1e-3)


@pytest.mark.parametrize(("most", "stops", "steps"), [(6, ["Ġ"], 3), (6, ["<|im_end|>"], 4), (2, ["."], 2)])
def test_a_certificate_stands_for_every_step_up_to_the_limit_of_steps(shard, model, most, stops, steps):
    """The step that makes the stop token is one of them; with `steps=4` no fifth is read."""
    for row in rows(shard, stopping_at(model, *stops), most, steps=4):
        if row.arm != "poisson":
            assert (row.certificate, row.certificate_steps, row.zero_variance_cells) == (None, None, None)
            continue
        assert len(row.certificate_steps) == steps
        assert row.certificate == max(row.certificate_steps) > 0


def test_where_a_row_comes_from_is_written_into_it(shard, model):
    n_context = len(CONTEXT)
    # <|im_start|>user\n before; \nAnd?<|im_end|>\n<|im_start|>assistant\n= behind: one token a byte.
    n_prompt = 6 + n_context + 5 + 2 + 11 + 1
    for row, arm in zip(rows(shard, stopping_at(model, "Ġ"), 6), shard.places(), strict=True):
        assert (row.suite, row.shard_id, row.model, row.task) == (
            "mini",
            "mini.tiny.words.000",
            "tiny",
            "words",
        )
        assert (row.example_id, row.attempt) == ("1-000", 7)
        assert (row.arm, row.condition, row.budget, row.seed) == (
            arm.name,
            arm.condition,
            arm.budget,
            arm.seed,
        )
        assert (row.n_context, row.n_prompt) == (n_context, n_prompt)
        n = 6 + n_context if row.condition == "stream" else n_prompt - 1
        assert row.n_evictable == n
        if row.arm == "full":
            assert (row.expected_kept, row.realised_kept, row.first_step_cached) == (n, n, n_prompt)
            assert (row.tail_kept, row.keep_digest, row.keep_probe) == (None, None, None)
            continue
        kept = round(row.budget * n)
        assert row.expected_kept == pytest.approx(kept, abs=1e-6)
        assert row.first_step_cached == pytest.approx(row.realised_kept + n_prompt - n, abs=1e-9)
        if row.arm in ("h2o", "topk"):
            assert (row.realised_kept, row.tail_kept) == (kept, None)


NO_CERTIFICATE = {"certificate": "needs a random design and the hajek estimator"}
NO_SCORE = {"evicted_mass": "no score", "margin": "no score"}


def test_what_is_undefined_says_why_and_arms_share_their_seconds(shard, model):
    made = rows(shard, stopping_at(model, "Ġ"), 6)
    reasons = {
        "full": NO_CERTIFICATE | NO_SCORE,
        "h2o": NO_CERTIFICATE,
        "topk": NO_CERTIFICATE,
        "poisson": {"margin": "random design"},
    }
    assert [row.undefined for row in made] == [reasons[row.arm] for row in made]
    assert [row.seconds.decode_arms for row in made] == [7] * 7
    assert len({row.seconds.prefill for row in made}) == len({row.seconds.decode for row in made}) == 1
    assert len({row.seconds.plan for row in made}) > 1
    assert min(s for row in made for s in (row.seconds.prefill, row.seconds.decode, row.seconds.plan)) > 0
