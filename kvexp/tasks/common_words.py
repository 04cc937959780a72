"""Common words (RULER's cwe): a numbered list in which ten words occur more often than the others.

Nothing is hidden at one place, so no needles are marked: the answer is spread over the whole list.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import ClassVar, NamedTuple

from kvexp.errors import InputError
from kvexp.tasks._ruler import Ruler
from kvexp.tasks._words import ADJECTIVES, NOUNS, VERBS, WORDS, Choices
from kvexp.tasks.base import PromptText, Question

_ALL = (*WORDS, *ADJECTIVES, *NOUNS, *VERBS)
_COMMON = 10
_INSTRUCTION = (
    "Below is a numbered list of words. In these words, some appear more often than others. "
    "Memorize the ones that appear most often.\n"
)
_QUESTION = f"What are the {_COMMON} most common words in the above list?"
_PREFIX = f" Answer: The top {_COMMON} words that appear most often in the list are:"


class _Repeats(NamedTuple):
    """How often words occur, in the list and in the solved example before it."""

    common: int
    others: int
    solved_words: int
    solved_common: int
    solved_others: int


_SHORT, _LONG = _Repeats(6, 1, 20, 3, 1), _Repeats(30, 3, 40, 10, 3)
_LONG_FROM = 4096  # context_tokens


@dataclass(frozen=True)
class CommonWords(Ruler):
    """Asks for the ten common words; a unit of the haystack is another word with all its repetitions."""

    most_units: ClassVar[int | None] = len(_ALL)

    answer_tokens: int = 120  # room for the answer within the suite's context_tokens

    @property
    def fewest_units(self) -> int:
        return _COMMON + 1

    def example(self, example_id: str, context_tokens: int) -> Callable[[int], Question]:
        repeats = _SHORT if context_tokens < _LONG_FROM else _LONG
        choices = Choices("common_words", example_id)
        words = _words(choices)
        # Places do not depend on the length: a shorter list is a longer one with words left out.
        placed = [(choices.uniform(), word) for word in _repeated(words, repeats.common, repeats.others)]

        def with_units(units: int) -> Question:
            n = _COMMON * repeats.common + (units - _COMMON) * repeats.others
            return Question(
                example_id=example_id,
                context=_numbered([word for _, word in sorted(placed[:n])]),
                question=_QUESTION,
                references=tuple(words[:_COMMON]),
            )

        return with_units

    def prompt(self, question: Question) -> PromptText:
        return PromptText(
            before=f"{_solved(question)}\n{_INSTRUCTION}",
            context=question.context,
            after=f"\nQuestion: {question.question}",
            question=question.question,
            answer_prefix=_PREFIX,
        )


def _solved(question: Question) -> str:
    """A shorter list of other words with its answer."""
    repeats = _repeats(question)
    choices = Choices("common_words", question.example_id, "solved")
    words = _words(choices)[: repeats.solved_words]
    items = _repeated(words, repeats.solved_common, repeats.solved_others)
    listed = _numbered([*choices.shuffled(items)])
    return f"{_INSTRUCTION}{listed}\nQuestion: {_QUESTION}{_PREFIX} {_numbered(words[:_COMMON])}"


def _repeats(question: Question) -> _Repeats:
    """Which of the two shapes a list has; it tells by itself."""
    found = question.context.split().count(question.references[0])
    for repeats in (_SHORT, _LONG):
        if found == repeats.common:
            return repeats
    raise InputError(f"the list of example {question.example_id} is none of this family")


def _words(choices: Choices) -> list[str]:
    """All words in random order. The first ten are parts of no other word, so nothing else names them."""
    common = choices.sample(_whole(), _COMMON)
    return [*common, *choices.shuffled([word for word in _ALL if word not in common])]


@cache
def _whole() -> tuple[str, ...]:
    return tuple(word for word in _ALL if sum(word in other for other in _ALL) == 1)


def _repeated(words: Sequence[str], common: int, others: int) -> list[str]:
    return [w for place, w in enumerate(words) for _ in range(common if place < _COMMON else others)]


def _numbered(words: Sequence[str]) -> str:
    return " ".join(f"{number}. {word}" for number, word in enumerate(words, start=1))
