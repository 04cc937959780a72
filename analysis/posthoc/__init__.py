"""Analyses conceived after data were seen, in the paper or here: one module a part, in page order.

A `Part` has no verdict, and nothing here is imported before the verdicts are written.
"""

from collections.abc import Callable

from analysis.parts import Part
from analysis.posthoc.attribution import attribution
from analysis.posthoc.disagreement import disagreement
from analysis.posthoc.questions import questions
from analysis.posthoc.recomputation import recomputation
from analysis.scope import Scope

BUILDERS: tuple[Callable[[Scope], Part | None], ...] = (
    questions,
    attribution,
    recomputation,
    disagreement,
)
