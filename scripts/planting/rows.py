"""What makes a results folder sound: generations, attempts and footers, with filler where nothing is said."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from kvexp import records
from kvexp.records import Attempt, Expected, Footer, Generation, Segment, Timings

# Signals that an arm does not have.
ABSENT: Mapping[str, frozenset[str]] = {
    "full": frozenset({"certificate", "evicted_mass", "margin"}),
    "streaming_llm": frozenset({"certificate", "evicted_mass", "margin"}),
    "h2o": frozenset({"certificate"}),
    "snapkv": frozenset({"certificate"}),
    "topk": frozenset({"certificate"}),
    "poisson": frozenset({"margin"}),
}
DIGEST = "0" * 64
DELTA, FLOOR = 0.1, 1e-9  # of the certificate
PROTOCOL = {"delta": DELTA, "norm_floor": FLOOR, "sinks": 4, "recent": 32}
ENDED = "2026-11-01T00:00:00Z"
LOGS = ("generations.jsonl", "cells.jsonl")


def expected(
    suite: str, model: str, task: str, examples: int, places: Sequence[tuple[Any, ...]]
) -> list[Expected]:
    """The grid of one shard; `places`: arm, condition, budget and seed of every answer to an example."""
    return [
        Expected(
            suite=suite,
            shard_id=f"{suite}.{model}.{task}.000",
            model=model,
            task=task,
            example_id=f"{task}-{number:04d}",
            arm=arm,
            condition=condition,
            budget=budget,
            seed=seed,
        )
        for number in range(examples)
        for arm, condition, budget, seed in places
    ]


def generation(
    row: Expected,
    score_name: str,
    score_value: float,
    signals: Mapping[str, float | None],
    **changes: Any,
) -> Generation:
    """A row with this score and these raw signals; `changes` are other fields of the record."""
    is_full, is_poisson = row.arm == "full", row.arm == "poisson"
    absent = ABSENT.get(row.arm, frozenset())
    told = {name: None if name in absent else signals.get(name) for name in records.SIGNALS}
    radius = told["certificate"]
    kept = 1000.0 * (row.budget or 1)
    fields: dict[str, Any] = {
        "attempt": 1,
        "n_context": 900,
        "n_prompt": 1000,
        "n_evictable": 1000,
        "expected_kept": kept,
        "realised_kept": kept,
        "tail_kept": 100.0 if is_poisson else None,
        "first_step_cached": 300.0,
        "n_generated": 8,
        "text": "planted",
        "undefined": {name: "planted" for name, value in told.items() if value is None},
        "certificate_steps": None if radius is None else [radius / 2, radius],
        "zero_variance_cells": 0 if is_poisson else None,
        "min_logit_gap": 0.1,
        "seconds": Timings(prefill=1.0, plan=0.1, decode=1.0, decode_arms=8),
        "stopped_by": "stop_token",
        "keep_digest": None if is_full else DIGEST,
    }
    place = {name: getattr(row, name) for name in row.__struct_fields__}
    score = {"score_name": score_name, "score_value": score_value}
    return Generation(**{**place, **score, **told, **fields, **changes})


def write_shard(folder: Path, rows: Sequence[Expected], generations: Iterable[Generation]) -> None:
    """The shard of these rows below a results folder: attempt, log, footer."""
    first = rows[0]
    shard = folder / first.suite / first.shard_id
    shard.mkdir(parents=True)
    (shard / "attempt-001.json").write_bytes(records.encode(attempt(first.shard_id, rows=rows)))
    (shard / LOGS[0]).write_bytes(lines(generations))
    close(shard)


def close(shard: Path) -> None:
    """Write the footer that fits the log as it stands."""
    data = next(shard / name for name in LOGS if (shard / name).exists()).read_bytes()
    count = data.count(b"\n") - data.count(b'{"kind":"failed/1"')
    first = json.loads((shard / "attempt-001.json").read_bytes())
    footer = Footer(
        shard_id=shard.name,
        shard_digest=first["shard_digest"],
        rows=count,
        sha256=hashlib.sha256(data).hexdigest(),
        segments=[Segment(attempt=1, job_id=None, rows=count)],
        model_seconds=1.0,
        ended_at=ENDED,
    )
    (shard / "footer.json").write_bytes(records.encode(footer))


def attempt(shard_id: str, number: int = 1, *, rows: Iterable[Expected] = (), **changes: Any) -> Attempt:
    """One process start that set out to answer these rows."""
    config = changes.get("config", resolved(rows))
    body = json.dumps(config, sort_keys=True, allow_nan=False)
    fields: dict[str, Any] = {
        "shard_id": shard_id,
        "number": number,
        "shard_digest": hashlib.sha256(body.encode()).hexdigest(),
        "protocol_digest": "1" * 64,
        "seal": None,
        "anchor": "unanchored",
        "git_commit": None,
        "git_dirty": None,
        "versions": {},
        "host": "planted",
        "slurm": {},
        "model_digest": None,
        "device": "cpu",
        "dtype": "float32",
        "threads": 1,
        "started_at": ENDED,
        "config": config,
    }
    return Attempt(**{**fields, **changes})


def resolved(rows: Iterable[Expected]) -> dict[str, Any]:
    """A shard that expects these rows, one arm entry per place of the grid."""
    rows = list(rows)
    places = dict.fromkeys((row.arm, row.condition, row.budget, row.seed) for row in rows)
    return {
        "version": 1,
        "protocol": PROTOCOL,
        "example_ids": list(dict.fromkeys(row.example_id for row in rows)),
        "arms": [
            [
                {"name": arm},
                {
                    "arm": arm,
                    "conditions": [condition] * (condition is not None),
                    "budgets": [budget] * (budget is not None),
                    "seeds": [seed] * (seed is not None),
                },
            ]
            for arm, condition, budget, seed in places
        ],
    }


def lines(rows: Iterable[msgspec.Struct]) -> bytes:
    """JSON lines."""
    return b"".join(msgspec.json.encode(row) + b"\n" for row in rows)
