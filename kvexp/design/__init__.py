"""Selection designs, one file each: a score and a budget become a keep plan with known pi."""

from kvexp.design.base import Design, KeepPlan, drawn_plan, fixed_plan

__all__ = ["Design", "KeepPlan", "drawn_plan", "fixed_plan"]
