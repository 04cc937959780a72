"""Selection designs, one file each: a score and a budget become a keep plan with known pi."""

from kvexp import plugins
from kvexp.design.base import Design, KeepPlan, drawn_plan, fixed_plan

__all__ = ["Design", "KeepPlan", "design", "drawn_plan", "fixed_plan"]


def design(name: str, **params: object) -> Design:
    """The design that `design/<name>.py` defines, with its parameters set."""
    return plugins.build(__name__, name, Design, params)
