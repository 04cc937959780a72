"""Three families' chat templates on small tokenizers: their structure, their special tokens, no weights.

Written from the documented structure of Qwen2.5 (ChatML), Llama 3.1 and Mistral v0.3. The tokenizers have
one token a byte or character, so that a golden prompt is easy to read.
"""

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

CHATML = """
{%- if messages[0].role == 'system' -%}
{{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' -}}
{%- else -%}
{{- '<|im_start|>system\\nYou are a test, made by us. You are helpful.<|im_end|>\\n' -}}
{%- endif -%}
{%- for m in messages -%}
{%- if m.role != 'system' -%}
{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
"""

LLAMA = """
{{- bos_token -}}
{%- if not date_string is defined -%}{%- set date_string = '26 Jul 2024' -%}{%- endif -%}
{{- '<|start_header_id|>system<|end_header_id|>\\n\\n' -}}
{{- 'Cutting Knowledge Date: December 2023\\nToday Date: ' + date_string + '\\n\\n<|eot_id|>' -}}
{%- for m in messages -%}
{{- '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' + m.content | trim + '<|eot_id|>' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' -}}{%- endif -%}
"""

MISTRAL = """
{%- if messages[0].role != 'user' -%}{{- raise_exception('user first') -}}{%- endif -%}
{{- bos_token -}}
{%- for m in messages -%}
{%- if m.role == 'user' -%}{{- '[INST] ' + m.content + '[/INST]' -}}
{%- else -%}{{- ' ' + m.content + eos_token -}}{%- endif -%}
{%- endfor -%}
"""


def qwen() -> PreTrainedTokenizerFast:
    """Byte-level, no bos token at all."""
    made = _byte_level(["<|endoftext|>", "<|im_start|>", "<|im_end|>"], eos_token="<|im_end|>")
    made.chat_template = CHATML
    return made


def llama() -> PreTrainedTokenizerFast:
    """Byte-level; begins every text, and its template every prompt, with a bos token."""
    specials = ["<|begin_of_text|>", "<|end_of_text|>", "<|eom_id|>", "<|eot_id|>"]
    specials += ["<|start_header_id|>", "<|end_header_id|>"]
    made = _byte_level(specials, bos_token=specials[0], eos_token="<|eot_id|>")
    made.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{specials[0]} $A", special_tokens=[(specials[0], 0)]
    )
    made.chat_template = LLAMA
    return made


def mistral(form: str = "metaspace") -> PreTrainedTokenizerFast:
    """Like SentencePiece, one token a character: a text begins with a space that is not in it.

    Args:
        form: `metaspace` adds that space to a text, the older `prepend` to every piece between specials.
    """
    specials = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]"]
    characters = [chr(c) for c in range(33, 127)] + ["\u2581"]
    tokens = specials + [f"<0x{byte:02X}>" for byte in range(256)] + characters
    vocabulary = {token: i for i, token in enumerate(tokens)}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token="<unk>", byte_fallback=True))
    if form == "prepend":
        backend.normalizer = normalizers.Sequence(
            [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
        )
    else:
        backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    backend.decoder = decoders.Sequence(
        [
            decoders.Replace("\u2581", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    backend.add_special_tokens(specials)
    made = PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )
    made.chat_template = MISTRAL
    return made


def _byte_level(specials: list[str], **named: str) -> PreTrainedTokenizerFast:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: i for i, token in enumerate(specials + alphabet)}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(specials)
    return PreTrainedTokenizerFast(tokenizer_object=backend, **named)
