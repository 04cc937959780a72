"""The order in which logged things are made again: by model, then shard; each model is loaded once."""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Protocol, TypeVar

from kvexp.config import ModelConf
from kvexp.families import family_of
from kvexp.prereg.replay_scores import questions_of
from kvexp.replay.model import Loaded
from kvexp.resolved import GenerationShard
from kvexp.tasks import Question, Task


class OfShard(Protocol):
    """A logged row, or an example."""

    @property
    def shard(self) -> GenerationShard:
        """Where it was made."""


Item = TypeVar("Item", bound=OfShard)


def by_shard(
    chosen: Sequence[Item], made: Sequence[GenerationShard], load: Callable[[ModelConf], Loaded]
) -> Iterator[tuple[list[Item], Loaded, Task, dict[str, Question]]]:
    """What was chosen of each shard, in the order of `made`, with what making it again needs."""
    order = {shard.shard_id: at for at, shard in enumerate(made)}
    models = list(dict.fromkeys(shard.model.name for shard in made))

    def place(one: Item) -> tuple[int, int]:
        return models.index(one.shard.model.name), order[one.shard.shard_id]

    for _, of_shard in groupby(sorted(chosen, key=place), key=place):
        together = list(of_shard)
        shard = together[0].shard
        loaded, family = load(shard.model), family_of(shard.task)
        yield together, loaded, family, questions_of(shard, family, loaded)
