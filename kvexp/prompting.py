"""From a task's question to token ids."""

from typing import Any

from kvexp.replay.prompt import Prompt, encode_prompt
from kvexp.tasks import Question, Task


def prompt_of(tokenizer: Any, family: Task, question: Question, chat: bool) -> Prompt:
    """The token ids of a task's question; `chat` renders them through the chat template."""
    text = family.prompt(question)
    return encode_prompt(
        tokenizer,
        before=text.before,
        context=text.context,
        after=text.after,
        question=text.question,
        answer_prefix=text.answer_prefix,
        chat=chat,
    )
