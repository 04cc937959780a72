"""The generations of a study, moved from the logs into columns aligned with the grid."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.core.agreement import contradiction, disagreement
from analysis.core.grid import key_of
from analysis.core.lines import Lines
from analysis.core.shard import GENERATIONS, Columns, PlannedShard, ShardFolder, ShardLog
from kvexp.records import Attempt, Failed, Generation, Key

# Copied from the rows as they are; null becomes NaN, "undefined".
COPIED = (
    "score_value",
    "certificate",
    "entropy",
    "evicted_mass",
    "margin",
    "output_logprob",
    "expected_kept",
    "realised_kept",
    "tail_kept",
    "n_context",
    "n_prompt",
    "n_evictable",
    "n_generated",
)
# Of `Timings`, by the column that each becomes.
TIMED = {
    "prefill_seconds": "prefill",
    "plan_seconds": "plan",
    "decode_seconds": "decode",
    "decode_arms": "decode_arms",
}
DERIVED = ("certificate_first", "certificate_mean")


class GenerationLog(ShardLog[Generation]):
    """The generations of one shard, each with its row in the table."""

    name = GENERATIONS
    nouns = "generations"
    done = "answered"
    lines = Lines[Generation | Failed](Generation | Failed)

    def __init__(self, positions: Mapping[tuple[Any, ...], int]) -> None:
        """`positions`: by key, the rows of the table that the grid has for the shard."""
        super().__init__()
        self._positions = positions
        self.rows: list[tuple[int, Generation]] = []

    def at(self, row: Generation) -> int | None:
        return self._positions.get(key_of(row))

    def contradiction(self, row: Generation, attempt: Attempt) -> str:
        return contradiction(row)

    def keep(self, line: int, row: Generation, at: int, *, is_sound: bool) -> None:
        self.rows.append((at, row))
        words = f"rows of task {row.task} carry different scores"
        self.stated.setdefault((words, row.task, row.score_name), line)

    def forget(self) -> None:
        super().forget()
        self.rows.clear()


class Answers(Columns[GenerationLog]):
    """The generations of a study; only one shard's records are in memory at a time."""

    def __init__(self, table: pd.DataFrame) -> None:
        super().__init__()
        self._grid = table
        axes = [_nulls(table[name].astype(object)) for name in Key._fields[:6]]
        axes += [_nulls(table[name]) for name in Key._fields[6:]]
        self._positions: dict[tuple[str, str], dict[tuple[Any, ...], int]] = {}
        for at, (shard_id, key) in enumerate(
            zip(table["shard_id"].astype(str), zip(*axes, strict=True), strict=True)
        ):
            suite, model, task, *row = key
            planned = self._planned.setdefault((suite, shard_id), PlannedShard())
            planned.questions.add((model, task))
            planned.rows.add(tuple(row))
            self._positions.setdefault((suite, shard_id), {})[key] = at
        self._present = np.zeros(len(table), bool)
        self._columns = {name: np.full(len(table), np.nan) for name in (*COPIED, *TIMED, *DERIVED)}
        self._score_name = np.full(len(table), None, object)
        self._text = np.full(len(table), None, object)

    def log(self, path: Path) -> GenerationLog:
        return GenerationLog(self._positions.get((path.parent.name, path.name), {}))

    def disagreement(self, attempt: Attempt, planned: PlannedShard) -> str:
        return disagreement(attempt, planned.rows)

    def fill(self, shard: ShardFolder, log: GenerationLog) -> None:
        if not shard.is_closed or not log.rows:
            return
        at, rows = np.array([at for at, _ in log.rows]), [row for _, row in log.rows]
        self._present[at] = True
        for name in COPIED:
            self._columns[name][at] = np.array([getattr(row, name) for row in rows], np.float64)
        for column, name in TIMED.items():
            self._columns[column][at] = np.array([getattr(row.seconds, name) for row in rows], np.float64)
        steps = [row.certificate_steps for row in rows]
        self._columns["certificate_first"][at] = [s[0] if s else np.nan for s in steps]
        self._columns["certificate_mean"][at] = [_mean(s) if s else np.nan for s in steps]
        self._score_name[at] = [row.score_name for row in rows]
        self._text[at] = [row.text for row in rows]

    def table(self) -> pd.DataFrame:
        """The grid with what was found: COPIED, TIMED and DERIVED as numbers, `text` as it stands."""
        names = sorted({name for name in self._score_name if name is not None})
        return self._grid.assign(
            present=self._present,
            score_name=pd.Categorical(self._score_name, names),
            **self._columns,
            text=self._text,
        )


def _mean(steps: list[float]) -> float:
    """The mean, without a sum that could leave the floats."""
    return min(max(steps), sum(step / len(steps) for step in steps))


def _nulls(column: "pd.Series[Any]") -> list[Any]:
    """Values as the records spell them: None instead of NaN."""
    return [None if value != value else value for value in column.tolist()]
