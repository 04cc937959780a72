"""Planted results folders: logs with known truths, for tests of the analysis.

`plan` lists the grid of a study shaped like `embedded` or `demo`, `paper` that of the paper's suites on
real tasks, `prompts` that of an attention suite; `write` turns them into a results folder with attempts and
footers. What each row says is decided by a `World`, whose knobs are the truths, or by any function of the
row, so a test can plant exactly the verdict it wants; what a cell says by a `Heads` or any function of its
key.
"""

import hashlib
import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from kvexp import records
from kvexp.records import Attempt, Cell, CellKey, Expected, ExpectedCells, Generation, WorldKey
from scripts.planting import rows as planting
from scripts.planting.rows import DELTA, FLOOR, PROTOCOL, attempt, close, lines, write_shard

REGISTRATIONS = Path(__file__).resolve().parents[1] / "preregistration"

SHORT, LONG, ATTENTION = "embedded-1k", "embedded-2k", "attention"
TASKS = ("passcodes", "words", "facts")
BUDGETS = {0: (0.25, 0.5), 1: (0.125, 0.25, 0.5)}
STREAM_ARMS = ("streaming_llm", "h2o", "snapkv")
SCORES = {"passcodes": "all_present", "words": "exact_match", "facts": "token_f1"}
# The paper's real tasks, and its suites on them; the control runs the full cache alone.
REAL = ("hotpotqa", "2wikimqa", "multifieldqa_en", "passage_retrieval_en", "musique", "narrativeqa")
SCORES |= {task: "retrieval" if task == "passage_retrieval_en" else "token_f1" for task in REAL}
SIX, SIXTEEN, CONTROL = "6k", "16k", "no-context"
PAPER = {
    SIX: (*REAL[:4], "passcodes"),
    SIXTEEN: ("hotpotqa", "passage_retrieval_en", "musique", "narrativeqa"),
    CONTROL: REAL,
}
PAPER_BUDGETS: dict[str, tuple[float, ...]] = {SIX: BUDGETS[0], SIXTEEN: BUDGETS[1], CONTROL: ()}
INSTRUCT = (
    "qwen2.5-1.5b-instruct",
    "qwen2.5-7b-instruct",
    "llama-3.1-8b-instruct",
    "mistral-7b-instruct-v0.3",
)


def plan(
    suites: tuple[str, str] = (SHORT, LONG),
    *,
    tasks: Iterable[str] = TASKS,
    models: Iterable[str] = ("smollm2-135m",),
    examples: int = 16,
) -> list[Expected]:
    """The grid: 17 generations per example in the first suite, 25 in the second."""
    return [
        row
        for at, suite in enumerate(suites)
        for model in models
        for task in tasks
        for row in rows(suite, model, task, examples, BUDGETS[at])
    ]


def paper(
    suites: Iterable[str] = PAPER, *, models: Iterable[str] = INSTRUCT, examples: int = 12
) -> list[Expected]:
    """The grid of the paper's suites on real tasks: 17, 25 and 1 generations an example."""
    return [
        row
        for suite in suites
        for model in models
        for task in PAPER[suite]
        for row in rows(suite, model, task, examples, PAPER_BUDGETS[suite])
    ]


def rows(suite: str, model: str, task: str, examples: int, budgets: Iterable[float]) -> list[Expected]:
    """One shard: the full cache, and every other arm at these budgets."""
    return planting.expected(suite, model, task, examples, list(_arms(budgets)))


def _arms(budgets: Iterable[float]) -> Iterable[tuple[str, Any, float | None, int | None]]:
    yield "full", None, None, None
    for budget in budgets:
        for arm in STREAM_ARMS:
            yield arm, "stream", budget, None
        yield "topk", "aware", budget, None
        for condition in ("aware", "stream"):
            for seed in (0, 1):
                yield "poisson", condition, budget, seed


