"""The anchor: five-digit passcodes hidden in a long text, all of them asked for."""

from dataclasses import dataclass

from kvexp.errors import ConfigError
from kvexp.tasks._choices import Choices
from kvexp.tasks._contexts import build, spread
from kvexp.tasks._vocabulary import listed
from kvexp.tasks.base import PromptText, Question, Task

_ORDINALS = ("first", "second", "third", "fourth", "fifth")


@dataclass(frozen=True)
class Passcodes(Task):
    """Asks for every passcode at once.

    Attributes:
        n_codes: passcodes in the text, 1 to 5.
    """

    n_codes: int = 3

    score_name = "all_present"

    def __post_init__(self) -> None:
        if not 1 <= self.n_codes <= len(_ORDINALS):
            raise ConfigError(f"n_codes is {self.n_codes}, but must be 1 to {len(_ORDINALS)}")

    @property
    def _ordinals(self) -> tuple[str, ...]:
        return _ORDINALS[: self.n_codes]

    def load(self, n_examples: int, seed: int, context_tokens: int) -> list[Question]:
        return [self._example(seed, index, context_tokens) for index in range(n_examples)]

    def _example(self, seed: int, index: int, context_tokens: int) -> Question:
        choices = Choices("passcodes", seed, index)
        codes = [str(code) for code in choices.sample(range(10_000, 100_000), self.n_codes)]
        facts = [
            f"The {ordinal} secret passcode is {code}."
            for ordinal, code in zip(self._ordinals, codes, strict=True)
        ]
        depths = spread(self.n_codes, choices)
        context = build(facts, depths, ["passcode", "passcodes"], context_tokens, choices)
        return Question(
            example_id=f"{seed}-{index:03d}",
            context=context.text,
            question=f"What are {listed([f'the {o}' for o in self._ordinals])} secret passcode?",
            references=tuple(codes),
            needle_spans=context.spans,
        )

    def prompt(self, question: Question) -> PromptText:
        # The form keeps a small model from repeating one code, and the answer short.
        form = " ".join(f"{ordinal.capitalize()}: ..." for ordinal in self._ordinals)
        return PromptText(
            before="Read the following text. Some secret passcodes are hidden in it.\n\n",
            context=question.context,
            after=f"\n\n{question.question} Answer in this form: {form}",
            question=question.question,
            answer_prefix=f"{self._ordinals[0].capitalize()}:",
        )
