"""The anchor: one sentence with three five-digit passcodes in a long text, all of them asked for.

Nearly perfect with the full cache and fragile under eviction, because an answer has to copy fifteen
digits from one place. In pilots, codes in separate sentences measured whether a small model kept to the
form of the answer, and not its memory.
"""

from dataclasses import dataclass

from kvexp.errors import ConfigError
from kvexp.tasks._contexts import Generated, build, spread
from kvexp.tasks._words import Choices
from kvexp.tasks.base import PromptText, Question

_NUMBERS = ("one", "two", "three", "four", "five")


@dataclass(frozen=True)
class Passcodes(Generated):
    """Asks for every passcode at once."""

    n_codes: int = 3  # passcodes in the sentence, 2 to 5

    score_name = "all_present"

    def __post_init__(self) -> None:
        if not 2 <= self.n_codes <= len(_NUMBERS):
            raise ConfigError(f"n_codes is {self.n_codes}, but must be 2 to {len(_NUMBERS)}")

    def example(self, example_id: str, seed: int, index: int, context_tokens: int) -> Question:
        choices = Choices("passcodes", seed, index)
        codes = [str(code) for code in choices.sample(range(10_000, 100_000), self.n_codes)]
        fact = f'{self._answer_start()}{" ".join(codes)}".'
        avoid = ["passcode", "passcodes"]
        context = build([fact], spread(1, choices), avoid, context_tokens, choices)
        return Question(
            example_id=example_id,
            context=context.text,
            question=f"What are the {_NUMBERS[self.n_codes - 1]} secret passcodes?",
            references=tuple(codes),
            needle_spans=context.spans,
        )

    def _answer_start(self) -> str:
        # The quotation mark leaves no room for an answer that begins with a list or a sentence.
        return f'The {_NUMBERS[self.n_codes - 1]} secret passcodes are "'

    def prompt(self, question: Question) -> PromptText:
        return PromptText(
            before="Read the following text. Some secret passcodes are hidden in it.\n\n",
            context=question.context,
            after=f"\n\n{question.question} Give the numbers only.",
            question=question.question,
            answer_prefix=self._answer_start(),
        )
