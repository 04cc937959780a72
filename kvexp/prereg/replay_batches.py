"""Which arms of an example are answered as one batch again: those that its log says were one.

The last digits of an answer depend on its batch. All arms are one, but a device whose memory is too small
for that decodes them budget by budget, and so did logs from before all budgets were one batch.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from kvexp.config import ArmConf, ArmGrid
from kvexp.prereg.replay_rows import Logged
from kvexp.resolved import GenerationShard


def batches(shard: GenerationShard, rows: Sequence[Logged]) -> list[GenerationShard]:
    """The shard, or for every budget the shard with the arms of that budget alone."""
    arms = len(shard.places())
    if all(one.row.seconds.decode_arms >= arms for one in rows):
        return [shard]
    budgets = sorted({_budget(place.budget) for place in shard.places()})
    return [replace(shard, arms=list(_of_budget(shard.arms, budget))) for budget in budgets]


def _budget(budget: float | None) -> float:
    return 1.0 if budget is None else budget


def _of_budget(arms: Sequence[tuple[ArmConf, ArmGrid]], budget: float) -> Iterator[tuple[ArmConf, ArmGrid]]:
    for conf, entry in arms:
        if not entry.budgets:
            if budget == 1.0:
                yield conf, entry
        elif budget in entry.budgets:
            yield conf, replace(entry, budgets=[budget])
