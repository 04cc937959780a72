"""From prompt text to token ids: rendered once, tokenised once per segment, the same ids for every arm.

The prompt is prefix | context | suffix. The chat template is rendered with a sentinel in the context's
place, so that stream arms can compress before any token of the question exists.
"""

from dataclasses import dataclass
from typing import Any

import torch

from kvexp.errors import InputError
from kvexp.scores import Spans

SENTINEL = "\u2063kvexp-context\u2063"


class TooLong(InputError):
    """A prompt that does not fit the model's positions."""


@dataclass(frozen=True)
class Prompt:
    """Token ids and spans of one prompt."""

    ids: torch.Tensor  # (n,) int64
    n_prefix: int
    n_context: int
    question: tuple[int, int]  # positions of the question's tokens

    @property
    def n(self) -> int:
        return len(self.ids)

    def spans(self, condition: str | None) -> Spans:
        """What a score may look at: up to the end of the context (stream), or all but the last token."""
        end = self.n_prefix + self.n_context if condition == "stream" else self.n - 1
        return Spans(n_evictable=end, question=self.question)


def encode_prompt(
    tokenizer: Any,
    *,
    before: str,
    context: str,
    after: str,
    question: str,
    answer_prefix: str = "",
    chat: bool = True,
) -> Prompt:
    """Tokenise a prompt. Raises InputError if the template hides the context or the question."""
    prefix, suffix = _render(tokenizer, before, after, chat)
    offset = suffix.find(after.rstrip())
    if after.count(question) != 1 or offset < 0:
        raise InputError(
            f"the question {question[:60]!r} must stand exactly once in the text after the context"
        )
    for token in tokenizer.all_special_tokens:
        if token in after + answer_prefix:
            raise InputError(f"the question or the answer's beginning contains the special token {token!r}")
    start = offset + after.index(question)
    ids = [
        list(tokenizer(prefix, add_special_tokens=False)["input_ids"]),
        # A context is data: "<|im_end|>" in it is text and ends no turn.
        list(tokenizer(context, add_special_tokens=False, split_special_tokens=True)["input_ids"]),
    ]
    encoded = tokenizer(suffix + answer_prefix, add_special_tokens=False, return_offsets_mapping=True)
    begin = len(ids[0]) + len(ids[1])
    inside = [
        begin + i
        for i, (left, right) in enumerate(encoded["offset_mapping"])
        if left < start + len(question) and right > start
    ]
    return Prompt(
        ids=torch.tensor(ids[0] + ids[1] + encoded["input_ids"]),
        n_prefix=len(ids[0]),
        n_context=len(ids[1]),
        question=(inside[0], inside[-1] + 1),
    )


def check_length(prompt: Prompt, max_new_tokens: int, max_positions: int) -> None:
    """Raises TooLong, with both numbers, if prompt and answer do not fit the model's positions."""
    if prompt.n + max_new_tokens > max_positions:
        raise TooLong(
            f"a prompt of {prompt.n} tokens and an answer of {max_new_tokens} exceed the model's "
            f"{max_positions} positions: use a shorter context"
        )


def _render(tokenizer: Any, before: str, after: str, chat: bool) -> tuple[str, str]:
    if not chat:
        # Only a tokenizer that begins every text so is used to it.
        opens = tokenizer("")["input_ids"][:1] == [tokenizer.bos_token_id]
        return (tokenizer.bos_token if opens else "") + before, after
    message = [{"role": "user", "content": before + SENTINEL + after}]
    rendered = tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True)
    if rendered.count(SENTINEL) != 1:
        raise InputError("the chat template does not show the user's text exactly once")
    prefix, suffix = rendered.split(SENTINEL)
    return prefix, suffix
