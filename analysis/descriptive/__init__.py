"""Numbers that describe what claims are about: one module a part, listed here in the order of the pages."""

from collections.abc import Callable

from analysis.descriptive.budgets import budgets
from analysis.descriptive.cost import cost
from analysis.descriptive.per_model import per_model
from analysis.parts import Part
from analysis.scope import Scope

BUILDERS: tuple[Callable[[Scope], Part | None], ...] = (
    per_model,
    cost,
    budgets,
)
