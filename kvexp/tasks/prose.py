"""Long prose for attention suites: nothing is asked, the text goes on and its later tokens are queries."""

from dataclasses import dataclass
from typing import ClassVar

from kvexp.tasks._contexts import Generated, filler
from kvexp.tasks._words import Choices
from kvexp.tasks.base import PromptText, Question

_CONTINUATION = 96  # nominal tokens


@dataclass(frozen=True)
class Prose(Generated):
    """Passages in random order; the continuation stands where other families have their question."""

    has_answers: ClassVar[bool] = False
    score_name = "token_f1"

    def example(self, example_id: str, seed: int, index: int, context_tokens: int) -> Question:
        choices = Choices("prose", seed, index)
        context, continuation = filler([context_tokens, _CONTINUATION], choices)
        return Question(example_id=example_id, context=context, question=continuation, references=())

    def prompt(self, question: Question) -> PromptText:
        text = question.question
        return PromptText(before="", context=question.context, after=text, question=text)
