"""Word needles: a few facts of one shape, each with a one-word answer; one of them is asked for."""

from dataclasses import dataclass

from kvexp.tasks._choices import Choices
from kvexp.tasks._contexts import build, spread
from kvexp.tasks._vocabulary import CITIES, WORDS
from kvexp.tasks.base import PromptText, Question, Task


@dataclass(frozen=True)
class Words(Task):
    """Asks for the secret word of one city; the other facts have other cities and words.

    Attributes:
        n_facts: facts in the text, the wanted one included.
    """

    n_facts: int = 3

    score_name = "exact_match"

    def load(self, n_examples: int, seed: int, context_tokens: int) -> list[Question]:
        """See Task.load."""
        return [self._example(seed, index, context_tokens) for index in range(n_examples)]

    def _example(self, seed: int, index: int, context_tokens: int) -> Question:
        choices = Choices("words", seed, index)
        keys = choices.sample(CITIES, self.n_facts)
        words = choices.sample(WORDS, self.n_facts)
        facts = [f"The secret word for {k} is {w}." for k, w in zip(keys, words, strict=True)]
        wanted = choices.below(self.n_facts)
        depths = spread(self.n_facts, choices)
        context = build(facts, depths, [*keys, *words], context_tokens, choices)
        return Question(
            example_id=f"{seed}-{index:03d}",
            context=context.text,
            question=f"What is the secret word for {keys[wanted]}?",
            references=(words[wanted],),
            needle_spans=context.spans,
        )

    def prompt(self, question: Question) -> PromptText:
        """See Task.prompt."""
        key = question.question.removeprefix("What is the secret word for ").removesuffix("?")
        return PromptText(
            before="Read the following text. Some secret words are hidden in it.\n\n",
            context=question.context,
            after=f"\n\n{question.question} Answer with one word.",
            question=question.question,
            answer_prefix=f"The secret word for {key} is",
        )
