"""Tables of a few answers or cells, as `Study.table` and `Study.cells` hold them, written out by hand."""

import math

import numpy as np
import pandas as pd

from analysis.core.data import CellData, Data, Parameters
from kvexp.documents.schema import Population, Statistics

TEXT = ("suite", "shard_id", "model", "task", "example_id", "arm", "condition", "score_name")
SIGNALS = (
    *("certificate", "certificate_first", "certificate_mean"),
    *("entropy", "evicted_mass", "margin", "output_logprob"),
)
SIZES = (
    *("expected_kept", "realised_kept", "tail_kept", "n_context", "n_prompt", "n_evictable", "n_generated"),
    *("prefill_seconds", "plan_seconds", "decode_seconds", "decode_arms"),
    *("n_context_full", "truncated", "answer_survives"),
)
ANSWER = {
    "suite": "short",
    "model": "a",
    "task": "words",
    "arm": "poisson",
    "condition": "stream",
    "budget": 0.25,
    "seed": math.nan,
    "score_name": "exact_match",
    "present": True,
    "text": "",
    **dict.fromkeys(SIGNALS, math.nan),
    **dict.fromkeys(SIZES, math.nan),
}
CELL = {
    "suite": "attention",
    "shard_id": "attention.small.prose.000",
    "model": "small",
    "task": "prose",
    "budget": 0.25,
    "seed": 0,
    "offset": 8,
    "layer": 0,
    "head": 0,
    "present": True,
    "score": "window",
}
SUCCESS = {"token_f1": 0.5, "otherwise": 1.0}


def plan(**changes):
    """The registered way to compute numbers, with few draws."""
    fields = {
        "auc": "mann-whitney, ties half",
        "interval": "cluster-bootstrap-percentile",
        "cluster": ("task", "example_id"),
        "resampled_within": ("task",),
        "level": 0.9,
        "draws": 40,
        "min_clusters": 2,
        "undefined_resamples_max": 0.0,
        "undefined_rows_max": 0.0,
    }
    return Statistics(**{**fields, **changes})


def full(example, score, **changes):
    """The full cache's answer to an example."""
    nowhere = {"arm": "full", "condition": None, "budget": math.nan}
    return {"example_id": example, "score_value": float(score), **nowhere, **changes}


def answer(example, score, **changes):
    """An arm's answer to an example."""
    return {"example_id": example, "score_value": float(score), **changes}


def table(*rows):
    """Answers, each with the row of the full cache's answer to the same example, -1 where there is none."""
    rows = [{**ANSWER, **row} for row in rows]
    at = {_question(row): place for place, row in enumerate(rows) if row["arm"] == "full"}
    for row in rows:
        row["full_at"] = at.get(_question(row), -1)
        row["shard_id"] = f"{row['suite']}.{row['model']}.{row['task']}.000"
    return _typed(pd.DataFrame(rows))


def _question(row):
    return tuple(row[name] for name in ("suite", "model", "task", "example_id"))


def _typed(frame):
    return frame.assign(**{name: pd.Categorical(frame[name]) for name in TEXT if name in frame})


def data(rows, label="own_failure", parameters=None, *, seed=1, success=SUCCESS, where=None, **changes):
    """What a claim's file is given of a table; `where` are further axes of the population."""
    axes = {name: sorted(set(rows[f"{name[:-1]}"])) for name in ("suites", "tasks", "arms")}
    axes["arms"] = [arm for arm in axes["arms"] if arm != "full"] or ["full"]
    population = Population(**{**axes, **(where or {})}, label=label)
    return Data(rows, population, success, plan(**changes), seed, Parameters("claim X1", parameters or {}))


def cells(*rows):
    """Cells of one head of one prompt each, unless a row says otherwise."""
    made = [{**CELL, "example_id": f"prose-{at:04d}", **row} for at, row in enumerate(rows)]
    frame = pd.DataFrame(made)
    for name in ("certificate", "hajek", "topk", "norm", "estimate_norm", "variance", "largest"):
        frame[name] = frame[name].astype(np.float64) if name in frame else 1.0
    if "covered" not in frame:
        frame["covered"] = (frame["hajek"] <= frame["certificate"]).astype(np.float64)
    return _typed(frame)


def cell_data(rows, parameters=None, **changes):
    """What a claim about cells is given."""
    return CellData(rows, plan(**changes), 1, Parameters("claim X1", parameters or {}))


def slow_multiplicities(stratum, draws, seed):
    """The same from whole numbers alone: the upper 53 bits of a word choose one of as many equal parts."""
    bits = np.random.PCG64(seed)
    counts = [[0] * len(stratum) for _ in range(draws)]
    for code in sorted(set(stratum)):
        members = [at for at, own in enumerate(stratum) if own == code]
        for draw in range(draws):
            for _ in members:
                part = (int(bits.random_raw()) >> 11) * len(members) >> 53
                counts[draw][members[part]] += 1
    return counts
