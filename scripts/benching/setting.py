"""What is measured: arguments, a model, a prompt and arms."""

import argparse
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig, Qwen2Config

from kvexp.draws import uniforms
from kvexp.models.embedded import embedded_model
from kvexp.models.load import load
from kvexp.replay import attention
from kvexp.replay.arm import Arm
from kvexp.replay.model import Loaded, refuse_unsupported
from kvexp.replay.prompt import Prompt
from kvexp.replay.protocol import Protocol
from kvexp.study.plugins import build_design, build_score, build_task

# What is measured: a model, a prompt and arms; real weights on the embedded model, random ones elsewhere.


SUFFIX = 40  # tokens of a question after the context
PREFIX = 12
BUDGETS = (0.25, 0.5)

# hidden, intermediate, layers, query heads, KV heads, vocabulary, rope theta: the models' published configs.
ARCHITECTURES: dict[str, tuple[type, tuple[int, int, int, int, int, int], float]] = {
    "qwen2.5-1.5b": (Qwen2Config, (1536, 8960, 28, 12, 2, 151936), 1e6),
    "qwen2.5-7b": (Qwen2Config, (3584, 18944, 28, 28, 4, 152064), 1e6),
    "llama-3.1-8b": (LlamaConfig, (4096, 14336, 32, 32, 8, 128256), 5e5),
    "mistral-7b-v0.3": (MistralConfig, (4096, 14336, 32, 32, 8, 32768), 1e6),
}
LENGTHS, TINY_LENGTHS = (6000, 16000), (300, 400)  # tokens of the paper's prompts, and of tests
SHALLOW_VOCABULARY = 4096  # of a model with few layers: a whole one would outweigh them
TINY = (64, 128, 2, 8, 2, 300)  # for tests of the scripts: every architecture in seconds


@dataclass(frozen=True)
class Setting:
    """A loaded model and a prompt of it."""

    name: str
    loaded: Loaded
    prompt: Prompt
    protocol: Protocol
    new_tokens: int


class _Letters:
    """Random weights have no vocabulary: every token is a letter."""

    def decode(self, tokens: list[int], **_: Any) -> str:
        return "".join(chr(97 + token % 26) for token in tokens)


def embedded(n: int, new_tokens: int, dtype: str = "float32", device: str = "cpu") -> Setting:
    """The real 135M model on prose of about `n` tokens; it stops where it stops."""
    loaded = load(embedded_model(), dtype, device)
    return Setting(f"smollm2-135m, {n} tokens", loaded, _prose(loaded, n), Protocol(), new_tokens)


def _prose(loaded: Loaded, n: int) -> Prompt:
    """A question of the pass-code task behind its haystack, as long as asked."""
    from kvexp.study.prompts import Rendering, counter, prompt_of

    family = build_task("passcodes")
    question = family.load(1, 3, n, counter(loaded.tokenizer))[0]
    return prompt_of(loaded.tokenizer, family, question, Rendering(chat=True, limit=n))


def random_weights(
    name: str, n: int, new_tokens: int, dtype: str, device: str, layers: int | None, tiny: bool = False
) -> Setting:
    """The architecture of a paper's model, `layers` deep (None: as it is), over a random prompt."""
    config = architecture(name, layers, tiny, positions=n + new_tokens + 64)
    refuse_unsupported(config)
    torch.manual_seed(0)
    previous = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, dtype))
    try:
        with torch.device(device):
            model = AutoModelForCausalLM.from_config(config, attn_implementation=attention.NAME).eval()
    finally:
        torch.set_default_dtype(previous)
    loaded = Loaded(
        model=model,
        tokenizer=_Letters(),
        stop_ids=frozenset(),
        layers=config.num_hidden_layers,
        query_heads=config.num_attention_heads,
        kv_heads=config.num_key_value_heads,
        max_positions=config.max_position_embeddings,
        device=torch.device(device),
    )
    depth = ""
    if layers is not None:
        depth = f", {layers} of {ARCHITECTURES[name][1][2]} layers, {config.vocab_size} words"
    return Setting(
        f"{name}, {n} tokens{depth}", loaded, random_prompt(n, config.vocab_size), Protocol(), new_tokens
    )


