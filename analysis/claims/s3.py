"""S3: does randomising the kept set cost accuracy at the harshest budget?"""

from analysis.core import statistics
from analysis.core.data import Data
from analysis.core.estimates import Estimate

QUANTITIES = {"tax": (-1, 1)}


def quantities(data: Data) -> dict[str, Estimate]:
    """`tax`: success of the deterministic arm minus success of the randomised one, mean of its seeds."""
    deterministic = data.rate(data.chosen("arm", data.parameters.text("deterministic")))
    randomised = data.chosen("arm", data.parameters.text("randomised"))
    seeds = [data.rate(rows) for rows in data.split(randomised, "seed").values()]
    average = statistics.mean(seeds)
    beside = f"deterministic {data.point(deterministic)}, randomised {data.point(average)}"
    return {"tax": data.estimate(statistics.difference(deterministic, average)).noted(beside)}
