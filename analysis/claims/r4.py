"""R4: does escalating on the certificate beat escalating at random, at the same cost?"""

from analysis.core import statistics
from analysis.core.data import Data
from analysis.core.estimates import Estimate

QUANTITIES = {"aware": (-1, 1), "stream": (-1, 1)}


def quantities(data: Data) -> dict[str, Estimate]:
    """`aware`, `stream`: success if the top share q by signal moves to the larger budget, minus chance.

    Rows are ranked within (condition, seed). A moved row takes the outcome of its condition and seed at the
    larger budget. Chance is the exact expectation of moving a random share q. Seeds are averaged.
    """
    return {condition: _gain(data, condition) for condition in ("aware", "stream")}


def _gain(data: Data, condition: str) -> Estimate:
    read = data.parameters
    signal, q = read.signal("signal"), read.number("q", 0, 1)
    small, large = read.number("from_budget", 0, 1), read.number("to_budget", 0, 1)
    if q in (0, 1) or small >= large:
        raise read.mistake("q must move some rows but not all, and to a larger budget")
    data.chosen("budget", small)
    data.chosen("budget", large)
    gains = []
    for by_seed in data.split(data.chosen("condition", condition), "seed").values():
        before, after = by_seed[by_seed["budget"] == small], by_seed[by_seed["budget"] == large]
        gains.append(statistics.difference(*data.gate(before, after, signal, q)))
    return data.estimate(statistics.mean(gains))
