"""A context with facts in it, cut to a nominal length.

The filler of every example is laid out once, for the longest context, with the facts between its pieces.
A shorter context cuts the middle out of every piece, so that the facts, their order and their depths
(as shares of the text) stay and the shorter text is part of the longer one.
"""

import re
from abc import abstractmethod
from collections.abc import Collection, Iterator, Sequence
from functools import cache
from itertools import pairwise
from typing import NamedTuple

from kvexp.errors import ConfigError
from kvexp.tasks._haystack import LONGEST_SENTENCE, passages
from kvexp.tasks._words import Choices
from kvexp.tasks.base import Count, Question, Task

SHORTEST, LONGEST = 256, 8192  # nominal tokens
# The length of a context must not depend on a model, so words stand for tokens. Measured with the
# tokenizer of SmolLM2 on this haystack.
WORDS_PER_TOKEN = 0.785


class Context(NamedTuple):
    """A text and the character spans of the facts in it, in the order of the facts given."""

    text: str
    spans: tuple[tuple[int, int], ...]


class _Sentence(NamedTuple):
    text: str  # with the white space that follows it
    words: int


class _Prepared(NamedTuple):
    words: frozenset[str]  # in lower case
    sentences: tuple[_Sentence, ...]


def spread(n: int, choices: Choices) -> list[float]:
    """`n` random depths in (0, 1), ascending, one in every n-th of the text."""
    return [(place + 0.1 + 0.8 * choices.uniform()) / n for place in range(n)]


def check_length(tokens: int) -> None:
    """Raises ConfigError for a length that contexts are not made in."""
    if not SHORTEST <= tokens <= LONGEST:
        raise ConfigError(f"context_tokens is {tokens}, but generated tasks have {SHORTEST} to {LONGEST}")


def build(
    facts: Sequence[str],
    depths: Sequence[float],
    avoid: Collection[str],
    tokens: int,
    choices: Choices,
) -> Context:
    """Put the facts at their depths (ascending) into filler that has none of the words to avoid."""
    check_length(tokens)
    pieces = _layout(depths, avoid, choices)
    filler_words = tokens * WORDS_PER_TOKEN - sum(map(_size, facts))
    text, spans = "", []
    for piece, share, fact in zip(pieces, _shares(depths), [*facts, ""], strict=True):
        text += "".join(s.text for s in _without_middle(piece, share * filler_words))
        if fact:
            spans.append((len(text), len(text) + len(fact)))
            text += fact + "\n"
    return Context(text.rstrip(), tuple(spans))


def filler(tokens: Sequence[int], choices: Choices) -> list[str]:
    """Consecutive stretches of filler, each of a nominal length; white space ends all but the last."""
    check_length(max(tokens))
    stream, texts = _stream(frozenset(), choices), []
    for length in tokens:
        text, words = "", 0
        while words < length * WORDS_PER_TOKEN:
            sentence = next(stream)
            text, words = text + sentence.text, words + sentence.words
        texts.append(text)
    return [*texts[:-1], texts[-1].rstrip()]


def _shares(depths: Sequence[float]) -> list[float]:
    ends = [0.0, *depths, 1.0]
    return [after - before for before, after in pairwise(ends)]


def _layout(depths: Sequence[float], avoid: Collection[str], choices: Choices) -> list[list[_Sentence]]:
    """The filler before, between and after the facts, long enough for the longest context."""
    stream = _stream(frozenset(w.lower() for w in avoid), choices)
    pieces = []
    for share in _shares(depths):
        piece: list[_Sentence] = []
        words = 0
        # Rounding to whole sentences can add half of one at each end.
        while words < share * LONGEST * WORDS_PER_TOKEN + LONGEST_SENTENCE:
            piece.append(next(stream))
            words += piece[-1].words
        pieces.append(piece)
    return pieces


def _stream(avoid: frozenset[str], choices: Choices) -> Iterator[_Sentence]:
    for passage in choices.shuffled(_prepared()):
        if passage.words.isdisjoint(avoid):
            yield from passage.sentences


@cache
def _prepared() -> tuple[_Prepared, ...]:
    return tuple(
        _Prepared(
            frozenset(re.findall(r"\w+", " ".join(passage).lower())),
            tuple(_Sentence(s + ("\n" if s is passage[-1] else " "), _size(s)) for s in passage),
        )
        for passage in passages()
    )


def _size(text: str) -> int:
    """Words, and one more for each digit, because the models of the study read digits one by one."""
    return len(text.split()) + sum(map(str.isdigit, text))


def _without_middle(piece: Sequence[_Sentence], words: float) -> list[_Sentence]:
    """The start and the end of a piece, about `words` / 2 each, whole sentences."""
    # Neither end looks at what the other took: only then is a shorter text part of a longer one.
    head = _fitting(piece, words / 2)
    tail = _fitting(piece[::-1], words / 2)
    return [*piece[:head], *piece[len(piece) - tail :]]


def _fitting(sentences: Sequence[_Sentence], words: float) -> int:
    """How many sentences from the start come nearest to a number of words."""
    used = 0
    for place, sentence in enumerate(sentences):
        if used + sentence.words / 2 > words:
            return place
        used += sentence.words
    return len(sentences)


# Tasks whose examples are made from a seed: example i of a seed is the same whatever else is asked for.


class Generated(Task):
    """A family that makes its examples one by one."""

    def example_ids(self, n_examples: int, seed: int, context_tokens: int) -> list[str]:
        check_length(context_tokens)
        return [_id(seed, index) for index in range(n_examples)]

    def load(
        self, n_examples: int, seed: int, context_tokens: int, count: Count | None = None
    ) -> list[Question]:
        return [self.example(_id(seed, index), seed, index, context_tokens) for index in range(n_examples)]

    @abstractmethod
    def example(self, example_id: str, seed: int, index: int, context_tokens: int) -> Question:
        """One example; its facts and its question do not depend on the length."""


def _id(seed: int, index: int) -> str:
    return f"{seed}-{index:03d}"
