"""From a task's question to token ids, as a suite wants its prompts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kvexp.replay.prompt import Prompt, encode_prompt
from kvexp.tasks.base import Count, Question, Task


@dataclass(frozen=True)
class Rendering:
    """How a suite renders prompts."""

    chat: bool  # through the chat template
    limit: int  # tokens at which a context that is too long is cut
    context: bool = True  # False leaves it out, and nothing else


def prompt_of(tokenizer: Any, family: Task, question: Question, rendering: Rendering) -> Prompt:
    """The token ids of a task's question."""
    text = family.prompt(question)
    return encode_prompt(
        tokenizer,
        before=text.before,
        context=text.context if rendering.context else "",
        after=text.after,
        question=text.question,
        answer_prefix=text.answer_prefix,
        chat=rendering.chat,
        limit=rendering.limit if family.is_cut else None,
        needles=question.needle_spans if rendering.context else (),
    )


def counter(tokenizer: Any) -> Count:
    """Counts tokens as a context has them."""

    def count(text: str) -> int:
        ids: Sequence[int] = tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
        return len(ids)

    return count
