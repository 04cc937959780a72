"""Every generation with its text and its question, for people to read: what no statistic looks at.

Logs are read by the same rules as for verdicts, so a row is here if it counts there.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd

from analysis import populations
from analysis.load import check_folder, files
from analysis.load.answers import Answers, GenerationLog
from analysis.load.grid import key_of, read_grid
from analysis.load.shard import read_shard
from analysis.load.under import Under
from analysis.sealed import locks, registrations, seals
from analysis.statistics.base import Integers
from kvexp.prereg.registration import Registered
from kvexp.records import Generation
from kvexp.terminal import printable

OUTCOMES = ("correct", "rescued", "induced failure", "inherent failure", "failure", "unknown")


class Asked(msgspec.Struct, frozen=True):
    """What people read of an example; whatever else its record says is passed over."""

    suite: str
    task: str
    example_id: str
    question: str
    references: list[str]
    model: str | None = None  # older records hold for every model


@dataclass(frozen=True)
class Read:
    """The generations of a study, as they are logged.

    Attributes:
        study: its name.
        table: see `analysis.load.Study.table`.
        rows: by position in the table the record of each present row.
        outcome: (rows of the table,) position in OUTCOMES.
        examples: by (suite, model, task, example id).
        open_suites: sealed and not locked.
        problems: how many contradictions the logs hold.
    """

    study: str
    table: pd.DataFrame
    rows: Mapping[int, Generation]
    outcome: Integers
    examples: Mapping[tuple[str, str, str, str], Asked]
    open_suites: list[str]
    problems: int


def read(results: Path, repository: Path, chosen: Path | None) -> Read:
    """Read a results folder.

    Args:
        results: results/<study>.
        repository: where registrations and seals are looked for.
        chosen: folder of registrations instead of the study's.

    Raises KvexpError, as the analysis does, for what is no results folder, or is not as it was sealed.
    """
    check_folder(results)
    folders = registrations.Folders(results, repository, chosen)
    found = registrations.load(registrations.files(folders))
    owners = {suite: one for one in found for suite in one.content.suites}
    folders.refuse_links(list(owners))
    by_id = seals.read_seals(found, folders)
    sealed = {suite: by_id[one.content.id] for suite, one in owners.items() if one.content.id in by_id}
    under = {suite: one.under(owners[suite].content.id, suite) for suite, one in sealed.items()}
    locked = locks.read_locks(results, sorted(owners), {suite: one.accepted for suite, one in sealed.items()})
    still_open = sorted(suite for suite in sealed if suite not in locked or not locked[suite].holds)
    table, rows, problems = _logs(results, under)
    return Read(
        printable(results.resolve().name),
        table,
        rows,
        _outcome(table, owners),
        _examples(results / "examples"),
        still_open,
        problems,
    )


def _logs(results: Path, under: Mapping[str, Under]) -> tuple[pd.DataFrame, dict[int, Generation], int]:
    grid = read_grid(results / "grid.jsonl", under)
    answers, taken, problems = Answers(grid.table), dict[Any, Generation](), len(grid.problems)
    for suite, shard_id in _shards(grid.table):
        path = results / suite / shard_id
        if path.is_dir():
            log = GenerationLog()
            shard = read_shard(path, log, under.get(suite))
            answers.fill(suite, shard, log)
            problems += len(shard.problems)
            if shard.is_closed:
                for _, row in log.rows:
                    if (row.suite, row.shard_id) == (suite, shard_id):
                        taken.setdefault(key_of(row), row)
    table = answers.table()
    present = np.flatnonzero(table["present"].to_numpy(bool))
    keys = _keys(table, present)
    return table, {at: taken[key] for at, key in zip(present.tolist(), keys, strict=True)}, problems


def _shards(table: pd.DataFrame) -> Iterator[tuple[str, str]]:
    pairs = table[["suite", "shard_id"]].drop_duplicates().astype(str)
    yield from zip(pairs["suite"], pairs["shard_id"], strict=True)


def _keys(table: pd.DataFrame, at: Integers) -> Iterator[tuple[Any, ...]]:
    """Keys of rows as the records spell them: None instead of NaN."""
    names = ("suite", "model", "task", "example_id", "arm", "condition", "budget", "seed")
    columns = [table[name].to_numpy(object)[at].tolist() for name in names]
    for key in zip(*columns, strict=True):
        yield tuple(None if value != value else value for value in key)


def _outcome(table: pd.DataFrame, owners: Mapping[str, Registered]) -> Integers:
    """By the thresholds of the registration that lists the suite; unknown without one."""
    suites = table["suite"].astype(str).to_numpy()
    at, present = table["full_at"].to_numpy(np.int64), table["present"].to_numpy(bool)
    is_full = at == np.arange(len(table))
    outcome = np.full(len(table), OUTCOMES.index("unknown"), np.int64)
    for suite, registered in owners.items():
        thresholds = registered.content.success
        here = (suites == suite) & present
        if not here.any() or not thresholds:
            continue
        own = populations.succeeded(table, thresholds)
        has_full = (at >= 0) & present[at] & ~is_full
        full = own[at]
        told = np.select(
            [own & has_full & ~full, own, ~own & has_full & full, ~own & has_full],
            [OUTCOMES.index(word) for word in ("rescued", "correct", "induced failure", "inherent failure")],
            OUTCOMES.index("failure"),
        )
        outcome[here] = told[here]
    return outcome


def _examples(folder: Path) -> dict[tuple[str, str, str, str], Asked]:
    """Questions and references; a file that cannot be read leaves its questions unknown."""
    found: dict[tuple[str, str, str, str], Asked] = {}
    decoder = msgspec.json.Decoder(Asked)
    for path in sorted(folder.glob("*.jsonl")) if folder.is_dir() else ():
        try:
            asked = decoder.decode_lines(files.read(path))
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            continue
        for one in asked:
            found[one.suite, one.model or "", one.task, one.example_id] = one
    return found
