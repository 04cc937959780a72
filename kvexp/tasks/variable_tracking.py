"""Variable tracking (RULER's vt): one chain of assignments hidden in noise; who has the value in the end?

A solved example with another chain is prepended. Its haystack has a fixed number of lines, where RULER
fills 500 tokens, so that it does not depend on the tokenizer.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from string import ascii_uppercase

from kvexp.errors import ConfigError
from kvexp.tasks._ruler import Haystack, Ruler, different, noise
from kvexp.tasks._words import Choices
from kvexp.tasks.base import PromptText, Question

_MOST_HOPS = 10
_SHOT_LINES = 14  # with four hops, just under 500 tokens of SmolLM2
_INSTRUCTION = "Memorize and track the chain(s) of variable assignment hidden in the following text.\n\n"
_QUESTION = "Find all variables that are assigned the value {value} in the text above."
_PREFIX = (
    " Answer: According to the chain(s) of variable assignment in the text above, {n} variables are "
    "assigned the value {value}, they are: "
)


@dataclass(frozen=True)
class VariableTracking(Ruler):
    """Asks for the names of all variables of the chain; its assignments are the needles."""

    n_hops: int = 4  # assignments of one variable to the next, 1 to 10
    answer_tokens: int = 30  # room for the answer within the suite's context_tokens

    def __post_init__(self) -> None:
        if not 1 <= self.n_hops <= _MOST_HOPS:
            raise ConfigError(f"n_hops is {self.n_hops}, but must be 1 to {_MOST_HOPS}")

    @property
    def fewest_units(self) -> int:
        return self.n_hops + 1

    def example(self, example_id: str, context_tokens: int) -> Callable[[int], Question]:
        choices = Choices("variable_tracking", self.n_hops, example_id)
        value = _value(choices)
        names = self._names(choices, 5)
        depths = self._depths(choices)

        def with_units(units: int) -> Question:
            text, spans = _hidden(names, value, depths, units)
            return Question(
                example_id=example_id,
                context=text,
                question=_QUESTION.format(value=value),
                references=tuple(names),
                needle_spans=tuple(spans),
            )

        return with_units

    def prompt(self, question: Question) -> PromptText:
        before, after = _QUESTION.split("{value}")
        value = question.question.removeprefix(before).removesuffix(after)
        return PromptText(
            before=f"{self._solved(question.example_id, value)}\n\n{_INSTRUCTION}",
            context=question.context,
            after=f"\nQuestion: {question.question}",
            question=question.question,
            answer_prefix=self._prefix(value),
        )

    def _solved(self, example_id: str, asked: str) -> str:
        """An example with names of three letters and a value that is not asked for, and its answer."""
        choices = Choices("variable_tracking", self.n_hops, example_id, "solved")
        value = next(v for v in different(lambda: _value(choices), 2) if v != asked)
        names = self._names(choices, 3)
        text = _hidden(names, value, self._depths(choices), _SHOT_LINES).text
        question = _QUESTION.format(value=value)
        return f"{_INSTRUCTION}{text}\nQuestion: {question}{self._prefix(value)} {' '.join(names)}"

    def _names(self, choices: Choices, letters: int) -> list[str]:
        return different(
            lambda: "".join(choices.pick(ascii_uppercase) for _ in range(letters)), self.n_hops + 1
        )

    def _depths(self, choices: Choices) -> list[float]:
        return sorted(choices.uniform() for _ in range(self.n_hops + 1))

    def _prefix(self, value: str) -> str:
        return _PREFIX.format(n=self.n_hops + 1, value=value)


def _value(choices: Choices) -> str:
    return str(10_000 + choices.below(90_000))


def _hidden(names: list[str], value: str, depths: list[float], lines: int) -> Haystack:
    # The space after a hop is RULER's.
    hops = [f"VAR {name} = VAR {before} " for before, name in pairwise(names)]
    return noise([f"VAR {names[0]} = {value}", *hops], depths, lines)
