"""Print the rates of conf/cluster from the logs of a run: `python -m scripts.measure_rates results/X`.

The terms of `kvexp.run.progress` are fitted to the logged seconds by least squares, none of them below 0.
"""

import argparse
import itertools
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from kvexp.errors import InputError, KvexpError
from kvexp.records import CHANGES, FOOTER, GENERATIONS, Attempt, Footer, seconds_in
from kvexp.run.log import read_attempts, read_footer, read_state
from kvexp.run.progress import AFTER, AROUND, prefill_seconds
from kvexp.study.rates import Rate

Row = dict[str, Any]


def fit(results: Path, model: str) -> Rate:
    """The rate of one model from all its closed shards that were made in one attempt.

    Raises InputError if there are no generations or several devices, IntegrityError for broken logs.
    """
    shards = [
        (folder, attempts[0], read_footer(folder))
        for folder in sorted(path.parent for path in results.glob(f"*/*/{FOOTER}"))
        if len(attempts := read_attempts(folder)) == 1 and attempts[0].config["model"]["name"] == model
    ]
    examples = [
        (attempt.config, rows)
        for folder, attempt, _ in shards
        for rows in (_examples(folder) if (folder / GENERATIONS).exists() else ())
    ]
    if not examples:
        raise InputError(f"{results} has no closed shard of generations of model {model}")
    lengths = np.array([_prompt(config) for config, _ in examples], float)
    seconds = np.array([rows[0]["seconds"]["prefill"] for _, rows in examples])
    token, square = nonnegative(np.stack([lengths, lengths**2], 1), seconds)
    plans = sum(row["seconds"]["plan"] for _, rows in examples for row in rows)
    planned = sum(n * len(rows) for n, (_, rows) in zip(lengths, examples, strict=True))
    batches = [(config, batch) for config, rows in examples for batch in _batches(rows)]
    steps = np.array([max(row["n_generated"] for row in batch) for _, batch in batches], float)
    arms = np.array([sum(row["n_generated"] for row in batch) for _, batch in batches], float)
    cached = np.array(
        [sum(row["n_generated"] * _cached(row, config) for row in batch) for config, batch in batches]
    )
    fed = np.array([sum(row["condition"] == "stream" for row in batch) * AFTER for _, batch in batches])
    decoded = np.array([batch[0]["seconds"]["decode"] for _, batch in batches]) - fed * token
    step, arm, each = nonnegative(np.stack([steps, arms, cached], 1), decoded)
    if not steps.sum():
        raise InputError(f"no answer in {results} has a token: there is nothing to measure")
    first = shards[0][1]
    if len(made_on := {(one.device, one.dtype, one.threads) for _, one, _ in shards}) > 1:
        words = "; ".join(f"{device} {dtype} {threads} threads" for device, dtype, threads in sorted(made_on))
        raise InputError(f"the shards of {results} were made on several devices ({words}): rates are of one")
    rate = Rate(
        device=f"{first.device}, {first.threads} threads",
        dtype=first.dtype,
        date=first.started_at[:10],
        command=f"python -m scripts.measure_rates {results.as_posix()}",
        prefill_token_s=token,
        prefill_square_s=square,
        plan_token_s=plans / planned,
        step_s=step,
        arm_s=arm,
        cached_s=each,
        answer_share=steps.sum() / sum(_longest(config) for config, _ in batches),
        arm_share=arms.sum() / sum(_longest(config) * len(batch) for config, batch in batches),
    )
    cells = [(attempt, footer) for folder, attempt, footer in shards if not (folder / GENERATIONS).exists()]
    if cells:
        rate.cell_s, rate.world_s = _cells(results, cells, rate)
    return rate


def nonnegative(columns: np.ndarray, wanted: np.ndarray) -> list[float]:
    """Least squares with no coefficient below 0: the best of all subsets of columns."""
    width = columns.shape[1]
    best, found = float("inf"), [0.0] * width
    for size in range(1, width + 1):
        for chosen in map(list, itertools.combinations(range(width), size)):
            values = np.linalg.lstsq(columns[:, chosen], wanted, rcond=None)[0]
            error = float(np.sum((columns[:, chosen] @ values - wanted) ** 2))
            if (values >= 0).all() and error < best:
                best, found = error, [0.0] * width
                for at, value in zip(chosen, values, strict=True):
                    found[at] = float(value)
    return found


def _cells(results: Path, shards: Sequence[tuple[Attempt, Footer]], rate: Rate) -> list[float]:
    """Seconds a cell and a world row, by the clock, beside the prefills."""
    columns, wanted = [], []
    for attempt, footer in shards:
        config = attempt.config
        worlds = (
            len(config["world_ids"]) * len(CHANGES) * (config["attention"]["worlds"] + 1) * config["layers"]
        )
        prefills = len(config["example_ids"]) * prefill_seconds(config["context_tokens"], rate)
        columns.append([footer.rows - worlds, worlds])
        wanted.append(
            seconds_in(results, footer.ended_at) - seconds_in(results, attempt.started_at) - prefills
        )
    return nonnegative(np.array(columns, float), np.array(wanted, float))


def _prompt(config: Row) -> int:
    return (0 if config["no_context"] else config["context_tokens"]) + AROUND


def _cached(row: Row, config: Row) -> float:
    return float(row["budget"] or 1.0) * _prompt(config)


def _longest(config: Row) -> int:
    return int(config["task"]["max_new_tokens"])


def _examples(folder: Path) -> Iterator[list[Row]]:
    """The rows of each example of a shard."""
    rows = [msgspec.to_builtins(row) for row in read_state(folder).rows.values()]
    for _, same in itertools.groupby(rows, key=lambda row: row["example_id"]):
        yield list(same)


def _batches(rows: list[Row]) -> list[list[Row]]:
    """The rows of one example that were decoded together: they state the same seconds."""
    found: dict[float, list[Row]] = {}
    for row in rows:
        found.setdefault(row["seconds"]["decode"], []).append(row)
    return list(found.values())


def main() -> int:
    """Print YAML for `rates:`, or what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path)
    parser.add_argument("--model", default="smollm2-135m")
    asked = parser.parse_args()
    try:
        rate = fit(asked.results, asked.model)
    except KvexpError as error:
        print(f"measure_rates: {error}", file=sys.stderr)
        return error.exit_code
    print(f"# fitted {datetime.now(UTC):%Y-%m-%d}\nrates:\n  {asked.model}:")
    for name, value in asdict(rate).items():
        print(f"    {name}: {value if isinstance(value, str) else f'{value:.3g}'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
