"""R3: does the certificate at least match the output log-probability on the same rows?"""

from analysis.core import statistics
from analysis.core.data import Data
from analysis.core.estimates import Estimate

QUANTITIES = {"gain": (-1, 1)}


def quantities(data: Data) -> dict[str, Estimate]:
    """`gain`: paired difference of the two AUCs, signal minus rival."""
    names = data.parameters.signal("signal"), data.parameters.signal("rival")
    aucs = data.paired_aucs(data.counted, *names)
    points = [data.point(auc) for auc in aucs]
    beside = ", ".join(f"{name} {point}" for name, point in zip(names, points, strict=True))
    return {"gain": data.estimate(statistics.difference(*aucs)).noted(beside)}
