"""S2: does the certificate's AUC recover on longer contexts?"""

from analysis.core.data import Data
from analysis.core.estimates import Estimate

QUANTITIES = {"auc_pooled": (0, 1)}


def quantities(data: Data) -> dict[str, Estimate]:
    """`auc_pooled`: AUC over all rows."""
    signal = data.parameters.signal("signal")
    return {
        "auc_pooled": data.estimate(data.auc(data.counted, signal)).noted(
            data.auc_beside(data.counted, signal)
        )
    }
