"""Extractive questions about invented people, whose lives are told in scattered sentences.

Four facts stand in the text: the wanted one, the same relation of somebody else, another relation of the
wanted person, and an unrelated one. A reader has to match both the person and the relation, and the
statement is mostly phrased in other words than the question.
"""

from dataclasses import dataclass

from kvexp.errors import InputError
from kvexp.tasks._contexts import Generated, build, spread
from kvexp.tasks._words import CITIES, FIRST_NAMES, SURNAMES, Choices
from kvexp.tasks.base import PromptText, Question


@dataclass(frozen=True)
class Relation:
    """One thing that can be told and asked about a person {p}, with the answer {v}."""

    statements: tuple[str, ...]
    question: str
    prefix: str
    values: tuple[str, ...]


RELATIONS = (
    Relation(
        statements=(
            "{p} was born in the city of {v}.",
            "{p} came from {v} and grew up there.",
            "The birthplace of {p} was {v}.",
        ),
        question="In which city was {p} born?",
        prefix="{p} was born in the city of",
        values=CITIES,
    ),
    Relation(
        statements=(
            "{p} worked as a {v} for many years.",
            "By profession, {p} was a {v}.",
            "{p} made a living as a {v}.",
        ),
        question="What was the profession of {p}?",
        prefix="{p} was a",
        values=(
            "baker", "carpenter", "dentist", "lawyer", "fisherman", "gardener", "painter", "plumber",
            "pharmacist", "butcher", "tailor", "barber", "librarian", "firefighter", "blacksmith",
            "truck driver", "school teacher", "police officer", "flight attendant", "stage actor",
            "wedding photographer", "marine biologist", "night nurse", "bank clerk", "piano teacher",
        ),
    ),
    Relation(
        statements=(
            "{p} kept a {v} as a pet.",
            "At home, {p} had a {v}.",
            "The favorite animal of {p} was a {v} that lived in the house.",
        ),
        question="Which pet did {p} have?",
        prefix="The pet of {p} was a",
        values=(
            "rabbit", "hamster", "parrot", "turtle", "goldfish", "lizard", "snake", "pony", "goat",
            "black cat", "white mouse", "brown dog", "green frog", "gray donkey", "tame fox",
            "baby owl", "red squirrel", "house spider", "young crow", "fat pig",
        ),
    ),
    Relation(
        statements=(
            "{p} liked to eat {v} most of all.",
            "The favorite food of {p} was {v}.",
            "On Sundays, {p} always cooked {v}.",
        ),
        question="What was the favorite food of {p}?",
        prefix="The favorite food of {p} was",
        values=(
            "spaghetti", "pancakes", "sushi", "pizza", "dumplings", "lasagna", "hamburgers", "waffles",
            "mushroom soup", "apple pie", "fried chicken", "roast beef", "potato salad", "fish soup",
            "rice pudding", "grilled salmon", "garlic bread", "lemon cake", "boiled eggs", "lamb curry",
        ),
    ),
    Relation(
        statements=(
            "{p} had a large collection of {v}.",
            "For decades, {p} collected {v}.",
            "The shelves of {p} were full of {v}.",
        ),
        question="What did {p} collect?",
        prefix="{p} collected",
        values=(
            "stamps", "coins", "seashells", "butterflies", "postcards", "clocks", "dolls", "teapots",
            "old maps", "toy trains", "glass bottles", "silver spoons", "wooden masks", "movie posters",
            "baseball cards", "door keys", "jazz records", "military medals", "paper kites", "rare rocks",
        ),
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Facts(Generated):
    """Asks for one relation of one person."""

    with_prefix: bool = True  # begin the answer with the start of a sentence

    score_name = "token_f1"

    def example(self, example_id: str, seed: int, index: int, context_tokens: int) -> Question:
        choices = Choices("facts", seed, index)
        wanted, other, unrelated = choices.sample(RELATIONS, 3)
        firsts, lasts = choices.sample(FIRST_NAMES, 3), choices.sample(SURNAMES, 3)
        people = [f"{first} {last}" for first, last in zip(firsts, lasts, strict=True)]
        answer, rival = choices.sample(wanted.values, 2)
        told = [
            (wanted, people[0], answer),
            (wanted, people[1], rival),
            (other, people[0], choices.pick(other.values)),
            (unrelated, people[2], choices.pick(unrelated.values)),
        ]
        facts = [
            choices.pick(relation.statements).format(p=person, v=value)
            for relation, person, value in choices.sample(told, len(told))
        ]
        avoid = " ".join([*people, *(value for _, _, value in told)]).split()
        context = build(facts, spread(len(facts), choices), avoid, context_tokens, choices)
        return Question(
            example_id=example_id,
            context=context.text,
            question=wanted.question.format(p=people[0]),
            references=(answer,),
            needle_spans=context.spans,
        )

    def prompt(self, question: Question) -> PromptText:
        return PromptText(
            before="Read the following text. It mentions a few people.\n\n",
            context=question.context,
            after=f"\n\n{question.question} Answer in a few words.",
            question=question.question,
            answer_prefix=_prefix(question.question) if self.with_prefix else "",
        )


def _prefix(question: str) -> str:
    """The start of the answer; the words around the person tell which relation is asked for."""
    for relation in RELATIONS:
        before, after = relation.question.split("{p}")
        if question.startswith(before) and question.endswith(after):
            person = question.removeprefix(before).removesuffix(after)
            return relation.prefix.format(p=person)
    raise InputError(f"{question!r} is not a question of this family")
