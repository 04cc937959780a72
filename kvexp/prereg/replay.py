"""`kvexp verify --replay N`: keep sets of random rows, computed again from the anchor with the model.

Nothing is decoded. What a row says that it kept must be what the anchor, the seed and the scores of the model
give; and what it says that it scored must be what its text scores.
"""

import heapq
from collections.abc import Callable, Mapping
from pathlib import Path

from kvexp.compose import Selection
from kvexp.config import ModelConf
from kvexp.errors import ConfigError, IncompleteError
from kvexp.grid import shards
from kvexp.launch import load_model, model_source
from kvexp.prereg.forms import Replayed
from kvexp.prereg.grid_change import other_words
from kvexp.prereg.home import Home
from kvexp.prereg.replay_compare import compare_all
from kvexp.prereg.replay_rows import Logged, random_rows, random_seed, refuse_unknown_shards, ticket
from kvexp.prereg.replay_scores import wrong_scores
from kvexp.prereg.replay_summary import summary
from kvexp.replay.model import Loaded
from kvexp.resolved import GenerationShard


def replay_study(
    selection: Selection, home: Home, n: int, seed: int | None, anchors: Mapping[str, str]
) -> Replayed:
    """Replay rows of the chosen suites with the models of this machine.

    `anchors`: by suite, what its seal's time stamp gives; suites without a seal go by their attempts' word.
    """
    words = other_words(home, [one.content.id for one in home.registrations()])
    return replay(home.results, chosen_shards(selection), n, seed, loader(selection), anchors, words)


def chosen_shards(selection: Selection) -> list[GenerationShard]:
    """All shards of the chosen suites that answer."""
    made = [s for s in shards(selection, "leave_out") if s.suite in selection.chosen["suite"]]
    return [s for s in made if isinstance(s, GenerationShard)]


def loader(selection: Selection) -> Callable[[ModelConf], Loaded]:
    """Loads the models of a study on the device of its cluster."""
    device = selection.cluster.device

    def load(model: ModelConf) -> Loaded:
        loaded: Loaded = load_model(model_source(model), model.dtype, device, model.revision)
        return loaded

    return load


def replay(
    results: Path,
    made: list[GenerationShard],
    n: int,
    seed: int | None,
    load: Callable[[ModelConf], Loaded],
    anchors: Mapping[str, str] | None = None,
    words: str = "",
) -> Replayed:
    """Compare `n` rows of random designs, chosen by `seed`, with what they must be.

    A larger `n` keeps the rows of a smaller one. `made` are all shards of their suites, complete or not; the
    model is loaded once for all its rows. A `seed` of None is drawn from the operating system. `words` say in
    brackets which overrides the command lacks, if that is known.

    Raises IncompleteError if there are no such rows, or if nothing can be said of them on this software;
    IntegrityError for rows that no shard of `made` expects, or that were made under another configuration.
    """
    if n < 1:
        raise ConfigError(f"a replay needs at least 1 row, got {n}")
    seed = random_seed(seed)
    refuse_unknown_shards(results, made, words)
    chosen: list[Logged] = []
    of = 0
    for shard in made:
        here = list(random_rows(results, shard, words))
        of += len(here)
        chosen = heapq.nsmallest(n, chosen + here, key=lambda one: ticket("replay", seed, *one.row.key))
    if not chosen:
        raise IncompleteError(
            f"{results} has no rows of a random design to replay: submit the study first{words}"
        )
    compared = compare_all(chosen, made, load, anchors or {})
    done = {one.row.key for one in chosen}
    return summary(compared, list(wrong_scores(results, made, load, done)), of, seed)
