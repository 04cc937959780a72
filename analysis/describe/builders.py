"""Numbers that describe what claims are about: one module a part, listed here in the order of the pages."""

from collections.abc import Callable

from analysis.describe.accuracy import accuracy
from analysis.describe.anchors import anchors
from analysis.describe.budgets import budgets
from analysis.describe.cells import cells
from analysis.describe.conditions import conditions, context_dependence
from analysis.describe.contexts import contexts
from analysis.describe.cost import cost
from analysis.describe.coverage import coverage
from analysis.describe.induced import induced
from analysis.describe.parts import Part
from analysis.describe.per_model import per_model
from analysis.describe.scope import Scope
from analysis.describe.signal_panel import signal_panel
from analysis.describe.tax import tax
from analysis.describe.verdicts import verdicts

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