def prompts(
    suite: str = ATTENTION,
    *,
    models: Iterable[str] = ("smollm2-135m",),
    examples: int = 12,
    budgets: Iterable[float] = (0.125, 0.25, 0.5),
    offsets: Iterable[int] = (16,),
    layers: int = 2,
    heads: int = 3,
    worlds: int = 2,
    shard_examples: int = 6,
) -> list[ExpectedCells]:
    """The grid of an attention suite: 6 cells a prompt and budget; the first two prompts carry worlds."""
    return [
        ExpectedCells(
            suite=suite,
            shard_id=f"{suite}.{model}.prose.{number // shard_examples:03d}",
            model=model,
            task="prose",
            example_id=f"prose-{number:04d}",
            budgets=list(budgets),
            seeds=[0],
            offsets=list(offsets),
            layers=layers,
            heads=heads,
            worlds=worlds * (number < 2),
        )
        for model in models
        for number in range(examples)
    ]


@dataclass
class World:
    """Truths that a study is planted with; a row is a pure function of its key and these.

    `blame` maps a signal to how far it rises (in standard deviations) when the cache is at fault,
    `difficulty` the same when the answer is wrong for whatever reason.
    """

    full: float = 0.6  # accuracy of the full cache
    rescued: float = 0.05
    induced: Callable[[Expected], float] = lambda row: 0.3 if row.condition == "stream" else 0.1
    blame: dict[str, float] = field(default_factory=dict)
    difficulty: dict[str, float] = field(default_factory=dict)
    seed: int = 0

    def __call__(self, row: Expected) -> dict[str, Any]:
        """Score and signals of one row."""
        knows = _uniform(self.seed, "knows", row.suite, row.model, row.task, row.example_id) < self.full
        # Budgets share the uniform: what survives a small budget survives a larger one.
        luck = _uniform(self.seed, "luck", *row.key[:6], row.seed)
        success = knows
        if row.arm != "full":
            success = luck >= self.induced(row) if knows else luck < self.rescued
        answer: dict[str, Any] = {"success": success}
        for at, signal in enumerate(records.SIGNALS):
            noise = _normal(self.seed, signal, *row.key)
            shift = self.blame.get(signal, 0.0) * (knows and not success)
            shift += self.difficulty.get(signal, 0.0) * (not success)
            answer[signal] = noise + shift + 10.0 * (at == 0)
        return answer


def forgetful(row: Expected) -> dict[str, Any]:
    """Answers of the paper's suites: without its context a model knows a quarter, and damage hits stream."""
    is_control = row.suite == CONTROL
    world = World(
        full=0.25 if is_control else 0.7,
        induced=lambda row: (0.6 if row.condition == "stream" else 0.2) * (1.1 - (row.budget or 1)),
        blame={"certificate": 1.0},
    )
    return world(row)


@dataclass
class Heads:
    """Truths that an attention suite is planted with; a cell is a pure function of its key and these.

    `tax` shifts the error of Poisson against that of top-k, so it is the difference of their medians.
    """

    coverage: Callable[[float], float] = lambda budget: 0.97  # share of covered cells
    blind: Callable[[float], bool] = lambda budget: False  # the certificate covers all and knows nothing
    tax: Callable[[float], float] = lambda budget: -0.01
    seed: int = 0

    def __call__(self, key: CellKey) -> dict[str, Any]:
        """Norms, errors and certificate of one cell, `covered` included."""
        prompt, here = key[:4], tuple(key)
        spread = 0.5 * _normal(self.seed, "prompt", *prompt) + _normal(self.seed, "cell", *here)
        much = 0.05 + 0.05 * math.exp(spread) / math.sqrt(key.budget)
        hajek = _written(much / (1 + much / 1.5))  # an estimate is not far off and small at once
        norm = _written(1.0 + _uniform(self.seed, "norm", *here))
        # No further from the norm than the error is, as the triangle inequality has it.
        apart = min(hajek, 0.5) * (1.8 * _uniform(self.seed, "estimate", *here) - 0.9)
        estimate_norm = _written(norm * (1 + apart))
        luck, much = (_uniform(self.seed, name, *here) for name in ("covered", "ratio"))
        is_covered = luck < self.coverage(key.budget)
        ratio = 0.2 + 0.7 * much if is_covered else 1.1 + much
        bound = hajek * (norm + FLOOR) / ratio
        if self.blind(key.budget):
            is_covered, bound = True, 1000.0 + much
        level = math.log(1 / DELTA)
        return {
            "norm": norm,
            "estimate_norm": estimate_norm,
            "hajek": hajek,
            "no_offset": _written(1.5 * hajek),
            "topk": _written(hajek - self.tax(key.budget)),
            "uniform": _written(3 * hajek),
            "variance": _written((0.7 * bound) ** 2 / (2 * level)),
            "largest": _written(0.3 * bound / level),
            "certificate": _written(bound / (estimate_norm + FLOOR)),
            "covered": is_covered,
            "rare_attention": _written(0.1 * much),
        }


