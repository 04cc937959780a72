"""The harness on the real embedded model: SmolLM2-135M-Instruct."""

import pytest
import torch
from transformers import AutoModelForCausalLM

from kvexp.models.embedded import embedded_model
from kvexp.replay.arm import Arm
from kvexp.replay.harness import answer_all
from kvexp.replay.protocol import Protocol
from kvexp.study.plugins import build_design, build_score, build_task
from kvexp.study.prompts import Rendering, prompt_of
from tests.replay.test_against_dense import draw

FULL = Arm("full", None, build_design("full"), "plain")


@pytest.fixture(scope="module")
def prompt(real_model):
    torch.set_num_threads(1)
    family = build_task("words")
    return prompt_of(
        real_model.tokenizer, family, family.load(1, 9000, 512)[0], Rendering(chat=True, limit=512)
    )


def test_the_full_arm_equals_transformers_greedy_generate_token_for_token(real_model, prompt):
    (full,) = answer_all(real_model, prompt, [FULL], Protocol(), 24, draw)
    plain = AutoModelForCausalLM.from_pretrained(
        embedded_model(), dtype=torch.float32, attn_implementation="sdpa"
    ).eval()
    with torch.no_grad():
        own = plain.generate(
            prompt.ids[None],
            attention_mask=torch.ones_like(prompt.ids[None]),
            max_new_tokens=24,
            do_sample=False,
            eos_token_id=sorted(real_model.stop_ids),
        )
    assert full.decoded.tokens == own[0, prompt.n :].tolist()


def test_budget_one_through_the_compressed_path_gives_the_full_caches_tokens(real_model, prompt):
    floor = Arm("floor", build_score("accumulated"), build_design("poisson"), "hajek", "stream", 1.0, 0)
    full, compressed = answer_all(real_model, prompt, [FULL, floor], Protocol(), 12, draw)
    assert compressed.decoded.tokens == full.decoded.tokens
    assert compressed.decoded.logprobs == pytest.approx(full.decoded.logprobs, abs=1e-3)
    assert max(compressed.certificate_steps) == 0.0


def test_the_certificate_falls_as_the_budget_grows(real_model, prompt):
    arms = [
        Arm("poisson", build_score("accumulated"), build_design("poisson"), "hajek", "stream", budget, 0)
        for budget in (0.15, 0.3, 0.6, 0.9)
    ]
    answers = answer_all(real_model, prompt, arms, Protocol(), 6, draw)
    first = [a.certificate_steps[0] for a in answers]
    assert first == sorted(first, reverse=True)
    assert 0.01 < first[-1] < first[0] < 3
