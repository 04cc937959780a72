"""A2: does the certificate rank cells as their true error does?"""

from analysis.core import statistics
from analysis.core.data import CellData
from analysis.core.estimates import Estimate

QUANTITIES = {"rho": (-1, 1)}


def quantities(data: CellData) -> dict[str, Estimate]:
    """`rho`: Spearman of certificate and true error, all cells pooled, at the budget where it is smallest."""
    ranks = {budget: data.spearman(rows, "certificate", "hajek") for budget, rows in data.by_budget().items()}
    worst = data.estimate(statistics.smallest(list(ranks.values())))
    return {"rho": worst.noted(data.beside(ranks))}
