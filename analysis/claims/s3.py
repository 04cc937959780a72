"""S3: does randomising the kept set cost accuracy at the harshest budget?"""

from analysis import statistics
from analysis.data import Data
from analysis.statistics import Estimate


def quantities(data: Data) -> dict[str, Estimate]:
    """`tax`: success of the deterministic arm minus success of the randomised one, mean of its seeds."""
    by_arm, nothing = data.split(data.counted, "arm"), data.counted.iloc[:0]
    deterministic = data.rate(by_arm.get(data.parameters.text("deterministic"), nothing))
    randomised = by_arm.get(data.parameters.text("randomised"), nothing)
    seeds = [data.rate(rows) for rows in data.split(randomised, "seed").values()]
    average = statistics.mean(seeds)
    beside = f"deterministic {data.point(deterministic)}, randomised {data.point(average)}"
    return {"tax": data.estimate(statistics.difference(deterministic, average)).noted(beside)}
