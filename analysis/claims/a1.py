"""A1: does the certificate cover the true error of the attention output?"""

from analysis.core import statistics
from analysis.core.data import CellData
from analysis.core.estimates import Estimate

QUANTITIES = {"coverage": (0, 1)}


def quantities(data: CellData) -> dict[str, Estimate]:
    """`coverage`: share of covered cells at the budget where it is smallest."""
    shares = {budget: data.coverage(rows) for budget, rows in data.by_budget().items()}
    worst = data.estimate(statistics.smallest(list(shares.values())))
    return {"coverage": worst.noted(data.beside(shares))}
