"""The generations of a study, moved from the logs into columns aligned with the grid."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd

from analysis.core.agreement import Row, contradiction, disagreement
from analysis.core.estimates import Integers
from analysis.core.grid import describe, key_of
from analysis.core.lines import ASKED, Lines, read_examples
from analysis.core.shard import GENERATIONS, Log, Shard
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


class GenerationLog(Log[Generation]):
    """The generations of one shard, with their line numbers."""

    name = GENERATIONS
    nouns = "generations"
    lines = Lines[Generation | Failed](Generation | Failed)

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[tuple[int, Generation]] = []

    def take(self, line: int, row: Generation, attempt: Attempt) -> Iterator[str]:
        if words := contradiction(row):
            yield words
        self.rows.append((line, row))
        words = f"rows of task {row.task} carry different scores"
        self.stated.setdefault((words, row.task, row.score_name), line)

    def forget(self) -> None:
        super().forget()
        self.rows.clear()


@dataclass
class Planned:
    """What the grid says about one shard of generations."""

    questions: set[tuple[str, str]] = field(default_factory=set)  # (model, task), one of them
    rows: set[Row] = field(default_factory=set)

    def disagreement(self, attempt: Attempt) -> str:
        """How an attempt means something else."""
        return disagreement(attempt, self.rows)


class Answers:
    """Columns aligned with the grid, filled shard by shard so that only one shard's rows are in memory."""

    def __init__(self, table: pd.DataFrame) -> None:
        self._grid = table
        axes = [_nulls(table[name].astype(object)) for name in Key._fields[:6]]
        axes += [_nulls(table[name]) for name in Key._fields[6:]]
        self._shard_of = list(zip(axes[0], table["shard_id"].astype(str), strict=True))
        keys = list(zip(*axes, strict=True))
        self._position: dict[Any, int] = {key: at for at, key in enumerate(keys)}
        self._planned: dict[tuple[str, str], Planned] = {}
        for here, (_, model, task, *row) in zip(self._shard_of, keys, strict=True):
            planned = self._planned.setdefault(here, Planned())
            planned.questions.add((model, task))
            planned.rows.add(cast(Row, tuple(row)))
        self._present = np.zeros(len(table), bool)
        self._answered = np.zeros(len(table), bool)  # in whatever shard, closed or not
        self._columns = {name: np.full(len(table), np.nan) for name in (*COPIED, *TIMED, *DERIVED, *ASKED)}
        self._score_name = np.full(len(table), None, object)
        self._text = np.full(len(table), None, object)

    @property
    def suites(self) -> set[str]:
        """The suites of the grid that have generations."""
        return {suite for suite, _ in self._planned}

    def planned(self, suite: str, shard_id: str) -> Planned:
        """What the grid says about a shard; empty if it does not know it."""
        return self._planned.get((suite, shard_id), Planned())

    def fill(self, suite: str, shard: Shard, log: GenerationLog) -> None:
        """Move the rows of a closed shard into the columns; foreign and repeated keys become its problems."""
        places, taken = [], []
        here = (suite, shard.path.name)
        for line, row in log.rows:
            key = key_of(row)
            at = self._position.get(key)
            if at is None or self._shard_of[at] != here:
                words = f"{describe(key)} is not in the grid of this shard"
                shard.problems.append(f"{shard.path / GENERATIONS}:{line}: {words}")
            elif self._answered[at]:
                words = f"{describe(key)} was answered before"
                shard.problems.append(f"{shard.path / GENERATIONS}:{line}: {words}")
            else:
                self._answered[at] = True
                self._present[at] = shard.is_closed
                places.append(at)
                taken.append(row)
        if shard.is_closed and taken:
            self._copy(np.array(places), taken)
            self._ask(shard.path.parents[1], np.array(places), taken)

    def table(self) -> pd.DataFrame:
        """The grid with what was found: COPIED, TIMED, DERIVED and ASKED as numbers, `text` as it stands."""
        return self._grid.assign(
            present=self._present,
            score_name=pd.Categorical(
                self._score_name, sorted({name for name in self._score_name if name is not None})
            ),
            **self._columns,
            text=self._text,
        )

    def _copy(self, at: Integers, rows: list[Generation]) -> None:
        for name in COPIED:
            self._columns[name][at] = np.array([getattr(row, name) for row in rows], np.float64)
        for column, name in TIMED.items():
            self._columns[column][at] = np.array([getattr(row.seconds, name) for row in rows], np.float64)
        steps = [row.certificate_steps for row in rows]
        self._columns["certificate_first"][at] = [s[0] if s else np.nan for s in steps]
        self._columns["certificate_mean"][at] = [_mean(s) if s else np.nan for s in steps]
        self._score_name[at] = [row.score_name for row in rows]
        self._text[at] = [row.text for row in rows]

    def _ask(self, results: Path, at: Integers, rows: list[Generation]) -> None:
        """What the examples say; all rows of a shard are of one suite, model and task."""
        asked = read_examples(results, rows[0].suite, rows[0].model, rows[0].task)
        if not asked:
            return
        for name in ASKED:
            # A null, as an example that is not there, is NaN.
            values = [getattr(asked.get(row.example_id), name, None) for row in rows]
            self._columns[name][at] = np.array(values, np.float64)


def _mean(steps: list[float]) -> float:
    """The mean, without a sum that could leave the floats."""
    return min(max(steps), sum(step / len(steps) for step in steps))


def _nulls(column: "pd.Series[Any]") -> list[Any]:
    """Values as the records spell them: None instead of NaN."""
    return [None if value != value else value for value in column.tolist()]
