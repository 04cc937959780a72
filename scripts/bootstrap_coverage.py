"""How often does the 95 % cluster-bootstrap interval of an AUC and of a rate hold the truth?

Rows are clustered: every cluster has models x rows answers that share a part of their difficulty and of the
signal's noise, like the answers to one example, and clusters are resampled within two strata, like tasks. The
truth is exact for the rate and the AUC's expectation over independent rows. Statistics and resamples are
those that claims use, 500 draws as registered.
"""

import argparse
import math
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # analysis and scripts are not installed

from analysis.core import statistics
from analysis.core.estimates import Estimate, Resamples
from scripts.planting.draws import normals
from scripts.planting.wanted import below

DRAWS, LEVEL = 500, 0.95
ROWS = 8  # of a cluster
SHARED = 0.3  # of the variance of difficulty and of noise, common to a cluster
RATES = (0.1, 0.4)
DISTANCE = 0.8  # of the signal's means, in standard deviations
LOW, HIGH = 0.93, 0.97
MOST = 256  # a spawned worker starts in a second; more simulations at once balance nothing


@dataclass(frozen=True)
class Planted:
    """One simulation's clusters: (rows,) each."""

    cluster: np.ndarray
    stratum: np.ndarray  # (clusters,)
    failed: np.ndarray
    signal: np.ndarray


def plant(clusters: int, rate: float, seed: int) -> Planted:
    """Rows whose failures and signals are alike within a cluster; lines of the table share no draws."""
    n, key = clusters * ROWS, (clusters, rate, seed)
    cluster = np.repeat(np.arange(clusters), ROWS)

    def alike(name: str) -> np.ndarray:
        shared = normals(clusters, *key, name, "shared")[cluster]
        return math.sqrt(SHARED) * shared + math.sqrt(1 - SHARED) * normals(n, *key, name, "own")

    failed = below(alike("difficulty")) < rate
    return Planted(cluster, np.arange(clusters) % 2, failed, alike("noise") + DISTANCE * failed)


def estimates(clusters: int, rate: float, seed: int) -> tuple[Estimate, Estimate]:
    """AUC and rate of one simulation, as a claim would have them."""
    rows = plant(clusters, rate, seed)
    ids = np.arange(len(rows.cluster))
    drawn = Resamples(
        rows.cluster, rows.stratum, draws=DRAWS, level=LEVEL, min_clusters=10, undefined_max=0.01, seed=seed
    )
    return (
        drawn.estimate(statistics.auc(rows.signal, rows.failed, rows.cluster, ids)),
        drawn.estimate(statistics.rate(rows.failed, rows.cluster, ids)),
    )


def holds(found: Estimate, truth: float) -> bool:
    """Whether an interval holds the truth."""
    assert found.lo is not None
    assert found.hi is not None
    return found.lo <= truth <= found.hi


def both(clusters: int, rate: float, seed: int) -> tuple[bool, bool, float, float]:
    """Whether each interval holds its truth, and their widths."""
    auc, share = estimates(clusters, rate, seed)
    true_auc = float(below(np.array([DISTANCE / math.sqrt(2)]))[0])
    widths = [(one.hi or 0.0) - (one.lo or 0.0) for one in (auc, share)]
    return holds(auc, true_auc), holds(share, rate), widths[0], widths[1]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bootstrap_coverage.py", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--simulations", type=int, default=4000, help="of each line (default: 4000)")
    parser.add_argument("--clusters", type=int, nargs="+", default=[400, 500], help="(default: 400 500)")
    parser.add_argument("--processes", type=int, default=2, help="(default: 2)")
    options = parser.parse_args(arguments)
    if options.simulations < 1 or options.processes < 1 or min(options.clusters) < 10:
        parser.error("simulations and processes start at 1, clusters at 10")
    started, is_fine = time.perf_counter(), True
    print(
        "| clusters | rows | rate | statistic | covered | +/- | mean width |\n|---|---|---|---|---|---|---|"
    )
    with ProcessPoolExecutor(options.processes) as pool:
        for clusters in options.clusters:
            for rate in RATES:
                seeds = range(options.simulations)
                step = max(1, min(MOST, options.simulations // options.processes // 4))
                found = np.array(list(pool.map(partial(both, clusters, rate), seeds, chunksize=step)))
                for at, name in enumerate(("AUC", "rate")):
                    covered = float(found[:, at].mean())
                    error = 1.96 * math.sqrt(covered * (1 - covered) / options.simulations)
                    is_fine = is_fine and LOW <= covered <= HIGH
                    width = found[:, 2 + at].mean()
                    place = f"| {clusters} | {clusters * ROWS:,} | {rate} | {name}"
                    print(f"{place} | {covered:.1%} | {error:.1%} | {width:.4f} |", flush=True)
    print(f"\n{options.simulations:,} simulations a line, {time.perf_counter() - started:.0f} s")
    if not is_fine:
        print(f"a coverage lies outside {LOW:.0%} to {HIGH:.0%}", file=sys.stderr)
    return int(not is_fine)


if __name__ == "__main__":
    sys.exit(main())
