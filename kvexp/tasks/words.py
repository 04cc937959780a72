"""Word needles: a few facts of one shape, each with a one-word answer; one of them is asked for."""

from dataclasses import dataclass

from kvexp.errors import ConfigError
from kvexp.tasks._contexts import Generated, build, spread
from kvexp.tasks._words import CITIES, WORDS, Choices
from kvexp.tasks.base import PromptText, Question

_MOST_FACTS = 20
# Measured on pilot seeds with SmolLM2: quotation marks in the fact and in the answer's prefix keep the
# model from answering with a form of the city's name; saying the word twice lets some stream arms find
# it (a single mention is lost by nearly all of them, which would tell nothing about degrees).
_FACT = 'The secret word for {key} is "{word}". Whoever comes to {key} has to say "{word}".'
_QUESTION = "What is the secret word for {key}?"


@dataclass(frozen=True)
class Words(Generated):
    """Asks for the secret word of one city; the other facts have other cities and words."""

    n_facts: int = 3  # facts in the text, the wanted one included, 1 to 20

    score_name = "exact_match"

    def __post_init__(self) -> None:
        if not 1 <= self.n_facts <= _MOST_FACTS:
            raise ConfigError(f"n_facts is {self.n_facts}, but must be 1 to {_MOST_FACTS}")

    def example(self, example_id: str, seed: int, index: int, context_tokens: int) -> Question:
        choices = Choices("words", seed, index)
        keys = choices.sample(CITIES, self.n_facts)
        words = choices.sample(WORDS, self.n_facts)
        facts = [_FACT.format(key=k, word=w) for k, w in zip(keys, words, strict=True)]
        wanted = choices.below(self.n_facts)
        depths = spread(self.n_facts, choices)
        context = build(facts, depths, [*keys, *words], context_tokens, choices)
        return Question(
            example_id=example_id,
            context=context.text,
            question=_QUESTION.format(key=keys[wanted]),
            references=(words[wanted],),
            needle_spans=context.spans,
        )

    def prompt(self, question: Question) -> PromptText:
        before, after = _QUESTION.split("{key}")
        key = question.question.removeprefix(before).removesuffix(after)
        return PromptText(
            before="Read the following text. Some secret words are hidden in it.\n\n",
            context=question.context,
            after=f"\n\n{question.question} Answer with one word.",
            question=question.question,
            answer_prefix=f'The secret word for {key} is "',
        )
