"""R2: is every signal of a deterministic arm blind to its own arm's failures?"""

from analysis.core import statistics
from analysis.core.data import Data
from analysis.core.estimates import Estimate, Statistic

QUANTITIES = {"strongest": (0, 1), "visible": "count", "certificate": (0, 1)}


def quantities(data: Data) -> dict[str, Estimate]:
    """The strongest deterministic signal, the number of visible signals, and the certificate.

    `strongest` is the largest AUC of the panel, with that signal's own interval. `visible` counts signals
    that reach a level with an interval off chance. `certificate` is its AUC on the randomised arm. With
    `folded`, an AUC x counts as max(x, 1 - x). Whether an interval is off chance is decided on the unfolded
    interval, since a folded interval lies above 1/2 even for noise.
    """
    read = data.parameters
    floor, chance = read.number("visible_from", 0, 1), read.number("chance", 0, 1)
    is_folded = read.flag("folded")

    def auc_of(arm: str, signal: str) -> Statistic:
        return data.auc(data.chosen("arm", arm), signal)

    def shown(auc: Statistic) -> Estimate:
        return data.estimate(statistics.folded(auc) if is_folded else auc)

    def is_visible(auc: Estimate) -> bool:
        value = auc.value or 0.0
        reached = max(value, 1 - value) if is_folded else value
        return reached >= floor and ((auc.lo or 0.0) > chance or (auc.hi or 0.0) < chance)

    panel = {f"{arm} {signal}": auc_of(arm, signal) for arm, signal in read.panel("panel")}
    unfolded = {name: data.estimate(auc) for name, auc in panel.items()}
    seen = {name: shown(auc) for name, auc in panel.items()} if is_folded else unfolded
    return {
        "strongest": _strongest(seen),
        "visible": statistics.count(list(unfolded.values()), is_visible),
        "certificate": shown(auc_of(read.text("certificate_arm"), read.signal("certificate"))),
    }


def _strongest(panel: dict[str, Estimate]) -> Estimate:
    for name, auc in panel.items():
        if auc.value is None:
            return Estimate(None, undefined=f"{name}: {auc.undefined}")
    name, auc = max(panel.items(), key=lambda item: item[1].value or 0.0)
    return auc.noted(name)
