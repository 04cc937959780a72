"""From prompt text to token ids: rendered once, tokenised once per segment, the same ids for every arm.

The prompt is prefix | context | suffix. The chat template is rendered with a sentinel in the context's
place, so that stream arms can compress before any token of the question exists.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvexp.errors import InputError
from kvexp.scores.base import Spans

if TYPE_CHECKING:
    import torch

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
    n_context_full: int  # tokens of the context before any cut
    needles: tuple[tuple[int, int] | None, ...] = ()  # positions of the marked facts; None: cut away
    context: str = ""  # what is left of it, decoded
    difference: str = ""  # how decoding the ids differs from the rendered text; empty: not at all

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
    limit: int | None = None,
    needles: Sequence[tuple[int, int]] = (),
) -> Prompt:
    """Tokenise a prompt. Raises InputError if the template hides the context or the question.

    `limit` cuts a longer context in the middle, on its token ids; `needles` are character spans of the
    context. An odd limit leaves one token more before the cut than behind it.
    """
    import torch

    prefix, suffix = _render(tokenizer, before, after, chat)
    if not chat and answer_prefix and not (suffix[-1:].isspace() or answer_prefix[0].isspace()):
        suffix += "\n"  # a template would end the turn here
    offset = suffix.find(after.rstrip())
    if after.count(question) != 1 or offset < 0:
        raise InputError(
            f"the question {question[:60]!r} must stand exactly once in the text after the context"
        )
    for token in _special_tokens(tokenizer):
        if token in after + answer_prefix:
            raise InputError(f"the question or the answer's beginning contains the special token {token!r}")
    start = offset + after.index(question)
    head = list(tokenizer(prefix, add_special_tokens=False)["input_ids"])
    middle = _encode_context(tokenizer, context, limit, needles)
    encoded = tokenizer(suffix + answer_prefix, add_special_tokens=False, return_offsets_mapping=True)
    begin = len(head) + len(middle.ids)
    inside = [
        begin + i
        for i, (left, right) in enumerate(encoded["offset_mapping"])
        if left < start + len(question) and right > start
    ]
    ids = head + middle.ids + list(encoded["input_ids"])
    _check_bos(tokenizer, ids)
    return Prompt(
        ids=torch.tensor(ids),
        n_prefix=len(head),
        n_context=len(middle.ids),
        question=(inside[0], inside[-1] + 1),
        n_context_full=middle.n_full,
        needles=tuple(s and (s[0] + len(head), s[1] + len(head)) for s in middle.needles),
        context=middle.text,
        difference=_difference(_decode(tokenizer, ids), prefix + middle.text + suffix + answer_prefix),
    )


def _special_tokens(tokenizer: Any) -> list[str]:
    """All of them: a tokenizer lists few among its named ones, for instance not [INST]."""
    added = [str(token) for token in tokenizer.added_tokens_decoder.values() if token.special]
    return sorted({*added, *tokenizer.all_special_tokens})


def _decode(tokenizer: Any, ids: list[int]) -> str:
    # Some tokenizers are set to tidy up: "end ." would become "end.", which the ids do not say.
    text: str = tokenizer.decode(ids, clean_up_tokenization_spaces=False)
    return text


@dataclass(frozen=True)
class _Context:
    ids: list[int]
    n_full: int
    text: str
    needles: list[tuple[int, int] | None]  # token spans within the ids


def _encode_context(
    tokenizer: Any, context: str, limit: int | None, needles: Sequence[tuple[int, int]]
) -> _Context:
    # A context is data: "<|im_end|>" in it is text and ends no turn.
    encoded = tokenizer(
        context, add_special_tokens=False, split_special_tokens=True, return_offsets_mapping=True
    )
    ids, offsets = list(encoded["input_ids"]), encoded["offset_mapping"]
    n = len(ids)
    if limit is None or n <= limit:
        places = [(0, n, 0)]
    else:
        head = limit - limit // 2
        places = [(0, head, 0), (n - limit // 2, n, n - limit)]
    kept = [token for left, right, _ in places for token in ids[left:right]]
    found = [_token_span(offsets, span, places) for span in needles]
    return _Context(kept, n, context if len(kept) == n else _decode(tokenizer, kept), found)


def _token_span(
    offsets: Sequence[tuple[int, int]], span: tuple[int, int], places: Sequence[tuple[int, int, int]]
) -> tuple[int, int] | None:
    """Where the tokens of a character span stand after the cut; None unless all of them are left."""
    tokens = [i for i, (left, right) in enumerate(offsets) if left < span[1] and right > span[0]]
    for left, right, moved in places:
        if tokens and left <= tokens[0] and tokens[-1] < right:
            return tokens[0] - moved, tokens[-1] + 1 - moved
    return None


def _check_bos(tokenizer: Any, ids: list[int]) -> None:
    """ChatML opens every turn with its bos token, so only a doubled first one is a mistake."""
    bos = tokenizer.bos_token_id
    if bos is not None and ids[:2] == [bos, bos]:
        raise InputError(
            f"the prompt begins with {tokenizer.bos_token!r} twice: the chat template and the tokenizer both "
            "add it"
        )


def _difference(decoded: str, rendered: str) -> str:
    """Where two texts part, in words; empty if they are the same."""
    if decoded == rendered:
        return ""
    at = next((i for i, (a, b) in enumerate(zip(decoded, rendered, strict=False)) if a != b), None)
    at = min(len(decoded), len(rendered)) if at is None else at
    return f"at character {at}: {decoded[at : at + 20]!r} instead of {rendered[at : at + 20]!r}"


def check_length(prompt: Prompt, max_new_tokens: int, max_positions: int) -> None:
    """Raises TooLong, with both numbers, if prompt and answer do not fit the model's positions."""
    if prompt.n + max_new_tokens > max_positions:
        raise TooLong(
            f"a prompt of {prompt.n} tokens and an answer of {max_new_tokens} exceed the model's "
            f"{max_positions} positions: use a shorter context"
        )


def _render(tokenizer: Any, before: str, after: str, chat: bool) -> tuple[str, str]:
    from jinja2 import TemplateError

    if not chat:
        # Only a tokenizer that begins every text so is used to it.
        opens = tokenizer("")["input_ids"][:1] == [tokenizer.bos_token_id]
        return (tokenizer.bos_token if opens else "") + before, after
    message = [{"role": "user", "content": before + SENTINEL + after}]
    if tokenizer.chat_template is None:
        raise InputError(
            "the tokenizer has no chat template: set model.NAME.chat=false, as for a base model, or name an "
            "instruction-tuned model"
        )
    try:
        rendered = tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True)
    except (TemplateError, ValueError) as error:
        raise InputError(f"the chat template cannot be rendered ({error})") from None
    if rendered.count(SENTINEL) != 1:
        raise InputError("the chat template does not show the user's text exactly once")
    prefix, suffix = rendered.split(SENTINEL)
    return prefix, suffix