def architecture(name: str, layers: int | None, tiny: bool, positions: int) -> Any:
    """The config of one of the paper's models, shallower or tiny if asked."""
    kind, sizes, theta = ARCHITECTURES[name]
    hidden, intermediate, depth, heads, kv_heads, vocabulary = TINY if tiny else sizes
    extra = {"sliding_window": None} if kind is MistralConfig else {}
    return kind(
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_hidden_layers=layers or depth,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        vocab_size=vocabulary if layers is None else min(vocabulary, SHALLOW_VOCABULARY),
        max_position_embeddings=positions,
        rope_parameters={"rope_type": "default", "rope_theta": theta},
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=None,
        **extra,
    )


def random_prompt(n: int, vocabulary: int) -> Prompt:
    """`n` random tokens, the last ones a question."""
    ids = torch.randint(0, vocabulary, (n,), generator=torch.Generator().manual_seed(1))
    context = n - PREFIX - SUFFIX
    return Prompt(ids, PREFIX, context, (n - SUFFIX + 5, n - 10), context)


def grid(budgets: tuple[float, ...] = BUDGETS) -> list[Arm]:
    """The arms of the 6k suite: 17 generations an example at two budgets."""
    h2o, snapkv, question = build_score("accumulated"), build_score("window"), build_score("question")
    topk, poisson = build_design("topk"), build_design("poisson")
    arms = [Arm("full", None, build_design("full"), "plain")]
    for budget in budgets:
        arms += [
            Arm("streaming_llm", None, build_design("recency"), "plain", "stream", budget),
            Arm("h2o", h2o, topk, "plain", "stream", budget),
            Arm("snapkv", snapkv, topk, "plain", "stream", budget),
            Arm("topk", question, topk, "plain", "aware", budget),
        ]
        for condition, by in (("aware", question), ("stream", h2o)):
            arms += [Arm("poisson", by, poisson, "hajek", condition, budget, seed) for seed in (0, 1)]
    return arms


def same_design(kind: str, budget: float, count: int) -> list[Arm]:
    """`count` arms of one kind at one budget, for a step of equal budget and batch."""
    if kind == "full":
        return [Arm("full", None, build_design("full"), "plain")] * count
    question = build_score("question")
    if kind == "deterministic":
        return [Arm("topk", question, build_design("topk"), "plain", "aware", budget)] * count
    return [
        Arm("poisson", question, build_design("poisson"), "hajek", "aware", budget, s) for s in range(count)
    ]


def draw(arm: Arm, shape: tuple[int, int, int]) -> NDArray[np.float64]:
    """Uniforms as in a study without an anchor."""
    return uniforms("unanchored", int(arm.seed or 0), "bench", "bench", str(arm.condition), shape)


def endless(setting: Setting) -> Setting:
    """The same without stop tokens: every answer has full length."""
    return replace(setting, loaded=replace(setting.loaded, stop_ids=frozenset()))


# What the benchmarks take on the command line: what cannot be is a sentence, before anything is measured.


def positive(text: str) -> int:
    """A whole number, at least 1."""
    if not (text.isascii() and text.isdecimal() and int(text) >= 1):
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of at least 1")
    return int(text)


def positives(text: str) -> tuple[int, ...]:
    """Some of them, with commas between."""
    return tuple(positive(part) for part in text.split(","))


def device(text: str) -> str:
    """A device of torch that can compute here."""
    try:
        torch.ones(1, device=text).sum().item()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        words = str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
        raise argparse.ArgumentTypeError(f"torch has no device {text!r} here: {words}") from None
    return text


def new_file(text: str) -> Path:
    """A file whose folder is there."""
    path = Path(text)
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {path.parent}")
    return path
