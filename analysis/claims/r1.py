"""R1: does the certificate predict the arm's own failure on the main tasks?"""

from analysis.core import statistics
from analysis.core.data import Data
from analysis.core.estimates import Estimate

QUANTITIES = {"auc_pooled": (0, 1), "models_above": "count"}


def quantities(data: Data) -> dict[str, Estimate]:
    """`auc_pooled`: AUC over all rows. `models_above`: number of models whose interval lies above chance."""
    signal, chance = data.parameters.signal("signal"), data.parameters.number("chance", 0, 1)
    by_model = {
        model: data.estimate(data.auc(rows, signal))
        for model, rows in data.split(data.counted, "model").items()
    }
    above = statistics.count(list(by_model.values()), lambda auc: (auc.lo or 0.0) > chance)
    return {
        "auc_pooled": data.estimate(data.auc(data.counted, signal)).noted(
            data.auc_beside(data.counted, signal)
        ),
        "models_above": above.noted(", ".join(f"{model} {auc}" for model, auc in by_model.items())),
    }
