"""Hand-made tables of an attention suite, as `Study.cells` and `Study.worlds` hold them."""

import itertools
from types import SimpleNamespace

import numpy as np
import pandas as pd

from kvexp.records import CHANGES

PLACE = ("suite", "shard_id", "model", "task", "example_id", "score", "change")


def cells(
    *,
    suite="attention",
    model="small",
    prompts=12,
    budgets=(0.125, 0.25, 0.5),
    seeds=(0,),
    offsets=(8, 24, 40),
    layers=3,
    heads=9,
    score="window",
    seed=0,
):
    """Errors of the usual size and order; the certificate bounds nine in ten or more."""
    bits = np.random.Generator(np.random.PCG64(seed))
    axes = (range(prompts), budgets, seeds, offsets, range(layers), range(heads))
    rows = pd.DataFrame(
        list(itertools.product(*axes)), columns=["at", "budget", "seed", "offset", "layer", "head"]
    )
    n = len(rows)
    hard = 0.05 * np.exp(0.4 * bits.normal(size=n) + 1.5 * rows["layer"] / layers - 0.1 * rows["head"])
    scale = hard * (0.125 / rows["budget"]) ** 0.7
    norm = np.exp(bits.normal(size=n) / 3)
    variance = (scale * norm * np.exp(0.1 * bits.normal(size=n))) ** 2
    largest = np.sqrt(variance) * bits.uniform(0.2, 0.8, n)
    missed = np.where(bits.uniform(size=n) < 0.03, 5.0, 1.0)  # what the draw did not see
    log = np.log(10)
    evictable = 1000.0
    rows = rows.assign(
        suite=suite,
        shard_id=f"{suite}.{model}.prose.000",
        model=model,
        task="prose",
        example_id=[f"prose-{at:04d}" for at in rows["at"]],
        present=True,
        score=score,
        evictable=evictable,
        expected_kept=rows["budget"] * evictable,
        kept=np.round(rows["budget"] * evictable),
        tail_kept=60.0,
        uniform_kept=np.round(rows["budget"] * evictable),
        norm=norm,
        estimate_norm=norm,
        hajek=missed * scale * np.exp(0.3 * bits.normal(size=n)),
        no_offset=1.6 * missed * scale * np.exp(0.3 * bits.normal(size=n)),
        topk=1.3 * scale * np.exp(0.3 * bits.normal(size=n)),
        uniform=5 * scale * np.exp(0.3 * bits.normal(size=n)),
        variance=variance,
        largest=largest,
        certificate=(np.sqrt(2 * variance * log) + largest * log) / norm,
        rare_attention=bits.beta(0.4, 4, n),
    )
    rows["covered"] = (rows["hajek"] <= rows["certificate"]).astype(float)
    return _typed(rows.drop(columns="at"))


def worlds(*, suite="attention", model="small", prompts=2, changed=6, layers=3, heads=9, seed=0):
    """Top-k's error moves from world to world while its statistics do not."""
    bits = np.random.Generator(np.random.PCG64(seed + 1))
    axes = (CHANGES, range(prompts), range(changed + 1), range(layers), range(heads))
    rows = pd.DataFrame(list(itertools.product(*axes)), columns=["change", "at", "world", "layer", "head"])
    n = len(rows)
    topk = 0.1 * np.exp(0.6 * bits.normal(size=n) + 1.2 * rows["layer"] / layers)
    rows = rows.assign(
        suite=suite,
        shard_id=f"{suite}.{model}.prose.000",
        model=model,
        task="prose",
        example_id=[f"prose-{at:04d}" for at in rows["at"]],
        present=True,
        budget=0.25,
        seed=0.0,
        offset=8.0,
        score="window",
        statistics=[f"{at:032x}{layer:032x}" for at, layer in zip(rows["at"], rows["layer"], strict=True)],
        topk=topk,
        hajek=0.8 * topk,
        certificate=2.5 * topk,
        covered=(bits.uniform(size=n) < 0.97).astype(float),
    )
    return _typed(rows.drop(columns="at"))


def study(cells, worlds=None, *, problems=(), absences=None):
    """What `analysis.describe.attention` reads of a study."""
    return SimpleNamespace(
        name="made",
        cells=cells,
        worlds=cells.iloc[:0].assign(change="") if worlds is None else worlds,
        problems=tuple(problems),
        absences=absences or {},
        delta=0.1,
        remarks={},
    )


def _typed(rows):
    return rows.assign(**{name: pd.Categorical(rows[name]) for name in PLACE if name in rows})
