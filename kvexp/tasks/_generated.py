"""Tasks whose examples are made from a seed: example i of a seed is the same whatever else is asked for."""

from abc import abstractmethod

from kvexp.tasks._contexts import check_length
from kvexp.tasks.base import Count, Question, Task


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
