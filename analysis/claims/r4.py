"""R4: does escalating on the certificate beat escalating at random, at the same cost?"""

from analysis import statistics
from analysis.data import Data
from analysis.statistics import Estimate


def quantities(data: Data) -> dict[str, Estimate]:
    """`aware`, `stream`: success when the top share q by signal moves to the larger budget, minus chance.

    Ranked within (condition, seed); each row takes the outcome of the same condition and seed. Chance is
    the exact expectation of moving a random share q. Seeds are averaged.
    """
    return {condition: _gain(data, condition) for condition in ("aware", "stream")}


def _gain(data: Data, condition: str) -> Estimate:
    read = data.parameters
    signal, q = read.signal("signal"), read.number("q")
    small, large = read.number("from_budget"), read.number("to_budget")
    rows = data.counted[data.counted["condition"] == condition]
    gains = []
    for by_seed in data.split(rows, "seed").values():
        before, after = by_seed[by_seed["budget"] == small], by_seed[by_seed["budget"] == large]
        gains.append(statistics.difference(*data.gate(before, after, signal, q)))
    return data.estimate(statistics.mean(gains))
