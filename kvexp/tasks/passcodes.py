"""The anchor: five-digit passcodes hidden in a long text, all of them asked for."""

from dataclasses import dataclass

from kvexp.errors import ConfigError
from kvexp.tasks._choices import Choices
from kvexp.tasks._contexts import build, spread
from kvexp.tasks._vocabulary import CITIES, one_of_each
from kvexp.tasks.base import PromptText, Question, Task

_QUESTION = "What are the secret passcodes for {keys}?"


@dataclass(frozen=True)
class Passcodes(Task):
    """Asks for every passcode at once.

    Attributes:
        n_codes: passcodes in the text.
    """

    n_codes: int = 3

    score_name = "all_present"

    def __post_init__(self) -> None:
        """Refuses a number of codes that the parts of the prompt cannot name."""
        if not 1 <= self.n_codes <= len(CITIES):
            raise ConfigError(f"n_codes is {self.n_codes}, but must be 1 to {len(CITIES)}")

    def load(self, n_examples: int, seed: int, context_tokens: int) -> list[Question]:
        """See Task.load."""
        return [self._example(seed, index, context_tokens) for index in range(n_examples)]

    def _example(self, seed: int, index: int, context_tokens: int) -> Question:
        choices = Choices("passcodes", seed, index)
        keys = choices.sample(CITIES, self.n_codes)
        # One code per hundred-thousandth part: different codes without a loop.
        codes = [str(10000 + code) for code in choices.sample(range(90000), self.n_codes)]
        facts = [f"The secret passcode for {k} is {c}." for k, c in zip(keys, codes, strict=True)]
        depths = spread(self.n_codes, choices)
        context = build(facts, depths, [*keys, "passcode", "passcodes"], context_tokens, choices)
        return Question(
            example_id=f"{seed}-{index:03d}",
            context=context.text,
            question=_QUESTION.format(keys=one_of_each(choices.sample(keys, len(keys)))),
            references=tuple(codes),
            needle_spans=context.spans,
        )

    def prompt(self, question: Question) -> PromptText:
        """See Task.prompt."""
        return PromptText(
            before="Read the following text. Some secret passcodes are hidden in it.\n\n",
            context=question.context,
            after=f"\n\n{question.question} Give the numbers only.",
            question=question.question,
            answer_prefix="The secret passcodes are",
        )
