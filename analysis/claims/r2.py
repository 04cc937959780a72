"""R2: is every signal of a deterministic arm blind to its own arm's failures?"""

from analysis import statistics
from analysis.data import Data
from analysis.statistics import Estimate, Statistic


def quantities(data: Data) -> dict[str, Estimate]:
    """The strongest deterministic signal, how many are visible, and the certificate beside them.

    `strongest` is the largest AUC of the panel with that signal's own interval; `visible` counts signals
    that reach a level with an interval off chance; `certificate` is the AUC on the randomised arm.
    """
    read = data.parameters
    floor, chance, is_folded = (
        read.number("visible_from"),
        read.number("chance"),
        read.flag("folded"),
    )
    by_arm = data.split(data.counted, "arm")
    nothing = data.counted.iloc[:0]

    def estimate(arm: str, signal: str) -> Estimate:
        statistic: Statistic = data.auc(by_arm.get(arm, nothing), signal)
        return data.estimate(statistics.folded(statistic) if is_folded else statistic)

    def is_visible(auc: Estimate) -> bool:
        lo, hi = auc.lo or 0.0, auc.hi or 0.0
        return (auc.value or 0.0) >= floor and (lo > chance or hi < chance)

    panel = {f"{arm} {signal}": estimate(arm, signal) for arm, signal in read.panel("panel")}
    return {
        "strongest": _strongest(panel),
        "visible": statistics.count(list(panel.values()), is_visible),
        "certificate": estimate(read.text("certificate_arm"), read.signal("certificate")),
    }


def _strongest(panel: dict[str, Estimate]) -> Estimate:
    for name, auc in panel.items():
        if auc.value is None:
            return Estimate(None, undefined=f"{name}: {auc.undefined}")
    name, auc = max(panel.items(), key=lambda item: item[1].value or 0.0)
    return auc.noted(name)