def _written(value: float) -> float:
    """With the digits that a log has."""
    return float(f"{value:.7g}")


def few_draws(folder: Path, study: str, which: str) -> Path:
    """Registrations of a study, `which` of them by their files, with 20 draws: shapes, not intervals."""
    for path in (REGISTRATIONS / study).glob(which):
        (folder / path.name).write_text(path.read_text().replace("draws = 500", "draws = 20"))
    return folder


def write(
    folder: Path,
    grid: list[Any],
    world: Callable[[Expected], dict[str, Any]],
    *,
    heads: Callable[[CellKey], dict[str, Any]] | None = None,
    order: Callable[[list[Any]], list[Any]] = lambda rows: rows,
) -> Path:
    """A complete results folder; `order` may shuffle lines and shards.

    The grid may hold prompts beside generations; their cells say what `heads` tells.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "grid.jsonl").write_bytes(lines(order(list(grid))))
    _write_cells(folder, [row for row in grid if isinstance(row, ExpectedCells)], heads or Heads(), order)
    grid = [row for row in grid if isinstance(row, Expected)]
    shards: dict[tuple[str, str], list[Expected]] = defaultdict(list)
    for row in grid:
        shards[row.suite, row.shard_id].append(row)
    for _, rows in order(list(shards.items())):
        write_shard(folder, rows, [generation(row, world(row)) for row in order(rows)])
    return folder


def _write_cells(
    folder: Path,
    grid: list[ExpectedCells],
    heads: Callable[[CellKey], dict[str, Any]],
    order: Callable[[list[Any]], list[Any]],
) -> None:
    shards: dict[tuple[str, str], list[ExpectedCells]] = defaultdict(list)
    for prompt in grid:
        shards[prompt.suite, prompt.shard_id].append(prompt)
    for (suite, shard_id), here in order(list(shards.items())):
        shard = folder / suite / shard_id
        shard.mkdir(parents=True)
        worlds = max(prompt.worlds for prompt in grid if prompt.suite == suite)
        # The code that measures cells is not that which makes generations.
        first = attempt(shard_id, config=resolved_cells(here, worlds), protocol_digest="4" * 64)
        (shard / "attempt-001.json").write_bytes(records.encode(first))
        rows: list[Any] = [cell(prompt, key, heads(key)) for prompt in here for key in prompt.cell_keys()]
        rows += [layer_of_world(prompt, key, heads) for prompt in here for key in prompt.world_keys()]
        (shard / "cells.jsonl").write_bytes(lines(order(rows)))
        close(shard)


def cell(prompt: ExpectedCells, key: CellKey, told: dict[str, Any]) -> Cell:
    """A cell with the given errors and certificate; everything else is filler."""
    kept = round(1000 * key.budget)
    return Cell(
        **key._asdict(),
        attempt=1,
        shard_id=prompt.shard_id,
        score="window",
        evictable=1000,
        expected_kept=float(kept),
        kept=kept + 3,
        tail_kept=kept // 2,
        uniform_kept=kept - 2,
        **told,
    )


def layer_of_world(
    prompt: ExpectedCells, key: WorldKey, heads: Callable[[CellKey], dict[str, Any]]
) -> records.World:
    """A layer of a world: top-k sees nothing of it, and its error moves; an unpermuted one is the cells'."""
    budget, offset = _world_budget(prompt), prompt.offsets[0]
    places = [CellKey(*key[:4], budget, 0, offset, key.layer, head) for head in range(prompt.heads)]
    if key.change == "permutation" and not key.world:
        told = [heads(place) for place in places]
    else:
        told = [_changed(key, head) for head in range(prompt.heads)]
    names = ("norm", "estimate_norm", "topk", "hajek", "certificate", "covered")
    return records.World(
        **key._asdict(),
        attempt=1,
        shard_id=prompt.shard_id,
        budget=budget,
        seed=0,
        offset=offset,
        score="window" if key.change == "permutation" else "value_weighted",
        statistics=hashlib.sha256(f"{key[:5]} {key.layer}".encode()).hexdigest(),
        **{name: [one[name] for one in told] for name in names},
    )


