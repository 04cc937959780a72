"""What RULER-style tasks share: a haystack of like units, as many of them as fit a number of tokens.

Wording, repetitions and answer lengths are those of RULER (Hsieh et al. 2024; NVIDIA/RULER at c3f5e3b);
the words, the draws and the code are this project's. As there, prompt and answer together have at most
`context_tokens` tokens; a chat template, which RULER does not count either, comes on top.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import cache
from typing import ClassVar, NamedTuple, TypeVar

from kvexp.errors import ConfigError
from kvexp.tasks.base import Count, Question, Task

NOISE = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."
_BOS = 1  # the most that a tokenizer puts before a text

T = TypeVar("T")


class Ruler(Task):
    """A family whose examples are made from their ids, with as many units of haystack as fit."""

    is_sized = True
    score_name = "string_match_all"
    most_units: ClassVar[int | None] = None  # None: the haystack never ends
    answer_tokens: int  # room that is left for the answer

    def example_ids(self, n_examples: int, seed: int, context_tokens: int) -> list[str]:
        return [f"{seed}-{index:03d}" for index in range(n_examples)]

    def load(
        self, n_examples: int, seed: int, context_tokens: int, count: Count | None = None
    ) -> list[Question]:
        if count is None:
            raise ConfigError(
                f"{self._name} fills its contexts by a model's own tokens: give load() a function that "
                "counts them"
            )
        ids = self.example_ids(n_examples, seed, context_tokens)
        return [self._filled(example_id, context_tokens, count) for example_id in ids]

    def _filled(self, example_id: str, context_tokens: int, count: Count) -> Question:
        """The example with the largest haystack that fits. Raises ConfigError if none does, or all do."""
        example = self.example(example_id, context_tokens)
        shortest = example(self.fewest_units)
        parts = self.prompt(shortest)
        # The three parts of a prompt are tokenised one by one (kvexp/replay/prompt.py).
        rest = _BOS + count(parts.before) + count(parts.after + parts.answer_prefix) + self.answer_tokens
        room = context_tokens - rest
        if (least := count(shortest.context)) > room:
            raise ConfigError(
                f"context_tokens is {context_tokens}, but the shortest prompt of {self._name} and its answer "
                f"have {rest + least} tokens of this model: use at least as many"
            )
        most = room if self.most_units is None else min(room, self.most_units)  # a unit is a token or more
        size = cache(lambda units: count(example(units).context))
        units = largest(size, room, self.fewest_units, most)
        if units == self.most_units:
            raise ConfigError(
                f"context_tokens is {context_tokens}, but the haystack of {self._name} ends at "
                f"{rest + size(units)} tokens of this model: use fewer"
            )
        return example(units)

    @property
    def _name(self) -> str:
        return type(self).__module__.rpartition(".")[2]

    @property
    @abstractmethod
    def fewest_units(self) -> int:
        """The smallest haystack that holds what has to be found."""

    @abstractmethod
    def example(self, example_id: str, context_tokens: int) -> Callable[[int], Question]:
        """One example at any number of units; all but the context is the same at every number."""


def largest(size: Callable[[int], int], room: int, fewest: int, most: int) -> int:
    """The largest n from `fewest` to `most` with size(n) <= room, given that `fewest` fits.

    A binary search around the place where a straight line meets the room. What it returns was measured to
    fit, also where a tokenizer makes a longer text a token shorter.
    """

    def fits(n: int) -> bool:
        return n <= most and size(n) <= room

    low, high = _bracket(fits, fewest, _guess(size, room, fewest, most))
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _guess(size: Callable[[int], int], room: int, fewest: int, most: int) -> int:
    """Where the line through `fewest` and a larger number reaches the room; sizes are nearly linear."""
    first, guess = size(fewest), 2 * fewest
    for _ in range(2):
        slope = (size(guess) - first) / (guess - fewest) if guess > fewest else 1.0
        guess = min(fewest + int((room - first) / max(slope, 1.0)), most)
    return guess


def _bracket(fits: Callable[[int], bool], fewest: int, guess: int) -> tuple[int, int]:
    """A number that fits and a larger one that does not, found in growing steps from a guess."""
    step = 1
    if fits(guess):
        while fits(guess + step):
            guess, step = guess + step, 2 * step
        return guess, guess + step
    while guess - step > fewest and not fits(guess - step):
        guess, step = guess - step, 2 * step
    return max(guess - step, fewest), guess


class Haystack(NamedTuple):
    """A text and the character spans of the statements in it, in the order of the statements."""

    text: str
    spans: list[tuple[int, int]]


def noise(statements: Sequence[str], depths: Sequence[float], lines: int) -> Haystack:
    """Lines of noise with statements at their depths, ascending in [0, 1), each before a line of its own."""
    text, spans, used = "", [], 0
    for place, (statement, depth) in enumerate(zip(statements, depths, strict=True)):
        line = int(depth * (lines - len(statements) + 1)) + place
        text += (NOISE + "\n") * (line - used)
        spans.append((len(text), len(text) + len(statement.rstrip())))
        text += statement + "\n"
        used = line
    return Haystack(text + "\n".join([NOISE] * (lines - used)), spans)


def different(draw: Callable[[], T], n: int) -> list[T]:
    """The first `n` different values of a draw, in the order in which they came."""
    found: dict[T, None] = {}
    while len(found) < n:
        found.setdefault(draw())
    return list(found)
