"""S1: does the damage rise with the length of the context?"""

from analysis.core import statistics
from analysis.core.data import Data
from analysis.core.estimates import Estimate

QUANTITIES = {"rise": (-1, 1)}


def quantities(data: Data) -> dict[str, Estimate]:
    """`rise`: the population's rate in the longer suite minus its rate in the shorter suite."""
    names = data.parameters.text("longer"), data.parameters.text("shorter")
    rates = [data.rate(data.chosen("suite", name)) for name in names]
    points = [data.point(rate) for rate in rates]
    beside = ", ".join(f"{name} {point}" for name, point in zip(names, points, strict=True))
    return {"rise": data.estimate(statistics.difference(*rates)).noted(beside)}
