"""Scores of an answer against references: LongBench's and RULER's rules, rewritten from their definitions.

Every scorer maps (answer, references) to a number in [0, 1]; numbers stay strings, so that an answer of a
million digits costs a comparison and no conversion. Success is derived from the raw value by the analysis.
"""

import re
import string
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

Scorer = Callable[[str, Sequence[str]], float]

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NUMBER = re.compile(r"\d+")
_CONTROL = re.compile(r"[\x00-\x1f]")
_PARAGRAPH = re.compile(r"Paragraph (\d+)")


def normalise(text: str) -> str:
    """LongBench's form of an answer: lower case, no ASCII punctuation, no articles, single spaces."""
    bare = text.lower().translate(_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", bare).split())


def token_f1(answer: str, references: Sequence[str]) -> float:
    """Best multiset F1 of normalised words over the references (LongBench qa_f1)."""
    words = Counter(normalise(answer).split())
    return max((_f1(words, Counter(normalise(r).split())) for r in references), default=0.0)


def _f1(answer: Counter[str], reference: Counter[str]) -> float:
    shared = (answer & reference).total()
    if shared == 0:
        return 0.0
    precision = shared / answer.total()
    recall = shared / reference.total()
    return (2 * precision * recall) / (precision + recall)


def exact_match(answer: str, references: Sequence[str]) -> float:
    """1.0 if the normalised answer is one of the normalised references; nothing matches nothing."""
    given = normalise(answer)
    return float(bool(given) and any(given == normalise(r) for r in references))


def count(answer: str, references: Sequence[str]) -> float:
    """Share of the answer's numbers that equal the reference, as written (LongBench count_score)."""
    numbers = _NUMBER.findall(answer)
    return max((_share(numbers, r) for r in references), default=0.0)


def retrieval(answer: str, references: Sequence[str]) -> float:
    """Share of the answer's numbers that equal N of a reference "Paragraph N" (retrieval_score)."""
    wanted = [match[1] for r in references if (match := _PARAGRAPH.search(r))]
    return count(answer, wanted)


def _share(numbers: Sequence[str], wanted: str) -> float:
    return numbers.count(wanted) / len(numbers) if numbers else 0.0


def classification(answer: str, references: Sequence[str], classes: Iterable[str]) -> float:
    """1 / (classes named in the answer) if the reference is among them (LongBench).

    A class whose name is a part of the reference's name is not counted, because naming the longer one
    always names it too. Needs the list of classes, so it is not one of SCORERS.
    """
    named = [name for name in classes if name in answer]
    return max((_one_of(named, r) for r in references), default=0.0)


def _one_of(named: Sequence[str], reference: str) -> float:
    rivals = [name for name in named if name == reference or name not in reference]
    return 1.0 / len(rivals) if reference in rivals else 0.0


def all_present(answer: str, references: Sequence[str]) -> float:
    """1.0 if every reference stands in the answer as a word of its own, whatever the case."""
    given = answer.lower()
    wanted = [re.escape(r.lower()) for r in references]
    # Without the borders a passcode would also be "found" inside a longer run of digits.
    return float(bool(wanted) and all(re.search(rf"(?<!\w){w}(?!\w)", given) for w in wanted))


def _ruler_form(answer: str) -> str:
    """RULER's form of an answer: stripped, every control character a line break, lower case."""
    return _CONTROL.sub("\n", answer.strip()).strip().lower()


def string_match_all(answer: str, references: Sequence[str]) -> float:
    """Share of the references that occur in the answer, whatever the case (RULER); none: 0."""
    given = _ruler_form(answer)
    return sum(r.lower() in given for r in references) / len(references) if references else 0.0


def string_match_part(answer: str, references: Sequence[str]) -> float:
    """1.0 if any reference occurs in the answer, whatever the case (RULER's question answering)."""
    given = _ruler_form(answer)
    return float(any(r.lower() in given for r in references))


SCORERS: dict[str, Scorer] = {
    "token_f1": token_f1,
    "exact_match": exact_match,
    "count": count,
    "retrieval": retrieval,
    "all_present": all_present,
    "string_match_all": string_match_all,
    "string_match_part": string_match_part,
}
