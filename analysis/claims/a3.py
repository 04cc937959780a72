"""A3: does Poisson eviction with the Hajek offset pay an accuracy tax against top-k at the same budget?"""

from analysis.core import statistics
from analysis.core.data import CellData
from analysis.core.estimates import Estimate

QUANTITIES = {"difference": (-1e30, 1e30)}


def quantities(data: CellData) -> dict[str, Estimate]:
    """`difference`: median true error of Poisson minus that of top-k, at the budget where it is largest."""
    taxes = {
        budget: statistics.difference(data.median(rows, "hajek"), data.median(rows, "topk"))
        for budget, rows in data.by_budget().items()
    }
    worst = data.estimate(statistics.largest(list(taxes.values())))
    return {"difference": worst.noted(data.beside(taxes))}
