"""How far two answers to one question differ in their words; no reference is needed."""

import re
import string
from collections import Counter
from collections.abc import Iterable

_NO_PUNCTUATION = {ord(sign): None for sign in string.punctuation}
_ARTICLE = re.compile(r"\b(?:a|an|the)\b")


def words(text: str) -> Counter[str]:
    """The words of an answer as LongBench counts them: lower case, no ASCII punctuation, no articles."""
    return Counter(_ARTICLE.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def token_f1(one: Counter[str], other: Counter[str]) -> float:
    """F1 of two bags of words, the same either way round; two answers without words agree."""
    if one == other:
        return 1.0
    shared = sum(min(count, other[word]) for word, count in one.items() if word in other)
    return 2 * shared / (one.total() + other.total())


def disagreements(pairs: Iterable[tuple[str, str]]) -> list[float]:
    """1 - token F1 of each pair of texts, in [0, 1]."""
    known = dict[str, Counter[str]]()

    def counted(text: str) -> Counter[str]:
        if text not in known:
            known[text] = words(text)
        return known[text]

    return [0.0 if a == b else 1 - token_f1(counted(a), counted(b)) for a, b in pairs]
