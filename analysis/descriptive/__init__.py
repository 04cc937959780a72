"""Numbers that describe what claims are about: one module a part, listed here in the order of the pages."""

from collections.abc import Callable

from analysis.descriptive.accuracy import accuracy
from analysis.descriptive.anchors import anchors
from analysis.descriptive.budgets import budgets
from analysis.descriptive.cells import cells
from analysis.descriptive.conditions import conditions
from analysis.descriptive.context_dependence import context_dependence
from analysis.descriptive.contexts import contexts
from analysis.descriptive.cost import cost
from analysis.descriptive.coverage import coverage
from analysis.descriptive.induced import induced
from analysis.descriptive.per_model import per_model
from analysis.descriptive.signal_panel import signal_panel
from analysis.descriptive.tax import tax
from analysis.descriptive.verdicts import verdicts
from analysis.parts import Part
from analysis.scope import Scope

BUILDERS: tuple[Callable[[Scope], Part | None], ...] = (
    verdicts,
    induced,
    accuracy,
    per_model,
    signal_panel,
    context_dependence,
    conditions,
    cells,
    coverage,
    tax,
    anchors,
    cost,
    budgets,
    contexts,
)
