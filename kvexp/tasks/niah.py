"""Needles in a haystack (RULER's niah): 7-digit numbers under adjective-noun keys in noise, one asked for.

One key is RULER's niah_single_1; more keys put as many needles into the same noise.
"""

from collections.abc import Callable
from dataclasses import dataclass

from kvexp.errors import ConfigError
from kvexp.tasks._ruler import Ruler, different, noise
from kvexp.tasks._words import ADJECTIVES, NOUNS, WORDS, Choices
from kvexp.tasks.base import PromptText, Question

_MOST_KEYS = 100
_NEEDLE = "One of the special magic numbers for {key} is: {value}."
_BEFORE = (
    "A special magic number is hidden within the following text. Make sure to memorize it. "
    "I will quiz you about the number afterwards.\n"
)
_QUESTION = "What is the special magic number for {key} mentioned in the provided text?"
_PREFIX = " The special magic number for {key} mentioned in the provided text is"


@dataclass(frozen=True)
class Niah(Ruler):
    """Asks for the number of one key; the span of its needle comes first."""

    n_keys: int = 1  # needles in the text, the wanted one included, 1 to 100
    answer_tokens: int = 128  # room for the answer within the suite's context_tokens

    def __post_init__(self) -> None:
        if not 1 <= self.n_keys <= _MOST_KEYS:
            raise ConfigError(f"n_keys is {self.n_keys}, but must be 1 to {_MOST_KEYS}")

    @property
    def fewest_units(self) -> int:
        return self.n_keys

    def example(self, example_id: str, context_tokens: int) -> Callable[[int], Question]:
        choices = Choices("niah", self.n_keys, example_id)
        keys = different(lambda: f"{choices.pick(ADJECTIVES)}-{choices.pick((*WORDS, *NOUNS))}", self.n_keys)
        values = different(lambda: str(10**6 + choices.below(9 * 10**6)), self.n_keys)
        needles = [_NEEDLE.format(key=k, value=v) for k, v in zip(keys, values, strict=True)]
        wanted = choices.below(self.n_keys)
        depths = sorted(choices.uniform() for _ in needles)

        def with_units(units: int) -> Question:
            text, spans = noise(needles, depths, units)
            return Question(
                example_id=example_id,
                context=text,
                question=_QUESTION.format(key=keys[wanted]),
                references=(values[wanted],),
                needle_spans=(spans[wanted], *spans[:wanted], *spans[wanted + 1 :]),
            )

        return with_units

    def prompt(self, question: Question) -> PromptText:
        before, after = _QUESTION.split("{key}")
        key = question.question.removeprefix(before).removesuffix(after)
        return PromptText(
            before=_BEFORE,
            context=question.context,
            after=f"\n{question.question}",
            question=question.question,
            answer_prefix=_PREFIX.format(key=key),
        )
