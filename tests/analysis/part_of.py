"""Parts by their keys, as modules of the description make them."""

from analysis.describe import anchors, cells, coverage, rates, signals, sizes, tax, two_draws
from analysis.describe import recomputation as recomputed


def part_of(module, key, scope):
    """The part of a module with this key; None if it has nothing to say."""
    return next((part for part in module.describe(scope) if part.key == key), None)


def maker(module, key):
    return lambda scope: part_of(module, key, scope)


induced, accuracy = maker(rates, "induced"), maker(rates, "accuracy")
signal_panel, questions = maker(signals, "signal-panel"), maker(signals, "questions")
per_model, conditions, in_cells = (maker(cells, key) for key in ("per-model", "conditions", "cells"))
risk_coverage, of_anchors, price = maker(coverage, "coverage"), maker(anchors, "anchors"), maker(tax, "tax")
cost, budgets, contexts = (maker(sizes, key) for key in ("cost", "budgets", "contexts"))
attribution, disagreement = maker(two_draws, "attribution"), maker(two_draws, "two-draws")
recomputation = maker(recomputed, "recomputation")
