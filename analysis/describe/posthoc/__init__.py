"""Analyses conceived after data were seen, in the paper or here: one module a part, in page order.

A `Part` has no verdict, and nothing here is imported before the verdicts are written.
"""

from collections.abc import Callable

from analysis.describe.parts import Part
from analysis.describe.posthoc.attribution import attribution
from analysis.describe.posthoc.disagreement import disagreement
from analysis.describe.posthoc.questions import questions
from analysis.describe.posthoc.recomputation import recomputation
from analysis.describe.scope import Scope

BUILDERS: tuple[Callable[[Scope], Part | None], ...] = (
    questions,
    attribution,
    recomputation,
    disagreement,
)