def _changed(key: WorldKey, head: int) -> dict[str, Any]:
    value = _uniform(*key, head)
    hajek = _written(0.1 * value)
    return {
        "norm": 1.0,
        "estimate_norm": _written(1 + hajek / 2),
        "topk": _written(0.01 + value),
        "hajek": hajek,
        "certificate": _written(0.3 * value),
        "covered": True,
    }


def _world_budget(prompt: ExpectedCells) -> float:
    return prompt.budgets[min(1, len(prompt.budgets) - 1)]


def resolved_cells(here: list[ExpectedCells], worlds: int | None = None) -> dict[str, Any]:
    """A shard of an attention suite that expects these prompts; `worlds` of those that have any."""
    first = here[0]
    return {
        "version": 1,
        "suite": first.suite,
        "model": {"name": first.model},
        "layers": first.layers,
        "query_heads": first.heads,
        "task": {"name": first.task},
        "protocol": PROTOCOL,
        "attention": {
            "budgets": first.budgets,
            "seeds": first.seeds,
            "query_offsets": first.offsets,
            "worlds": max(prompt.worlds for prompt in here) if worlds is None else worlds,
            "world_budget": _world_budget(first),
            "score": "window",
            "score_params": {},
            "rotation_score": "value_weighted",
            "rotation_score_params": {},
            "design_params": {},
        },
        "example_ids": [prompt.example_id for prompt in here],
        "world_ids": [prompt.example_id for prompt in here if prompt.worlds],
    }


def generation(row: Expected, answer: dict[str, Any]) -> Generation:
    """A row with the given `success` and signals; everything else is filler."""
    signals = {name: answer.get(name) for name in records.SIGNALS}
    signals["output_logprob"] = -answer["output_logprob"]  # raw: large means confident
    if signals["margin"] is not None:
        signals["margin"] = -answer["margin"]
    score = answer.get("score", float(answer["success"]))
    return planting.generation(row, SCORES[row.task], score, signals)


def edit(line: bytes, **changes: Any) -> bytes:
    """A line of a log with other values."""
    return compact({**json.loads(line), **changes}) + b"\n"


def compact(record: Any) -> bytes:
    """JSON as kvexp spells it."""
    return json.dumps(record, separators=(",", ":"), ensure_ascii=False).encode()


def restate(path: Path, **changes: Any) -> Attempt:
    """Change what an attempt states; returns what it was."""
    before = msgspec.json.decode(path.read_bytes(), type=records.Attempt)
    path.write_bytes(records.encode(msgspec.structs.replace(before, **changes)))
    return before


def _uniform(*key: Any) -> float:
    digest = hashlib.blake2b("|".join(map(str, key)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def _normal(*key: Any) -> float:
    # Sum of twelve uniforms: near enough to a normal, and the same on every machine.
    digest = hashlib.blake2b("|".join(map(str, key)).encode(), digest_size=48).digest()
    words = np.frombuffer(digest, ">u4").astype(np.float64)
    return float(words.sum() / 2**32 - 6.0)
