"""What a task family is: load examples, split each prompt around its context, score an answer.

A family is one file in this folder with one frozen dataclass deriving from `Task`; its fields are the
parameters that `conf/task/*.yaml` may set under `params`. Nothing here knows models, arms or records.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from kvexp.scoring import SCORERS

Count = Callable[[str], int]  # tokens of a text, in the tokenizer of one model


@dataclass(frozen=True)
class Question:
    """One example: a context that will be evicted from, and a question about it."""

    example_id: str
    context: str
    question: str
    references: tuple[str, ...]
    needle_spans: tuple[tuple[int, int], ...] = ()  # characters of `context` that hold the facts


@dataclass(frozen=True)
class PromptText:
    """A prompt in its parts: user turn = before + context + after; then the answer begins with a prefix.

    `question` must occur in `after` exactly once: its tokens are the question span of aware arms.
    """

    before: str
    context: str
    after: str
    question: str
    answer_prefix: str = ""


class HubFile(NamedTuple):
    """A file of a data set on the hub, at a pinned revision."""

    repo: str
    revision: str
    filename: str


class Task(ABC):
    """A family of questions. Subclasses are frozen dataclasses; their fields are the parameters."""

    has_answers: ClassVar[bool] = True  # without, only an attention suite can use the family
    is_cut: ClassVar[bool] = False  # contexts may be longer than the suite's, and are cut on token ids
    is_sized: ClassVar[bool] = False  # contexts are filled up to a number of the model's own tokens
    score_name: str  # a name of kvexp.scoring.SCORERS

    @abstractmethod
    def load(
        self, n_examples: int, seed: int, context_tokens: int, count: Count | None = None
    ) -> list[Question]:
        """The first `n_examples` of this seed. Ids, questions and facts do not depend on the length.

        `count` gives the tokens of a text; a family that is sized by it fails without.
        """

    def source(self) -> HubFile | None:
        """The hub's file that `load` reads from the local cache; None for a family that needs none."""
        return None

    def remark(self, n_examples: int) -> str | None:
        """What a person should know before running it, for instance that there are fewer examples."""
        return None

    def example_ids(self, n_examples: int, seed: int, context_tokens: int) -> list[str]:
        """Ids of what `load` gives; a family that knows them without loading says so."""
        return [question.example_id for question in self.load(n_examples, seed, context_tokens)]

    @abstractmethod
    def prompt(self, question: Question) -> PromptText:
        """The parts of the prompt."""

    def score(self, text: str, question: Question) -> float:
        """Raw value of `score_name` for an answer; a family with a score of its own overrides this."""
        return SCORERS[self.score_name](text, question.references)
