"""Tiny random models with a byte-level chat tokenizer, built in seconds and without any download."""

from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
)

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
KINDS = {
    "llama": (LlamaConfig, LlamaForCausalLM),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM),
    "mistral": (MistralConfig, MistralForCausalLM),
}


def tokenizer() -> PreTrainedTokenizerFast:
    """One token a byte, ChatML turns."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    vocabulary = {token: i for i, token in enumerate(specials + alphabet)}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(specials)
    made = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token="<|im_start|>",
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
    )
    made.chat_template = CHATML
    return made


def model(kind: str, *, seed: int = 0, heads: int = 6, kv_heads: int = 2, positions: int = 4096):
    """A random model whose attention is peaked enough to make eviction matter."""
    config_class, model_class = KINDS[kind]
    extra = {"sliding_window": None} if kind == "mistral" else {}
    config = config_class(
        vocab_size=259,
        hidden_size=heads * 8,
        intermediate_size=64,
        num_hidden_layers=3,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        max_position_embeddings=positions,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
        initializer_range=0.3,
        tie_word_embeddings=False,
        **extra,
    )
    torch.manual_seed(seed)
    made = model_class(config).eval()
    made.generation_config.eos_token_id = 2
    return made


def save(folder: Path, kind: str = "llama", **options) -> Path:
    """Model and tokenizer in a folder, as from the hub."""
    model(kind, **options).save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder
