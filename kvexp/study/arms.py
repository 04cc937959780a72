"""From an arm's configuration to its places on the grid: which score and design each one gets."""

from kvexp.errors import ConfigError, named
from kvexp.replay.arm import Arm
from kvexp.scores.base import Score
from kvexp.study.plugins import build_design, build_score
from kvexp.study.schema import ArmConf, ArmGrid


def places(conf: ArmConf, entry: ArmGrid) -> list[Arm]:
    """One arm at its places of the grid. Raises ConfigError for a composition that means nothing."""
    with named(f"conf/arm/{conf.name}.yaml"):
        chosen = build_design(conf.design, **conf.design_params)
        if conf.estimator == "hajek" and not chosen.is_random:
            raise ConfigError(f"the hajek estimator needs a random design, {conf.design} is fixed")
        if chosen.uses_score and conf.score is None:
            raise ConfigError(f"the {conf.design} design needs a score")
        scores = {condition: _score(conf, condition) for condition in entry.conditions}
    if chosen.keeps_all:
        if entry.conditions or entry.budgets or entry.seeds:
            raise ConfigError(f"arm {conf.name}: the full cache has no condition, budget or seed")
        return [Arm(conf.name, None, chosen, conf.estimator)]
    if not entry.conditions or not entry.budgets:
        raise ConfigError(f"arm {conf.name}: give it conditions and budgets")
    if chosen.is_random != bool(entry.seeds):
        need = "needs seeds" if chosen.is_random else "draws nothing and has no seeds"
        raise ConfigError(f"arm {conf.name}: the {conf.design} design {need}")
    seeds: list[int | None] = [*entry.seeds] or [None]
    return [
        Arm(conf.name, scores[condition], chosen, conf.estimator, condition, budget, seed)
        for condition in entry.conditions
        for budget in entry.budgets
        for seed in seeds
    ]


def _score(conf: ArmConf, condition: str) -> Score | None:
    name, params = conf.score, conf.score_params
    if condition == "aware" and conf.aware_score is not None:
        name, params = conf.aware_score, conf.aware_score_params
    if name is None:
        return None
    chosen = build_score(name, **params)
    if condition not in chosen.conditions:
        raise ConfigError(f"the {name} score is undefined in the {condition} condition")
    return chosen
